"""What people do with jobs is in the audit log: one line for each change, none for what changed nothing."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx

from danlu.actions.people.context import PeopleRules
from danlu.engines.base import Handle
from tests.app.rig import Rig, on_rig
from tests.app.test_people import NOBODY, audit_of, come, open_account, team_with
from tests.app.test_rights import first_word

ORIGIN = "203.0.113.7"  # where the rig's guests come from over the network
ASK = {"command": ["sleep"], "workdir": "/"}


async def submit(client: httpx.AsyncClient, **more: Any) -> str:
    answer = await client.post("/jobs", json=ASK | more)
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["id"]
    return job_id


async def lines(rig: Rig, **wanted: Any) -> list[tuple[str, str, str, str]]:
    """Who, what, target and detail of what was done with jobs, the oldest first."""
    found = await audit_of(rig, **({"what": "job"} | wanted))
    return [(one["who"], one["what"], one["target"], one["detail"]) for one in reversed(found)]


async def ended(rig: Rig, job_id: str) -> None:
    rig.engine.finish(f"{job_id}.1")
    await rig.until(lambda: job_id not in rig.desk.cache.active_jobs.jobs)


def test_each_thing_one_does_with_ones_own_job_is_one_line(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        li = await come(rig, "li")
        job = await submit(li)
        await rig.state(li, job, "RUNNING")
        secret = li.headers["authorization"].removeprefix("Bearer ")
        assert (await first_word(rig, job, secret)).get("bytes")
        clone = (await li.post(f"/jobs/{job}/clone", json={"name": "again"})).json()["id"]
        await li.post(f"/jobs/{job}/stop")
        await ended(rig, job)
        await li.delete(f"/jobs/{job}")
        assert await lines(rig) == [
            ("li", "job.submit", job, ""),
            ("li", "job.exec", job, ""),
            ("li", "job.clone", clone, f"from {job}"),
            ("li", "job.stop", job, ""),
            ("li", "job.remove", job, ""),
        ]
        assert {one["origin"] for one in await audit_of(rig, what="job")} == {ORIGIN}
        assert await lines(rig, target=clone) == [("li", "job.clone", clone, f"from {job}")]
        assert len(await lines(rig, who="li", what="job.submit")) == 1

    on_rig(scenario, tmp_path)


def test_an_array_is_one_line_and_a_task_says_which(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        li = await come(rig, "li")
        array = await submit(li, array="1-6")
        await li.post(f"/jobs/{array}_3/stop", json={"kill": True})
        await rig.until(lambda: f"{array}_3" not in rig.desk.cache.active_jobs.jobs)
        task = (await li.post(f"/jobs/{array}_2/clone")).json()["id"]
        whole = (await li.post("/jobs/@~1/clone")).json()
        assert whole["count"] == 6
        await li.post(f"/jobs/{array}/stop", json={"now": True})
        assert await lines(rig) == [
            ("li", "job.submit", array, "6 tasks"),
            ("li", "job.stop", array, "kill, task 3"),
            ("li", "job.clone", task, f"from {array}_2, task 2"),
            ("li", "job.clone", whole["id"], f"from {array}, 6 tasks"),
            ("li", "job.stop", array, "now, 5 tasks"),
        ]

    on_rig(scenario, tmp_path, cpus=4)


def test_what_changes_nothing_is_not_in_the_log(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        await team_with(rig, "cv", "dean")
        li, dean = await come(rig, "li"), await come(rig, "dean")
        key = {"Idempotency-Key": "once"}
        jobs = {(await li.post("/jobs", json=ASK, headers=key)).json()["id"] for _ in range(3)}
        both = await asyncio.gather(*(li.post("/jobs", json=ASK, headers=key) for _ in range(5)))
        (job,) = jobs | {answer.json()["id"] for answer in both}
        await rig.state(li, job, "RUNNING")
        for path, body in (("/jobs", ASK | {"gpus": 99}), ("/jobs", ASK | {"workdir": "/none"}), ("/jobs", {})):
            assert (await li.post(path, json=body)).status_code in (409, 422), body
        assert (await li.post("/jobs", params={"dry_run": True}, json=ASK)).is_success
        assert (await li.post("/jobs/nobody/stop")).status_code == 404
        assert (await dean.post(f"/jobs/{job}/stop")).status_code == 403
        assert (await dean.post(f"/jobs/{job}/clone")).status_code == 403
        assert (await li.delete(f"/jobs/{job}")).status_code == 409, "it runs"
        assert await lines(rig) == [("li", "job.submit", job, "")]
        rig.engine.is_down = True  # so that it goes on
        for _ in range(2):
            await li.post(f"/jobs/{job}/stop")
        await li.post(f"/jobs/{job}/stop", json={"kill": True})
        rig.engine.is_down = False
        await ended(rig, job)
        await li.post(f"/jobs/{job}/stop")
        assert (await lines(rig))[1:] == [("li", "job.stop", job, ""), ("li", "job.stop", job, "kill")]

    on_rig(scenario, tmp_path)


def test_what_is_done_with_jobs_of_others_says_whose(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        li, zhao, root = await come(rig, "li"), await come(rig, "zhao"), rig.client(0)
        array = await submit(li, team="nlp", array="0-1", gpus=2)
        clone = (await root.post(f"/jobs/{array}_1/clone")).json()["id"]
        await zhao.post(f"/jobs/{array}/stop", json={"kill": True})
        await rig.until(lambda: not [one for one in rig.desk.cache.active_jobs.jobs.values() if one.user == "li"])
        await root.delete(f"/jobs/{array}")
        assert (await lines(rig))[1:] == [
            ("root", "job.clone", clone, f"from {array}_1 of li, task 1"),
            ("zhao", "job.stop", array, "kill, 2 tasks, of li"),
            ("root", "job.remove", array, "2 tasks, of li"),
        ]

    on_rig(scenario, tmp_path)


def test_a_stop_that_ends_its_job_before_it_is_written_is_in_the_log(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        li, zhao = await come(rig, "li"), await come(rig, "zhao")
        job = await submit(li, team="nlp")
        await rig.state(li, job, "RUNNING")
        stop = rig.engine.stop

        async def stop_at_once(handle: Handle, **how: Any) -> None:
            await stop(handle, **how)
            await rig.until(lambda: job not in rig.desk.cache.active_jobs.jobs)

        rig.engine.stop = stop_at_once  # type: ignore[method-assign]
        await zhao.post(f"/jobs/{job}/stop", json={"kill": True})
        assert ("zhao", "job.stop", job, "kill, of li") in await lines(rig)

    on_rig(scenario, tmp_path)


def test_a_personal_installation_keeps_no_log_of_ones_own_jobs(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        me = rig.client(os.getuid())
        job, array = await submit(me), await submit(me, array="0-2")
        await me.post(f"/jobs/{job}/clone")
        await me.post(f"/jobs/{array}/stop")
        await rig.state(me, job, "RUNNING")
        await me.post(f"/jobs/{job}/stop", json={"now": True})
        await ended(rig, job)
        await me.delete(f"/jobs/{job}")
        assert await audit_of(rig) == []

        # With the first account it is no longer one person's.
        await open_account(rig, "li")
        job = await submit(me)
        (line,) = await audit_of(rig, what="job")
        assert (line["what"], line["target"], line["origin"]) == ("job.submit", job, "unix socket")

    on_rig(scenario, tmp_path)


def test_a_socket_for_everybody_makes_it_a_shared_one(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        somebody = await submit(rig.client(NOBODY))
        assert [(line[1], line[2]) for line in await lines(rig)] == [("job.submit", somebody)]
        rig.desk.context.rules = PeopleRules(is_open=True)
        mine = await submit(rig.client(os.getuid()))
        assert [line[2] for line in await lines(rig)] == [somebody, mine]

    on_rig(scenario, tmp_path)
