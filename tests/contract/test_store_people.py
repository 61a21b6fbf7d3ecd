"""What is remembered about people, quotas and use, on SQLite and on a real PostgreSQL."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, event

from danlu.domain.charge import Charge
from danlu.domain.job import JobState
from danlu.domain.people import (
    AccountRequest,
    AuditEntry,
    Boost,
    Invitation,
    Membership,
    Person,
    RequestState,
    Role,
    Team,
)
from danlu.domain.quota import Period, Quota
from danlu.errors import Invalid
from danlu.store import people_queries
from danlu.store.people_protocol import Limit, Member, NoBoost, NoInvitation, People, PeopleChange, Use, UseFilter
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.contract.store_tools import KINDS, Run, ended, fresh_url, opened, started, writers
from tests.postgres import postgres_server

ODD = "caf\udce9 \\ud800 \0 \\ 名前 %s :x \U0001f600 'x' \"y\"; --"
LATER = NOW + timedelta(days=3, microseconds=1)
TOO_MUCH = Limit("user:ada", Quota(gpus=2**70))  # fits no column


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def both(url: str) -> Iterator[tuple[SqlStore, Run]]:
    with opened(url) as found:
        yield found


def everything(odd: str = ODD) -> People:
    """One of each kind with every field set, and one with as little as possible."""
    plain, full = "ada", f"z{odd}"
    return People(
        persons=(Person(plain, NOW), Person(full, LATER, Role.ADMIN, False, odd, odd, odd, odd)),
        teams=(Team("nlp", NOW), Team(full, LATER)),
        members=(
            Member(plain, "nlp", Membership("nlp")),
            Member(plain, full, Membership(full, is_leader=True, is_mapped=True)),
            Member(full, "nlp", Membership("nlp", is_leader=True)),
        ),
        invitations=(Invitation(plain, "cv", "bo", NOW), Invitation(full, odd, odd, LATER)),
        requests=(
            AccountRequest("r1", "li", "nlp", NOW),
            AccountRequest(full, odd, odd, LATER, RequestState.REFUSED, odd, odd, odd, odd, odd, LATER),
        ),
        limits=(
            Limit(f"team:{full}", Quota(8, 64, 0, 2**40, 20, 1000, Period.WEEK, borrow=True)),
            Limit("user:ada", Quota()),
        ),
        boosts=(
            Boost("b1", "ada", "nlp", "bo", "deadline", NOW, LATER),
            Boost(full, odd, odd, odd, odd, LATER, LATER),
        ),
    )


def changes_of(people: People) -> list[PeopleChange]:
    return [
        *people.persons,
        *people.teams,
        *people.members,
        *people.invitations,
        *people.requests,
        *people.limits,
        *people.boosts,
    ]


def entry(what: str = "user.create", **fields: Any) -> AuditEntry:
    return replace(AuditEntry(NOW, "root", what), **fields)


def test_everything_comes_back_and_survives_a_restart(url: str) -> None:
    with opened(url) as (store, run):
        assert run(store.people()) == People()
        run(store.record(changes_of(everything())[::-1], [entry(who=ODD, target=ODD, detail=ODD, origin=ODD)]))
        assert run(store.people()) == everything()
    with opened(url) as (store, run):
        assert run(store.people()) == everything()
        (found,) = run(store.audit(limit=5))
        assert found == entry(who=ODD, target=ODD, detail=ODD, origin=ODD, seq=found.seq)


def test_a_change_takes_the_place_of_what_was_there(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    run(store.record(changes_of(everything())))
    was = everything()
    now = People(
        persons=(replace(was.persons[0], role=Role.ADMIN, is_enabled=False), was.persons[1]),
        teams=(Team("nlp", LATER), was.teams[1]),
        members=(Member("ada", "nlp", Membership("nlp", is_leader=True)), *was.members[1:]),
        invitations=(Invitation("ada", "cv", "zhao", LATER), was.invitations[1]),
        requests=(
            replace(was.requests[0], state=RequestState.OPENED, decided_by="bo", decided_at=LATER),
            was.requests[1],
        ),
        limits=(was.limits[0], Limit("user:ada", Quota(gpus=0))),
        boosts=(replace(was.boosts[0], until=NOW), was.boosts[1]),
    )
    run(store.record(changes_of(now)))
    assert run(store.people()) == now
    run(store.record([Member("ada", "nlp", None), NoInvitation("ada", "cv"), Limit("user:ada", None), NoBoost("b1")]))
    left = replace(
        now,
        members=now.members[1:],
        invitations=now.invitations[1:],
        limits=now.limits[:1],
        boosts=now.boosts[1:],
    )
    assert run(store.people()) == left
    run(store.record([Member("nobody", "nlp", None), Limit("user:nobody", None), NoBoost("none")]))
    assert run(store.people()) == left


def test_the_last_of_several_changes_counts(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    first, last = Person("ada", NOW), Person("ada", NOW, email="ada@lab")
    run(store.record([first, Limit("user:ada", Quota(gpus=1)), last, Limit("user:ada", None)]))
    assert run(store.people()) == People(persons=(last,))
    run.together(store.record([first]), store.record([Member("ada", "x", None)]), store.record([last, Team("x", NOW)]))
    assert run(store.people()) == People(persons=(last,), teams=(Team("x", NOW),))


def test_it_is_all_or_none(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    run(store.record([Person("ada", NOW)]))
    with pytest.raises(Invalid):
        run(store.record([Person("ada", NOW, email="new"), Person("bo", NOW), TOO_MUCH], [entry()]))
    assert run(store.people()) == People(persons=(Person("ada", NOW),))
    assert run(store.audit(limit=5)) == ()


def test_one_that_fails_takes_no_other_write_with_it(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    a, b = run(store.insert([job("a"), job("b")]))
    answers = run.together(
        store.update([started(a)], charges=[charge("a.1")]),
        store.record([Person("ada", NOW), TOO_MUCH], [entry(target="lost")]),
        store.insert([job("c")]),
        store.record([Person("bo", NOW)], [entry(target="bo")]),
        store.update([started(b)], charges=[charge("b.1", gpus=2**70)]),
    )
    assert [type(one) for one in answers] == [type(None), Invalid, tuple, type(None), Invalid]
    assert run(store.get("a")) == started(a)
    assert run(store.get("b")) == b
    assert run(store.get("c")) is not None
    assert run(store.people()) == People(persons=(Person("bo", NOW),))
    assert [one.target for one in run(store.audit(limit=5))] == ["bo"]
    assert [one.run_id for one in run(store.charges(NOW))] == ["a.1"]


def test_writes_that_arrive_together_share_a_commit(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    made = run(store.insert([job(f"a{i}") for i in range(50)]))
    commits: list[Connection] = []
    event.listen(writers(store), "commit", commits.append)
    run.together(
        *(store.update([started(one)], charges=[charge(one.run_id)]) for one in made),
        *(store.record([Person(f"p{i}", NOW)], [entry()]) for i in range(50)),
    )
    assert len(commits) <= 4
    assert len(run(store.people()).persons) == len(run(store.audit(limit=100))) == 50


VERBS = ["quota.set", "quota", "quotas.x", "quota.\U0001f600", "user.create", "quot", "quota/x", f"{ODD}.x"]


def test_the_audit_log_agrees_with_a_model(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    random = Random(1)
    people, targets = ["root", "ada", ODD], ["", "user:li", ODD]
    kept: list[AuditEntry] = []
    for i in range(40):
        some = [
            entry(random.choice(VERBS), who=random.choice(people), target=random.choice(targets), detail=f"{i}-{k}")
            for k in range(random.randrange(3))
        ]
        run(store.record([], some))
        kept += some
    all_of_it = run(store.audit(limit=1000))
    assert [replace(one, seq=0) for one in all_of_it] == kept[::-1]
    seqs = [one.seq for one in all_of_it]
    assert seqs == sorted(set(seqs), reverse=True)
    asked = product(
        [*people, "", "nobody"], [*targets, "none"], ["", "quota", "quota.set", "user", "quo", ODD, "quota."]
    )
    for who, target, what in asked:
        before = random.choice([None, None, random.choice(seqs), 0])
        limit = random.choice([1, 3, 1000])
        found = [
            one
            for one in all_of_it
            if (not who or one.who == who)
            and (not target or one.target == target)
            and (not what or one.what == what or one.what.startswith(f"{what}."))
            and (before is None or one.seq < before)
        ]
        got = run(store.audit(limit=limit, before=before, who=who, what=what, target=target))
        assert list(got) == found[:limit], (who, target, what)


def charge(run_id: str = "a.1", **fields: Any) -> Charge:
    own: dict[str, Any] = {
        "user": "ada",
        "team": "",
        "queue": "",
        "submitted_at": NOW,
        "started_at": NOW,
        "ended_at": NOW + timedelta(hours=1),
        "gpus": 1,
        "shards": 0,
        "shards_per_gpu": 64,
        "cpus": 4,
        "memory_mib": 1024,
    }
    return Charge(run_id, **(own | fields))


def write_charges(store: SqlStore, run: Run, charges: Sequence[Charge]) -> None:
    """As it happens: each with the end of its job."""
    made = run(store.insert([job(one.run_id.rpartition(".")[0], user=one.user) for one in charges]))
    run(store.update([ended(one) for one in made], charges=charges))


def test_charges_come_back_and_stay_when_their_jobs_go(url: str) -> None:
    odd = charge(
        f"{ODD}.1",
        user=ODD,
        team=ODD,
        queue=ODD,
        submitted_at=NOW - timedelta(microseconds=1),
        ended_at=LATER,
        shards=7,
        shards_per_gpu=10,
        time_limit=timedelta(days=400, microseconds=1),
    )
    plain = charge("b.1")
    with opened(url) as (store, run):
        write_charges(store, run, [odd, plain])
        assert run(store.charges(NOW)) == (plain, odd)
        assert run(store.remove([job(f"{ODD}").id, job("b").id])) == 2
    with opened(url) as (store, run):
        assert run(store.get("b")) is None
        assert run(store.charges(NOW)) == (plain, odd)
        assert run(store.charges(plain.ended_at)) == (plain, odd)
        assert run(store.charges(plain.ended_at + timedelta(microseconds=1))) == (odd,)


def test_charges_with_cards_are_found_among_many_without(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    with_cards = [charge("g.1"), charge("s.1", gpus=0, shards=1)]
    write_charges(store, run, [*with_cards, *(charge(f"c{i}.1", gpus=0) for i in range(2000))])
    assert run(store.charges(NOW, with_gpus=True)) == tuple(with_cards)
    assert run(store.charges(LATER, with_gpus=True)) == ()
    assert len(run(store.charges(NOW))) == 2002
    wanted = people_queries.charges_wanted(NOW, with_gpus=True)
    with store._database.readers.connect() as connection:
        sql = wanted.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("ANALYZE charges")
        explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
        plan = " ".join(str(row) for row in connection.exec_driver_sql(f"{explain} {sql}"))
    assert "charges_of_gpus" in plan


def test_a_run_is_charged_once_and_only_with_its_update(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    (a,) = run(store.insert([job("a")]))
    run(store.update([started(a)], charges=[charge("a.1")]))
    again = run.together(store.update([started(a)], charges=[charge("a.1"), charge("a.2")]))
    assert [type(one).__name__ for one in again] == ["Conflict"]
    run(store.update([ended(started(a))], charges=[charge("a.1", gpus=8)]))
    assert run(store.charges(NOW)) == (charge("a.1"),)


def some_charges(random: Random, count: int) -> list[Charge]:
    def one(i: int) -> Charge:
        started_at = NOW + timedelta(seconds=random.randrange(10**6), microseconds=random.randrange(10**6))
        per_gpu = random.choice([3, 10, 64])
        shards = random.choice([0, random.randrange(per_gpu + 1)])
        return charge(
            f"c{i}.1",
            user=random.choice(["ada", "bo", ODD]),
            team=random.choice(["", "nlp", ODD]),
            queue=random.choice(["", "fast", ODD]),
            submitted_at=started_at - timedelta(microseconds=random.randrange(10**11)),
            started_at=started_at,
            ended_at=started_at + timedelta(microseconds=random.randrange(10**11)),
            gpus=0 if shards else random.randrange(9),
            shards=shards,
            shards_per_gpu=per_gpu,
            cpus=random.randrange(1, 65),
            time_limit=random.choice([None, timedelta(microseconds=random.randrange(10**12))]),
        )

    return [one(i) for i in range(count)]


def summed(charges: Sequence[Charge], wanted: UseFilter) -> list[Use]:
    groups: dict[tuple[str, str, str], list[Charge]] = {}
    for one in charges:
        if (
            (wanted.since is None or one.ended_at >= wanted.since)
            and (wanted.until is None or one.ended_at < wanted.until)
            and wanted.user in ("", one.user)
            and wanted.team in ("", one.team)
        ):
            groups.setdefault((one.user, one.team, one.queue), []).append(one)
    return [
        Use(
            *key,
            len(group),
            sum(one.gpu_hours for one in group),
            sum(replace(one, ended_at=one.started_at + (one.time_limit or held(one))).gpu_hours for one in group),
            sum(one.cpus * held(one).total_seconds() / 3600 for one in group),
            sum(waited(one) for one in group),
            max(waited(one) for one in group),
        )
        for key, group in sorted(groups.items())
    ]


def held(one: Charge) -> timedelta:
    return one.ended_at - one.started_at


def waited(one: Charge) -> float:
    return (one.started_at - one.submitted_at).total_seconds()


def numbers(use: Use) -> list[float]:
    return [use.runs, use.gpu_hours, use.asked_gpu_hours, use.cpu_hours, use.waited_s, use.longest_wait_s]


def test_use_is_the_sum_of_the_charges(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    random = Random(3)
    charges = some_charges(random, 800)
    write_charges(store, run, charges)
    edges: list[datetime | None] = [None, random.choice(charges).ended_at, random.choice(charges).ended_at]
    for since, until, user, team in product(edges, edges, ["", "ada", ODD, "none"], ["", "nlp", ODD]):
        wanted = UseFilter(since, until, user, team)
        found, right = run(store.use(wanted)), summed(charges, wanted)
        assert [(one.user, one.team, one.queue) for one in found] == [(one.user, one.team, one.queue) for one in right]
        for one, other in zip(found, right, strict=True):
            assert isinstance(one.runs, int)
            assert numbers(one) == pytest.approx(numbers(other), rel=1e-9, abs=1e-9)


def test_there_is_no_use_before_anything_was_used(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    assert run(store.use(UseFilter())) == ()
    (a,) = run(store.insert([job("a")]))
    run(store.update([ended(a, JobState.FAILED)]))
    assert run(store.use(UseFilter())) == ()
    assert run(store.charges(NOW)) == ()


@pytest.mark.parametrize("after", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_up(after: bool) -> None:
    def cut(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        if after:
            raw.execute("COMMIT")
        raw.close()

    with opened(postgres_server().fresh_url()) as (store, run):
        run(store.record([Person("ada", NOW)], [entry(target="ada")]))
        event.listen(writers(store), "commit", cut, once=True)
        answers = run.together(store.record([Person("bo", NOW)], [entry(target="bo")]))
        landed = [one.target for one in run(store.audit(limit=5))]
        assert answers == [None]
        assert landed == ["bo", "ada"]
        assert [one.name for one in run(store.people()).persons] == ["ada", "bo"]
