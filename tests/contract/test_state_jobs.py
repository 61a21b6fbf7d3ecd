"""The store with the active jobs in hand."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from danlu.domain.job import Job, JobState, Reason
from danlu.domain.people import AuditEntry
from danlu.errors import Conflict
from danlu.state.jobs import JobCache
from danlu.store.sql import SqlStore
from tests.builders import job


def test_what_is_in_hand_follows_the_disk_after_a_conflict(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        (mine,) = await cache.insert([job("a")])
        written = mine.changed(stop_requested_at=mine.submitted_at)
        await store.update([written])  # a commit whose answer never came
        with pytest.raises(Conflict):
            await cache.update([mine.changed(exit_code=1)])
        assert cache.active_jobs.jobs["a"] == written
        await cache.update([written.changed(exit_code=1)])
        await store.close()

    asyncio.run(scenario())


def test_what_the_log_says_goes_with_the_jobs(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        at = job("a").submitted_at
        (mine,) = await cache.insert([job("a")], audit=[AuditEntry(at, "ada", "job.submit", "a")])
        await cache.update([mine.changed(exit_code=1)], audit=[AuditEntry(at, "ada", "job.stop", "a")])
        with pytest.raises(Conflict):
            await cache.update([mine.changed(exit_code=2)], audit=[AuditEntry(at, "bo", "job.stop", "a")])
        assert [(one.who, one.what) for one in await store.audit(limit=9)] == [
            ("ada", "job.stop"), ("ada", "job.submit"),
        ]  # fmt: skip
        await store.close()

    asyncio.run(scenario())


def test_a_repeated_submit_does_not_bring_back_what_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        (mine,) = await cache.insert([job("a")], key="k")
        await cache.update([mine.moved(JobState.CANCELLED, why=Reason("stopped", ""), at=mine.submitted_at)])
        (again,) = await cache.insert([job("b")], key="k")
        assert again.id == "a"
        assert not cache.active_jobs.jobs
        await store.close()

    asyncio.run(scenario())


def test_what_ends_while_the_disk_is_asked_does_not_come_back(tmp_path: Path) -> None:
    """It would run a second time: its engine has forgotten it by then."""

    class Slow(SqlStore):
        async def get_all(self, ids: Sequence[str]) -> Sequence[Job]:
            found = await super().get_all(ids)
            (cache,) = books
            for known in list(cache.active_jobs.jobs.values()):
                await cache.update([known.moved(JobState.CANCELLED, why=Reason("stopped", ""), at=known.submitted_at)])
            return found

    async def scenario() -> None:
        store = Slow(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        books.append(cache)
        (mine,) = await cache.insert([job("a")])
        await cache.update([mine.moved(JobState.STARTING, why=Reason("starting", ""), at=mine.submitted_at)])
        with pytest.raises(Conflict):
            await cache.update([mine.changed(exit_code=1)])
        assert not cache.active_jobs.jobs
        assert not cache.active_jobs.holding()
        await store.close()

    books: list[JobCache] = []
    asyncio.run(scenario())
