"""The store protocol. Every write is durable on return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from danlu.domain.charge import Charge
from danlu.domain.job import Job, JobId, JobState
from danlu.domain.people import AuditEntry, Role


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The jobs to list. Empty fields do not restrict."""

    states: frozenset[JobState] = frozenset()
    user: str = ""
    name: str = ""
    label: tuple[str, str] | None = None
    array_id: str = ""
    team: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first; `next_before` continues the list, None at the end."""

    jobs: tuple[Job, ...]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The progress of a job, or of all tasks of an array."""

    known: int
    active: int
    succeeded: int


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """The number of tasks in each state; `first_seq` is the smallest `seq` of the tasks, which have no gaps."""

    states: Mapping[JobState, int]
    first_seq: int


@dataclass(frozen=True, slots=True)
class PastRun:
    """An earlier attempt of a retried job."""

    job_id: JobId
    attempt: int
    state: JobState
    reason_code: str
    reason_text: str
    started_at: datetime | None
    ended_at: datetime
    exit_code: int | None
    node: str


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token: only its hash."""

    id: str
    digest: str
    user: str
    role: Role
    name: str
    created_at: datetime
    expires_at: datetime | None


class Store(Protocol):
    """Concurrent writes share a commit. Any method raises StoreDown if the database is not available."""

    async def open(self) -> Sequence[Job]:
        """Prepare the database (with migrations) and return every active job, in order of submission."""
        ...

    async def close(self) -> None: ...

    async def insert(
        self,
        jobs: Sequence[Job],
        *,
        key: str = "",
        environ: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> Sequence[Job]:
        """Store new jobs, all or none, and return them with their `seq`.

        `environ` is the submitter's environment under the jobs' `spec.environ` id. Equal environments are stored once,
        and removed when no active job needs them. A repeated insert with the same user and non-empty `key` returns the
        jobs of the first insert and adds none. A taken id raises Conflict. `audit` is written together with the new
        jobs or not at all.
        """
        ...

    async def by_key(self, user: str, key: str) -> Sequence[Job]:
        """The jobs that an insert of this user with this key has made, also one that was asked for just before."""
        ...

    async def update(
        self,
        jobs: Sequence[Job],
        past: Sequence[PastRun] = (),
        charges: Sequence[Charge] = (),
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Store new versions, all or none. Conflict unless each version replaces exactly its predecessor.

        `charges`: the usage of the runs that end with this update; charges stay when the jobs are removed. `audit` is
        written together with the new versions or not at all.
        """
        ...

    async def remove(self, ids: Sequence[JobId], audit: Sequence[AuditEntry] = ()) -> int:
        """Delete ended jobs, and return their number. Active and unknown jobs stay. `audit` is written only if a job
        was deleted."""
        ...

    async def get(self, job_id: str) -> Job | None: ...
    async def get_all(self, ids: Sequence[str]) -> Sequence[Job]:
        """The existing jobs among these ids, in any order."""
        ...

    async def numbered(self, seq: int) -> Job | None:
        """The job with this `seq`."""
        ...

    async def find(self, prefix: str, *, limit: int = 10) -> Sequence[str]:
        """Distinct ids of jobs and arrays with this prefix; an exact match is returned alone. An array hides its tasks
        unless the prefix is longer than the array's id."""
        ...

    async def latest(self, user: str, back: int = 0) -> str | None:
        """The id of the user's newest submission (an array counts once), or of the submission `back` before it."""
        ...

    async def page(self, wanted: JobFilter, *, limit: int, before: int | None = None) -> Page: ...
    async def outcome(self, ref: str) -> Outcome:
        """For the job or array with exactly this id."""
        ...

    async def array(self, array_id: str) -> ArraySummary: ...
    async def past_runs(self, job_id: JobId) -> Sequence[PastRun]: ...

    async def snapshots(self) -> frozenset[str]:
        """Every snapshot that a job needs, active or ended."""
        ...

    async def environ(self, environ_id: str) -> Mapping[str, str]:
        """Empty if unknown or no longer needed."""
        ...

    async def add_token(self, token: Token, audit: Sequence[AuditEntry] = ()) -> None:
        """Store a token and its audit entry, or neither."""
        ...

    async def tokens(self) -> Sequence[Token]: ...
    async def token(self, digest: str) -> Token | None: ...
    async def drop_token(self, token_id: str, audit: Sequence[AuditEntry] = ()) -> bool:
        """Whether the token existed. `audit` is written only then."""
        ...
