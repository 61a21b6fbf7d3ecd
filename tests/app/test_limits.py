"""How many jobs may be there at once: of one person and of all, however they come."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from danlu.actions.jobs.limits import Limits
from tests.app.rig import Rig, on_rig
from tests.app.test_people import come, open_account

BODY: dict[str, Any] = {"command": ["true"], "workdir": "/", "cpus": 4}  # one at a time


async def people_with(rig: Rig, of_one: int, in_all: int, *names: str) -> list[httpx.AsyncClient]:
    rig.desk = replace(rig.desk, rules=replace(rig.desk.rules, limits=Limits(of_one, in_all)))
    for name in names:
        await open_account(rig, name)
    return [await come(rig, name) for name in names]


def test_nobody_has_more_jobs_than_the_limit_however_they_come(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        li, wang = await people_with(rig, 4, 100, "li", "wang")
        first = (await li.post("/jobs", json=BODY | {"array": "1-3"})).json()["id"]
        refused = await li.post("/jobs", json=BODY | {"array": "1-2"})
        said = refused.json()
        assert (refused.status_code, said["code"]) == (409, "too_many_jobs")
        assert said["detail"] == "you have 3 jobs that have not ended; 2 more jobs would exceed the limit of 4"
        assert said["hint"].startswith("1 more fit")
        assert len(rig.desk.cache.active_jobs.jobs) == 3, "an array comes wholly or not at all"
        for path, body in ((f"/jobs/{first}/clone", {}), ("/jobs?dry_run=true", BODY | {"array": "1-2"})):
            assert (await li.post(path, json=body)).json()["code"] == "too_many_jobs", path
        assert (await li.post("/jobs", json=BODY)).status_code == 201
        assert (await li.post("/jobs", json=BODY)).json()["code"] == "too_many_jobs"
        assert (await wang.post("/jobs", json=BODY)).status_code == 201, "others have room"
        await li.post(f"/jobs/{first}_3/stop", json={})
        assert (await li.post("/jobs", json=BODY)).status_code == 201

    on_rig(scenario, tmp_path)


def test_all_together_have_a_limit_too(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        li, wang = await people_with(rig, 4, 5, "li", "wang")
        assert (await li.post("/jobs", json=BODY | {"array": "1-4"})).status_code == 201
        said = (await wang.post("/jobs", json=BODY | {"array": "1-2"})).json()
        assert said["detail"] == "all people have 4 jobs that have not ended; 2 more jobs would exceed the limit of 5"
        assert (await wang.post("/jobs", json=BODY)).status_code == 201

    on_rig(scenario, tmp_path)


def test_submits_at_the_same_moment_do_not_overshoot(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        (li,) = await people_with(rig, 7, 100, "li")
        bodies = [BODY | ({"array": "1-2"} if number % 2 else {}) for number in range(20)]
        answers = await asyncio.gather(*(li.post("/jobs", json=body) for body in bodies))
        assert {answer.status_code for answer in answers} == {201, 409}
        assert len(rig.desk.cache.active_jobs.jobs) == 7

    on_rig(scenario, tmp_path)


def test_a_submit_that_is_repeated_at_the_limit_gives_its_jobs(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        (li,) = await people_with(rig, 2, 100, "li")
        body, headers = BODY | {"array": "1-2"}, {"Idempotency-Key": "once"}
        # At once: the second comes while the first is written.
        answers = await asyncio.gather(*(li.post("/jobs", json=body, headers=headers) for _ in range(3)))
        answers.append(await li.post("/jobs", json=body, headers=headers))
        assert [answer.status_code for answer in answers] == [201] * 4
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert (await li.post("/jobs", json=BODY, headers={"Idempotency-Key": "other"})).status_code == 409

    on_rig(scenario, tmp_path)


def test_a_job_that_is_tried_again_keeps_its_place(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        (li,) = await people_with(rig, 2, 100, "li")
        again = (await li.post("/jobs", json=BODY | {"retries": 3})).json()["id"]
        await rig.state(li, again, "RUNNING")
        assert (await li.post("/jobs", json=BODY)).status_code == 201
        rig.engine.finish(f"{again}.1", 1)
        await rig.until(lambda: rig.desk.cache.active_jobs.jobs[again].attempt == 2)
        assert (await li.post("/jobs", json=BODY)).json()["code"] == "too_many_jobs"

    on_rig(scenario, tmp_path)
