"""The rules at work: quotas hold, idle cards are lent, and who borrowed gives back when the owner comes."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from danlu.domain.charge import Charge
from danlu.domain.job import Reason
from danlu.domain.quota import Quota
from danlu.domain.resources import Seat
from danlu.engines.base import NodeNow
from danlu.state import snapshots
from danlu.store.people_protocol import Limit
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, move_in
from tests.builders import node
from tests.fakes.engine import FakeCluster, Play


async def submit(client: httpx.AsyncClient, **options: Any) -> str:
    answer = await client.post("/jobs", json={"command": ["train"], "workdir": "/", **options})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["id"]
    return job_id


async def reason(client: httpx.AsyncClient, job_id: str) -> str:
    code: str = (await client.get(f"/jobs/{job_id}/why")).json()["reason"]["code"]
    return code


def test_over_quota_is_no_error_but_a_wait_that_says_by_how_much(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.desk.roster.record([Limit("team:nlp", Quota(gpus=1))])
        li = await come(rig, "li")
        first, second = await submit(li, gpus=1), await submit(li, gpus=1)
        await rig.state(li, first, "RUNNING")
        why = (await li.get(f"/jobs/{second}/why")).json()
        assert why["reason"]["code"] == "quota"
        assert "nlp" in why["reason"]["text"]
        rig.engine.finish(f"{first}.1")
        await rig.state(li, second, "RUNNING")

    on_rig(scenario, tmp_path)


def test_a_raised_quota_starts_who_waited_for_it(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.desk.roster.record([Limit("user:li", Quota(jobs=0))])
        li, chief = await come(rig, "li"), await come(rig, "chief")
        job = await submit(li)
        await rig.until(lambda: job in rig.desk.outlook.plan.waits)
        assert (await chief.put("/quotas/user:li", json={"jobs": 1})).status_code == 200
        await rig.state(li, job, "RUNNING")

    on_rig(scenario, tmp_path)


def test_cards_that_are_nobodys_for_a_moment_cost_no_borrower_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster says of its nodes less often than of its jobs what is taken: cards that were just given back seem to be
    somebody's still."""
    cards = count()
    engine = FakeCluster(
        [node("n1", gpus=4, cpus=32)],
        seats=lambda launch: () if launch.team == "cv" else (Seat("n1", 1, gpus=(next(cards),)),),
    )

    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.desk.roster.record(
            [Limit("team:nlp", Quota(gpus=1, borrow=True)), Limit("team:cv", Quota(gpus=3))],
        )
        li, dean = await come(rig, "li"), await come(rig, "dean")
        for _ in range(4):
            await rig.state(li, await submit(li, gpus=1, preemptible=True), "RUNNING")
        engine.words = {"n1": NodeNow("ALLOCATED", gpus=(0, 1, 2, 3))}
        owner = await submit(dean, gpus=1)
        await rig.state(dean, owner, "PENDING")
        await rig.until(lambda: engine.stops)
        left = engine.stops[0][0]
        await rig.until(lambda: left not in {job.handle for job in rig.desk.cache.active_jobs.holding()})
        await rig.state(li, await submit(li), "RUNNING")  # it was thought of again
        assert {stop[0] for stop in engine.stops} == {left}
        monkeypatch.setattr(snapshots, "MOMENT", timedelta(0))  # somebody has them, it turns out
        async with asyncio.timeout(60):
            while len({stop[0] for stop in engine.stops}) < 2:
                await submit(li)  # time that passes wakes nobody; a submit does
                await asyncio.sleep(0.05)

    on_rig(scenario, tmp_path, engine=engine)


def test_who_is_given_back_cards_waits_for_those_and_not_for_what_the_cluster_thinks(tmp_path: Path) -> None:
    engine = FakeCluster(
        [node("n1", gpus=1, cpus=32)],
        seats=lambda launch: () if launch.team == "cv" else (Seat("n1", 1, gpus=(0,)),),
        plays=lambda launch: Play(ignores_term=True),
    )

    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.desk.roster.record([Limit("team:nlp", Quota(gpus=0, borrow=True)), Limit("team:cv", Quota(gpus=1))])
        li, dean = await come(rig, "li"), await come(rig, "dean")
        await rig.state(li, await submit(li, gpus=1, preemptible=True, signal="USR1@60", time="5h"), "RUNNING")
        owner = await submit(dean, gpus=1)
        await rig.state(dean, owner, "PENDING")
        now = datetime.now(UTC)
        engine.hold(f"{owner}.1", Reason("no_room", "no cards"), estimated_at=now + timedelta(hours=5))
        await rig.until(lambda: engine.stops and owner in rig.desk.outlook.estimates)
        why = (await dean.get(f"/jobs/{owner}/why")).json()
        assert why["reason"]["code"] == "reclaiming"
        assert datetime.fromisoformat(why["estimated_at"]) < now + timedelta(minutes=5)

    on_rig(scenario, tmp_path, engine=engine)


