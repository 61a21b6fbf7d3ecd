"""Why a job waits, and what would start now instead, through the REST door."""

from pathlib import Path
from typing import Any

import httpx

from danlu.domain.queue import Queue
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, move_in
from tests.builders import node

ROOT = 0


async def submitted(client: httpx.AsyncClient, **options: Any) -> str:
    answer = await client.post("/jobs", json={"command": ["true"], "workdir": "/", **options})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["id"]
    return job_id


def test_why_offers_what_starts_now_and_that_starts(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        holder = await submitted(client, gpus=1, time="1h")
        await rig.state(client, holder, "RUNNING")
        big = await submitted(client, gpus=2)
        why = (await client.get(f"/jobs/{big}/why")).json()
        assert [one["id"] for one in why["holders"]] == [holder]
        fewer = why["alternatives"][0]
        assert (fewer["changes"], fewer["options"]) == ({"gpus": 1}, "--gpus 1")
        assert fewer["command"] == f"danlu clone {big} --gpus 1"
        assert fewer["seat"]["gpus"] == [1]
        clone = (await client.post(f"/jobs/{big}/clone", json=fewer["changes"])).json()["id"]
        await client.post(f"/jobs/{big}/stop", json={})
        assert (await rig.state(client, clone, "RUNNING"))["gpus"] == [1]

    on_rig(scenario, tmp_path)


def test_every_alternative_is_accepted_by_clone(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        await rig.state(client, await submitted(client, shards=16, cpus=2), "RUNNING")
        await rig.state(client, await submitted(client, gpus=1, cpus=1), "RUNNING")
        for options in ({"gpus": 1}, {"shards": 60}, {"shards": 20, "cpus": 3}):
            job = await submitted(client, **options)
            found = (await client.get(f"/jobs/{job}/why")).json()["alternatives"]
            assert found, options
            for one in found:
                clone = await client.post(f"/jobs/{job}/clone", json=one["changes"])
                assert clone.status_code == 201, clone.text
                await client.post(f"/jobs/{clone.json()['id']}/stop", json={"kill": True})
            await client.post(f"/jobs/{job}/stop", json={})

    on_rig(scenario, tmp_path)


def test_a_dry_run_offers_the_same(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        await rig.state(client, await submitted(client, gpus=1), "RUNNING")
        body = {"command": ["true"], "workdir": "/", "gpus": 2}
        answer = (await client.post("/jobs?dry_run=true", json=body)).json()
        assert not answer["fits_now"]
        assert [one["options"] for one in answer["alternatives"]] == ["--gpus 1"]
        free = (await client.post("/jobs?dry_run=true", json=body | {"gpus": 1})).json()
        assert (free["fits_now"], free["alternatives"]) == (True, [])

    on_rig(scenario, tmp_path)


def test_who_waits_for_another_job_is_offered_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        first = await submitted(client)
        after = await submitted(client, gpus=2, after=[first])
        why = (await client.get(f"/jobs/{after}/why")).json()
        assert (why["reason"]["code"], why["holders"], why["alternatives"]) == ("dependency", [], [])

    on_rig(scenario, tmp_path)


def test_the_last_task_of_an_array_is_not_in_its_own_way(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        await rig.state(client, await submitted(client, gpus=1), "RUNNING")
        array = await submitted(client, gpus=2, array="1-2")
        why = (await client.get(f"/jobs/{array}_2/why")).json()
        assert why["reason"]["code"] == "no_gpus"
        assert all("--gpus 2" not in one["options"] for one in why["alternatives"])

    on_rig(scenario, tmp_path)


def test_while_the_engine_is_away_nothing_is_promised(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        await rig.state(client, await submitted(client, gpus=1), "RUNNING")
        waiting = await submitted(client, gpus=2)
        rig.engine.is_down = True
        rig.desk.cache.changed.set()
        await rig.until(lambda: rig.desk.trouble() is not None)
        assert (await client.get(f"/jobs/{waiting}/why")).json()["alternatives"] == []

    on_rig(scenario, tmp_path)


def test_holders_are_those_of_the_cards_that_are_wanted(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        old = await submitted(client, gpus="GTX1080Ti:1", time="2h")
        new = await submitted(client, gpus="RTX3090:1", time="1h")
        for job in (old, new):
            await rig.state(client, job, "RUNNING")
        waiting = await submitted(client, gpus="RTX3090:1")
        why = (await client.get(f"/jobs/{waiting}/why")).json()
        assert [one["id"] for one in why["holders"]] == [new]
        anything = await submitted(client, gpus=1)
        why = (await client.get(f"/jobs/{anything}/why")).json()
        assert [one["id"] for one in why["holders"]] == [new, old]

    on_rig(scenario, tmp_path, models=["NVIDIA GeForce RTX 3090", "NVIDIA GeForce GTX 1080 Ti"])


def test_who_waits_for_a_quota_sees_who_fills_it_and_how_to_borrow(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        chief, li, wang, dean = [await come(rig, name) for name in ("chief", "li", "wang", "dean")]
        await chief.put("/quotas/team:nlp", json={"gpus": 1, "borrow": True})
        mates = await submitted(wang, gpus=1, team="nlp", time="1h")
        await rig.state(wang, mates, "RUNNING")
        other = await submitted(dean, gpus=1, time="2h")
        await rig.state(dean, other, "RUNNING")
        borrower = await submitted(wang, gpus=1, team="nlp", preemptible=True)
        await rig.state(wang, borrower, "RUNNING")  # beyond the quota, and so in nobody's way
        waiting = await submitted(li, gpus=1)
        why = (await li.get(f"/jobs/{waiting}/why")).json()
        assert why["reason"]["code"] == "quota"
        assert [(one["id"], one["user"], one["team"]) for one in why["holders"]] == [(mates, "wang", "nlp")]
        assert why["alternatives"] == []  # no card is idle
        rig.engine.finish(f"{other}.1")
        await rig.until(lambda: other not in rig.desk.cache.active_jobs.jobs)
        why = (await li.get(f"/jobs/{waiting}/why")).json()
        assert [one["options"] for one in why["alternatives"]] == ["--preemptible"]
        clone = (await li.post(f"/jobs/{waiting}/clone", json=why["alternatives"][0]["changes"])).json()["id"]
        await rig.state(li, clone, "RUNNING")

    on_rig(scenario, tmp_path, nodes=[node(gpus=3)])


def test_only_who_holds_what_the_quota_is_short_of_fills_it(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        chief, li = [await come(rig, name) for name in ("chief", "li")]
        await chief.put("/quotas/user:li", json={"gpus": 1, "cpus": 4})
        for asked in ({"gpus": 1, "cpus": 1}, {"cpus": 2}):
            await rig.state(li, await submitted(li, **asked), "RUNNING")
        card, cores = [job.id for job in rig.desk.cache.active_jobs.holding()]

        async def in_the_way(**asked: int) -> list[str]:
            why = (await li.get(f"/jobs/{await submitted(li, **asked)}/why")).json()
            assert why["reason"]["code"] == "quota"
            return [one["id"] for one in why["holders"]]

        assert await in_the_way(gpus=1, cpus=1) == [card]
        assert sorted(await in_the_way(cpus=3)) == sorted([card, cores])
        assert await in_the_way(cpus=5) == [], "nobody has to end: it never fits"

    on_rig(scenario, tmp_path, nodes=[node(gpus=2, cpus=8)])


def test_another_team_is_offered_to_who_is_in_it(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        chief, wang = await come(rig, "chief"), await come(rig, "wang")
        await chief.put("/quotas/team:nlp", json={"gpus": 0})
        waiting = await submitted(wang, gpus=1, team="nlp")
        why = (await wang.get(f"/jobs/{waiting}/why")).json()
        assert [one["options"] for one in why["alternatives"]] == ["--team cv"]
        seen = (await chief.get(f"/jobs/{waiting}/why")).json()  # the owner's ways out, whoever asks
        assert seen["alternatives"] == why["alternatives"]

    on_rig(scenario, tmp_path)


def test_only_queues_that_the_owner_may_use_and_that_take_it_are_offered(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        li = await come(rig, "li")
        await rig.state(li, await submitted(li, gpus=1), "RUNNING")
        waiting = await submitted(li, gpus=1)
        why = (await li.get(f"/jobs/{waiting}/why")).json()
        assert [one["options"] for one in why["alternatives"]] == ["--queue open"]
        clone = (await li.post(f"/jobs/{waiting}/clone", json=why["alternatives"][0]["changes"])).json()["id"]
        assert (await rig.state(li, clone, "RUNNING"))["node"] == "free"

    queues = [
        Queue("main", frozenset({"full"}), is_default=True),
        Queue("theirs", frozenset({"free"}), teams=frozenset({"cv"})),
        Queue("small", frozenset({"free"}), max_gpus=0),
        Queue("open", frozenset({"free"}), teams=frozenset({"nlp"})),
    ]
    nodes = [node("full", gpus=1), node("free", gpus=1)]
    on_rig(scenario, tmp_path, nodes=nodes, queues={queue.name: queue for queue in queues})


def test_who_holds_cards_of_another_queue_is_not_in_the_way(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        mine = await submitted(client, gpus=1, queue="a")
        theirs = await submitted(client, gpus=1, queue="b")
        for job in (mine, theirs):
            await rig.state(client, job, "RUNNING")
        why = (await client.get(f"/jobs/{await submitted(client, gpus=1, queue='a')}/why")).json()
        assert [one["id"] for one in why["holders"]] == [mine]

    queues = {name: Queue(name, frozenset({name})) for name in ("a", "b")}
    on_rig(scenario, tmp_path, nodes=[node("a", gpus=1), node("b", gpus=1)], queues=queues)
