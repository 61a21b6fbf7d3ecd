"""Usage through the REST door: who sees whose, and that the numbers are right."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from danlu.domain.charge import Charge
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, day, move_in

HOUR = timedelta(hours=1)


def charge(run: str, user: str, team: str, *, ago: float = 1, hours: float = 2, **more: Any) -> Charge:
    """A run that ended so many days ago, after an hour of waiting."""
    ended = datetime.now(UTC) - timedelta(days=ago)
    started = ended - hours * HOUR
    fields: dict[str, Any] = {
        "gpus": 1,
        "shards": 0,
        "shards_per_gpu": 64,
        "cpus": 4,
        "memory_mib": 0,
        "queue": "",
    } | more
    return Charge(run, user, team, submitted_at=started - HOUR, started_at=started, ended_at=ended, **fields)


async def some_use(rig: Rig) -> None:
    await move_in(rig)
    charges = [
        charge("a.1", "li", "nlp", gpus=2, time_limit=4 * HOUR, queue="train"),
        charge("b.1", "wang", "nlp", hours=1, queue="train"),
        charge("c.1", "wang", "cv", hours=3, queue="dev"),
        charge("d.1", "dean", "cv", gpus=0, shards=32, queue="dev"),
        charge("e.1", "stranger", "", gpus=0),
        charge("f.1", "li", "nlp", ago=20, hours=10),
    ]
    await rig.desk.cache.store.update([], (), charges)


def hours(answer: Any) -> dict[str, float]:
    return {one["name"]: one["gpu_hours"] for one in answer.json()["items"]}


def test_an_administrator_sees_all_by_user_team_and_queue(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await some_use(rig)
        chief = await come(rig, "chief")
        week = "/usage?since=7d"
        assert hours(await chief.get(week)) == {"li": 4, "wang": 4, "dean": 1, "stranger": 0}
        assert hours(await chief.get(week + "&by=team")) == {"nlp": 5, "cv": 4, "": 0}
        assert hours(await chief.get(week + "&by=queue")) == {"train": 5, "dev": 4, "": 0}
        assert hours(await chief.get("/usage?user=li")) == {"li": 14}
        assert hours(await chief.get(f"/usage?since={day(-25)[:10]}&until=15d")) == {"li": 10}
        total = (await chief.get(week)).json()["total"]
        assert (total["runs"], total["gpu_hours"], total["asked_gpu_hours"]) == (5, 9, 13)
        assert (total["cpu_hours"], total["mean_wait_s"], total["longest_wait_s"]) == (40, 3600, 3600)

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    ("who", "query", "found"),
    [
        ("li", "", {"li": 4, "wang": 1}),  # wang's part in nlp
        ("li", "&user=me", {"li": 4}),
        ("li", "&user=wang", {"wang": 1}),
        ("li", "&team=nlp", {"li": 4, "wang": 1}),
        ("wang", "&team=cv", {"wang": 3, "dean": 1}),
        ("prof", "&by=team", {"nlp": 5}),
        ("stranger", "", {"stranger": 0}),
        ("li", "&team=cv", 403),
        ("li", "&user=dean", 403),
        ("li", "&user=nobody", 403),
        ("stranger", "&user=li", 403),
        ("stranger", "&team=nlp", 403),
        ("chief", "&user=nobody", 404),
        ("chief", "&team=nobodys", 404),
        ("chief", "&user=prof", {}),
        ("li", "&by=colour", 422),
        ("li", "&until=8d", 422),
        ("li", "&until=soon", 422),
    ],
)
def test_everybody_sees_the_own_use_and_the_teams(tmp_path: Path, who: str, query: str, found: Any) -> None:
    async def scenario(rig: Rig) -> None:
        await some_use(rig)
        answer = await (await come(rig, who)).get(f"/usage?since=7d{query}")
        assert (hours(answer) if answer.is_success else answer.status_code) == found

    on_rig(scenario, tmp_path)


def test_what_runs_now_counts_as_far_as_it_has_come(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        li = await come(rig, "li")
        body = {"command": ["true"], "workdir": "/", "gpus": 1, "time": "5h"}
        job = (await li.post("/jobs", json=body)).json()["id"]
        await rig.state(li, job, "RUNNING")
        line = (await li.get("/usage")).json()["items"][0]
        assert (line["name"], line["runs"], line["running"], line["asked_gpu_hours"]) == ("li", 1, 1, 5)
        assert 0 <= line["gpu_hours"] < 1
        past = (await li.get("/usage?since=9d&until=1d")).json()
        assert past["items"] == []
        assert past["total"]["runs"] == 0

    on_rig(scenario, tmp_path)