def test_borrowed_cards_go_back_youngest_first_and_no_more_than_needed(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.desk.roster.record(
            [Limit("team:nlp", Quota(gpus=1, borrow=True)), Limit("team:cv", Quota(gpus=3))],
        )
        li, dean = await come(rig, "li"), await come(rig, "dean")
        running = []
        for _ in range(4):
            running.append(await submit(li, gpus=1, preemptible=True, signal="USR1@60"))
            await rig.state(li, running[-1], "RUNNING")
        owner = await submit(dean, gpus=1)
        await rig.state(dean, owner, "RUNNING")
        # It was asked politely: its own signal, the grace of the installation.
        (stopped,) = rig.engine.stops
        assert stopped[0] == rig.engine.handle(f"{running[-1]}.1")  # type: ignore[arg-type]
        assert stopped[1] == timedelta(seconds=30)
        assert stopped[2] is not None
        assert stopped[2].signal == "USR1"
        back = (await li.get(f"/jobs/{running[-1]}")).json()
        assert (back["state"], back["attempt"]) == ("QUEUED", 2)
        for job in running[:-1]:
            assert (await li.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        # When the owner is done, it goes on by itself.
        rig.engine.finish(f"{owner}.1")
        await rig.state(li, running[-1], "RUNNING")

    on_rig(scenario, tmp_path, gpus=4)


def test_what_is_not_preemptible_does_not_borrow(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.desk.roster.record([Limit("team:nlp", Quota(gpus=1, borrow=True))])
        li = await come(rig, "li")
        await rig.state(li, await submit(li, gpus=1), "RUNNING")
        waits = await submit(li, gpus=1)
        assert await reason(li, waits) == "quota"
        alternatives = (await li.get(f"/jobs/{waits}/why")).json()["alternatives"]
        assert any(one["changes"].get("preemptible") for one in alternatives)

    on_rig(scenario, tmp_path)


def test_jobs_of_a_disabled_person_wait_and_running_ones_go_on(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        li, chief = await come(rig, "li"), await come(rig, "chief")
        running = await submit(li, gpus=2)
        await rig.state(li, running, "RUNNING")
        waits = await submit(li, gpus=2)
        assert (await chief.post("/users/li/disable")).status_code == 200
        assert (await li.get("/jobs")).status_code in (401, 403)
        assert (await chief.get(f"/jobs/{running}")).json()["state"] == "RUNNING"
        rig.engine.finish(f"{running}.1")
        await rig.state(chief, running, "SUCCEEDED")
        assert await reason(chief, waits) == "disabled"
        assert (await chief.post("/users/li/enable")).status_code == 200
        await rig.state(chief, waits, "RUNNING")

    on_rig(scenario, tmp_path)


def test_who_used_less_goes_first(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        used = Charge("old.1", "li", "nlp", "", yesterday, yesterday, yesterday + timedelta(hours=8), 2, 0, 64, 1, 0)
        rig.desk.outlook.standing.tally.add(used)
        li, dean, wang = await come(rig, "li"), await come(rig, "dean"), await come(rig, "wang")
        first = await submit(wang, gpus=2, team="cv")
        await rig.state(wang, first, "RUNNING")
        later, wanted = await submit(li, gpus=2), await submit(dean, gpus=2)
        rig.engine.finish(f"{first}.1")
        # li was there before, but has had much already.
        await rig.state(dean, wanted, "RUNNING")
        assert (await li.get(f"/jobs/{later}")).json()["state"] == "QUEUED"
        (charge,) = await rig.desk.context.store.charges(yesterday)
        assert (charge.run_id, charge.user, charge.team, charge.gpus) == (f"{first}.1", "wang", "cv", 2)

    on_rig(scenario, tmp_path)


def test_submits_are_answered_while_a_long_queue_is_thought_about(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(uid=0)
        for _ in range(300):
            await submit(client, gpus=2)
        answers = await asyncio.gather(*(submit(client, gpus=1) for _ in range(20)))
        await rig.until(lambda: set(answers) <= set(rig.desk.outlook.plan.waits))
        stopped = await client.post(f"/jobs/{answers[0]}/stop")
        assert stopped.status_code == 200
        await rig.state(client, answers[0], "CANCELLED")

    on_rig(scenario, tmp_path)
