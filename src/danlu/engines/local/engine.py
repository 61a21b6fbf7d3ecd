"""The local engine: runs are processes of this machine, supervised by a keeper that outlives the server."""

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from danlu.domain.job import Reason, RunId
from danlu.domain.parsing import Notice
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Node
from danlu.engines.base import Ending, Handle, Launch, LogSource, Observation, RunState, Stream, shm_notes
from danlu.engines.local.kind import ABILITIES
from danlu.engines.local.link import KeeperLink
from danlu.engines.local.protocol import boot_id, parse_handle, render_handle
from danlu.engines.local.streams import open_stream
from danlu.engines.log_files import LogFiles

LAUNCHES_PER_MESSAGE = 64
_UNKNOWN = Observation(RunState.UNKNOWN)
_RESTARTED = Observation(
    RunState.ENDED, ending=Ending.LOST, reason=Reason(ReasonCode.LOST, "the machine restarted while it ran")
)


class LocalEngine:
    """Engine and Reachable. `boot` and `cgroups` (auto, on, off) are for tests and unusual machines."""

    name = "local"
    abilities = ABILITIES

    def __init__(
        self,
        state_dir: str,
        keeper_socket: str,
        nodes_provider: Callable[[], Sequence[Node]],
        *,
        logs_dir: str = "",
        boot: str = "",
        cgroups: str = "auto",
        linger: timedelta = timedelta(seconds=2),
    ) -> None:
        self._boot = boot or boot_id()
        self._socket = keeper_socket
        self._nodes_provider = nodes_provider
        self._seen: dict[str, Observation] = {}
        self._on_the_way: set[str] = set()  # start sent, no report from the keeper yet
        self._on_change: Callable[[], None] = lambda: None
        self._logs = LogFiles(logs_dir or f"{state_dir}/logs")
        options = ("--boot", self._boot, "--cgroups", cgroups, "--linger", str(linger.total_seconds()))
        self._link = KeeperLink(state_dir=state_dir, socket=keeper_socket, options=options, on_runs=self._heard)

    @property
    def keeper_pid(self) -> int:
        return self._link.keeper_pid

    async def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        await self._link.open()

    async def close(self) -> None:
        self._on_change = lambda: None
        self._logs.close()
        await self._link.close()

    async def inventory(self) -> Sequence[Node]:
        return self._nodes_provider()

    def handle(self, run_id: RunId) -> Handle:
        return Handle(render_handle(self._boot, run_id))

    async def start(self, launches: Sequence[Launch]) -> None:
        self._link.check_up()
        fresh = [_asked(one) for one in launches if self._is_current(one.handle) and not self._is_known(one.handle)]
        chunks = [fresh[at : at + LAUNCHES_PER_MESSAGE] for at in range(0, len(fresh), LAUNCHES_PER_MESSAGE)]
        self._on_the_way.update(one["handle"] for one in fresh)
        # Not awaited: the keeper reports the result by itself, and the next start must not wait behind this message.
        self._link.tell([{"do": "start", "runs": chunk} for chunk in chunks])

    async def observe(self, handles: Collection[Handle]) -> Mapping[Handle, Observation]:
        self._link.check_up()
        return {handle: self._look(handle) for handle in handles if handle not in self._on_the_way}

    def _is_known(self, handle: Handle) -> bool:
        return handle in self._seen or handle in self._on_the_way

    def _look(self, handle: Handle) -> Observation:
        return self._seen.get(handle) or (_UNKNOWN if self._is_current(handle) else _RESTARTED)

    def _is_current(self, handle: Handle) -> bool:
        return parse_handle(handle)[0] == self._boot

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        asked = {"do": "stop", "handle": handle, "grace": grace.total_seconds(), "notice": _notice(notice)}
        await self._link.ask([asked])

    def ended(self) -> Collection[Handle]:
        return [Handle(handle) for handle, seen in self._seen.items() if seen.state is RunState.ENDED]

    async def forget(self, handles: Collection[Handle]) -> None:
        gone = list(handles)
        self._link.tell_later([{"do": "forget", "handles": gone}])
        for handle in gone:
            if (seen := self._seen.get(handle)) and seen.state is RunState.ENDED:
                del self._seen[handle]

    def logs(self, run_id: RunId) -> LogSource:
        return self._logs.of(run_id)

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
        self._link.check_up()
        asked = {"do": "exec", "handle": handle, "argv": argv, "tty": tty}
        return await open_stream(self._socket, asked | {"term": term, "rows": rows, "columns": columns}, tty=tty)

    def _heard(self, views: list[dict[str, Any]], is_all: bool) -> None:
        if is_all:
            self._seen.clear()
            self._on_the_way.clear()
        for view in views:
            self._seen[view["handle"]] = _observation(view)
            self._on_the_way.discard(view["handle"])
        if views or is_all:
            self._on_change()


def _asked(launch: Launch) -> dict[str, Any]:
    return {
        "handle": launch.handle,
        "command": launch.command,
        "workdir": launch.workdir,
        "env": dict(launch.env),
        "log": launch.log_path,
        "log_limit": launch.log_limit_bytes,
        "umask": launch.umask,
        "user": launch.user,
        "memory_mib": launch.seat.memory_mib if launch.seat else 0,
        "notes": shm_notes(launch.ask.shm_mib, "this machine"),
        "limit": launch.time_limit.total_seconds() if launch.time_limit else None,
        "notice": _notice(launch.notice),
        "grace": launch.grace.total_seconds(),
    }


def _notice(notice: Notice | None) -> tuple[int, float] | None:
    return (signal.Signals[f"SIG{notice.signal}"].value, notice.lead.total_seconds()) if notice else None


def _observation(view: dict[str, Any]) -> Observation:
    started_at, notes = _time(view["started_at"]), tuple(view["notes"])
    if "ending" not in view:
        return Observation(RunState.RUNNING, started_at=started_at, notes=notes)
    return Observation(
        RunState.ENDED,
        started_at=started_at,
        ended_at=_time(view["ended_at"]),
        ending=Ending(view["ending"]),
        exit_code=view["exit_code"],
        reason=Reason(*view["reason"]),
        notes=notes,
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
