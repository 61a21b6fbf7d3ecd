"""How often a real Slurm is asked: once for all runs at each look, however many they are."""

import asyncio
from pathlib import Path

import pytest

from danlu.domain.resources import Ask
from danlu.engines.base import Handle, RunState
from danlu.engines.slurm.engine import SlurmEngine
from tests.contract.engine_rigs import LIMIT_SECONDS
from tests.contract.slurm_rig import SlurmRig, with_own_rig
from tests.slurm.cluster import SlurmCluster, shared_cluster
from tests.slurm.releases import OLDER

pytestmark = pytest.mark.slurm
COMMANDS = ("squeue", "scontrol", "sacct", "scancel", "sinfo", "sacctmgr", "sstat", "sbatch")
LOOK = "look"
# The queue, the nodes, their partitions, the cards of those that have begun, the exit codes of those that were mute.
MOST_AT_ONE_LOOK = 5


class CountedRig(SlurmRig):
    """Each look and each command leave a line, in their order."""

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.lines = folder / "lines"
        self.door = folder / "door"
        self._write_commands(folder / "bin", cluster.environment["PATH"])
        super().__init__(folder, cluster.release.version, cluster)

    def _write_commands(self, folder: Path, path: str) -> None:
        folder.mkdir()
        for name in COMMANDS:
            # A controller that is slow to answer is pinged meanwhile, which is no question about runs.
            line = f'[ "$1" = ping ] || echo {name} >> {self.lines}'
            (folder / name).write_text(f'#!/bin/sh\n{line}\nPATH={path} exec {name} "$@"\n')
            (folder / name).chmod(0o755)

    def another_engine(self) -> SlurmEngine:
        lines, environment = self.lines, self.cluster.environment

        class Counted(SlurmEngine):
            async def poll(self) -> None:
                with lines.open("a") as file:
                    file.write(f"{LOOK}\n")
                await super().poll()

        path = f"{self.folder}/bin:{environment['PATH']}"
        return Counted(str(self.folder / "shared"), conf=environment["SLURM_CONF"], commands_path=path)

    async def pass_through(self, name: str, count: int) -> None:
        """So many are submitted, run side by side on cards that are known, and end together."""
        script = f"while [ ! -e {self.door} ]; do sleep 0.1; done"
        ask = Ask(cpus=1, shards=8)
        launches = [self.launch(f"{name}{at}.1", "sh", "-c", script, ask=ask) for at in range(count)]
        handles = [launch.handle for launch in launches]
        await self.engine.start(launches)
        async with asyncio.timeout(LIMIT_SECONDS):
            while not await self._have_cards(handles):
                await asyncio.sleep(0.05)
        self.door.touch()
        assert {(await self.ended(handle)).exit_code for handle in handles} == {0}
        self.door.unlink()

    async def _have_cards(self, handles: list[Handle]) -> bool:
        seen = await self.engine.observe(handles)
        running = [one for one in seen.values() if one.state is RunState.RUNNING]
        return len(running) == len(handles) and all(one.seats[0].shared_gpu is not None for one in running)


def test_one_question_for_all_at_each_look_and_never_one_for_each() -> None:
    said: dict[int, list[str]] = {}

    async def test(rig: CountedRig) -> None:
        for count in (5, 40):
            rig.lines.write_text("")
            await rig.pass_through(f"of{count}-", count)
            said[count] = rig.lines.read_text().split()

    # With books: whoever asks them for each run has some to ask.
    with_own_rig(lambda folder: CountedRig(folder, shared_cluster(OLDER, accounting=True)), test)
    for count, lines in said.items():
        assert lines.count("sbatch") == count
        looks = " ".join(line for line in lines if line != "sbatch").split(LOOK)
        # What stands before the first look belongs to one that had begun already.
        asked = [one.split() for one in looks[1:]]
        assert asked, lines
        assert {one.count("squeue") for one in asked[:-1]} <= {1}, asked
        assert max(map(len, asked)) <= MOST_AT_ONE_LOOK, f"of {count} runs: {asked}"
        assert {"scancel", "sacct", "sacctmgr"}.isdisjoint(lines), "nobody was to be stopped, and nobody was forgotten"
