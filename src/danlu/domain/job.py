"""A job: its data, its states, and the legal moves between the states."""

import re
import signal
from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, NewType

from danlu.domain.parsing import Notice, parse_array
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Ask, Seat
from danlu.errors import DanluError, Invalid

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)

DEFAULT_PRIORITY = 5
DEFAULT_UMASK = 0o022
SNAPSHOT_ID_LENGTH = 32  # hexadecimal digits


class JobState(StrEnum):
    QUEUED = "QUEUED"
    STARTING = "STARTING"  # run id stored (and the seat, if plan() chose a seat); the engine is asked to start the run
    PENDING = "PENDING"  # the engine has the job; the job waits in the engine's own queue
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"  # the job died with its machine or its supervisor; the outcome is unknown

    @property
    def is_ended(self) -> bool:
        return self in ENDED

    @property
    def is_given(self) -> bool:
        """The engine has the job: the job has a run, and counts against quotas."""
        return self in GIVEN


ENDED = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT, JobState.LOST},
)
GIVEN = frozenset({JobState.STARTING, JobState.PENDING, JobState.RUNNING})
ACTIVE = GIVEN | {JobState.QUEUED}

# A very short run may end before the server observes it running. A retry goes back to the queue. An engine with its own
# queue may put a run back there after the run's node is lost.
_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELLED, JobState.FAILED}),
    JobState.STARTING: frozenset({JobState.PENDING, JobState.RUNNING, JobState.QUEUED}) | ENDED,
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.QUEUED}) | ENDED,
    JobState.RUNNING: frozenset({JobState.PENDING, JobState.QUEUED}) | ENDED,
    **dict.fromkeys(ENDED, frozenset[JobState]()),
}


LONGEST_REASON = 1_000  # a reason may quote a user's text, and job lists show the reason
# The start of the detail in a stored reason: ` (Name: message of that system`. The detail has no column of its own.
_DETAIL = re.compile(r" \((?=[A-Z][a-z]+: )")
# Suffix of a code: the engine has only just received the run, and will soon give a better reason.
_NEW = "_new"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits or ended: a stable code, a sentence for people, and a detail. Only people with the right to see
    the command see the detail: it quotes another system literally, and such a message may contain anything."""

    code: str
    text: str
    detail: str = ""  # continues the sentence: ` (Engine: Invalid qos)`

    @classmethod
    def read(cls, code: str, written: str) -> "Reason":
        """Parse a reason stored as `full_text`."""
        found = _DETAIL.search(written)
        return cls(code, written[: found.start()], written[found.start() :]) if found else cls(code, written)

    @property
    def full_text(self) -> str:
        return f"{self.text}{self.detail}"

    @property
    def is_new(self) -> bool:
        """The engine has not considered the run yet."""
        return self.code.endswith(_NEW)

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", str(self.code))  # databases and JSON take plain text
        if len(self.text) > LONGEST_REASON:
            object.__setattr__(self, "text", f"{self.text[: LONGEST_REASON - 1]}…")


def describe_exit(code: int | None) -> str:
    """`139` -> killed by SIGSEGV."""
    if code is None:
        return "ended, and nobody knows how"
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        return f"killed by {signal.Signals(code - 128).name} (exit code {code})"
    return f"exited with code {code}"


@dataclass(frozen=True, slots=True)
class Dependency:
    """Wait for a job, or for all tasks of an array, to end (`ok`: with success)."""

    on: str
    kind: str = "ok"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The submitted options. The spec never changes after submit; all tasks of an array share the same spec."""

    command: tuple[str, ...]
    workdir: str
    ask: Ask = Ask()
    name: str = ""
    priority: int = DEFAULT_PRIORITY
    time_limit: timedelta | None = None
    notice: Notice | None = None
    retries: int = 0
    env: tuple[tuple[str, str], ...] = ()  # variables from --env
    labels: tuple[tuple[str, str], ...] = ()
    after: tuple[Dependency, ...] = ()
    array: str = ""  # as written: `1-10%2`
    at_once: int | None = None
    snapshot: str = ""  # id of the code snapshot to run in, or empty: run in workdir
    umask: int = DEFAULT_UMASK  # permissions of the files that the job creates
    environ: str = ""  # id of the submitter's environment, kept while the job is active
    team: str = ""  # the quota and the visibility of the job depend on the team
    queue: str = ""
    is_preemptible: bool = False  # may be asked to checkpoint and go back to the queue
    is_interactive: bool = False  # a person works in the job

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise Invalid("a job needs a command", "for example `danlu run -- python train.py`")
        if any("\0" in word for word in self.command) or "\0" in self.workdir:
            raise Invalid("a command or folder cannot contain a NUL character")
        if not 1 <= self.priority <= 9:
            raise Invalid(f"--priority goes from 1 to 9 (9 first), not {self.priority}")
        if not 0 <= self.retries <= 100:
            raise Invalid(f"--retries goes from 0 to 100, not {self.retries}")
        if len(self.name) > 200 or any(ord(c) < 32 for c in self.name):
            raise Invalid("--name takes one line of at most 200 characters")
        if self.notice and self.time_limit and self.notice.lead >= self.time_limit:
            raise Invalid("--signal would be sent before the job starts", "use fewer seconds, or a longer --time")


