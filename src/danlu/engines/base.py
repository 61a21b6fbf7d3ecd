"""The seam between Danlu and what really runs the jobs."""

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
    """What an engine can do. Other rooms ask for these, never for the name of an engine."""

    places: bool = False  # it has a queue of its own and chooses the seats; else plan() chooses
    live_nodes: bool = False  # nodes, queues and external runs change by themselves: each tick asks for them
    many_nodes: bool = False  # one job may run on several nodes at once
    runs_as_submitter: bool = False  # its nodes know the Unix users: unless set otherwise, jobs run as their submitters


@dataclass(frozen=True, slots=True)
class Launch:
    """All that an engine needs to start a run."""

    handle: Handle
    run_id: RunId
    command: tuple[str, ...]
    workdir: str
    env: Mapping[str, str]  # the whole environment, complete
    seat: Seat | None  # None: the engine chooses
    log_path: str  # the file of `Engine.logs`; empty for an engine that keeps logs elsewhere
    log_limit_bytes: int = 0  # 0: none
    umask: int = 0o022
    user: str = ""  # Unix user to run as; empty: the engine's own
    time_limit: timedelta | None = None
    notice: Notice | None = None
    grace: timedelta = timedelta(seconds=30)
    # What an engine that chooses seats by itself has to know.
    ask: Ask = Ask()
    name: str = ""
    queue: str = ""
    team: str = ""
    priority: int = DEFAULT_PRIORITY
    is_boosted: bool = False  # before all others of its priority


def shm_notes(shm_mib: int, where: str) -> list[str]:
    """What a run is told that asks for shared memory, on an engine that cannot divide it."""
    return [f"shared memory not enforced: all jobs of {where} share /dev/shm"] if shm_mib else []


class RunState(StrEnum):
    PENDING = "PENDING"  # accepted, and waits in the engine's own queue
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    UNKNOWN = "UNKNOWN"  # the engine never heard of this run


class Ending(StrEnum):
    EXITED = "exited"  # by itself, with `exit_code` (128+N after signal N)
    STOPPED = "stopped"  # because it was asked to
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
    reason: Reason | None = None  # what a person should read about the end, or about why it is pending
    notes: tuple[str, ...] = ()  # limits of this run worth telling, e.g. "memory limit not enforced: …"
    seats: tuple[Seat, ...] = ()  # where it runs, if the engine chose
    estimated_at: datetime | None = None  # when it may start, if the engine knows
    attempt: int = 1  # how often the engine itself began it: a requeue after a lost node counts up


@dataclass(frozen=True, slots=True)
class ExternalRun:
    """A run that did not come through Danlu: it is shown, counted, and can be stopped; nothing else is done to it."""

    id: str  # what people call it, with the engine's prefix: `slurm:17`, a task of an array `slurm:17_3`
    handle: Handle
    user: str
    name: str
    state: RunState
    ask: Ask
    queue: str = ""
    seats: tuple[Seat, ...] = ()
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ends_at: datetime | None = None  # at the latest; of one that is over, when it was
    reason: Reason | None = None
    estimated_at: datetime | None = None  # when it may start, if the engine knows
    tasks: int = 1  # of an array that wait together


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node at this moment, in the engine's own words: what is taken of it, by whomever."""

    state: str = ""
    why: str = ""  # what somebody wrote about a node that takes no jobs
    cpus: int = 0
    memory_mib: int = 0
    gpus: tuple[int, ...] = ()  # whole cards
    shards: Mapping[int, int] = field(default_factory=dict)  # of each card that is shared: so many at least


