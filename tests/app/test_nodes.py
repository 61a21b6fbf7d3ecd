"""Jobs on several nodes through the REST door: who takes them, how they count, how they are shown."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from danlu.actions.jobs.submit import Rules, accept
from danlu.domain.people import Actor
from danlu.domain.queue import Queue
from danlu.domain.request import JobRequest
from danlu.domain.resources import MEETING_PORTS, Seat
from danlu.engines.base import Abilities, Launch
from danlu.errors import Forbidden, Invalid, Refused, TooBig
from danlu.state.inventory import Inventory
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, move_in
from tests.builders import node
from tests.fakes.engine import FakeCluster

BODY = {"command": ["true"], "workdir": "/"}


def cluster() -> FakeCluster:
    """Two nodes; each run gets the first cards of as many as it asks for."""

    def seats(launch: Launch) -> tuple[Seat, ...]:
        ask = launch.ask
        return tuple(Seat(f"n{at}", ask.cpus, gpus=tuple(range(ask.gpus))) for at in range(1, ask.nodes + 1))

    return FakeCluster([node("n1", gpus=4, cpus=32), node("n2", gpus=4, cpus=32)], seats=seats)


def test_one_machine_runs_a_job_on_one_node(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        for path in ("/jobs", "/jobs?dry_run=true"):
            answer = await client.post(path, json=BODY | {"nodes": 2})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (409, "too_big")
            assert problem["detail"] == "a job runs on one node here, this one asks for 2"
        assert (await client.post("/jobs", json=BODY | {"nodes": 1})).status_code == 201

    on_rig(scenario, tmp_path, nodes=(node("n1", cpus=8), node("n2", cpus=8)))


@pytest.mark.parametrize(("pretends", "why"), [("", "only this machine"), ("fics.toml", "plays all the nodes")])
def test_the_hint_says_why(pretends: str, why: str) -> None:
    rules = Rules(Inventory([node("n1"), node("n2")]), pretends=pretends)
    with pytest.raises(TooBig) as refused:
        accept(rules, Actor("li"), JobRequest(("true",), nodes=2))
    assert why in refused.value.hint


def test_one_node_is_no_rank_of_several(tmp_path: Path) -> None:
    """The line for torchrun works; but a plain script is not told that it is a part of something."""

    async def scenario(rig: Rig) -> None:
        for own in ({}, {"MASTER_PORT": "4000"}):
            job = (await rig.client(0).post("/jobs", json=BODY | {"env": own})).json()["jobs"][0]
            await rig.state(rig.client(0), job["id"], "RUNNING")
            (launch,) = (one for handle, one in rig.engine.launches.items() if job["id"] in handle)
            port = int(launch.env["MASTER_PORT"])
            assert port == 4000 if own else port in MEETING_PORTS
            assert [launch.env[name] for name in ("MASTER_ADDR", "NNODES", "NODE_RANK")] == ["127.0.0.1", "1", "0"]
            assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & launch.env.keys()

    on_rig(scenario, tmp_path)


def test_it_is_shown_with_all_its_nodes(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        made = (await client.post("/jobs", json=BODY | {"nodes": 2, "gpus": 1})).json()["jobs"][0]
        job = await rig.state(client, made["id"], "RUNNING")
        assert (job["ask"]["nodes"], job["ask"]["gpus"], job["node"]) == (2, 1, "n1")
        assert [(seat["node"], seat["gpus"]) for seat in job["seats"]] == [("n1", [0]), ("n2", [0])]
        for one in (await client.get("/nodes")).json()["items"]:
            held = [card["index"] for card in one["gpus"] if card["holders"]]
            assert held == [0]
        clone = (await client.post(f"/jobs/{job['id']}/clone", json={"gpus": 2})).json()["jobs"][0]
        assert (clone["ask"]["nodes"], clone["ask"]["gpus"]) == (2, 2)
        alone = (await client.post(f"/jobs/{job['id']}/clone", json={"nodes": 1})).json()["jobs"][0]
        assert alone["ask"]["nodes"] == 1

    on_rig(scenario, tmp_path, engine=cluster())


def test_a_quota_counts_every_node(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await (await come(rig, "chief")).put("/quotas/user:li", json={"gpus": 3})
        li = await come(rig, "li")
        big = (await li.post("/jobs", json=BODY | {"nodes": 2, "gpus": 2})).json()["jobs"][0]
        small = (await li.post("/jobs", json=BODY | {"nodes": 2, "gpus": 1})).json()["jobs"][0]
        await rig.state(li, small["id"], "RUNNING")
        waits = (await li.get(f"/jobs/{big['id']}/why")).json()
        assert waits["state"] == "QUEUED"
        assert "4" in waits["reason"]["text"]
        held: Any = (await li.get("/quotas")).json()["items"][0]["held"]
        assert held["gpus"] == 2

    on_rig(scenario, tmp_path, engine=cluster())


@pytest.mark.parametrize(
    ("asked", "instead"),
    [({"nodes": 2, "gpus": 2}, "`--gpus 1`"), ({"nodes": 4, "gpus": 1}, "`--nodes 3`"), ({"gpus": 4}, "`--gpus 3`")],
)
def test_a_queues_limit_is_that_of_all_its_nodes(asked: dict[str, Any], instead: str) -> None:
    nodes = [node(f"n{number}", gpus=4) for number in range(4)]
    inventory = Inventory(nodes, {"train": Queue("train", max_gpus=3, is_default=True)})
    with pytest.raises(Refused) as refused:
        accept(Rules(inventory, abilities=Abilities(many_nodes=True)), Actor("li"), JobRequest(("true",), **asked))
    assert (refused.value.code, refused.value.hint) == ("queue_limit", instead)


def unseen(*written: Queue) -> Rules:
    """A cluster that was not heard of since the server started; of some queues it is written what they allow."""
    queues = {queue.name: queue for queue in written}
    return Rules(Inventory((), queues, is_known=False), abilities=Abilities(many_nodes=True))


def test_rules_of_queues_hold_before_the_cluster_was_heard_of() -> None:
    short = Queue("short", max_gpus=1, max_time=timedelta(hours=1), default_time=timedelta(minutes=10))
    rules = unseen(Queue("boss", users=frozenset({"wang"})), short)
    with pytest.raises(Forbidden, match="boss"):
        accept(rules, Actor("li"), JobRequest(("true",), queue="boss"))
    assert accept(rules, Actor("wang"), JobRequest(("true",), queue="boss"))[0].queue == "boss"
    with pytest.raises(Refused, match="at most 1 GPU"):
        accept(rules, Actor("li"), JobRequest(("true",), queue="short", gpus=2))
    assert accept(rules, Actor("li"), JobRequest(("true",), queue="short"))[0].time_limit == timedelta(minutes=10)
    assert accept(rules, Actor("li"), JobRequest(("true",), queue="not-written"))[0].queue == "not-written"


def test_who_names_no_queue_of_an_unseen_cluster_gets_round_no_rule() -> None:
    with pytest.raises(Invalid) as refused:
        accept(unseen(Queue("boss", users=frozenset({"wang"}))), Actor("li"), JobRequest(("true",)))
    assert refused.value.code == "queue_needed"
    chosen = unseen(Queue("boss", users=frozenset({"wang"})), Queue("all", is_default=True))
    assert accept(chosen, Actor("li"), JobRequest(("true",)))[0].queue == "all"
    assert accept(unseen(), Actor("li"), JobRequest(("true",)))[0].queue == ""
