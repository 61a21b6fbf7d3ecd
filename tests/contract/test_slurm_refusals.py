"""What real clusters refuse: for limits in their books, for whom a queue is, and by a plugin of the site."""

from typing import Any

import pytest

from danlu.engines.base import Ending
from tests.contract.test_slurm_accounts import BooksRig, both_versions, on
from tests.golden.slurm.capture import add_site_plugin
from tests.slurm.cluster import shared_cluster, slurm_cluster

pytestmark = pytest.mark.slurm
MEMBER, STRANGER = "games", "news"  # each in a group of the same name


async def refused(rig: BooksRig, run_id: str, user: str, **particulars: Any) -> tuple[str, str]:
    """The code and the text of why."""
    end = await rig.ended(await rig.begin(run_id, user, "", **particulars))
    assert end.ending is Ending.NOT_STARTED, end
    assert end.reason
    return end.reason.code, end.reason.full_text


@both_versions
def test_the_words_of_a_site_reach_the_person(version: str) -> None:
    """It is refused once, and not tried for ever as if the controller were down."""
    cluster = slurm_cluster(version)
    add_site_plugin(cluster)

    async def body(rig: BooksRig) -> None:
        code, text = await refused(rig, "a.1", MEMBER, name="many")
        assert (code, text) == (
            "not_started",
            "Slurm refused the job: You requested too many GPUs.; Read our page about configuration.",
        )

    try:
        on(cluster, body)
    finally:
        cluster.close()


@both_versions
def test_a_queue_says_whom_it_is_for(version: str) -> None:
    cluster = shared_cluster(version)
    cluster.is_harmed = True
    change = ("scontrol", "update", "partitionname=debug")
    cluster.ask(*change, f"AllowGroups={MEMBER}", "AllowAccounts=vision")

    async def body(rig: BooksRig) -> None:
        await rig.engine.node_facts()
        gpu, debug, closed = rig.engine.queues()
        assert (gpu.name, gpu.groups, gpu.users, gpu.besides) == ("gpu", frozenset(), frozenset(), "")
        assert (debug.groups, debug.users, debug.besides) == ({MEMBER}, frozenset(), "in Slurm: accounts vision")
        cluster.ask(*change, "AllowGroups=ALL", "RootOnly=YES")
        await rig.engine._poller.read_nodes()
        _, debug, _ = rig.engine.queues()
        assert (debug.groups, debug.users) == (frozenset(), {"root"})
        assert [(one.closed, one.takes_jobs) for one in (gpu, closed)] == [("", True), ("it is DOWN in Slurm", True)]
        cluster.ask("scontrol", "update", "partitionname=closed", "State=INACTIVE")
        await rig.engine._poller.read_nodes()
        *_, closed = rig.engine.queues()
        assert (closed.closed, closed.takes_jobs) == ("it is INACTIVE in Slurm", False)

    on(cluster, body)