class Engine(Protocol):
    """Each verb may be repeated without harm; none waits for a run to change.
    Any verb raises EngineDown when the engine cannot be asked; callers then change nothing."""

    name: str
    abilities: Abilities

    async def open(self, on_change: Callable[[], None]) -> None:
        """Make ready. `on_change` is called whenever `observe` would answer something new."""
        ...

    async def close(self) -> None:
        """Let go. Runs go on."""
        ...

    async def inventory(self) -> Sequence[Node]: ...

    def handle(self, run_id: RunId) -> Handle:
        """The name under which this engine will know a run, made and written down before it starts."""
        ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Begin runs. The same handle twice is one run, whatever was killed or rebooted in between:
        a run that may have begun before the machine went down is not begun again, but observed as lost."""
        ...

    async def observe(self, handles: Collection[Handle]) -> Mapping[Handle, Observation]:
        """One question for all. A run whose start is still on its way has no answer yet."""
        ...

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        """Ask a run to end: notice signal and its lead, TERM, grace, KILL of the whole tree.
        A second stop with a shorter grace hastens the first. Unknown and ended runs are fine."""
        ...

    def ended(self) -> Collection[Handle]:
        """Runs that are over and not yet forgotten."""
        ...

    async def forget(self, handles: Collection[Handle]) -> None:
        """The ends of these runs are remembered elsewhere now."""
        ...

    def logs(self, run_id: RunId) -> "LogSource":
        """What a run writes. By its run id alone: a log outlives the handle, and is asked for before there is one."""
        ...


class LogSource(Protocol):
    """The log of one run; there may be none, not yet or not any more. Raises EngineDown while it cannot be read."""

    @property
    def path(self) -> str:
        """The file in which people find it. Empty: it is no file."""
        ...

    async def size(self) -> int | None:
        """None: there is no log that could be read."""
        ...

    async def start_of_tail(self, lines: int) -> int:
        """The offset at which the last lines begin; 0 if there is no log."""
        ...

    def read(self, offset: int, length: int) -> AsyncIterator[bytes]:
        """A range, in large pieces. It ends early where the log does."""
        ...

    async def follow(self) -> "GrowingLog | None":
        """The log as it grows, until `close`. None: there is none yet."""
        ...

    async def prepare(self) -> None:
        """Make an empty log, so that a follower can watch it from the start. A failure shows at the run itself."""
        ...

    async def remove(self) -> None:
        """Delete it. A log that does not exist is fine."""
        ...


class GrowingLog(Protocol):
    """A log that somebody follows."""

    def growth(self) -> "asyncio.Future[None]":
        """Done at the next growth. Take it before reading, or a growth in between is missed."""
        ...

    async def read(self, offset: int) -> bytes:
        """Some bytes from `offset`; none if there are no more yet, or the log was removed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What an engine is built from."""

    settings: EngineSettings
    state_dir: str  # of the server
    files_dir: str  # logs, snapshots and run folders; nodes of a cluster see this folder too
    nodes: Sequence[Node] = ()  # what there is to run on, for an engine without `live_nodes`


def _no_shared_dir(settings: EngineSettings, section: Any) -> str:
    return ""


def _nothing_to_check(section: Any) -> None:
    return


@dataclass(frozen=True, slots=True)
class EngineKind:
    """A value of `[engine] kind`. Reading the settings needs this much of an engine; only `build` imports the rest.
    `section` is what the configuration says under the name of the kind, or None."""

    title: str  # what people call it
    abilities: Abilities
    build: Callable[[EngineSetup], Engine]
    shared_dir: Callable[[EngineSettings, Any], str] = _no_shared_dir  # what nodes have to see; empty: nothing
    check_section: Callable[[Any], None] = _nothing_to_check  # refuses nonsense, whichever engine is used


class Stream(Protocol):
    """A process inside a run that somebody talks to."""

    async def read(self) -> tuple[str, bytes] | None:
        """The next output as ("stdout" | "stderr", bytes), or None when it has ended."""
        ...

    async def write(self, data: bytes) -> None: ...
    async def close_input(self) -> None: ...
    async def resize(self, rows: int, columns: int) -> None: ...
    async def wait(self) -> int: ...
    async def close(self) -> None:
        """The talker is gone: the process is hung up."""
        ...


@runtime_checkable
class SeesOthers(Protocol):
    """Optional: engines that others use beside Danlu."""

    async def others(self) -> Sequence[ExternalRun]:
        """As of the last look; asking costs the engine nothing. Those that are over are told for a while."""
        ...

    def one_of(self, together: ExternalRun, ref: str) -> ExternalRun | None:
        """Of tasks that wait together, the one that people call so."""
        ...


@runtime_checkable
class NamesRuns(Protocol):
    """Optional: engines whose own tools know runs under names of their own."""

    prefix: str  # of these names, and of the ids of external runs: `slurm:`

    def name_of(self, handle: Handle) -> str:
        """What people call it there now, as they do the runs of others: `slurm:17`. Empty: not yet, or no more."""
        ...


@runtime_checkable
class KnowsNodes(Protocol):
    """Optional: engines that know better than the seats of runs what is taken of a node."""

    def nodes_now(self) -> Mapping[str, NodeNow]:
        """As of the last look, by the names of nodes."""
        ...


@runtime_checkable
class HasQueues(Protocol):
    """Optional: engines that have queues of their own."""

    def queues(self) -> Sequence[Queue]:
        """As of the last look, also those that are closed for now."""
        ...

    def room_for(self) -> int:
        """How many more runs its queue takes."""
        ...

    async def reorder(self, first: Mapping[Handle, bool]) -> None:
        """Which of those that wait there go before others of their priority now, and which do not."""
        ...


@runtime_checkable
class Reachable(Protocol):
    """Optional: devboxes, exec and SSH need it."""

    async def shell(
        self, handle: Handle, argv: tuple[str, ...], *, tty: bool, term: str = "xterm", rows: int = 0, columns: int = 0
    ) -> Stream:
        """Start `argv` in the run's environment, folder and limits. It ends with the run.
        A command that is missing ends with 127 and says so on stderr; a run that is not running is Refused."""
        ...
