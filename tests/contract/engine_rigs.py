"""What a contract test needs of an engine: one that is open, launches for it, and ways to wait for its runs."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from danlu.domain.job import RunId
from danlu.domain.resources import Node, Seat
from danlu.engines.base import Ending, Engine, Handle, Launch, Observation, RunState
from danlu.engines.local.engine import LocalEngine
from tests.fakes.engine import FakeEngine, Play
from tests.warden import short_folder

NODE = Node("here", cpus=2, memory_mib=1024)
LIMIT_SECONDS = 60.0
SOON = timedelta(milliseconds=200)
NEVER = timedelta(hours=1)
# A shell that halts itself, and is told to go on after a while.
HALTED = '(until grep -q "^State:.T" /proc/$$/status; do sleep 0.1; done; sleep 0.5; kill -CONT $$) & kill -STOP $$'

TALKS = 'echo first; until [ -e "$0" ]; do sleep 0.05; done; echo second'


class Rig(Protocol):
    """An open engine. `other_boot` is a handle made before a reboot."""

    folder: Path

    @property
    def engine(self) -> Engine: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def restart(self) -> None: ...
    async def go_down(self) -> None: ...
    def other_boot(self, run_id: str) -> Handle: ...


class BaseRig:
    engine: Any
    nodes: Sequence[Node] = (NODE,)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changes = 0
        self._changed = asyncio.Event()

    def on_change(self) -> None:
        self.changes += 1
        self._changed.set()

    def log(self, run_id: str) -> Path:
        return Path(self.engine.logs(RunId(run_id)).path)

    def launch(self, run_id: str, *command: str, **particulars: Any) -> Launch:
        memory_mib = particulars.pop("memory_mib", 0)
        given = {
            "handle": self.engine.handle(RunId(run_id)),
            "workdir": str(self.folder),
            "env": {"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            "seat": Seat("here", cpus=1, memory_mib=memory_mib),
            "log_path": str(self.log(run_id)),
        }
        return Launch(run_id=RunId(run_id), command=command, **{**given, **particulars})

    async def start(self, run_id: str, *command: str, **particulars: Any) -> Handle:
        launch = self.launch(run_id, *command, **particulars)
        await self.engine.start([launch])
        return launch.handle

    async def observe(self, handle: Handle) -> Observation:
        """What the engine says, once it says something: a start may still be on its way."""
        async with asyncio.timeout(LIMIT_SECONDS):
            seen: Observation | None = None
            while seen is None:
                seen = (await self.engine.observe([handle])).get(handle)
                if seen is None:
                    await asyncio.sleep(0.005)
        return seen

    async def ended(self, handle: Handle) -> Observation:
        """Its end, heard through `on_change` and not by asking again and again."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                self._changed.clear()
                seen = await self.observe(handle)
                if seen.state is RunState.ENDED:
                    return seen
                await self._changed.wait()

    async def until(self, is_so: Callable[[], Any]) -> Any:
        """The first true answer."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (answer := is_so()):
                await asyncio.sleep(0.01)
        return answer

    async def start_talker(self, run_id: str) -> Handle:
        """A run that says `first`, and `second` as its last word once it may `go_on`."""
        return await self.start(run_id, "sh", "-c", TALKS, str(self.folder / f"{run_id}.go"))

    def go_on(self, run_id: str) -> None:
        (self.folder / f"{run_id}.go").touch()

    async def until_logged(self, run_id: str, text: str) -> str:
        log = self.log(run_id)
        await self.until(lambda: log.exists() and text in log.read_text(errors="replace"))
        return log.read_text(errors="replace")


class FakeRig(BaseRig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.engine = FakeEngine([NODE], plays=act_out)

    async def open(self) -> None:
        await self.engine.open(self.on_change)

    async def close(self) -> None:
        await self.engine.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def go_down(self) -> None:
        self.engine.is_down = True

    def other_boot(self, run_id: str) -> Handle:
        return Handle(f"fake:an-earlier-boot:{run_id}")

    def log(self, run_id: str) -> Path:
        """Its logs are in memory; no run makes a file."""
        return self.folder / f"{run_id}.log"

    async def start_talker(self, run_id: str) -> Handle:
        handle = await self.start(run_id, "sleep", "1000")
        self.engine.write_log(run_id, b"first\n")
        return handle

    def go_on(self, run_id: str) -> None:
        self.engine.write_log(run_id, b"second\n")
        self.engine.finish(run_id)

    async def until_logged(self, run_id: str, text: str) -> str:
        """It plays a command from its first line on, and writes nothing."""
        return text


def act_out(launch: Launch) -> Play:
    """The few commands of the contract suite, as the fake understands them."""
    command = launch.command
    if command[0] == "sleep":
        return Play()
    if command[0] == "sh" and "trap" in command[-1]:
        return Play(ignores_term=True)
    if command[0] in ("true", "sh"):
        return Play(after=timedelta(), exit_code=int(command[-1].removeprefix("exit ")) if command[0] == "sh" else 0)
    text = f"command not found: {command[0]}"
    return Play(after=timedelta(), exit_code=127, ending=Ending.NOT_STARTED, reason=text)


class LocalRig(BaseRig):
    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder)
        self.state_dir = str(folder / "state")
        self.socket = str(folder / "run" / "keeper.sock")
        self._options = {"linger": timedelta(seconds=30), "logs_dir": f"{folder}/logs", **options}
        self.keepers: set[int] = set()
        self.engine = self.another_engine()

    def another_engine(self, **options: Any) -> LocalEngine:
        return LocalEngine(self.state_dir, self.socket, lambda: [NODE], **{**self._options, **options})

    async def open(self) -> None:
        await self.engine.open(self.on_change)
        self.keepers.add(self.engine.keeper_pid)

    async def close(self) -> None:
        await self.engine.close()

    async def restart(self) -> None:
        await self.close()
        self.engine = self.another_engine()
        await self.open()

    async def go_down(self) -> None:
        await self.close()

    def other_boot(self, run_id: str) -> Handle:
        return Handle(f"local:an-earlier-boot:{run_id}")

    async def clear(self) -> None:
        """End every run and the keeper, whatever the test left."""
        self.keepers.add(self.engine.keeper_pid)
        with suppress(Exception):
            for handle in list(self.engine._seen):
                await self.engine.stop(handle, grace=timedelta())
        await self.engine.close()
        for pid in self.keepers - {0}:
            _end_keeper(pid)


class LocalWithoutCgroupsRig(LocalRig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, cgroups="off")


def _slurm_rig(version: str, **options: Any) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        from tests.contract.slurm_rig import SlurmRig  # which builds on what is here

        return SlurmRig(folder, version, **options)

    return make


RIGS: dict[str, Callable[[Path], Any]] = {
    "fake": FakeRig,
    "local": LocalRig,
    "local-without-cgroups": LocalWithoutCgroupsRig,
    "local-uvloop": LocalRig,
    "slurm-22.05": _slurm_rig("22.05"),
    "slurm-22.05-impatient": _slurm_rig("22.05", impatient=True),
    "slurm-22.05-books": _slurm_rig("22.05", accounting=True),
    "slurm-24.11": _slurm_rig("24.11"),
    "slurm-24.11-impatient": _slurm_rig("24.11", impatient=True),
}


def play(kind: str, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run an asynchronous test with an open rig of its own, and clear up behind it."""
    folder = short_folder("danlu-rig-")
    folder.chmod(0o755)

    async def body() -> None:
        rig = RIGS[kind](folder)
        try:
            await rig.open()
            await test(rig)
        finally:
            if isinstance(rig, LocalRig):
                await rig.clear()
            else:
                await rig.close()

    try:
        if kind.endswith("uvloop"):
            import uvloop

            uvloop.run(body())
        else:
            asyncio.run(body())
    finally:
        _remove(folder)


def _end_keeper(pid: int) -> None:
    """Politely, so that it removes its groups; it refuses only if a run is still alive."""
    for attempt in range(200):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if attempt < 150 else signal.SIGKILL)
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            if not Path(f"/proc/{pid}").exists():
                return
        time.sleep(0.01)


def _remove(folder: Path) -> None:
    for attempt in range(50):
        with suppress(OSError):
            shutil.rmtree(folder)
            return
        time.sleep(0.02 * attempt)


def with_rig(*kinds: str) -> Callable[[Callable[[Any], Awaitable[None]]], Callable[[str], None]]:
    """Make a test of `async def test(rig)`, once for each kind of engine."""
    marked = [pytest.param(kind, marks=pytest.mark.slurm) if kind.startswith("slurm") else kind for kind in kinds]

    def decorate(test: Callable[[Any], Awaitable[None]]) -> Callable[[str], None]:
        @pytest.mark.parametrize("kind", marked)
        def run(kind: str) -> None:
            play(kind, test)

        run.__doc__ = test.__doc__
        return run

    return decorate


def living(marker: str) -> Iterator[int]:
    """Processes whose command line has this word in it."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                    yield int(name)
