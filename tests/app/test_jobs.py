"""Jobs through the REST door, on a fake engine."""

import asyncio
import json
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from danlu.actions.jobs import logs
from danlu.engines import log_files
from danlu.engines.base import Ending, Launch
from danlu.store.protocol import Outcome
from tests.app.rig import Rig, on_rig
from tests.builders import node
from tests.fakes.engine import FakeEngine, Play

ROOT = 0


async def submit(client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    answer = await client.post("/jobs", json={"command": ["true"], "workdir": "/", **options})
    assert answer.status_code == 201, answer.text
    accepted: dict[str, Any] = answer.json()
    return accepted


def run_of(rig: Rig, job_id: str, attempt: int = 1) -> bool:
    return any(launch.run_id == f"{job_id}.{attempt}" for launch in rig.engine.launches.values())


def test_a_job_lives_from_submit_to_its_end(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client, gpus=1, env={"SEED": "7"}, environ={"PATH": "/bin", "MINE": "x"}))["jobs"][0]
        shown = await rig.state(client, job["id"], "RUNNING")
        assert (shown["node"], shown["gpus"], shown["exit_code"]) == ("desk", [0], None)
        launch = next(iter(rig.engine.launches.values()))
        assert launch.env["CUDA_VISIBLE_DEVICES"] == "0"
        assert launch.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert (launch.env["SEED"], launch.env["MINE"], launch.env["DANLU_JOB_ID"]) == ("7", "x", job["id"])
        rig.engine.finish(job["run_id"], 3)
        done = (await client.get(f"/jobs/{job['id']}/wait")).json()
        assert done["done"]
        assert done["items"][0]["exit_code"] == 3

    on_rig(scenario, tmp_path)


