"""The audit log is written with the jobs it is about, and read from its indexes, on SQLite and on a real PostgreSQL."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event

from danlu.domain.job import JobId
from danlu.domain.people import AuditEntry
from danlu.errors import Conflict, DanluError
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.contract.store_tools import KINDS, Run, array, ended, fresh_url, opened, started, writers
from tests.postgres import postgres_server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def both(url: str) -> Iterator[tuple[SqlStore, Run]]:
    with opened(url) as found:
        yield found


def said(target: str, what: str = "job.submit", **fields: Any) -> list[AuditEntry]:
    return [AuditEntry(NOW, "ada", what, target, **fields)]


def log_of(store: SqlStore, run: Run) -> list[tuple[str, str]]:
    """What was written down, the oldest first."""
    return [(one.what, one.target) for one in reversed(run(store.audit(limit=1000)))]


def test_jobs_and_their_line_of_the_log_are_one_write(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    commits: list[object] = []
    event.listen(writers(store), "commit", commits.append)
    made = run(store.insert(array("arr", 3), audit=said("arr", detail="3 tasks", origin="203.0.113.7")))
    run(store.update([started(made[0])], audit=said("arr", "job.stop")))
    run(store.update([ended(made[1])]))
    run(store.remove([made[1].id], said("arr", "job.remove")))
    assert len(commits) == 4
    assert log_of(store, run) == [("job.submit", "arr"), ("job.stop", "arr"), ("job.remove", "arr")]
    first = run(store.audit(limit=1, what="job.submit"))[0]
    assert replace(first, seq=0) == said("arr", detail="3 tasks", origin="203.0.113.7")[0]


def test_a_repeated_key_is_no_new_change(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    run(store.insert([job("a")], key="k", audit=said("a")))
    run(store.insert([job("b")], key="k", audit=said("b")))
    run(store.insert([job("c", user="bo")], key="k", audit=said("c")))
    # While the array is written, the others gather behind it and share one transaction.
    run.together(
        store.insert(array("big", 3000)),
        *(store.insert([job(f"t{i}")], key="same", audit=said(f"t{i}")) for i in range(20)),
        store.insert([job("u")], key="k", audit=said("u")),
        store.insert([job("v")], audit=said("v")),
    )
    assert [target for _, target in log_of(store, run)] == ["a", "c", "t0", "v"]


def test_a_conflict_leaves_no_line(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    (a,) = run(store.insert([job("a")], audit=said("a")))
    with pytest.raises(Conflict):
        run(store.insert([job("new"), job("a")], audit=said("new")))
    run(store.update([started(a)], audit=said("a", "job.stop", detail="first")))
    with pytest.raises(Conflict):
        run(store.update([started(a)], audit=said("a", "job.stop", detail="second")))
    assert log_of(store, run) == [("job.submit", "a"), ("job.stop", "a")]


def test_nothing_changes_without_its_line(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    a, b = run(store.insert([job("a"), job("b")]))
    run(store.update([ended(b)]))
    _change(store, "ALTER TABLE audit RENAME TO away")
    for write in (
        store.insert([job("new")], audit=said("new")),
        store.update([started(a)], audit=said("a", "job.stop")),
        store.remove([b.id], said("b", "job.remove")),
    ):
        with pytest.raises(DanluError):
            run(write)
    _change(store, "ALTER TABLE away RENAME TO audit")
    assert run(store.get("new")) is None
    assert run(store.get("a")) == a
    assert run(store.get("b")) is not None
    run(store.insert([job("new")], audit=said("new")))
    assert log_of(store, run) == [("job.submit", "new")]


def _change(store: SqlStore, sql: str) -> None:
    with create_engine(writers(store).url).begin() as connection:
        connection.exec_driver_sql(sql)


def test_in_a_group_only_the_guilty_one_leaves_no_line(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    a, b = run(store.insert([job("a"), job("b")]))
    answers = run.together(
        store.insert(array("arr", 3000), audit=said("arr")),
        store.update([started(a)], audit=said("a", "job.stop")),
        store.update([replace(started(b), version=5)], audit=said("b", "job.stop")),
        store.insert([job("a")], audit=said("lost")),
        store.insert([job("c")], audit=said("c")),
    )
    assert [type(one).__name__ for one in answers] == ["tuple", "NoneType", "Conflict", "Conflict", "tuple"]
    # An array may be written after the single changes.
    assert sorted(log_of(store, run)) == [("job.stop", "a"), ("job.submit", "arr"), ("job.submit", "c")]


def test_a_removal_is_in_the_log_if_anything_went(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    a, b, c = run(store.insert([job("a"), job("b"), job("c")]))
    run(store.update([ended(a), ended(b)]))
    gone = run.together(
        store.remove([c.id], said("active", "job.remove")),
        store.remove([a.id, c.id], said("first", "job.remove")),
        store.remove([a.id], said("again", "job.remove")),
        store.remove([JobId("nobody")], said("nobody", "job.remove")),
        store.remove([b.id], said("b", "job.remove")),
    )
    assert gone == [0, 1, 0, 0, 1]
    assert [target for _, target in log_of(store, run)] == ["first", "b"]


@pytest.mark.parametrize("after", [True, False])
def test_a_submit_whose_answer_is_lost_has_one_line(after: bool) -> None:
    def cut(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        if after:
            raw.execute("COMMIT")
        raw.close()

    with opened(postgres_server().fresh_url()) as (store, run):
        (a,) = run(store.insert([job("a")], audit=said("a")))
        event.listen(writers(store), "commit", cut, once=True)
        run.together(store.insert([job("b")], audit=said("b")))
        event.listen(writers(store), "commit", cut, once=True)
        run.together(store.update([started(a)], audit=said("a", "job.stop")))
        assert log_of(store, run) == [("job.submit", "a"), ("job.submit", "b"), ("job.stop", "a")]


FILTERS: dict[str, dict[str, Any]] = {
    "": {},
    "audit_by_who": {"who": "rare"},
    "audit_by_who, too": {"who": "ada", "what": "user"},
    "audit_by_what": {"what": "job"},
    "audit_by_what, too": {"what": "user.disable", "before": 3999},
    "audit_by_target": {"target": "old"},
    "audit_by_target, too": {"who": "ada", "what": "job.submit", "target": "old", "before": 3999},
}


@pytest.mark.parametrize("index", FILTERS)
def test_the_log_is_read_from_its_indexes(both: tuple[SqlStore, Run], index: str) -> None:
    store, run = both
    # A few old ones under many young ones: where a planner goes by averages it goes wrong.
    old = [*said("old"), *said("old", "user.disable"), *said("old", "team.add")]
    some = [replace(one, who=who) for one in old for who in ("rare", "ada")]
    some += [AuditEntry(NOW + timedelta(seconds=i), "ada", "job.submit", f"j{i}") for i in range(4000)]
    run(store.record((), some))
    readers, asked = store._database.readers, []

    def keep(_connection: Any, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        asked.append((statement, given))

    event.listen(readers, "before_cursor_execute", keep)
    assert run(store.audit(limit=2, **FILTERS[index]))
    event.remove(readers, "before_cursor_execute", keep)
    with readers.connect() as connection:
        if is_sqlite := connection.dialect.name == "sqlite":
            explain, column, slow = "EXPLAIN QUERY PLAN", 3, "USE TEMP B-TREE"
        else:
            explain, column, slow = "EXPLAIN", 0, "Seq Scan"
            connection.exec_driver_sql("ANALYZE audit")
        plans = [[row[column] for row in connection.exec_driver_sql(f"{explain} {sql}", given)] for sql, given in asked]
    steps = [step for plan in plans for step in plan]
    assert not [step for step in steps if slow in step], steps
    assert [step for step in steps if index.partition(",")[0] in step], steps
    if is_sqlite and index:
        assert not [step for step in steps if step.startswith("SCAN")], steps
