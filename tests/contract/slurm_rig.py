"""The Slurm engine on a real cluster, for the contract suite."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from danlu.domain.resources import Ask, Gpu, Node
from danlu.engines.base import Handle, Launch, Observation, RunState
from danlu.engines.slurm.engine import SlurmEngine
from danlu.errors import EngineDown
from tests.contract.engine_rigs import LIMIT_SECONDS, BaseRig
from tests.slurm.cluster import SlurmCluster, shared_cluster

Rig = TypeVar("Rig", bound="SlurmRig")


class SlurmRig(BaseRig):
    def __init__(self, folder: Path, version: str, cluster: SlurmCluster | None = None, **options: Any) -> None:
        """`options` of a shared cluster, if none is given."""
        super().__init__(folder)
        self.cluster = cluster or shared_cluster(version, **options)
        layout = self.cluster.layout
        cards = tuple(Gpu(at, layout.model, shards=layout.shards_per_card) for at in range(layout.cards))
        self.nodes = [Node(name, layout.cpus, layout.memory_mib, cards) for name in layout.names]
        self.engine = self.another_engine()

    def another_engine(self) -> SlurmEngine:
        environment = self.cluster.environment
        return SlurmEngine(
            str(self.folder / "shared"), conf=environment["SLURM_CONF"], commands_path=environment["PATH"]
        )

    async def open(self) -> None:
        await self.engine.open(self.on_change)

    async def close(self) -> None:
        await self.engine.close()

    async def restart(self) -> None:
        await self.close()
        self.engine = self.another_engine()
        await self.open()

    async def go_down(self) -> None:
        """The controller dies, and the engine, which answers from its last look, has noticed it."""
        await asyncio.to_thread(self.cluster.kill_controller)
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    await self.engine.observe([])
                except EngineDown:
                    return
                await asyncio.sleep(0.02)

    def other_boot(self, run_id: str) -> Handle:
        return Handle(f"slurm:anearlierone:{run_id}")

    def launch(self, run_id: str, *command: str, **particulars: Any) -> Launch:
        """Slurm chooses the seat."""
        particulars = {"seat": None, "ask": Ask(cpus=1), **particulars}
        made = super().launch(run_id, *command, **particulars)
        return replace(made, env={**made.env, "DANLU_RUN_ID": run_id})

    async def start(self, run_id: str, *command: str, **particulars: Any) -> Handle:
        """Until its command runs: one that is stopped before has no exit code."""
        handle = await super().start(run_id, *command, **particulars)
        async with asyncio.timeout(LIMIT_SECONDS):
            while (await self.observe(handle)).state is RunState.RUNNING and not self._has_process(run_id):
                await asyncio.sleep(0.02)
        return handle

    def _has_process(self, run_id: str) -> bool:
        wanted = {f"DANLU_RUN_ID={run_id}".encode(), f"HOME={self.folder}".encode()}
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if wanted <= set(path.read_bytes().split(b"\0")):
                    return True
        return False

    async def observe(self, handle: Handle) -> Observation:
        """A run that waits in Slurm's own queue will be heard of again; the suite is about runs that have begun."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while (seen := await super().observe(handle)).state is RunState.PENDING:
                await asyncio.sleep(0.01)
        return seen


def with_own_rig(make: Callable[[Path], Rig], test: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a test with an open rig in a folder of its own, which others may enter, and clear up behind it."""
    folder = Path(tempfile.mkdtemp(prefix="danlu-rig-", dir="/tmp"))
    folder.chmod(0o755)

    async def body() -> None:
        rig = make(folder)
        try:
            await rig.open()
            await test(rig)
        finally:
            await rig.close()

    try:
        asyncio.run(body())
    finally:
        shutil.rmtree(folder)