def test_a_job_without_cards_sees_none(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job = (await submit(rig.client(ROOT)))["jobs"][0]
        await rig.until(lambda: run_of(rig, job["id"]))
        assert next(iter(rig.engine.launches.values())).env["CUDA_VISIBLE_DEVICES"] == ""

    on_rig(scenario, tmp_path)


def test_the_same_key_makes_one_job(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        body = {"command": ["true"], "workdir": "/"}
        headers = {"Idempotency-Key": "abc"}
        answers = await asyncio.gather(*(client.post("/jobs", json=body, headers=headers) for _ in range(5)))
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert len((await client.get("/jobs")).json()["items"]) == 1

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        ({}, 422, "invalid", "needs a command"),
        ({"command": []}, 422, "invalid", "needs a command"),
        ({"command": ["true"], "gpu": 1}, 422, "unknown_option", "unknown option `gpu`"),
        ({"command": "true"}, 422, "invalid", "`command`"),
        ({"command": ["a\0b"]}, 422, "invalid", "NUL"),
        ({"command": ["true"], "gpus": "many:many"}, 422, "invalid", "--gpus"),
        ({"command": ["true"], "gpus": 3}, 409, "too_big", "3"),
        ({"command": ["true"], "gpus": "H100:1"}, 409, "too_big", "H100"),
        ({"command": ["true"], "shards": 65}, 409, "too_big", "65"),
        ({"command": ["true"], "mem": "900T"}, 409, "too_big", ""),
        ({"command": ["true"], "workdir": "/no/such/folder"}, 422, "invalid", "/no/such/folder"),
        ({"command": ["true"], "after": ["zzzz"]}, 404, "not_found", "zzzz"),
        ({"command": ["true"], "snapshot": "feed"}, 404, "not_found", "feed"),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, body: Any, status: int, code: str, text: str) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.client(ROOT).post("/jobs", json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert text in problem["detail"]

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"command": ' + b"[" * 100_000])
def test_a_body_that_is_not_json_is_said(tmp_path: Path, body: bytes) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.client(ROOT).post("/jobs", content=body)
        assert answer.status_code == 422, answer.text

    on_rig(scenario, tmp_path)


def test_arguments_that_are_not_utf8_come_through(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        body = json.dumps({"command": ["echo", "\udcff\udcfe"], "workdir": "/", "name": "naïve 丹炉"})
        job = (await client.post("/jobs", content=body)).json()["jobs"][0]
        assert json.loads((await client.get(f"/jobs/{job['id']}")).text)["command"][1] == "\udcff\udcfe"
        await rig.until(lambda: run_of(rig, job["id"]))
        assert next(iter(rig.engine.launches.values())).command == ("echo", "\udcff\udcfe")

    on_rig(scenario, tmp_path)


def test_an_array_runs_so_many_at_once_and_stops_as_one(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        array = await submit(client, array="1-5%2")
        assert array["count"] == 5
        await rig.until(lambda: len(rig.engine.launches) == 2)
        rig.engine.finish(f"{array['id']}_1.1")
        await rig.until(lambda: len(rig.engine.launches) == 3)
        await rig.state(client, f"{array['id']}_3", "RUNNING")
        shown = (await client.get(f"/jobs/{array['id']}")).json()
        assert shown["states"] == {"SUCCEEDED": 1, "RUNNING": 2, "QUEUED": 2}
        stopped = (await client.post(f"/jobs/{array['id']}/stop")).json()
        assert stopped["count"] == 5
        waited = (await client.get(f"/jobs/{array['id']}/wait")).json()
        assert waited["states"] == {"SUCCEEDED": 1, "CANCELLED": 4}
        refused = await client.get(f"/jobs/{array['id']}/logs")
        assert "is an array of 5 jobs" in refused.json()["detail"]

    on_rig(scenario, tmp_path)


class Restless(FakeEngine):
    """Its runs end as soon as they have begun."""

    def __init__(self) -> None:
        super().__init__([node("desk", cpus=4)], plays=lambda _: Play(after=timedelta(0)))
        self.begun: list[str] = []

    async def start(self, launches: Sequence[Launch]) -> None:
        self.begun += [launch.run_id for launch in launches]
        await super().start(launches)


def test_an_array_that_moves_all_the_time_can_be_stopped_and_nothing_runs_twice(tmp_path: Path) -> None:
    engine = Restless()

    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        array = await submit(client, array="1-4000")
        await rig.until(lambda: len(engine.begun) > 200)
        stopped = (await client.post(f"/jobs/{array['id']}/stop")).json()
        assert stopped["count"] == 4000
        states = (await client.get(f"/jobs/{array['id']}/wait")).json()["states"]
        assert set(states) == {"SUCCEEDED", "CANCELLED"}
        assert states["SUCCEEDED"] + states["CANCELLED"] == 4000
        assert not rig.desk.cache.active_jobs.jobs
        assert max(Counter(engine.begun).values()) == 1
        assert len(engine.begun) >= states["SUCCEEDED"]

    on_rig(scenario, tmp_path, engine=engine)


def test_dependencies_are_kept_and_a_broken_one_ends_who_waited(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        first = (await submit(client))["id"]
        ok = (await submit(client, after=[first]))["id"]
        anyhow = (await submit(client, after=[f"{first}:any"]))["id"]
        behind = (await submit(client, after=[ok]))["id"]
        why = (await client.get(f"/jobs/{ok}/why")).json()
        assert why["reason"] == {"code": "dependency", "text": f"{first} must succeed first"}
        await rig.until(lambda: run_of(rig, first))
        rig.engine.finish(f"{first}.1", 1)
        assert (await rig.state(client, ok, "CANCELLED"))["reason"]["code"] == "dependency_failed"
        await rig.state(client, behind, "CANCELLED")
        await rig.state(client, anyhow, "RUNNING")
        too_late = await client.post("/jobs", json={"command": ["true"], "workdir": "/", "after": [first]})
        assert (too_late.status_code, too_late.json()["code"]) == (409, "refused")

    on_rig(scenario, tmp_path)


def test_a_job_submitted_while_what_it_waits_for_ends_goes_on(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client, cache = rig.client(ROOT), rig.desk.cache
        first = (await submit(client))["id"]
        await rig.until(lambda: run_of(rig, first))
        ask = cache.store.outcome

        async def slow(ref: str) -> Outcome:
            seen = await ask(ref)
            if not run_of_ended:
                run_of_ended.append(ref)
                rig.engine.finish(f"{first}.1", 0)
                await rig.until(lambda: first not in cache.active_jobs.jobs)
            return seen

        run_of_ended: list[str] = []
        cache.store.outcome = slow  # type: ignore[method-assign]
        late = (await submit(client, after=[first]))["id"]
        await rig.state(client, late, "RUNNING")

    on_rig(scenario, tmp_path)


def test_what_others_still_wait_for_is_not_removed(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client, cache = rig.client(ROOT), rig.desk.cache
        first = (await submit(client))["id"]
        late = (await submit(client, after=[first]))["id"]
        await rig.until(lambda: run_of(rig, first))
        refusals: list[int] = []
        ask = cache.store.outcome

        async def slow(ref: str) -> Outcome:
            refusals.append((await client.delete(f"/jobs/{first}")).status_code)
            return await ask(ref)

        cache.store.outcome = slow  # type: ignore[method-assign]
        rig.engine.finish(f"{first}.1", 1)
        assert (await rig.state(client, late, "CANCELLED"))["reason"]["code"] == "dependency_failed"
        assert refusals[0] == 409
        assert (await client.delete(f"/jobs/{first}")).is_success

    on_rig(scenario, tmp_path)


def test_stopping_what_others_wait_for_ends_them_too(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        holder = (await submit(client, gpus=2))["id"]
        await rig.state(client, holder, "RUNNING")
        first = (await submit(client, gpus=1))["id"]
        array = (await submit(client, after=[first], array="1-3"))["id"]
        behind = (await submit(client, after=[array]))["id"]
        await client.post(f"/jobs/{first}/stop")
        await rig.state(client, behind, "CANCELLED")
        assert (await client.get(f"/jobs/{array}")).json()["states"] == {"CANCELLED": 3}

    on_rig(scenario, tmp_path)


def test_a_failed_run_is_tried_again_and_its_past_is_shown(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client, retries=1))["id"]
        await rig.until(lambda: run_of(rig, job))
        rig.write_log(f"{job}.1", b"first\n")
        rig.engine.finish(f"{job}.1", 9)
        await rig.until(lambda: run_of(rig, job, 2))
        rig.write_log(f"{job}.2", b"second\n")
        rig.engine.finish(f"{job}.2", 0)
        shown = await rig.state(client, job, "SUCCEEDED")
        assert [(run["attempt"], run["exit_code"]) for run in shown["runs"]] == [(1, 9)]
        assert (await client.get(f"/jobs/{job}/logs")).text == "second\n"
        assert (await client.get(f"/jobs/{job}/logs?attempt=1")).text == "first\n"
        assert (await client.get(f"/jobs/{job}/logs?attempt=3")).status_code == 422

    on_rig(scenario, tmp_path)


def test_a_job_that_is_tried_again_keeps_its_place(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        first = (await submit(client, gpus=1, retries=1))["id"]
        await rig.state(client, first, "RUNNING")
        later = (await submit(client, gpus=2))["id"]
        rig.engine.finish(f"{first}.1", 1)
        await rig.until(lambda: run_of(rig, first, 2))
        assert (await client.get(f"/jobs/{later}")).json()["state"] == "QUEUED"

    on_rig(scenario, tmp_path)


def test_references_by_prefix_and_by_age(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        assert (await client.get("/jobs/@")).status_code == 404
        ids = [(await submit(client))["id"] for _ in range(3)]
        assert (await client.get("/jobs/@")).json()["id"] == ids[2]
        assert (await client.get("/jobs/@~2")).json()["id"] == ids[0]
        assert (await client.get("/jobs/@~3")).status_code == 404
        assert (await client.get(f"/jobs/{ids[1][:7]}")).json()["id"] == ids[1]
        for odd in ("nope", "%2e%2e", "a'b", "@@", "_"):
            assert (await client.get(f"/jobs/{odd}")).status_code == 404

    on_rig(scenario, tmp_path)


def test_an_engine_that_is_down_changes_nothing_and_is_told(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        running = (await submit(client))["id"]
        await rig.state(client, running, "RUNNING")
        rig.engine.is_down = True
        waiting = (await submit(client))["id"]
        await rig.until(lambda: rig.schedule.trouble)
        assert (await client.get(f"/jobs/{running}")).json()["state"] == "RUNNING"
        assert "the fake engine is down" in (await client.get(f"/jobs/{waiting}/why")).json()["reason"]["text"]
        assert (await client.get("/status")).json()["trouble"] == "the fake engine is down"
        rig.engine.is_down = False
        await rig.state(client, waiting, "RUNNING")

    on_rig(scenario, tmp_path)


def test_a_reboot_loses_what_ran_and_retries_who_asked(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        once, again = (await submit(client))["id"], (await submit(client, retries=1))["id"]
        await rig.until(lambda: len(rig.engine.launches) == 2)
        rig.engine.reboot()
        assert (await rig.state(client, once, "LOST"))["reason"]["text"] == "the machine restarted while it ran"
        await rig.until(lambda: run_of(rig, again, 2))
        assert not run_of(rig, once, 2)

    on_rig(scenario, tmp_path)


def test_priority_goes_first_and_why_names_who_holds_the_cards(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        holder = (await submit(client, gpus=2, time="1h"))["id"]
        low, high = (await submit(client, gpus=2, priority=1))["id"], (await submit(client, gpus=2, priority=9))["id"]
        await rig.state(client, holder, "RUNNING")
        why = (await client.get(f"/jobs/{low}/why")).json()
        assert (why["place"], why["reason"]["code"]) == (2, "no_gpus")
        assert [one["id"] for one in why["holders"]] == [holder]
        assert (await client.get(f"/jobs/{high}/why")).json()["estimated_at"] is not None
        rig.engine.finish(f"{holder}.1")
        await rig.state(client, high, "RUNNING")
        assert (await client.get(f"/jobs/{low}")).json()["state"] == "QUEUED"

    on_rig(scenario, tmp_path)


def test_a_dry_run_remembers_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        body = {"command": ["true"], "workdir": "/", "gpus": 2}
        free = (await client.post("/jobs?dry_run=true", json=body)).json()
        assert (free["fits_now"], free["seat"]["gpus"]) == (True, [0, 1])
        await rig.state(client, (await submit(client, gpus=1))["id"], "RUNNING")
        full = (await client.post("/jobs?dry_run=true", json=body)).json()
        assert (full["fits_now"], full["reason"]["code"]) == (False, "no_gpus")
        assert len((await client.get("/jobs")).json()["items"]) == 1

    on_rig(scenario, tmp_path)


def test_a_clone_repeats_what_was_asked_with_changes(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client, gpus=1, name="digits", env={"A": "1"}))["id"]
        made = (await client.post(f"/jobs/{job}/clone", json={"shards": 8})).json()["jobs"][0]
        assert (made["name"], made["env"], made["ask"]["gpus"], made["ask"]["shards"]) == ("digits", {"A": "1"}, 0, 8)

    on_rig(scenario, tmp_path)


def test_only_ended_jobs_are_removed_and_their_logs_go_too(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client))["id"]
        await rig.state(client, job, "RUNNING")
        rig.write_log(f"{job}.1", b"x")
        assert (await client.delete(f"/jobs/{job}")).status_code == 409
        rig.engine.finish(f"{job}.1")
        await rig.state(client, job, "SUCCEEDED")
        assert (await client.delete(f"/jobs/{job}")).json() == {"removed": 1}
        assert (await client.get(f"/jobs/{job}")).status_code == 404
        assert not list(Path(rig.desk.state_dir, "logs").rglob("*.log"))

    on_rig(scenario, tmp_path)


def test_pages_go_on_where_they_ended(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        ids = [(await submit(client, label={"n": str(number % 2)}))["id"] for number in range(5)]
        first = (await client.get("/jobs?limit=2")).json()
        rest = (await client.get(f"/jobs?limit=10&before={first['next']}")).json()
        assert [job["id"] for job in first["items"] + rest["items"]] == ids[::-1]
        assert rest["next"] is None
        odd = (await client.get("/jobs?label=n=1")).json()
        assert [job["id"] for job in odd["items"]] == [ids[3], ids[1]]
        assert (await client.get("/jobs?state=nonsense")).status_code == 422
        assert (await client.get("/jobs?limit=many")).status_code == 422
        assert (await client.get("/jobs?state=ended")).json()["items"] == []

    on_rig(scenario, tmp_path)


def test_an_array_is_one_line_of_a_list(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        first = (await submit(client, gpus=1))["id"]
        arrays = [(await submit(client, array="1-40%1", name=name))["id"] for name in ("a", "b")]
        last = (await submit(client, gpus=1))["id"]
        await rig.state(client, last, "RUNNING")
        for query in ("", "&state=active"):
            found: list[tuple[str, Any]] = []
            cursor = ""
            while True:
                page = (await client.get(f"/jobs?collapse=true&limit=2{query}{cursor}")).json()
                found += [(job["array_id"] or job["id"], job["tasks"]) for job in page["items"]]
                if page["next"] is None:
                    break
                cursor = f"&before={page['next']}"
            counts = {"RUNNING": 1, "QUEUED": 39}
            assert found == [(last, None), (arrays[1], counts), (arrays[0], counts), (first, None)]
        named = (await client.get("/jobs?collapse=true&name=a")).json()
        assert [job["array_id"] for job in named["items"]] == [arrays[0]]

    on_rig(scenario, tmp_path)


def read_frames(data: bytes) -> list[tuple[str, bytes]]:
    frames = []
    while data:
        (length,) = struct.unpack(">I", data[1:5])
        frames.append((data[:1].decode(), data[5 : 5 + length]))
        data = data[5 + length :]
    return frames


@pytest.mark.parametrize("is_far", [False, True])
def test_a_follower_sees_states_every_byte_and_the_exit_code(tmp_path: Path, is_far: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)

        async def act() -> None:
            await rig.until(lambda: rig.engine.launches)
            launch = next(iter(rig.engine.launches.values()))
            for piece in (b"no newline", b"\xff\xfe", b"\n" + b"z" * 600_000):
                rig.write_log(launch.run_id, piece)
                await asyncio.sleep(0.02)
            rig.engine.finish(launch.run_id, 5)

        acting = asyncio.create_task(act())
        answer = await client.post("/jobs?follow=true", json={"command": ["true"], "workdir": "/"})
        await acting
        frames = read_frames(answer.content)
        log = b"".join(payload for kind, payload in frames if kind == "L")
        assert log == b"no newline\xff\xfe\n" + b"z" * 600_000
        assert frames[0][0] == "J"
        assert frames[-1][0] == "E"
        assert json.loads(frames[-1][1])["exit_code"] == 5
        job_id = json.loads(frames[0][1])["id"]
        rest = await client.get(f"/jobs/{job_id}/follow?offset={len(log) - 3}")
        assert [payload for kind, payload in read_frames(rest.content) if kind == "L"] == [b"zzz"]
        assert (await client.get(f"/jobs/{job_id}/logs?follow=true&offset=10")).content == log[10:]

    on_rig(scenario, tmp_path, far_logs=is_far)


def test_a_follower_waits_for_a_folder_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, read = threading.Event(), log_files._read_now
    goes_on.set()

    def hang(path: str, offset: int) -> bytes:
        goes_on.wait()
        return read(path, offset)

    monkeypatch.setattr(log_files, "_read_now", hang)
    monkeypatch.setattr(logs, "HEARTBEAT_S", 0.05)

    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client))["id"]
        await rig.state(client, job, "RUNNING")
        goes_on.clear()
        rig.write_log(f"{job}.1", b"its last words\n")
        following = asyncio.create_task(client.get(f"/jobs/{job}/follow"))
        try:
            rig.engine.finish(f"{job}.1")
            await rig.state(client, job, "SUCCEEDED")
            await asyncio.sleep(0.3)
            assert not following.done(), "nobody knows whether there is more to read"
        finally:
            goes_on.set()
        frames = read_frames((await following).content)
        assert b"".join(payload for kind, payload in frames if kind == "L") == b"its last words\n"
        assert {"B", "E"} <= {kind for kind, _ in frames}

    on_rig(scenario, tmp_path, far_logs=True, far_patience_s=0.05)


def test_a_follower_stays_through_waiting_and_retries(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        holder = (await submit(client, gpus=2))["id"]
        await rig.state(client, holder, "RUNNING")
        job = (await submit(client, gpus=1, retries=1))["id"]
        following = asyncio.create_task(client.get(f"/jobs/{job}/follow"))
        await asyncio.sleep(0.05)
        rig.engine.finish(f"{holder}.1")
        for attempt, code in ((1, 1), (2, 0)):
            await rig.until(partial(run_of, rig, job, attempt))
            rig.write_log(f"{job}.{attempt}", b"attempt %d\n" % attempt)
            await asyncio.sleep(0.05)
            rig.engine.finish(f"{job}.{attempt}", code)
        frames = read_frames((await following).content)
        assert b"".join(payload for kind, payload in frames if kind == "L") == b"attempt 1\nattempt 2\n"
        assert json.loads(frames[-1][1])["state"] == "SUCCEEDED"

    on_rig(scenario, tmp_path)


def test_stopping_hastens_but_never_slows(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client, signal="USR1@60"))["id"]
        await rig.state(client, job, "RUNNING")
        await client.post(f"/jobs/{job}/stop", json={})
        shown = await rig.state(client, job, "CANCELLED")
        assert shown["stop_requested_at"] is not None
        _, grace, notice = rig.engine.stops[0]
        assert (grace.total_seconds(), notice is not None) == (30, True)
        assert (await client.post(f"/jobs/{job}/stop", json={})).status_code == 200
        assert (await client.post(f"/jobs/{job}/stop", json={"fast": True})).status_code == 422

    on_rig(scenario, tmp_path)


def test_what_the_engine_says_of_an_end_is_what_people_read(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        job = (await submit(client))["id"]
        await rig.state(client, job, "RUNNING")
        rig.engine.note(f"{job}.1", "memory limit not enforced: no cgroups")
        rig.engine.finish(f"{job}.1", None, Ending.LOST)
        assert (await rig.state(client, job, "LOST"))["notes"] == ["memory limit not enforced: no cgroups"]

    on_rig(scenario, tmp_path)


def test_jobs_and_tasks_are_found_by_number(tmp_path: Path) -> None:
    """A number is the order of submission; an array's is that of its first task, and `7_3` is a task of it."""

    async def scenario(rig: Rig) -> None:
        client = rig.client(ROOT)
        first = (await submit(client))["jobs"][0]
        array = await submit(client, array="4-8:2")
        last = (await submit(client))["jobs"][0]
        assert [job["number"] for job in (first, *array["jobs"], last)] == ["1", "2_4", "2_6", "2_8", "5"]

        async def found(ref: str) -> str:
            answer = (await client.get(f"/jobs/{ref}")).json()
            return str(answer.get("id") or answer["code"])

        assert await found("1") == first["id"]
        assert await found("2") == array["id"]
        assert await found("2_6") == await found("3") == f"{array['id']}_6"
        assert await found("5") == last["id"]
        assert [await found(ref) for ref in ("0", "9", "1_4", "2_5", "3_6", "9" * 30)] == ["not_found"] * 6
        after = (await submit(client, after=["1:any", "2_8:any"]))["jobs"][0]
        assert after["after"] == [f"{first['id']}:any", f"{array['id']}_8:any"]
        await rig.state(client, "1", "RUNNING")
        await rig.state(client, "2_6", "RUNNING")
        envs = {str(launch.run_id): launch.env for launch in rig.engine.launches.values()}
        assert envs[f"{first['id']}.1"]["DANLU_JOB_NUMBER"] == "1"
        task = envs[f"{array['id']}_6.1"]
        assert (task["DANLU_JOB_NUMBER"], task["DANLU_ARRAY_NUMBER"], task["DANLU_ARRAY_INDEX"]) == ("3", "2", "6")

    on_rig(scenario, tmp_path, nodes=[node("desk", cpus=16)])
