"""Telling the engine: a run whose code takes long to lay out may not be wanted any more when that is done."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from danlu.domain.job import Job, JobState, Reason
from danlu.engines.base import Launch, RunState
from danlu.loops.dispatch import Dispatcher
from danlu.state.jobs import JobCache
from danlu.store.sql import SqlStore
from tests.builders import job, node
from tests.fakes.engine import FakeEngine

NOW = datetime.now(UTC)
WHY = Reason("test", "for a test")


def stopped(one: Job) -> Job:
    return one.moved(JobState.CANCELLED, why=WHY, at=NOW)


def given_back(one: Job) -> Job:
    """It waits again, for its next run."""
    return one.moved(JobState.QUEUED, why=WHY, at=NOW)


@pytest.mark.parametrize("change", [stopped, given_back])
def test_a_run_that_nobody_wants_any_more_is_not_started(tmp_path: Path, change: Callable[[Job], Job]) -> None:
    async def scenario() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        engine = FakeEngine((node("desk"),))
        await engine.open(lambda: None)

        async def lay_out(one: Job) -> Launch:
            await cache.update([change(cache.active_jobs.jobs[one.id])])
            return Launch(handle, one.run_id, ("true",), "/", {}, None, str(tmp_path / "log"))

        made = job("a", snapshot="feed")
        await cache.insert([made])
        handle = engine.handle(made.run_id)
        starting = made.moved(JobState.STARTING, why=WHY, at=NOW, handle=handle)
        await cache.update([starting])
        dispatcher = Dispatcher(cache, engine, lay_out, timedelta(seconds=30))
        dispatcher.start_snapshots([starting])
        await asyncio.gather(*dispatcher._tasks)
        assert (await engine.observe([handle]))[handle].state is RunState.UNKNOWN
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("snapshot", ["", "feed"])
@pytest.mark.parametrize("fault", [ValueError("embedded null byte"), TypeError("a fault of ours"), RecursionError()])
def test_what_can_never_be_made_ready_fails_and_is_not_tried_for_ever(
    tmp_path: Path, snapshot: str, fault: Exception
) -> None:
    async def scenario() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        engine = FakeEngine((node("desk"),))

        async def lay_out(one: Job) -> Launch:
            raise fault

        made = job("a", snapshot=snapshot)
        await cache.insert([made])
        starting = made.moved(JobState.STARTING, why=WHY, at=NOW, handle=engine.handle(made.run_id))
        await cache.update([starting])
        dispatcher = Dispatcher(cache, engine, lay_out, timedelta(seconds=30))
        assert await dispatcher.launches([starting]) == []
        dispatcher.start_snapshots([starting])
        await asyncio.gather(*dispatcher._tasks)
        failed = await cache.get("a")
        assert failed
        assert (failed.state, failed.reason.code) == (JobState.FAILED, "not_prepared")
        await store.close()

    asyncio.run(scenario())


def test_a_run_that_cannot_be_made_ready_holds_up_no_other_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqlStore(f"sqlite:///{tmp_path}/danlu.db")
        cache = JobCache(store, await store.open())
        engine = FakeEngine((node("desk"),))

        async def lay_out(one: Job) -> Launch:
            if one.id == "b":
                raise TypeError("a fault of ours")
            return Launch(engine.handle(one.run_id), one.run_id, ("true",), "/", {}, None, str(tmp_path / "log"))

        made = [job(name) for name in "abc"]
        await cache.insert(made)
        starting = [one.moved(JobState.STARTING, why=WHY, at=NOW, handle=engine.handle(one.run_id)) for one in made]
        await cache.update(starting)
        dispatcher = Dispatcher(cache, engine, lay_out, timedelta(seconds=30))
        assert [one.run_id for one in await dispatcher.launches(starting)] == ["a.1", "c.1"]
        await store.close()

    asyncio.run(scenario())
