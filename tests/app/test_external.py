"""Runs that did not come through Danlu: seen in every list, counted, and stopped by who they belong to."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from danlu.actions.people.context import PeopleRules
from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Seat
from danlu.engines.base import ExternalRun, Handle, NodeNow, RunState
from danlu.store.people_protocol import UseFilter
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, move_in
from tests.builders import node
from tests.fakes.engine import FakeCluster

AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
CARD = Seat("n1", 4, 8000, gpus=(0,))
SHARDS = Seat("n1", 1, 1000, shared_gpu=1, shards=16)


@pytest.fixture(autouse=True)
def ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hours before each test, and not before all of them."""
    monkeypatch.setitem(globals(), "AGO", datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2))


def cluster(**options: Any) -> FakeCluster:
    return FakeCluster([node("n1", gpus=4, cpus=32), node("n2", gpus=4, cpus=32)], **options)


def other(number: str = "17", user: str = "li", *seats: Seat, **fields: Any) -> ExternalRun:
    """It runs where it sits, for two hours already and for two more; without a seat it waits."""
    cards = sum(len(seat.gpus) for seat in seats)
    made = ExternalRun(
        f"slurm:{number}",
        Handle(f"slurm-job:{number}:1:1000"),
        user,
        "bert",
        RunState.RUNNING if seats else RunState.PENDING,
        Ask(gpus=cards, shards=sum(seat.shards for seat in seats), cpus=max([1, *(seat.cpus for seat in seats)])),
        "gpu",
        seats,
        submitted_at=AGO,
        started_at=AGO if seats else None,
        ends_at=AGO + timedelta(hours=4) if seats else None,
    )
    return replace(made, **fields)


def ended(run: ExternalRun, hours: float) -> ExternalRun:
    return replace(run, state=RunState.ENDED, seats=(), ends_at=AGO + timedelta(hours=hours))


async def heard(rig: Rig, *ids: str) -> None:
    await rig.until(lambda: {one.id for one in rig.desk.rules.inventory.others} == {f"slurm:{one}" for one in ids})


def put(rig: Rig, *others: ExternalRun) -> None:
    assert isinstance(rig.engine, FakeCluster)
    rig.engine.put(*others)


async def until_used(rig: Rig, **wanted: Any) -> None:
    """Of each person the runs and card hours in the books."""
    async with asyncio.timeout(20):
        while True:
            found = await rig.desk.context.store.use(UseFilter())
            if {use.user: (use.runs, round(use.gpu_hours, 3)) for use in found} == wanted:
                return
            await asyncio.sleep(0.002)


