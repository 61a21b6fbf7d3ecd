"""A job under the name that its engine's own tools have for it, while the engine has it."""

from pathlib import Path
from typing import Any

import pytest

from danlu.domain.resources import Seat
from danlu.engines.base import Launch
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, move_in
from tests.builders import node
from tests.fakes.engine import FakeCluster

BODY = {"command": ["true"], "workdir": "/"}


def cluster() -> FakeCluster:
    """One-card jobs run, others wait."""

    def seats(launch: Launch) -> tuple[Seat, ...]:
        return (Seat("n1", 1, gpus=(0,)),) if launch.ask.gpus == 1 else ()

    return FakeCluster([node("n1", gpus=4, cpus=32)], seats=seats)


async def begin(rig: Rig, who: str, state: str, **options: Any) -> str:
    client = await come(rig, who)
    answer = await client.post("/jobs", json={**BODY, **options})
    assert answer.is_success, answer.text
    job = str(answer.json()["id"])
    await rig.state(client, job, state)
    return job


def test_it_is_told_while_the_engine_has_the_job(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.until(lambda: rig.desk.rules.inventory.is_known)
        client = await come(rig, "stranger")
        first, second = await begin(rig, "li", "RUNNING", gpus=1), await begin(rig, "dean", "PENDING", gpus=2)
        told = [(await client.get(f"/jobs/{job}")).json()["engine_id"] for job in (first, second)]
        assert told == ["fake:1", "fake:2"]
        after = (await (await come(rig, "li")).post("/jobs", json={**BODY, "after": [first]})).json()["id"]
        assert (await client.get(f"/jobs/{after}")).json()["engine_id"] is None, "the engine does not have it yet"
        assert all("engine_id" not in job for job in (await client.get("/jobs")).json()["items"])
        rig.engine.finish(f"{first}.1")
        assert (await rig.state(client, first, "SUCCEEDED"))["engine_id"] is None

    on_rig(scenario, tmp_path, engine=cluster())


def test_it_names_the_job_wherever_one_is_named(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.until(lambda: rig.desk.rules.inventory.is_known)
        job = await begin(rig, "li", "RUNNING", gpus=1)
        li = await come(rig, "li")
        rig.write_log(f"{job}.1", b"hello\n")
        assert (await li.get("/jobs/fake:1")).json()["id"] == job
        assert (await li.get("/jobs/fake:1/why")).json()["id"] == job
        assert (await li.get("/jobs/fake:1/logs")).text == "hello\n"
        assert (await li.get("/jobs/fake:1/wait?timeout=0")).json()["items"][0]["id"] == job
        assert (await li.post("/jobs/fake:1/clone", json={})).json()["jobs"][0]["command"] == ["true"]
        for written in ("fake:1", "fake:1:ok"):
            waits = (await li.post("/jobs", json={**BODY, "after": [written]})).json()
            assert waits["jobs"][0]["after"] == [f"{job}:ok"]
        assert [one["id"] for one in (await li.post("/jobs/fake:1/stop", json={})).json()["items"]] == [job]
        await rig.state(li, job, "CANCELLED")
        gone = await li.get("/jobs/fake:1")
        assert (gone.status_code, gone.json()["code"]) == (409, "other"), "its number may be another's by now"

    on_rig(scenario, tmp_path, engine=cluster())


def test_a_task_of_an_array_and_a_second_attempt_have_their_own(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.until(lambda: rig.desk.rules.inventory.is_known)
        client = await come(rig, "li")
        array = (await client.post("/jobs", json={**BODY, "gpus": 1, "array": "1-2"})).json()["id"]
        for task in (1, 2):
            await rig.state(client, f"{array}_{task}", "RUNNING")
        shown = (await client.get("/jobs/fake:2")).json()
        assert (shown["id"], shown["engine_id"]) == (f"{array}_2", "fake:2")
        again = await begin(rig, "li", "RUNNING", gpus=1, retries=1)
        rig.engine.finish(f"{again}.1", 1)
        await rig.until(
            lambda: (found := rig.desk.cache.active_jobs.jobs[again]).attempt == 2 and found.state == "RUNNING"
        )
        assert (await client.get("/jobs/fake:4")).json()["id"] == again
        assert (await client.get("/jobs/fake:3")).json()["code"] == "other"

    on_rig(scenario, tmp_path, engine=cluster())


@pytest.mark.parametrize("who", ["wang", "stranger"])
def test_it_opens_nothing_that_the_id_does_not(tmp_path: Path, who: str) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await rig.until(lambda: rig.desk.rules.inventory.is_known)
        job = await begin(rig, "li", "RUNNING", gpus=1)
        client = await come(rig, who)
        for method, path in (("GET", "/logs"), ("GET", "/follow"), ("POST", "/stop"), ("DELETE", ""), ("GET", "")):
            by_id = await client.request(method, f"/jobs/{job}{path}")
            by_name = await client.request(method, f"/jobs/fake:1{path}")
            assert (by_name.status_code, by_name.content) == (by_id.status_code, by_id.content), path
            assert by_id.is_success == (path == "" and method == "GET"), by_id.text
        assert (await client.post("/others/fake:1/stop")).status_code == 404, "it is no run of others"
        assert not rig.engine.stops

    on_rig(scenario, tmp_path, engine=cluster())
