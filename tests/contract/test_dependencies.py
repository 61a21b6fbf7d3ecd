"""Jobs that wait for others go on however the end of the others meets their own submit; on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from danlu.domain.job import Dependency, Job, JobState
from danlu.errors import StoreDown
from danlu.loops.dependencies import release_dependents, release_overdue
from danlu.state.jobs import Book
from danlu.store.protocol import Outcome
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.contract.store_tools import KINDS, Run, array, ended, fresh_url, opened


class Opened:
    def __init__(self, store: SqlStore, run: Run) -> None:
        self.run, self.store = run, store
        self.book = Book(store, ())

    def ends(self, one: Job, state: JobState = JobState.SUCCEEDED) -> None:
        self.run(self.book.update([ended(one, state)]))

    def waits(self, name: str) -> bool:
        return bool(self.book.live.jobs[name].waiting_for)


@pytest.fixture(params=KINDS)
def opened_book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with opened(fresh_url(request.param, tmp_path)) as (store, run):
        yield Opened(store, run)


def behind(name: str, on: str, kind: str = "ok") -> Job:
    return job(name, waiting_for=(Dependency(on, kind),))


def test_an_end_between_the_look_and_the_insert_is_seen(opened_book: Opened) -> None:
    run, book = opened_book.run, opened_book.book
    first, *tasks = run(book.insert([job("a"), *array("arr", 3)]))
    # Whoever submits `b` and `c` has seen `a` and `arr` active; then they end, and only then `b` and `c` are inserted.
    opened_book.ends(first)
    for task in tasks:
        opened_book.ends(task)
    run(book.insert([behind("b", "a"), behind("c", "arr")]))
    run(release_dependents(book, NOW))
    assert not opened_book.waits("b")
    assert not opened_book.waits("c")


def test_an_end_without_success_before_the_insert_ends_the_new_job(opened_book: Opened) -> None:
    run, book = opened_book.run, opened_book.book
    (first,) = run(book.insert([job("a")]))
    opened_book.ends(first, JobState.FAILED)
    run(book.insert([behind("b", "a"), behind("c", "a", "any")]))
    run(release_dependents(book, NOW))
    assert "b" not in book.live.jobs
    assert not opened_book.waits("c")


def test_what_was_removed_before_the_insert_counts_as_no_success(opened_book: Opened) -> None:
    run, book = opened_book.run, opened_book.book
    (first,) = run(book.insert([job("a")]))
    opened_book.ends(first, JobState.FAILED)
    run(opened_book.store.remove([first.id]))
    run(book.insert([behind("b", "a"), behind("c", "a", "any")]))
    run(release_dependents(book, NOW))
    cancelled = run(book.get("b"))
    assert cancelled is not None
    assert cancelled.reason.text == "a, which it waited for, was removed"
    assert not opened_book.waits("c")


def test_an_end_while_others_are_released_is_not_forgotten(opened_book: Opened) -> None:
    run, book, store = opened_book.run, opened_book.book, opened_book.store
    first, second, *_ = run(book.insert([job("a"), job("b"), behind("c", "a"), behind("d", "b")]))
    ask = store.outcome

    async def outcome(ref: str) -> Outcome:
        if ref == "a":
            await book.update([ended(second)])
        return await ask(ref)

    store.outcome = outcome  # type: ignore[method-assign]
    opened_book.ends(first)
    run(release_dependents(book, NOW))
    run(release_dependents(book, NOW))
    assert not opened_book.waits("c")
    assert not opened_book.waits("d")


def test_a_store_that_is_away_forgets_no_end(opened_book: Opened) -> None:
    run, book, store = opened_book.run, opened_book.book, opened_book.store
    first, _ = run(book.insert([job("a"), behind("b", "a")]))
    ask = store.outcome

    async def away(ref: str) -> Outcome:
        raise StoreDown("the database is away")

    opened_book.ends(first)
    store.outcome = away  # type: ignore[method-assign]
    with pytest.raises(StoreDown):
        run(release_dependents(book, NOW))
    store.outcome = ask  # type: ignore[method-assign]
    run(release_dependents(book, NOW))
    assert not opened_book.waits("b")


def test_the_sweep_repairs_what_nobody_announced(opened_book: Opened) -> None:
    run, book = opened_book.run, opened_book.book
    first, second, *_ = run(book.insert([job("a"), job("b"), behind("c", "a"), behind("d", "b")]))
    opened_book.ends(first)
    book.awaited_ends.clear()
    run(release_overdue(book, NOW))
    assert not opened_book.waits("c")
    assert opened_book.waits("d")
    assert second.id in book.live.jobs