def test_they_are_listed_and_shown_to_everybody(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        why = Reason("no_room", "no cards are free")
        waits = other("18_[4-9]", "wang", reason=why, name="a\x1b[2J", tasks=6, submitted_at=AGO + timedelta(hours=1))
        put(rig, waits, other("17", "li", CARD), other("18_3", "wang", SHARDS))
        parts = [other(f"19+{part}", "li", queue="cpu") for part in range(2)]
        await heard(rig, "17", "18_3", "18_[4-9]")
        client = await come(rig, "stranger")

        async def ids(path: str) -> list[str]:
            answer = await client.get(path)
            return [one["id"] for one in answer.json()["items"]] if answer.is_success else [str(answer.status_code)]

        assert await ids("/others") == ["slurm:17", "slurm:18_3", "slurm:18_[4-9]"]
        assert await ids("/others?user=li") == ["slurm:17"]
        assert await ids("/others?user=me") == []
        assert await ids("/others?state=pending") == ["slurm:18_[4-9]"]
        assert await ids("/others?state=active&queue=gpu&name=bert") == ["slurm:17", "slurm:18_3"]
        assert await ids("/others?queue=debug") == []
        assert await ids("/others?state=failed") == ["422"]
        assert await ids("/others/slurm:18") == ["slurm:18_[4-9]", "slurm:18_3"], "an array is all of its tasks"
        assert await ids("/others/slurm:18_[3-9]") == ["slurm:18_[4-9]"], "one has begun since"
        assert await ids("/others/slurm:18_5") == ["slurm:18_5"], "one of those that wait together"
        put(rig, *parts)
        await heard(rig, "17", "18_3", "18_[4-9]", "19+0", "19+1")
        assert await ids("/others/slurm:19") == ["slurm:19+0", "slurm:19+1"], "a job of two kinds"
        assert await ids("/others/slurm:1") == ["404"]
        (shown,) = (await client.get("/others/slurm:18_[4-9]")).json()["items"]
        assert (shown["name"], shown["tasks"], shown["reason"]["text"]) == ("a\x1b[2J", 6, "no cards are free")
        (shown,) = (await client.get("/others/slurm:17")).json()["items"]
        assert (shown["user"], shown["state"], shown["queue"]) == ("li", "RUNNING", "gpu")
        assert shown["seats"] == [{"node": "n1", "gpus": [0], "shared_gpu": None, "shards": 0}]
        assert shown["ends_at"][:19] == (AGO + timedelta(hours=4)).isoformat()[:19]

    on_rig(scenario, tmp_path, engine=cluster())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/logs"), ("GET", "/follow"), ("GET", "/wait"), ("GET", "/why"), ("POST", "/clone"),
     ("POST", "/stop"), ("DELETE", "")],
)  # fmt: skip
def test_they_are_no_jobs_and_say_so(tmp_path: Path, method: str, path: str) -> None:
    async def scenario(rig: Rig) -> None:
        put(rig, other("17", "li", CARD))
        await heard(rig, "17")
        answer = await rig.client(0).request(method, f"/jobs/slurm:17{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "other")
        assert answer.json()["detail"].startswith("slurm:17 did not come through Danlu")
        assert "danlu show slurm:17" in answer.json()["hint"]
        assert not rig.engine.stops

    on_rig(scenario, tmp_path, engine=cluster())


@pytest.mark.parametrize(
    ("who", "as_submitter", "may"),
    [
        ("li", True, True),
        ("chief", True, True),
        ("wang", True, False),  # of the same team
        ("prof", True, False),  # who leads it
        ("stranger", True, False),
        # Jobs run as the server's own user: nobody knows whether this li is the Unix user li.
        ("li", False, False),
        ("chief", False, True),
    ],
)
def test_owners_and_administrators_stop_them(tmp_path: Path, who: str, as_submitter: bool, may: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        rig.desk.context.rules = PeopleRules(as_submitter=as_submitter)
        put(rig, other("17_1", "li", CARD), other("17_[2-3]", "li"), other("18", "li", SHARDS))
        await heard(rig, "17_1", "17_[2-3]", "18")
        answer = await (await come(rig, who)).post("/others/slurm:17/stop")
        noted = (await rig.client(0).get("/audit", params={"what": "other.stop"})).json()["items"]
        if not may:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            assert (rig.engine.stops, noted) == ([], [])
            return
        assert [one["id"] for one in answer.json()["items"]] == ["slurm:17_1", "slurm:17_[2-3]"]
        stopped = [handle for handle, _, _ in rig.engine.stops]
        assert stopped == ["slurm-job:17_1:1:1000", "slurm-job:17_[2-3]:1:1000"], "by the moment of their submit"
        assert [(one["who"], one["target"], one["detail"]) for one in noted] == [
            (who, "slurm:17", "" if who == "li" else "of li")
        ]
        await heard(rig, "18")

    on_rig(scenario, tmp_path, engine=cluster())


def test_whom_the_kernel_names_stops_the_own(tmp_path: Path) -> None:
    """Uid 1 is `daemon` on every machine."""

    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        put(rig, other("17", "daemon", CARD), other("18", "li", SHARDS))
        await heard(rig, "17", "18")
        assert (await rig.client(1).post("/others/slurm:18/stop")).status_code == 403
        assert (await rig.client(1).post("/others/slurm:17/stop")).status_code == 200
        await heard(rig, "18")

    on_rig(scenario, tmp_path, engine=cluster())


def test_an_engine_that_is_down_stops_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        put(rig, other("17", "li", CARD))
        await heard(rig, "17")
        rig.engine.is_down = True
        answer = await rig.client(0).post("/others/slurm:17/stop")
        assert (answer.status_code, answer.json()["code"]) == (503, "engine_down")
        assert [one["id"] for one in (await rig.client(0).get("/others")).json()["items"]] == ["slurm:17"]

    on_rig(scenario, tmp_path, engine=cluster())


def test_they_hold_cards_nodes_and_queues(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert isinstance(rig.engine, FakeCluster)
        rig.engine.words = {
            "n1": NodeNow("MIXED", cpus=7, gpus=(0,), shards={1: 16}),
            "n2": NodeNow("IDLE+DRAIN", "bad fan", gpus=(2,)),
        }
        put(rig, other("17", "li", CARD), other("18", "wang", SHARDS), other("19_[1-5]", "li", tasks=5))
        await heard(rig, "17", "18", "19_[1-5]")
        client = rig.client(0)
        first, second = (await client.get("/nodes")).json()["items"]
        assert (first["cpus_free"], [one["id"] for one in first["holders"]]) == (25, ["slurm:17", "slurm:18"])
        assert [(card["use"], card["shards_free"]) for card in first["gpus"]] == [
            ("exclusive", 0), ("shared", 48), ("free", 64), ("free", 64),
        ]  # fmt: skip
        (holder,) = first["gpus"][1]["holders"]
        assert (holder["id"], holder["user"], holder["shards"]) == ("slurm:18", "wang", 16)
        assert (holder["is_other"], holder["ends_at"][:10]) == (True, str((AGO + timedelta(hours=4)).date()))
        taken = [card for card in second["gpus"] if card["use"] != "free"]
        assert [(card["index"], card["holders"]) for card in taken] == [(2, [])], "somebody's, and nobody knows whose"
        assert (second["state"], second["why_closed"]) == ("IDLE+DRAIN", "")
        (queue,) = (await client.get("/queues")).json()["items"]
        assert (queue["running"], queue["waiting"]) == (2, 5)
        assert queue["cards"][0]["free"] == 5

    on_rig(scenario, tmp_path, engine=cluster())


def test_closed_nodes_say_why_and_have_nothing_to_give(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert isinstance(rig.engine, FakeCluster)
        rig.engine.words = {"n1": NodeNow("DOWN", "power supply")}
        put(rig, other("17", "li", SHARDS))
        await heard(rig, "17")
        (shown, _) = (await rig.client(0).get("/nodes")).json()["items"]
        assert (shown["accepts_jobs"], shown["state"], shown["why_closed"]) == (False, "DOWN", "power supply")
        (queue,) = (await rig.client(0).get("/queues")).json()["items"]
        assert (queue["cards"][0]["total"], queue["cards"][0]["free"], queue["cards"][0]["shards_free"]) == (6, 4, 256)
        assert (queue["cpus"], queue["cpus_free"]) == (128, 64)

    on_rig(scenario, tmp_path, engine=FakeCluster([node("n1", gpus=2, accepts_jobs=False), node("n2", gpus=4)]))


def test_who_waits_in_the_queue_of_the_cluster_uses_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.desk.rules.inventory.is_known)
        client = rig.client(0)
        job = (await client.post("/jobs", json={"command": ["true"], "workdir": "/", "gpus": 2})).json()["id"]
        await rig.state(client, job, "PENDING")
        assert (await client.get("/usage")).json()["items"] == []
        (queue,) = (await client.get("/queues")).json()["items"]
        assert (queue["running"], queue["waiting"]) == (0, 1)

    on_rig(scenario, tmp_path, engine=cluster())


def test_they_are_in_the_way_of_who_waits(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        others = [other(str(number), "wang", Seat("n1", 1, gpus=(number,))) for number in range(3)]
        unknown = other("3", "li", Seat("n1", 1), ask=Ask(gpus=1))
        put(rig, *others, unknown, other("4", "sun", Seat("n1", 1)))
        await heard(rig, "0", "1", "2", "3", "4")
        client = rig.client(0)
        job = (await client.post("/jobs", json={"command": ["true"], "workdir": "/", "gpus": 2})).json()["id"]
        await rig.state(client, job, "PENDING")
        why = (await client.get(f"/jobs/{job}/why")).json()
        assert {one["id"] for one in why["holders"]} == {"slurm:0", "slurm:1", "slurm:2", "slurm:3"}
        assert all(one["is_other"] and one["ends_at"] for one in why["holders"])

    on_rig(scenario, tmp_path, engine=FakeCluster([node("n1", gpus=4)]))


def test_nobody_guesses_when_a_job_that_is_held_may_start(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert isinstance(rig.engine, FakeCluster)
        put(rig, other("17", "wang", Seat("n1", 1, gpus=(0, 1, 2, 3))))
        await heard(rig, "17")
        client = rig.client(0)
        job = (await client.post("/jobs", json={"command": ["true"], "workdir": "/", "gpus": 2})).json()["id"]
        await rig.state(client, job, "PENDING")
        assert (await client.get(f"/jobs/{job}/why")).json()["estimated_at"] is not None
        rig.engine.hold(f"{job}.1", Reason("held", "an administrator holds it"))
        await rig.until(lambda: rig.desk.cache.active_jobs.jobs[job].reason.code == "held")
        assert (await client.get(f"/jobs/{job}/why")).json()["estimated_at"] is None

    on_rig(scenario, tmp_path, engine=FakeCluster([node("n1", gpus=4)]))


def test_their_owners_quota_counts_them(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        put(rig, other("17", "li", replace(CARD, gpus=(0, 1))))
        await heard(rig, "17")
        chief, li = await come(rig, "chief"), await come(rig, "li")
        assert (await chief.put("/quotas/user:li", json={"gpus": 2})).is_success
        (quota,) = (await chief.get("/quotas?holder=user:li")).json()["items"]
        assert (quota["held"]["gpus"], [one["id"] for one in quota["holders"]]) == (2, ["slurm:17"])
        job = (await li.post("/jobs", json={"command": ["true"], "workdir": "/", "gpus": 1})).json()["id"]
        await rig.state(li, job, "QUEUED")
        why = (await li.get(f"/jobs/{job}/why")).json()
        assert (why["reason"]["code"], [one["id"] for one in why["holders"]]) == ("quota", ["slurm:17"])

    on_rig(scenario, tmp_path, engine=cluster())


def test_they_count_in_the_usage_while_they_run_and_after(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        run, part = other("17", "li", replace(CARD, gpus=(0, 1))), other("18", "wang", replace(SHARDS, shards=32))
        put(rig, run, part, other("19", "wang"))
        await heard(rig, "17", "18", "19")
        chief = await come(rig, "chief")
        lines = {one["name"]: one for one in (await chief.get("/usage")).json()["items"]}
        assert (lines["li"]["running"], round(lines["li"]["gpu_hours"], 1)) == (1, 4.0)
        assert (lines["wang"]["runs"], round(lines["wang"]["gpu_hours"], 1)) == (1, 1.0)
        assert lines["li"]["asked_gpu_hours"] == 8
        assert hours_of(await (await come(rig, "li")).get("/usage?user=me")) == {"li": 4.0}
        put(rig, ended(run, 1.5))
        await heard(rig, "18", "19")
        await until_used(rig, li=(1, 3.0))
        (line,) = (await chief.get("/usage?user=li")).json()["items"]
        assert (line["runs"], line["running"], line["gpu_hours"], line["asked_gpu_hours"]) == (1, 0, 3, 8)
        assert rig.desk.outlook.standing.tally.use(datetime.now(UTC))["user:li"] == pytest.approx(3, rel=0.1)
        rig.engine.drop("slurm:17", "slurm:18")  # type: ignore[attr-defined]
        await heard(rig, "19")
        await until_used(rig, li=(1, 3.0), wang=(1, pytest.approx(1, rel=0.1)))  # until now, as nobody knows

    on_rig(scenario, tmp_path, engine=cluster())


def hours_of(answer: Any) -> dict[str, float]:
    return {one["name"]: round(one["gpu_hours"], 1) for one in answer.json()["items"]}


def test_a_restart_charges_what_ended_meanwhile_and_nothing_twice(tmp_path: Path) -> None:
    first, second, idle = other("17", "li", CARD), other("18", "li", SHARDS), other("19", "li", Seat("n2", 2))

    async def before(rig: Rig) -> None:
        await move_in(rig)
        put(rig, first, second, idle)
        await heard(rig, "17", "18", "19")
        put(rig, ended(first, 1))
        await heard(rig, "18", "19")
        await until_used(rig, li=(1, 1.0))

    async def after(rig: Rig) -> None:
        put(rig, ended(first, 1), ended(second, 1.6), ended(idle, 1), ended(other("20", "wang"), 1))
        await until_used(rig, li=(3, 1.4))
        put(rig, other("21", "li", CARD))
        await heard(rig, "21")
        use = rig.desk.outlook.standing.tally.use(datetime.now(UTC))
        assert use["user:li"] == pytest.approx(1.4, rel=0.1), "also in hand"

    on_rig(before, tmp_path, engine=cluster())
    on_rig(after, tmp_path, engine=cluster())


def test_one_that_is_begun_again_is_charged_for_each_time(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        run = other("17", "li", CARD)
        put(rig, run)
        await heard(rig, "17")
        put(rig, other("17", "li"))
        await rig.until(lambda: rig.desk.rules.inventory.others[0].state is RunState.PENDING)
        again = replace(run, started_at=AGO + timedelta(hours=1))
        put(rig, again)
        await rig.until(lambda: rig.desk.rules.inventory.others[0].state is RunState.RUNNING)
        put(rig, ended(again, 2))
        await heard(rig)
        await until_used(rig, li=(2, pytest.approx(3, rel=0.1)))

    on_rig(scenario, tmp_path, engine=cluster())
