"""The interface between Danlu and the engines that run the jobs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType, Protocol, runtime_checkable

from danlu.domain.job import DEFAULT_PRIORITY, Reason, RunId
from danlu.domain.parsing import Notice
from danlu.domain.queue import Queue
from danlu.domain.resources import Ask, Node, Seat
from danlu.engines.settings import EngineSettings

Handle = NewType("Handle", str)


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of an engine. Other packages ask for abilities, never for the name of an engine."""

    places: bool = False  # the engine has its own queue and chooses the seats; else `plan()` chooses
    live_nodes: bool = False  # nodes, queues and external runs change by themselves: each tick reads all three
    many_nodes: bool = False  # a job may run on several nodes at once
    runs_as_submitter: bool = False  # its nodes know the Unix users: unless set otherwise, jobs run as their submitters


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that an engine needs to start a run."""

    handle: Handle
    run_id: RunId
    command: tuple[str, ...]
    workdir: str
    env: Mapping[str, str]  # the complete environment
    seat: Seat | None  # None: the engine chooses
    log_path: str  # the file of `Engine.logs`; empty for an engine that keeps logs elsewhere
    log_limit_bytes: int = 0  # 0: none
    umask: int = 0o022
    user: str = ""  # Unix user to run as; empty: the user of the engine
    time_limit: timedelta | None = None
    notice: Notice | None = None
    grace: timedelta = timedelta(seconds=30)
    # For engines that choose seats by themselves.
    ask: Ask = Ask()
    name: str = ""
    queue: str = ""
    team: str = ""
    priority: int = DEFAULT_PRIORITY
    is_boosted: bool = False  # goes before all other jobs of the same priority


def shm_notes(shm_mib: int, where: str) -> list[str]:
    """The notes for a run that asks for shared memory, on an engine that cannot enforce a share."""
    return [f"shared memory not enforced: all jobs of {where} share /dev/shm"] if shm_mib else []


class RunState(StrEnum):
    PENDING = "PENDING"  # accepted, waits in the engine's own queue
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    UNKNOWN = "UNKNOWN"  # the engine does not know this run


class Ending(StrEnum):
    EXITED = "exited"  # by itself, with `exit_code` (128+N after signal N)
    STOPPED = "stopped"  # on request
    TIMED_OUT = "timed_out"
    NOT_STARTED = "not_started"  # the command or its folder could not be used
    LOST = "lost"  # died with the machine or the supervisor; exit code unknown


@dataclass(frozen=True, slots=True)
class Observation:
    state: RunState
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ending: Ending | None = None
    exit_code: int | None = None
    reason: Reason | None = None  # text for people: why the run ended, or why the run is pending
    notes: tuple[str, ...] = ()  # limitations that users should know, e.g. "memory limit not enforced: …"
    seats: tuple[Seat, ...] = ()  # if the engine chose
    estimated_at: datetime | None = None  # expected start, if the engine knows
    attempt: int = 1  # how often the engine itself began the run: a requeue after a lost node counts up


@dataclass(frozen=True, slots=True)
class ExternalRun:
    """A run that did not come through Danlu. Danlu only shows and counts such a run, and stops it on request."""

    id: str  # the id for people, with the engine's prefix: `slurm:17`, a task of an array `slurm:17_3`
    handle: Handle
    user: str
    name: str
    state: RunState
    ask: Ask
    queue: str = ""
    seats: tuple[Seat, ...] = ()
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ends_at: datetime | None = None  # latest possible end; for an ended run, the actual end
    reason: Reason | None = None
    estimated_at: datetime | None = None  # expected start, if the engine knows
    tasks: int = 1  # number of array tasks that wait together


@dataclass(frozen=True, slots=True)
class NodeNow:
    """The current state of a node, as the engine reports: the resources in use, by any user."""

    state: str = ""
    why: str = ""  # an administrator's note about a node that takes no jobs
    cpus: int = 0
    memory_mib: int = 0
    gpus: tuple[int, ...] = ()  # whole cards
    shards: Mapping[int, int] = field(default_factory=dict)  # for each shared card: at least this many


class Engine(Protocol):
    """Each method may be repeated without harm; none waits for a run to change.
    Any method raises EngineDown when the engine cannot be reached; callers then change nothing."""

    name: str
    abilities: Abilities

    async def open(self, on_change: Callable[[], None]) -> None:
        """Open the engine. The engine calls `on_change` whenever `observe` would return something new."""
        ...

    async def close(self) -> None:
        """Close the engine. Runs go on."""
        ...

    async def inventory(self) -> Sequence[Node]: ...

    def handle(self, run_id: RunId) -> Handle:
        """The engine's name for a run, made and recorded before the start."""
        ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Begin runs. The same handle twice means the same run, even after a crash or reboot in between:
        a run that may have begun before the machine went down does not begin again; `observe` reports a lost run."""
        ...

    async def observe(self, handles: Collection[Handle]) -> Mapping[Handle, Observation]:
        """A single question for all runs. A run whose start is still on its way is missing from the answer."""
        ...

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        """Ask a run to end: notice signal and its lead, TERM, grace, KILL of the whole tree.
        A second stop with a shorter grace hastens the first. Unknown and ended runs are fine."""
        ...

    def ended(self) -> Collection[Handle]:
        """Ended runs before `forget`."""
        ...

    async def forget(self, handles: Collection[Handle]) -> None:
        """Drop these runs: the caller has recorded their ends."""
        ...

    def logs(self, run_id: RunId) -> "LogSource":
        """The output of a run. By run id alone: a log outlives the handle, and is needed before a handle exists."""
        ...


class LogSource(Protocol):
    """The log of a run, which may not exist yet or any more. Raises EngineDown while the log cannot be read."""

    @property
    def path(self) -> str:
        """The log file for people. Empty: the log is not a file."""
        ...

    async def size(self) -> int | None:
        """None: there is no readable log."""
        ...

    async def start_of_tail(self, lines: int) -> int:
        """The offset at which the last lines begin; 0 if there is no log."""
        ...

    def read(self, offset: int, length: int) -> AsyncIterator[bytes]:
        """A range, in large pieces. A shorter log ends the range early."""
        ...

    async def follow(self) -> "GrowingLog | None":
        """The growing log, until `close`. None: there is no log yet."""
        ...

    async def prepare(self) -> None:
        """Make an empty log, which a follower can watch from the start. A failure shows later, in the run itself."""
        ...

    async def remove(self) -> None:
        """Delete the log. A missing log is fine."""
        ...


class GrowingLog(Protocol):
    """A log with followers."""

    def growth(self) -> "asyncio.Future[None]":
        """Done at the next growth. Take the future before reading: otherwise a growth in between is missed."""
        ...

    async def read(self, offset: int) -> bytes:
        """Some bytes from `offset`; none if there are no more yet, or the log was removed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The input for building an engine."""

    settings: EngineSettings
    state_dir: str  # state folder of the server
    files_dir: str  # logs, snapshots and run folders; nodes of a cluster see this folder too
    nodes: Sequence[Node] = ()  # the nodes, for an engine without `live_nodes`


def _no_shared_dir(settings: EngineSettings, section: Any) -> str:
    return ""


def _nothing_to_check(section: Any) -> None:
    return


@dataclass(frozen=True, slots=True)
class EngineKind:
    """A value of `[engine] kind`. Reading the settings needs this much of an engine; only `build` imports the rest.
    `section` is the section of the configuration with the name of the kind, or None."""

    title: str  # the name for people
    abilities: Abilities
    build: Callable[[EngineSetup], Engine]
    shared_dir: Callable[[EngineSettings, Any], str] = _no_shared_dir  # the folder that nodes must see; empty: none
    check_section: Callable[[Any], None] = _nothing_to_check  # refuses an invalid section, whichever engine is used


class Stream(Protocol):
    """An interactive process inside a run."""

    async def read(self) -> tuple[str, bytes] | None:
        """The next output as ("stdout" | "stderr", bytes), or None after the end."""
        ...

    async def write(self, data: bytes) -> None: ...
    async def close_input(self) -> None: ...
    async def resize(self, rows: int, columns: int) -> None: ...
    async def wait(self) -> int: ...
    async def close(self) -> None:
        """The client is gone: hang up the process."""
        ...


@runtime_checkable
class SeesOthers(Protocol):
    """Optional: engines with other users beside Danlu."""

    async def others(self) -> Sequence[ExternalRun]:
        """As of the last look; the call costs the engine nothing. Ended runs stay in the list for a while."""
        ...

    def one_of(self, together: ExternalRun, ref: str) -> ExternalRun | None:
        """The task with this reference, among array tasks that wait together."""
        ...


@runtime_checkable
class NamesRuns(Protocol):
    """Optional: engines whose own tools use other names for runs."""

    prefix: str  # the prefix of these names, and of the ids of external runs: `slurm:`

    def name_of(self, handle: Handle) -> str:
        """The current name of the run in the engine, as in the ids of external runs: `slurm:17`. Empty: none yet, or no
        longer."""
        ...


@runtime_checkable
class KnowsNodes(Protocol):
    """Optional: engines that know the resources in use on a node better than the seats of runs show."""

    def nodes_now(self) -> Mapping[str, NodeNow]:
        """As of the last look, by node name."""
        ...


@runtime_checkable
class HasQueues(Protocol):
    """Optional: engines with their own queues."""

    def queues(self) -> Sequence[Queue]:
        """As of the last look, including closed queues."""
        ...

    def room_for(self) -> int:
        """How many more runs the queue of the engine takes."""
        ...

    async def reorder(self, first: Mapping[Handle, bool]) -> None:
        """Reorder waiting runs: `first` says for each run whether it now goes before others of the same priority."""
        ...


@runtime_checkable
class Reachable(Protocol):
    """Optional: required for devboxes, exec and SSH."""

    async def shell(
        self, handle: Handle, argv: tuple[str, ...], *, tty: bool, term: str = "xterm", rows: int = 0, columns: int = 0
    ) -> Stream:
        """Start `argv` in the run's environment, folder and limits. The process ends with the run.
        A missing command ends with 127 and a message on stderr. Raises Refused if the run is not running."""
        ...