@dataclass(frozen=True, slots=True)
class Job:
    """The current state of a job. Every change makes a new object with the next `version`."""

    id: JobId
    user: str
    spec: JobSpec
    submitted_at: datetime
    seq: int = 0  # order of submission, given by the store
    state: JobState = JobState.QUEUED
    reason: Reason = Reason(ReasonCode.QUEUED, "it is to be placed")
    attempt: int = 1
    version: int = 1
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    seats: tuple[Seat, ...] = ()  # a seat on each node of the job
    handle: str | None = None
    array_id: str = ""
    array_index: int | None = None
    waiting_for: tuple[Dependency, ...] = ()
    stop_requested_at: datetime | None = None
    notes: tuple[str, ...] = ()  # messages of the engine for people: "memory limit not enforced: …"
    given_back: int = 0  # attempts that made room for an owner or lost their node: these attempts are not tries
    requeued: int = 0  # how often the engine itself restarted the current run after the loss of a node

    @property
    def seat(self) -> Seat | None:
        """The first seat. Most jobs have a single seat."""
        return self.seats[0] if self.seats else None

    @property
    def run_id(self) -> RunId:
        """A run keeps its id if its engine restarts it: the id contains the first attempt of the run."""
        return RunId(f"{self.id}.{self.attempt - self.requeued}")

    @property
    def tries(self) -> int:
        """Attempts that count against `--retries`. The other attempts ended early through no fault of the job."""
        return self.attempt - self.given_back - self.requeued

    @property
    def number(self) -> str:
        """The order of submission as a short name: `7`; for a task, its array's number and its index: `7_3`."""
        return str(self.seq) if self.array_index is None else f"{self.group_number}_{self.array_index}"

    @property
    def group_number(self) -> int:
        """The number of the job, or of the array that it is a task of: that of the array's first task."""
        return self.seq if self.array_index is None else self.seq - _place_in(self.spec.array, self.array_index)

    @property
    def group(self) -> str:
        """The unit that waits in the queue: the array, or the job itself."""
        return self.array_id or self.id

    def moved(self, state: JobState, *, why: Reason, at: datetime, **changes: Any) -> "Job":
        """This job in another state. An illegal move is a bug and raises an error."""
        if state not in _MOVES[self.state]:
            raise DanluError(f"job {self.id} cannot go from {self.state} to {state}", code="illegal_move")
        if state.is_ended:
            # After the clock was set back, a job must still not end before its start.
            changes.setdefault("ended_at", max(at, self.started_at) if self.started_at else at)
        elif state is JobState.QUEUED:
            changes = {
                "attempt": self.attempt + 1,
                "started_at": None,
                "exit_code": None,
                "seats": (),
                "handle": None,
                "notes": (),
                "stop_requested_at": None,
                "given_back": self.given_back + self.requeued,
                "requeued": 0,
            } | changes
        return replace(self, state=state, reason=why, version=self.version + 1, **changes)

    def changed(self, **changes: Any) -> "Job":
        """This job with other fields, in the same state."""
        return replace(self, version=self.version + 1, **changes)


@lru_cache(maxsize=8)  # of the largest arrays, each takes 4 MB
def _indices(array: str) -> tuple[int, ...]:
    return parse_array(array).indices


def _place_in(array: str, index: int) -> int:
    """How many tasks of an array come before this one. Tasks are submitted together, so their numbers have no gaps."""
    return bisect_left(_indices(array), index)
