"""Jobs of others that end while nobody looks, on real clusters: what the books say of them, and whose they are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from danlu.domain.resources import Ask
from danlu.engines.base import ExternalRun, RunState
from danlu.errors import EngineDown
from tests.contract.engine_rigs import LIMIT_SECONDS
from tests.contract.slurm_rig import SlurmRig, with_own_rig
from tests.slurm.cage import wait_until
from tests.slurm.cluster import SlurmCluster, slurm_cluster
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = pytest.mark.slurm


@pytest.fixture(params=[OLDER, NEWER])
def forgetful(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Its controller lets go of jobs soon after their end; its books do not."""
    cluster = slurm_cluster(request.param, Layout(accounting=True, settings={"MinJobAge": "2"}))
    yield cluster
    cluster.close()


def on(cluster: SlurmCluster, test: Callable[[SlurmRig], Awaitable[None]]) -> None:
    with_own_rig(lambda folder: SlurmRig(folder, cluster.release.version, cluster), test)


async def told(rig: SlurmRig, *states: RunState) -> dict[str, ExternalRun]:
    try:
        return {one.id: one for one in await rig.engine.others() if one.state in states}
    except EngineDown:
        return {}


async def until_told(rig: SlurmRig, state: RunState, *ids: str) -> dict[str, ExternalRun]:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not {*ids} <= set(found := await told(rig, state)):
            await asyncio.sleep(0.05)
    return found


def test_the_books_know_what_the_controller_forgot(forgetful: SlurmCluster) -> None:
    cluster = forgetful

    async def test(rig: SlurmRig) -> None:
        seen = cluster.submit("sleep 1000", "--gpus=2", "--output=/dev/null")
        own = await rig.start("own.1", "sleep", "1000", ask=Ask(gpus=1, cpus=1))
        await until_told(rig, RunState.RUNNING, f"slurm:{seen}")
        assert set(await told(rig, RunState.RUNNING)) == {f"slurm:{seen}"}
        await rig.close()
        array = cluster.submit("sleep 1", "--gres=shard:8", "--array=1-2", "--output=/dev/null")
        cluster.ask("scancel", seen)
        cluster.ask("scancel", "--name=sleep")  # the run of ours
        listed = "squeue", "--noheader", "--states=all", "--format=%i"
        wait_until(lambda: not cluster.ask(*listed), "all of them are forgotten", 120)
        rig.engine = rig.another_engine()
        await rig.open()
        found = await until_told(rig, RunState.ENDED, f"slurm:{seen}", f"slurm:{array}_1", f"slurm:{array}_2")
        assert (found[f"slurm:{seen}"].ask.gpus, found[f"slurm:{array}_1"].ask.shards) == (2, 8)
        assert len(found) == 3, "the run of ours is nobody else's"
        assert all(one.ends_at and one.started_at and one.ends_at >= one.started_at for one in found.values())
        assert (await rig.ended(own)).ending is not None

    on(cluster, test)
