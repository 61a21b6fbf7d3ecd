"""What any door gets from actions, without HTTP: what is hidden, what is said while the engine is away, files."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from danlu.actions.jobs import snapshots, submit, views
from danlu.actions.jobs.why import why
from danlu.domain.job import Job, JobState, Reason, RunId
from danlu.domain.people import Actor
from danlu.domain.request import JobRequest
from danlu.errors import Invalid
from danlu.provision.snapshots import SnapshotFile
from tests.app.rig import Rig, on_rig
from tests.builders import node
from tests.fakes.engine import FakeCluster

LI, WANG = Actor("li"), Actor("wang")


async def submitted(rig: Rig, **wishes: object) -> Job:
    wanted = JobRequest(("true",), workdir="/", **wishes)  # type: ignore[arg-type]
    (job,) = await submit.submit(rig.desk.cache, rig.desk.rules, LI, wanted, now=datetime.now(UTC))
    return job


async def in_state(rig: Rig, job: Job, state: JobState) -> Job:
    active_jobs = rig.desk.cache.active_jobs.jobs
    await rig.until(lambda: active_jobs[job.id].state is state if job.id in active_jobs else state.is_ended)
    found = await rig.desk.cache.get(job.id)
    assert found is not None
    return found


def test_a_view_hides_from_others_what_names_the_command(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job = await in_state(rig, await submitted(rig), JobState.RUNNING)
        told = job.changed(reason=Reason("no_queue", "there is no such queue", " (Slurm: /home/li/secret)"))
        own, others = rig.desk.view(LI, told), rig.desk.view(WANG, told)
        assert own.reason.full_text == "there is no such queue (Slurm: /home/li/secret)"
        assert others.reason.full_text == "there is no such queue"
        assert (own.sees_command, bool(own.log_path)) == (True, True)
        assert (others.sees_command, others.log_path) == (False, "")
        folders = [(await views.job_details(rig.desk.cache, "", who, job)).run_folder for who in (LI, WANG)]
        assert folders == ["/", ""]

    on_rig(scenario, tmp_path, far_logs=True)


def test_while_the_engine_is_away_that_is_why_a_job_waits(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        running = await in_state(rig, await submitted(rig, gpus="2"), JobState.RUNNING)
        waits = await submitted(rig, gpus="1")
        rig.engine.is_down = True
        rig.desk.cache.changed.set()
        await rig.until(lambda: rig.desk.trouble_text)
        assert rig.desk.view(LI, waits).reason == Reason("engine_down", "the fake engine is down")
        assert rig.desk.view(LI, running).reason.code == "started", "it is not the engine that it waits for"
        desk = rig.desk
        for job, known in ((waits, "nothing starts"), (running, "no more is known")):
            now = datetime.now(UTC)
            told = await why(desk.cache, desk.outlook, desk.rules, lambda _: (), desk.trouble, LI, job.id, now=now)
            assert told.reason.text == f"the fake engine is down; until it answers, {known}"
            assert (told.estimated_at, told.alternatives) == (None, ())

    on_rig(scenario, tmp_path)


def test_why_tells_others_no_words_of_another_system(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job = await in_state(rig, await submitted(rig), JobState.PENDING)
        assert isinstance(rig.engine, FakeCluster)
        rig.engine.hold(job.run_id, Reason("quota", "li has as many jobs as allowed", " (Slurm: /home/li/secret)"))
        await rig.until(lambda: rig.desk.cache.active_jobs.jobs[job.id].reason.code == "quota")
        desk, told = rig.desk, {}
        for who in (LI, WANG):
            now = datetime.now(UTC)
            answer = await why(desk.cache, desk.outlook, desk.rules, lambda _: (), desk.trouble, who, job.id, now=now)
            told[who.name] = answer.reason.full_text
        public = "li has as many jobs as allowed"
        assert told == {"li": f"{public} (Slurm: /home/li/secret)", "wang": public}

    on_rig(scenario, tmp_path, engine=FakeCluster([node("n1", cpus=4)]))


def test_with_a_job_go_its_logs_and_folders(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job = await in_state(rig, await submitted(rig, retries="1"), JobState.RUNNING)
        rig.write_log(f"{job.id}.1", b"first\n")
        rig.engine.finish(f"{job.id}.1", 1)
        await rig.until(lambda: rig.desk.cache.active_jobs.jobs[job.id].attempt == 2)
        await in_state(rig, job, JobState.RUNNING)
        rig.write_log(f"{job.id}.2", b"second\n")
        rig.engine.finish(f"{job.id}.2")
        await in_state(rig, job, JobState.SUCCEEDED)
        folder = tmp_path / "work" / f"{job.id}.2"
        folder.mkdir(parents=True)
        logs = [rig.engine.logs(RunId(f"{job.id}.{attempt}")) for attempt in (1, 2)]
        assert [await log.size() for log in logs] == [6, 7]
        desk = rig.desk
        await submit.remove(desk.cache, desk.engine, desk.rules, LI, job.id, now=datetime.now(UTC))
        assert [await log.size() for log in logs] == [None, None]
        assert not folder.exists()

    on_rig(scenario, tmp_path)


def test_code_that_is_sent_is_kept_for_its_sender_and_has_its_limit(tmp_path: Path) -> None:
    code = b"print()\n"
    digest = hashlib.sha256(code).hexdigest()

    async def chunks() -> AsyncIterator[bytes]:
        yield code[:3]
        yield code[3:]

    async def scenario(rig: Rig) -> None:
        rules, files = rig.desk.rules, [SnapshotFile("a.py", 0o100644, len(code), digest)]
        made, missing = await snapshots.announce(rules, LI, files)
        assert missing == [digest]
        with pytest.raises(Invalid, match="larger than a snapshot may be"):
            await snapshots.receive(replace(rules, snapshot_limit_bytes=5), LI, digest, chunks())
        await snapshots.receive(rules, LI, digest, chunks())
        assert await snapshots.announce(rules, LI, files) == (made, [])
        assert await snapshots.announce(rules, WANG, files) == (made, [digest])

    on_rig(scenario, tmp_path)
