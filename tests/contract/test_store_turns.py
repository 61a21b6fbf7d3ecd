"""Who waits for whom when somebody writes much; on both databases."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from danlu.domain.job import Job
from danlu.errors import Conflict
from danlu.store.sql import SqlStore
from tests.builders import job
from tests.contract.store_tools import KINDS, Run, array, fresh_url, opened


@pytest.fixture(params=KINDS)
def store_and_run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SqlStore, Run]]:
    with opened(fresh_url(request.param, tmp_path)) as found:
        yield found


def in_the_order_of_answers(store: SqlStore, run: Run, *inserts: list[Job]) -> list[str]:
    """Insert all at the same moment; the groups as they were answered."""
    answered: list[str] = []

    async def insert(jobs: list[Job]) -> None:
        (first, *_) = await store.insert(jobs)
        answered.append(first.group)

    async def together() -> None:
        await asyncio.gather(*map(insert, inserts))

    run(together())
    return answered


def test_nobody_waits_behind_all_that_another_has_piled_up(store_and_run: tuple[SqlStore, Run]) -> None:
    much = [array(f"ann{number}", 6000, user="ann") for number in range(3)]
    answered = in_the_order_of_answers(*store_and_run, *much, array("bob", 2, user="bob"), [job("cai", user="cai")])
    assert answered.index("cai") < 2, "at most one array of another goes before a job"
    assert answered.index("bob") < answered.index("ann2"), "people with arrays take turns"
    assert [one for one in answered if one.startswith("ann")] == ["ann0", "ann1", "ann2"]


def test_a_long_array_is_kept_as_it_is(store_and_run: tuple[SqlStore, Run]) -> None:
    store, run = store_and_run
    odd = 'a\tb\\c\n"ü\ud800'  # nothing that a way of writing many rows at once may change
    made = run(store.insert(array("arr", 700, name="long", team=odd), key=odd))
    assert run(store.get("arr_699")) == made[-1]
    assert run(store.by_key(made[0].user, odd)) == made


def test_a_long_array_with_a_taken_id_is_refused_whole(store_and_run: tuple[SqlStore, Run]) -> None:
    store, run = store_and_run
    run(store.insert([job("arr_650")]))
    with pytest.raises(Conflict):
        run(store.insert(array("arr", 700)))
    assert run(store.get("arr_3")) is None
    run(store.insert([job("next")]))
