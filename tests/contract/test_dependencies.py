"""Jobs that wait for others go on however the end of the others meets their own submit; on both databases."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from danlu.actions.jobs.submit import Rules
from danlu.actions.jobs.submit import remove as remove_jobs
from danlu.actions.jobs.submit import submit as submit_job
from danlu.domain.job import Dependency, Job, JobId, JobState
from danlu.domain.people import Actor, AuditEntry
from danlu.domain.request import JobRequest
from danlu.errors import Conflict, Refused, StoreDown
from danlu.loops.dependencies import AT_ONCE, release_dependents, release_overdue
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache
from danlu.store.protocol import Outcome
from danlu.store.sql import SqlStore
from tests.builders import NOW, job, node
from tests.contract.store_tools import KINDS, Run, array, ended, fresh_url, opened
from tests.fakes.engine import FakeEngine


class Opened:
    def __init__(self, store: SqlStore, run: Run) -> None:
        self.run, self.store = run, store
        self.cache = JobCache(store, ())

    def ends(self, one: Job, state: JobState = JobState.SUCCEEDED) -> None:
        self.run(self.cache.update([ended(one, state)]))

    def waits(self, name: str) -> bool:
        return bool(self.cache.active_jobs.jobs[name].waiting_for)


@pytest.fixture(params=KINDS)
def opened_book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with opened(fresh_url(request.param, tmp_path)) as (store, run):
        yield Opened(store, run)


def behind(name: str, on: str, kind: str = "ok") -> Job:
    return job(name, waiting_for=(Dependency(on, kind),))


def test_an_end_between_the_look_and_the_insert_is_seen(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    first, *tasks = run(cache.insert([job("a"), *array("arr", 3)]))
    # The submits of `b` and `c` saw `a` and `arr` active. `a` and `arr` end before `b` and `c` are inserted.
    opened_book.ends(first)
    for task in tasks:
        opened_book.ends(task)
    run(cache.insert([behind("b", "a"), behind("c", "arr")]))
    run(release_dependents(cache, NOW))
    assert not opened_book.waits("b")
    assert not opened_book.waits("c")


def test_an_end_without_success_before_the_insert_ends_the_new_job(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    (first,) = run(cache.insert([job("a")]))
    opened_book.ends(first, JobState.FAILED)
    run(cache.insert([behind("b", "a"), behind("c", "a", "any")]))
    run(release_dependents(cache, NOW))
    assert "b" not in cache.active_jobs.jobs
    assert not opened_book.waits("c")


def test_what_was_removed_before_the_insert_counts_as_no_success(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    (first,) = run(cache.insert([job("a")]))
    opened_book.ends(first, JobState.FAILED)
    run(opened_book.store.remove([first.id]))
    run(cache.insert([behind("b", "a"), behind("c", "a", "any")]))
    run(release_dependents(cache, NOW))
    cancelled = run(cache.get("b"))
    assert cancelled is not None
    assert cancelled.reason.text == "a, which it waited for, was removed"
    assert not opened_book.waits("c")


def test_an_end_while_others_are_released_is_not_forgotten(opened_book: Opened) -> None:
    run, cache, store = opened_book.run, opened_book.cache, opened_book.store
    first, second, *_ = run(cache.insert([job("a"), job("b"), behind("c", "a"), behind("d", "b")]))
    ask = store.outcome

    async def outcome(ref: str) -> Outcome:
        if ref == "a":
            await cache.update([ended(second)])
        return await ask(ref)

    store.outcome = outcome  # type: ignore[method-assign]
    opened_book.ends(first)
    run(release_dependents(cache, NOW))
    run(release_dependents(cache, NOW))
    assert not opened_book.waits("c")
    assert not opened_book.waits("d")


def test_a_store_that_is_away_forgets_no_end(opened_book: Opened) -> None:
    run, cache, store = opened_book.run, opened_book.cache, opened_book.store
    first, _ = run(cache.insert([job("a"), behind("b", "a")]))
    ask = store.outcome

    async def away(ref: str) -> Outcome:
        raise StoreDown("the database is away")

    opened_book.ends(first)
    store.outcome = away  # type: ignore[method-assign]
    with pytest.raises(StoreDown):
        run(release_dependents(cache, NOW))
    store.outcome = ask  # type: ignore[method-assign]
    run(release_dependents(cache, NOW))
    assert not opened_book.waits("b")


def test_the_sweep_repairs_what_nobody_announced(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    first, second, *_ = run(cache.insert([job("a"), job("b"), behind("c", "a"), behind("d", "b")]))
    opened_book.ends(first)
    cache.awaited_ends.clear()
    run(release_overdue(cache, NOW))
    assert not opened_book.waits("c")
    assert opened_book.waits("d")
    assert second.id in cache.active_jobs.jobs


def test_an_end_that_only_a_conflict_brings_to_light_is_announced(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    first, *_ = run(cache.insert([job("a"), behind("b", "a")]))
    run(opened_book.store.update([ended(first)]))  # a commit whose answer never came
    with pytest.raises(Conflict):
        opened_book.ends(first)
    run(release_dependents(cache, NOW))
    assert not opened_book.waits("b")


def test_who_waits_for_an_array_is_looked_at_once_it_is_over(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    *tasks, last = run(cache.insert(array("arr", 4)))
    run(cache.insert([behind("b", "arr")]))
    for task in tasks:
        opened_book.ends(task)
        assert not cache.awaited_ends, "counting a large array takes long"
    opened_book.ends(last)
    run(release_dependents(cache, NOW))
    assert not opened_book.waits("b")


def test_many_that_wait_for_one_go_on_in_portions(opened_book: Opened) -> None:
    run, cache = opened_book.run, opened_book.cache
    first, *_ = run(cache.insert([job("a"), *array("arr", 2500, waiting_for=(Dependency("a"),))]))
    run(cache.insert([behind("b", "arr")]))
    portions: list[int] = []
    update = opened_book.store.update

    async def counted(jobs: Sequence[Job], *more: Any) -> None:
        portions.append(len(jobs))
        await update(jobs, *more)

    opened_book.store.update = counted  # type: ignore[method-assign, assignment]
    opened_book.ends(first, JobState.FAILED)
    run(release_dependents(cache, NOW))
    assert not cache.active_jobs.jobs, "the array is cancelled, and so is who waited for the array"
    assert max(portions) <= AT_ONCE


def test_jobs_behind_arrays_that_end_meanwhile_all_go_on(opened_book: Opened) -> None:
    """Submits look at an array, the array ends, the jobs are inserted; and somebody else changes them all the while."""
    cache, rules = opened_book.cache, Rules(Inventory((node("desk"),)))
    ada = Actor("ada")

    async def end(tasks: Sequence[Job]) -> None:
        for start in range(0, len(tasks), 40):
            await cache.update([ended(task) for task in tasks[start : start + 40]])

    async def submit(on: str) -> None:
        for kind in ("ok", "any") * 6:
            await submit_job(cache, rules, ada, JobRequest(("true",), after=(f"{on}:{kind}",)), now=NOW)

    async def meddle(until: asyncio.Event) -> None:
        while not until.is_set():
            for waiting in [one for one in cache.active_jobs.jobs.values() if one.waiting_for][:5]:
                with contextlib.suppress(Conflict):
                    await cache.update([waiting.changed(notes=(*waiting.notes, "."))])
            await asyncio.sleep(0)

    async def release(until: asyncio.Event) -> None:
        while not until.is_set() or cache.awaited_ends:
            await release_dependents(cache, NOW)
            await asyncio.sleep(0)

    async def stress() -> None:
        for number in range(6):
            over = asyncio.Event()
            arrays = [await cache.insert(array(f"arr{number}x{one}", 160, user="ada")) for one in range(3)]
            beside = asyncio.gather(meddle(over), release(over))
            submits = [submit(tasks[0].array_id) for tasks in arrays for _ in range(4)]
            await asyncio.gather(*map(end, arrays), *submits)
            over.set()
            await beside

    opened_book.run(stress())
    assert [one.id for one in cache.active_jobs.jobs.values() if one.waiting_for] == []
    assert len(cache.active_jobs.jobs) == 6 * 3 * 4 * 12


def test_what_is_removed_between_two_looks_of_a_submit_is_no_success(opened_book: Opened) -> None:
    run, cache, store = opened_book.run, opened_book.cache, opened_book.store
    (first,) = run(cache.insert([job("aaaa")]))
    opened_book.ends(first, JobState.FAILED)
    ask = store.outcome

    async def outcome(ref: str) -> Outcome:
        await store.remove([first.id])
        return await ask(ref)

    store.outcome = outcome  # type: ignore[method-assign]
    rules, wanted = Rules(Inventory((node("desk"),))), JobRequest(("true",), after=("aaaa",))
    with pytest.raises(Refused, match="aaaa was removed"):
        run(submit_job(cache, rules, Actor("ada"), wanted, now=NOW))


def test_a_large_array_is_removed_in_portions(opened_book: Opened) -> None:
    run, cache, store = opened_book.run, opened_book.cache, opened_book.store
    run(cache.update([ended(task) for task in run(cache.insert(array("aaaa", 2500, user="ada")))]))
    portions: list[int] = []
    remove = store.remove

    async def counted(ids: Sequence[JobId], audit: Sequence[AuditEntry] = ()) -> int:
        portions.append(len(ids))
        return await remove(ids, audit)

    store.remove = counted  # type: ignore[method-assign]
    assert (
        len(
            run(
                remove_jobs(
                    cache, FakeEngine(()), Rules(Inventory(()), files_dir="/nowhere"), Actor("ada"), "aaaa", now=NOW
                )
            )
        )
        == 2500
    )
    assert run(store.find("aaaa")) == ()
    assert max(portions) <= AT_ONCE
    assert len(run(store.audit(limit=9))) == 1
