"""An engine in memory, for tests of other rooms: runs end when the test says so, or after a given time."""

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from danlu.domain.job import Reason, RunId
from danlu.domain.parsing import Notice
from danlu.domain.queue import Queue
from danlu.domain.resources import Node, Seat
from danlu.engines.base import (
    Abilities,
    Ending,
    ExternalRun,
    Handle,
    Launch,
    LogSource,
    NodeNow,
    Observation,
    RunState,
    Stream,
)
from danlu.engines.log_files import LogFiles
from danlu.errors import EngineDown, Refused
from tests.fakes.logs import MemoryLog


@dataclass(frozen=True, slots=True)
class Play:
    """How a fake run goes if nobody interferes."""

    after: timedelta | None = None  # None: it runs until the test ends it
    exit_code: int | None = 0
    ending: Ending = Ending.EXITED
    reason: str = ""
    ignores_term: bool = False


def _now() -> datetime:
    return datetime.now(UTC)


class FakeEngine:
    """Engine and Reachable. `plays` says how each run goes; `clock` may be the test's own, moved with `look`."""

    name = "fake"
    abilities = Abilities()

    def __init__(
        self,
        nodes: Sequence[Node] = (),
        *,
        plays: Callable[[Launch], Play] = lambda launch: Play(),
        clock: Callable[[], datetime] = _now,
        boot: str = "fake-boot",
    ) -> None:
        self.nodes = nodes
        self.boot = boot
        self.is_down = False
        self.launches: dict[Handle, Launch] = {}  # every run that was begun
        self.stops: list[tuple[Handle, timedelta, Notice | None]] = []  # every stop that was asked
        self._plays = plays
        self._clock = clock
        self._seen: dict[Handle, Observation] = {}
        self._coming: dict[Handle, tuple[datetime, Play]] = {}  # ends that will come by themselves
        self._on_change: Callable[[], None] = lambda: None
        self.files: LogFiles | None = None  # logs in files, for tests of these; else they are in memory
        self._logs: dict[str, MemoryLog] = {}

    # What tests do to it

    def finish(
        self, run_id: RunId | str, exit_code: int | None = 0, ending: Ending = Ending.EXITED, reason: str = ""
    ) -> None:
        """The run ends now."""
        play = Play(exit_code=exit_code, ending=ending, reason=reason)
        self._end(self.handle(RunId(run_id)), play, self._clock())
        self._on_change()

    def write_log(self, run_id: RunId | str, data: bytes) -> None:
        """The run says something."""
        if self.files is None:
            self._log(run_id).write(data)
            return
        path = Path(self.files.of(RunId(run_id)).path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            log.write(data)

    def note(self, run_id: RunId | str, text: str) -> None:
        handle = self.handle(RunId(run_id))
        self._seen[handle] = replace(self._seen[handle], notes=(*self._seen[handle].notes, text))
        self._on_change()

    def reboot(self, boot: str = "fake-boot-2") -> None:
        """The machine restarts: what ran is lost, and handles made before belong to another boot."""
        self.boot = boot
        self._coming.clear()
        self._seen = {handle: seen for handle, seen in self._seen.items() if seen.state is RunState.ENDED}
        self._on_change()

    def look(self) -> None:
        """Let the ends come whose time has passed."""
        now = self._clock()
        due = [handle for handle, (at, _) in self._coming.items() if at <= now]
        for handle in due:
            at, play = self._coming[handle]
            self._end(handle, play, at)
        if due:
            self._on_change()

    # The seam

    async def open(self, on_change: Callable[[], None]) -> None:
        self._check_up()
        self._on_change = on_change

    async def close(self) -> None:
        self._on_change = lambda: None
        if self.files is not None:
            self.files.close()

    async def inventory(self) -> Sequence[Node]:
        self._check_up()
        return self.nodes

    def handle(self, run_id: RunId) -> Handle:
        return Handle(f"fake:{self.boot}:{run_id}")

    async def start(self, launches: Sequence[Launch]) -> None:
        self._check_up()
        for launch in launches:
            if launch.handle in self._seen or not self._is_current(launch.handle):
                continue
            self.launches[launch.handle] = launch
            now = self._clock()
            self._seen[launch.handle] = self._begun(launch, now)
            play = self._plays(launch)
            if play.after is not None:
                self._will_end(launch.handle, play, play.after)
            if launch.time_limit and (play.after is None or launch.time_limit < play.after):
                late = replace(play, exit_code=143, ending=Ending.TIMED_OUT)
                self._will_end(launch.handle, late, launch.time_limit + (launch.grace if play.ignores_term else _NONE))
        self.look()
        self._on_change()

    async def observe(self, handles: Collection[Handle]) -> Mapping[Handle, Observation]:
        self._check_up()
        self.look()
        return {handle: self._seen.get(handle) or self._unseen(handle) for handle in handles}

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        self._check_up()
        self.look()
        self.stops.append((handle, grace, notice))
        seen = self._seen.get(handle)
        if seen is None or seen.state is RunState.ENDED:
            return
        play = self._plays(self.launches[handle])
        if play.ignores_term and grace:
            self._will_end(handle, Play(exit_code=137, ending=Ending.STOPPED), grace)
        else:
            self._end(handle, Play(exit_code=143 if grace else 137, ending=Ending.STOPPED), self._clock())
            self._on_change()

    def ended(self) -> Collection[Handle]:
        return [handle for handle, seen in self._seen.items() if seen.state is RunState.ENDED]

    async def forget(self, handles: Collection[Handle]) -> None:
        self._check_up()
        for handle in handles:
            if (seen := self._seen.get(handle)) and seen.state is RunState.ENDED:
                del self._seen[handle]

    def logs(self, run_id: RunId) -> LogSource:
        return self._log(run_id) if self.files is None else self.files.of(run_id)

    async def shell(
        self,
        handle: Handle,
        argv: tuple[str, ...],
        *,
        tty: bool,
        term: str = "xterm",
        rows: int = 0,
        columns: int = 0,
    ) -> Stream:
        self._check_up()
        if (seen := self._seen.get(handle)) is None or seen.state is not RunState.RUNNING:
            raise Refused("no process can be started inside: this run is not running", code="not_running")
        return FakeStream(argv, tty=tty)

    # Inside

    def _log(self, run_id: RunId | str) -> MemoryLog:
        return self._logs.setdefault(run_id, MemoryLog())

    def _check_up(self) -> None:
        if self.is_down:
            raise EngineDown("the fake engine is down")

    def _begun(self, launch: Launch, now: datetime) -> Observation:
        return Observation(RunState.RUNNING, started_at=now)

    def _is_current(self, handle: Handle) -> bool:
        return handle.startswith(f"fake:{self.boot}:")

    def _unseen(self, handle: Handle) -> Observation:
        if self._is_current(handle):
            return Observation(RunState.UNKNOWN)
        restarted = Reason("lost", "the machine restarted while it ran")
        return Observation(RunState.ENDED, ending=Ending.LOST, reason=restarted)

    def _will_end(self, handle: Handle, play: Play, after: timedelta) -> None:
        at = self._clock() + after
        if handle not in self._coming or at < self._coming[handle][0]:
            self._coming[handle] = (at, play)
            if after:
                asyncio.get_running_loop().call_later(after.total_seconds() + 0.001, self.look)

    def _end(self, handle: Handle, play: Play, at: datetime) -> None:
        self._coming.pop(handle, None)
        self._seen[handle] = Observation(
            RunState.ENDED,
            started_at=self._seen[handle].started_at,
            ended_at=at,
            ending=play.ending,
            exit_code=play.exit_code,
            reason=Reason(play.ending.value, play.reason or f"{play.ending.value.replace('_', ' ')}"),
            notes=self._seen[handle].notes,
        )


_NONE = timedelta()


class FakeCluster(FakeEngine):
    """SeesOthers, NamesRuns, HasQueues and KnowsNodes too: a cluster with a queue of its own, on which others are
    beside Danlu. `seats` says where each run sits; one without a seat waits."""

    abilities = Abilities(places=True, live_nodes=True, many_nodes=True)
    prefix = "fake:"

    def __init__(
        self,
        nodes: Sequence[Node] = (),
        *,
        seats: Callable[[Launch], tuple[Seat, ...]] = lambda launch: (),
        plays: Callable[[Launch], Play] = lambda launch: Play(),
    ) -> None:
        super().__init__(nodes, plays=plays)
        self.words: dict[str, NodeNow] = {}
        self.first: set[Handle] = set()
        self._seats = seats
        self._others: dict[str, ExternalRun] = {}

    def put(self, *others: ExternalRun) -> None:
        """Somebody comes, or is another by now."""
        self._others |= {one.id: one for one in others}
        self._on_change()

    def hold(self, run_id: RunId | str, why: Reason, estimated_at: datetime | None = None) -> None:
        """It waits in the cluster's queue, for this."""
        handle = self.handle(RunId(run_id))
        self._seen[handle] = replace(self._seen[handle], reason=why, estimated_at=estimated_at)
        self._on_change()

    def drop(self, *ids: str) -> None:
        """It forgets them."""
        for one in ids:
            del self._others[one]
        self._on_change()

    async def others(self) -> Sequence[ExternalRun]:
        self._check_up()
        return list(self._others.values())

    def one_of(self, together: ExternalRun, ref: str) -> ExternalRun | None:
        array, bracket, _ = together.id.partition("[")
        if not (bracket and re.fullmatch(rf"{array}\d+", ref)):
            return None
        return replace(together, id=ref, handle=Handle(f"{together.handle}/{ref}"), tasks=1)

    def name_of(self, handle: Handle) -> str:
        seen = self._seen.get(handle)
        is_there = seen is not None and seen.state is not RunState.ENDED
        return f"{self.prefix}{[*self.launches].index(handle) + 1}" if is_there else ""

    def nodes_now(self) -> Mapping[str, NodeNow]:
        return self.words

    def queues(self) -> Sequence[Queue]:
        return [Queue("gpu", nodes=frozenset(node.name for node in self.nodes), is_default=True)]

    def room_for(self) -> int:
        return 1 << 62

    async def reorder(self, first: Mapping[Handle, bool]) -> None:
        self.first = {handle for handle, is_first in first.items() if is_first}

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        await super().stop(handle, grace=grace, notice=notice)
        for one in self._others.values():
            if one.handle == handle:
                self.put(replace(one, state=RunState.ENDED, seats=(), ends_at=self._clock()))
                break

    def _begun(self, launch: Launch, now: datetime) -> Observation:
        if seats := self._seats(launch):
            return Observation(RunState.RUNNING, started_at=now, seats=seats)
        return Observation(RunState.PENDING, reason=Reason("no_room", "not enough cards, cores or memory are free"))


class FakeStream:
    """Says its command line, then echoes what is written, and ends with 0 when the input is closed."""

    def __init__(self, argv: tuple[str, ...], *, tty: bool) -> None:
        self.size = (0, 0)
        self.is_closed = False
        self._tty = tty
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._said.put_nowait(" ".join(argv).encode() + b"\n")

    async def read(self) -> tuple[str, bytes] | None:
        said = await self._said.get()
        if said is None:
            self._said.put_nowait(None)
            return None
        return "stdout", said

    async def write(self, data: bytes) -> None:
        if not self._exit.done():
            self._said.put_nowait(data)

    async def close_input(self) -> None:
        if not self._exit.done():
            self._exit.set_result(0)
            self._said.put_nowait(None)

    async def resize(self, rows: int, columns: int) -> None:
        self.size = (rows, columns)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        self.is_closed = True
        await self.close_input()
