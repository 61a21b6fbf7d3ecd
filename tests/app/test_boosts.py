"""Boosts through the REST door."""

from pathlib import Path
from typing import Any

import pytest

from tests.app.rig import Rig, on_rig
from tests.app.shares import come, day, move_in
from tests.builders import node
from tests.fakes.engine import FakeCluster


@pytest.mark.parametrize(
    ("who", "body", "status"),
    [
        ("prof", {"user": "li"}, 201),
        ("prof", {"user": "wang"}, 201),  # one of wang's teams is enough
        ("prof", {"user": "wang", "team": "nlp"}, 201),
        ("prof", {"user": "wang", "team": "cv"}, 403),
        ("prof", {"user": "li", "team": "cv"}, 422),
        ("prof", {"user": "dean"}, 403),
        ("prof", {"user": "nobody"}, 403),
        ("chief", {"user": "stranger"}, 201),
        ("chief", {"user": "nobody"}, 404),
        ("li", {"user": "li"}, 403),
        ("wang", {"user": "li"}, 403),
        ("chief", {"user": "li", "until": "31d"}, 422),
        ("chief", {"user": "li", "until": day(-1)}, 422),
        ("chief", {"user": "li", "until": "someday"}, 422),
        ("chief", {"user": "li", "until": ""}, 422),
        ("chief", {"user": "li", "until": "9999-12-31T23:59:59-12:00"}, 422),
        ("chief", {"user": "li", "why": " \t"}, 422),
        ("chief", {"user": "li", "why": "x" * 301}, 422),
        ("chief", {"user": "li", "why": "a\x1b[31mb"}, 422),
        ("chief", {"user": "li", "for": "ever"}, 422),
        ("chief", {}, 422),
    ],
)
def test_who_may_boost_whom_and_how(tmp_path: Path, who: str, body: dict[str, Any], status: int) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        answer = await (await come(rig, who)).post("/boosts", json={"until": "3d", "why": "a deadline", **body})
        assert answer.status_code == status, answer.text
        assert len(rig.desk.roster.boosts) == (status == 201)
        assert len(await rig.desk.context.store.audit(limit=9, what="boost")) == (status == 201)

    on_rig(scenario, tmp_path)


def test_a_boost_is_seen_by_the_team_and_ends(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        prof = await come(rig, "prof")
        made = (await prof.post("/boosts", json={"user": "li", "until": day(2), "why": "NeurIPS  deadline"})).json()
        assert (made["user"], made["team"], made["by"], made["why"]) == ("li", "nlp", "prof", "NeurIPS deadline")
        seen = {}
        for name in ("li", "wang", "prof", "chief", "dean", "stranger"):
            seen[name] = len((await (await come(rig, name)).get("/boosts")).json()["items"])
        assert seen == {"li": 1, "wang": 1, "prof": 1, "chief": 1, "dean": 0, "stranger": 0}
        for name, status in (("wang", 403), ("dean", 403), ("stranger", 403), ("prof", 200)):
            answer = await (await come(rig, name)).delete(f"/boosts/{made['id']}")
            assert answer.status_code == status, name
        assert not rig.desk.roster.boosts
        assert (await prof.delete(f"/boosts/{made['id']}")).status_code == 404
        log = await rig.desk.context.store.audit(limit=9, what="boost.set")
        assert [(one.who, one.target) for one in log] == [("prof", "li"), ("prof", "li")]
        assert "NeurIPS deadline" in log[1].detail

    on_rig(scenario, tmp_path)


def test_a_new_boost_takes_the_place_of_the_running_one_of_the_same_team(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        prof, dean = await come(rig, "prof"), await come(rig, "dean")
        for client, until in ((prof, "1d"), (dean, "2d"), (prof, "5d")):
            await client.post("/boosts", json={"user": "wang", "until": until, "why": "late"})
        found = (await prof.get("/boosts")).json()["items"]
        assert [(one["team"], one["by"]) for one in found] == [("cv", "dean"), ("nlp", "prof")]

    on_rig(scenario, tmp_path)


def test_who_waits_in_the_queue_of_a_cluster_already_goes_first_there_too(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        engine = rig.engine
        assert isinstance(engine, FakeCluster)
        await move_in(rig)
        jobs = {}
        for name in ("li", "wang"):
            client = await come(rig, name)
            made = (await client.post("/jobs", json={"command": ["true"], "workdir": "/", "team": "nlp"})).json()
            jobs[name] = await rig.state(client, made["id"], "PENDING")
        prof = await come(rig, "prof")
        boost = (await prof.post("/boosts", json={"user": "li", "until": "3d", "why": "a deadline"})).json()
        await rig.until(lambda: engine.first)
        assert engine.first == {rig.desk.cache.active_jobs.jobs[jobs["li"]["id"]].handle}
        await prof.delete(f"/boosts/{boost['id']}")
        await rig.until(lambda: not engine.first)

    on_rig(scenario, tmp_path, engine=FakeCluster([node("n1", gpus=4)]))
