"""The store's promises, on SQLite and on a real PostgreSQL."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from danlu.domain.job import Dependency, Job, JobId, JobState, Reason
from danlu.domain.parsing import Notice
from danlu.domain.people import AuditEntry, Role
from danlu.domain.resources import Seat
from danlu.errors import Conflict, Invalid, Refused, StoreDown
from danlu.store.protocol import JobFilter, Outcome, PastRun, Token
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.contract.store_tools import KINDS, Run, array, ended, fresh_url, opened, started, writers

BYTES = "caf\udce9 \\ud800 \\ 名前 %s \U0001f600 'x'"  # what a name may hold that a database may not like


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def both(url: str) -> Iterator[tuple[SqlStore, Run]]:
    with opened(url) as found:
        yield found


def test_new_jobs_get_numbers_in_order_and_come_back_whole(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    full = job(
        "a",
        user=BYTES,
        name=BYTES,
        command=("echo", "\udcff\udc80", "a\nb"),
        labels=((BYTES, BYTES), ("long", "x" * 5000)),
        env=(("K", "\udcff"),),
        after=(Dependency("z", "any"),),
        waiting_for=(Dependency("z", "any"), Dependency("y")),
        time_limit=timedelta(days=400, microseconds=1),
        notice=Notice("USR1", timedelta(seconds=90)),
        seats=(Seat("n1", 2, 10, (0, 1), None, 0), Seat("n2", 2, 10, (), 3, 16)),
        reason=Reason("x", BYTES),
        handle=f"local:{BYTES}",
        exit_code=-9,
        submitted_at=NOW + timedelta(microseconds=123457),
        started_at=NOW + timedelta(microseconds=1),
        stop_requested_at=NOW,
        gpus=2,
        gpu_model="RTX3090",
    )
    made = run(store.insert([full, job("b")]))
    assert [one.seq for one in made] == [1, 2]
    assert made[0] == replace(full, seq=1)
    assert run(store.get("a")) == made[0]
    assert run(store.get("nobody")) is None
    assert [run(store.numbered(number)) for number in (1, 2, 3, 10**15)] == [*made, None, None]
    assert [one.seq for one in run(store.insert([job("c")]))] == [3]


def test_active_jobs_are_there_after_a_restart_in_order(url: str) -> None:
    with opened(url) as (store, run):
        made = run(store.insert([job("c"), job("a"), job("b"), *array("arr", 3, labels=(("k", "v"),))]))
        moved = started(made[1])
        run(store.update([moved, ended(made[0])]))
    with opened(url) as (store, run):
        run(store.close())
        found = run(store.open())
        assert [one.id for one in found] == ["a", "b", "arr_0", "arr_1", "arr_2"]
        assert found[0] == moved
        assert found[2].spec is found[4].spec
        assert run(store.insert([job("next")]))[0].seq == 7


def test_an_insert_is_all_or_none(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    run(store.insert([job("taken")]))
    with pytest.raises(Conflict):
        run(store.insert([job("new", labels=(("k", "v"),), environ="e"), job("taken")], environ={"A": "1"}))
    assert run(store.get("new")) is None
    assert run(store.page(JobFilter(label=("k", "v")), limit=5)).jobs == ()
    assert run(store.environ("e")) == {}


def test_an_update_is_all_or_none_and_replaces_the_version_before(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    a, b = run(store.insert([job("a"), job("b")]))
    run(store.update([started(a)]))
    past = PastRun(b.id, 1, JobState.FAILED, "exit", BYTES, None, NOW, 1, "n1")
    with pytest.raises(Conflict):
        run(store.update([started(b), started(a)], [past]))
    assert run(store.get("b")) == b
    assert run(store.past_runs(b.id)) == ()
    run(store.update([started(b)], [past]))
    assert run(store.past_runs(b.id)) == (past,)
    with pytest.raises(Conflict):
        run(store.update([started(job("unknown"))]))


def test_in_a_group_only_the_guilty_one_fails(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    a, b, c = run(store.insert([job("a"), job("b"), job("c")]))
    # What is small gathers and shares one transaction; the array and what comes in twos wait for their turn.
    answers = run.together(
        store.insert(array("arr", 3000)),
        store.update([started(a)]),
        store.update([replace(started(b), version=5)]),
        store.insert([job("a")]),
        store.insert([job("d", environ="e1")], environ={"A": "1"}),
        store.insert([job("f", environ="e2"), job("d")], environ={"A": "2"}),
        store.update([started(c)]),
        store.remove([JobId("arr_1")]),
        store.update([ended(started(a))]),
    )
    assert [type(one) if isinstance(one, Exception) else None for one in answers] == [
        *(None, None, Conflict, Conflict, None, Conflict, None, None, None),
    ]
    assert [run(store.get(one)) is not None for one in "abcdf"] == [True, True, True, True, False]
    assert run(store.get("a")).state is JobState.SUCCEEDED  # type: ignore[union-attr]
    assert run(store.get("b")) == b
    assert run(store.environ("e1")) == {"A": "1"}
    assert run(store.environ("e2")) == {}
    assert run(store.insert([job("last")]))[0].seq == 3005


def test_what_arrives_together_shares_a_commit(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    commits: list[object] = []
    event.listen(writers(store), "commit", commits.append)
    run.together(*(store.insert([job(f"j{i}")], key=f"k{i}") for i in range(500)))
    assert len(commits) < 50
    assert len(run(store.page(JobFilter(), limit=1000)).jobs) == 500


def test_the_same_key_twice_is_one_submission(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    long_key = "k" * 9000 + "\udcff"
    first = run(store.insert(array("a", 3), key=long_key))
    assert run(store.insert(array("b", 3), key=long_key)) == first
    assert run(store.insert(array("c", 2, user="bo"), key=long_key))[0].id == "c_0"
    assert run(store.insert(array("d", 2), key=long_key[:-1] + "x"))[0].id == "d_0"
    run(store.update([started(first[0])]))
    assert run(store.insert([job("e")], key=long_key))[0].state is JobState.STARTING
    answers = run.together(
        store.insert(array("big", 3000)),
        *(store.insert([job(f"t{i}")], key="same") for i in range(20)),
    )
    assert {tuple(one.id for one in answer) for answer in answers[1:]} == {("t0",)}
    assert run(store.get("t1")) is None
    assert len(run(store.insert([]))) == 0


def test_prefixes(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    run(store.insert([job("abc"), job("abd"), job("b"), job("Ab")]))
    run(store.insert(array("abx", 200)))
    run(store.insert(array("abxy", 2)))
    assert run(store.find("ab")) == ("abc", "abd", "abx", "abxy")
    assert run(store.find("ab", limit=2)) == ("abc", "abd")
    assert run(store.find("abc")) == ("abc",)
    assert run(store.find("abx")) == ("abx",)
    assert run(store.find("abxy")) == ("abxy",)
    assert run(store.find("abx_19")) == ("abx_19",)
    assert run(store.find("abx_19", limit=3)) == ("abx_19",)
    assert run(store.find("abxy_")) == ("abxy_0", "abxy_1")
    assert run(store.find("abx_2", limit=3)) == ("abx_2",)
    assert run(store.find("zzz")) == ()
    assert run(store.find("a%")) == ()
    assert run(store.find("\udcff")) == ()
    assert run(store.find("", limit=3)) == ("Ab", "abc", "abd")


def test_latest_counts_an_array_once(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    assert run(store.latest("ada")) is None
    run(store.insert([job("first")]))
    run(store.insert(array("arr", 170)))
    run(store.insert([job("other", user="bo")]))
    run(store.insert([job("x1"), job("x2")]))
    run(store.insert(array("arr2", 60)))
    found = [run(store.latest("ada", back)) for back in range(6)]
    assert found == ["arr2", "x2", "x1", "arr", "first", None]
    assert run(store.latest("bo")) == "other"
    assert run(store.latest("bo", 1)) is None


def test_outcome_of_jobs_and_arrays(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    made = run(store.insert(array("arr", 5)))
    run(store.insert([job("a")]))
    run(store.update([ended(made[0]), ended(made[1], JobState.FAILED), started(made[2])]))
    assert run(store.outcome("arr")) == Outcome(known=5, active=3, succeeded=1)
    assert run(store.outcome("arr_0")) == Outcome(1, 0, 1)
    assert run(store.outcome("a")) == Outcome(1, 1, 0)
    assert run(store.outcome("nobody")) == Outcome(0, 0, 0)


def test_remove_forgets_ended_jobs_only(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    made = run(store.insert(array("arr", 1200, labels=(("k", "v"),))))
    alone = run(store.insert([job("a", labels=(("k", "v"),)), job("b")]))
    past = PastRun(made[0].id, 1, JobState.FAILED, "exit", "", NOW, NOW, 1, "n1")
    run(store.update([ended(one) for one in made[:-1]] + [ended(alone[0])], [past]))
    assert run(store.remove([*(one.id for one in made), alone[0].id, alone[1].id, JobId("nobody"), made[0].id])) == 1200
    assert run(store.past_runs(made[0].id)) == ()
    left = run(store.page(JobFilter(label=("k", "v")), limit=10)).jobs
    assert [one.id for one in left] == ["arr_1199"]
    assert left[0].spec == made[0].spec
    run(store.update([ended(left[0])]))
    assert run(store.remove([left[0].id])) == 1
    assert [one.id for one in run(store.page(JobFilter(), limit=10)).jobs] == ["b"]
    assert _count(store, "specs") == 1
    assert _count(store, "labels") == 0


def _count(store: SqlStore, table: str) -> int:
    with store._database.readers.connect() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() or 0)


def test_an_environment_lives_as_long_as_an_active_job_needs_it(url: str) -> None:
    secret = {"PATH": "/bin", "RAW": "\udcff\n", "名": "x"}
    with opened(url) as (store, run):
        a, b = run(store.insert([job("a", environ="e"), job("b", environ="e")], environ=secret))
        run(store.insert([job("c", environ="e")], environ=secret))
        assert run(store.environ("e")) == secret
        run(store.update([ended(a)]))
        assert run(store.environ("e")) == secret
    with opened(url) as (store, run):
        c = run(store.get("c"))
        assert c is not None
        run(store.update([ended(b), ended(c)]))
        assert run(store.environ("e")) == {}
        assert _count(store, "environs") == 0
        # Needed anew in the very transaction that would drop it.
        (d,) = run(store.insert([job("d", environ="e")], environ=secret))
        run.together(
            store.insert(array("arr", 3000)),
            store.update([ended(d)]),
            store.insert([job("f", environ="e")], environ=secret),
        )
        assert run(store.environ("e")) == secret
        assert run(store.environ("")) == {}


def test_a_retried_job_keeps_its_environment_and_its_past(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    (a,) = run(store.insert([job("a", environ="e", retries=1)], environ={"A": "1"}))
    going = started(a)
    run(store.update([going]))
    again = going.moved(JobState.QUEUED, why=Reason("retry", "tried again"), at=NOW)
    past = [PastRun(a.id, n, JobState.FAILED, "exit", "ended with 1", NOW, NOW, 1, "n1") for n in (2, 1)]
    run(store.update([again], past))
    assert run(store.environ("e")) == {"A": "1"}
    assert run(store.past_runs(a.id)) == tuple(reversed(past))


def test_tokens(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    one = Token("t1", "d1", BYTES, Role.MEMBER, BYTES, NOW, NOW + timedelta(days=1))
    two = Token("t2", "d2", "bo", Role.ADMIN, "", NOW + timedelta(seconds=1), None)
    run(store.add_token(one))
    run(store.add_token(two))
    with pytest.raises(Conflict):
        run(store.add_token(replace(two, id="t3")))
    assert run(store.tokens()) == (one, two)
    assert run(store.token("d1")) == one
    assert run(store.token("d3")) is None
    assert run(store.drop_token("t1")) is True
    assert run(store.drop_token("t1")) is False
    assert run(store.tokens()) == (two,)


def test_a_token_and_its_line_of_the_log_are_one_write(both: tuple[SqlStore, Run]) -> None:
    store, run = both

    def said(what: str) -> list[AuditEntry]:
        return [AuditEntry(NOW, "root", what)]

    one = Token("t1", "d1", "li", Role.MEMBER, "ci", NOW, None)
    run(store.add_token(one, said("token.create")))
    with pytest.raises(Conflict):
        run(store.add_token(replace(one, id="t2"), said("token.create")))
    assert run(store.drop_token("t1", said("token.revoke"))) is True
    assert run(store.drop_token("t1", said("token.revoke"))) is False
    assert [entry.what for entry in run(store.audit(limit=10))] == ["token.revoke", "token.create"]


def test_a_value_that_no_database_can_keep_fails_alone(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    (a, b) = run(store.insert([job("a"), job("b")]))
    answers = run.together(
        store.insert(array("arr", 3000)),
        store.update([started(a)]),
        store.update([replace(started(b), exit_code=2**70)]),
    )
    assert isinstance(answers[2], Invalid)
    assert run(store.get("a")) == started(a)
    assert run(store.get("b")) == b


def test_a_second_opener_is_refused_by_name(url: str) -> None:
    with opened(url):
        second = SqlStore(url)
        with pytest.raises(Refused) as refused:
            asyncio.run(second.open())
        assert "in use by `danlu " in refused.value.text
        assert refused.value.hint
    with opened(url) as (store, run):
        assert run(store.get("a")) is None


def test_a_closed_store_says_so(url: str) -> None:
    with opened(url) as (store, run):
        run(store.close())
        with pytest.raises(StoreDown):
            run(store.get("a"))
        with pytest.raises(StoreDown):
            run(store.insert([job("a")]))
        run(store.close())


def test_writes_asked_before_close_are_done(url: str) -> None:
    async def ask_and_close(store: SqlStore) -> list[Any]:
        asked = [asyncio.ensure_future(store.insert([job(f"j{i}")])) for i in range(50)]
        await asyncio.sleep(0)
        await store.close()
        return await asyncio.gather(*asked)

    with opened(url) as (store, run):
        assert len(run(ask_and_close(store))) == 50
    with opened(url) as (store, run):
        assert len(run(store.page(JobFilter(), limit=100)).jobs) == 50


def test_a_caller_that_gave_up_harms_nobody(both: tuple[SqlStore, Run]) -> None:
    store, run = both

    async def story() -> Job | None:
        first = asyncio.ensure_future(store.insert(array("arr", 2000)))
        await asyncio.sleep(0)
        first.cancel()
        await store.insert([job("b")])
        return await store.get("b")

    assert run(story()) is not None


def test_snapshots_that_jobs_need_are_known(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    assert run(store.snapshots()) == frozenset()
    first, second = "a" * 32, "0123456789abcdef" * 2
    odd = ('"snapshot":"' + "e" * 32, "\\")
    a, b, *_ = run(
        store.insert([job("a", snapshot=first), job("b", snapshot=second), job("c", command=odd), job("d", env=(odd,))])
    )
    run(store.insert(array("arr", 3, snapshot=first)))
    run(store.update([ended(a), ended(b)]))
    assert run(store.snapshots()) == {first, second}
    run(store.remove([a.id, b.id]))
    assert run(store.snapshots()) == {first}
