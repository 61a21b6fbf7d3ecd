"""Every filter, against a plain model; and that every page comes from an index, in its order."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest

from danlu.domain.job import ACTIVE, ENDED, Job, JobState
from danlu.store.pages import Shape, page_text
from danlu.store.protocol import JobFilter, Page
from danlu.store.sql import SqlStore
from tests.builders import job
from tests.contract.store_tools import KINDS, Run, array, ended, fresh_url, opened, started

USERS = ["ada", "bo", "名\udcff", "a\\b"]
NAMES = ["", "train", "eval\udc80", "100%"]
TEAMS = ["", "nlp", "视觉\udcff"]
QUEUES = ["", "train", "dev"]
LABELS = [("exp", "a"), ("exp", "b"), ("seed", "1" * 500), ("seed", "1" * 499 + "2"), ("\udcff", "=")]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def both(url: str) -> Iterator[tuple[SqlStore, Run]]:
    with opened(url) as found:
        yield found


def matches(one: Job, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or one.state in wanted.states)
        and (not wanted.user or one.user == wanted.user)
        and (not wanted.name or one.spec.name == wanted.name)
        and (wanted.label is None or wanted.label in one.spec.labels)
        and (not wanted.array_id or one.array_id == wanted.array_id)
        and (not wanted.team or one.spec.team == wanted.team)
        and (not wanted.queue or one.spec.queue == wanted.queue)
    )


def expected(jobs: list[Job], wanted: JobFilter, limit: int, before: int | None) -> Page:
    found = [one for one in reversed(jobs) if matches(one, wanted) and (before is None or one.seq < before)]
    return Page(tuple(found[:limit]), found[limit - 1].seq if len(found) > limit else None)


def some_jobs(store: SqlStore, run: Run, random: Random) -> list[Job]:
    """In the order of submission, as they stand after some of them moved and some were removed."""
    made: list[Job] = []
    for i in range(60):
        labels = tuple(random.sample(LABELS, random.randrange(3)))
        fields = {"user": random.choice(USERS), "name": random.choice(NAMES), "labels": labels}
        fields["team"] = random.choice(TEAMS)
        fields["queue"] = random.choice(QUEUES)
        if random.random() < 0.2:
            made += run(store.insert(array(f"arr{i}", random.randrange(1, 8), **fields)))
        else:
            made += run(store.insert([job(f"j{i}", **fields)]))
    now = {one.id: one for one in made}
    for one in random.sample(made, len(made) * 2 // 3):
        now[one.id] = started(one) if random.random() < 0.4 else ended(one, random.choice(sorted(ENDED)))
    run(store.update([now[one.id] for one in made if now[one.id] is not one]))
    gone = [one.id for one in now.values() if one.state.is_ended and random.random() < 0.2]
    assert run(store.remove(gone)) == len(gone)
    return [now[one.id] for one in made if one.id not in gone]


@pytest.mark.parametrize("seed", range(3))
def test_pages_agree_with_a_model(both: tuple[SqlStore, Run], seed: int) -> None:
    store, run = both
    random = Random(seed)
    jobs = some_jobs(store, run, random)
    some_states = [frozenset(random.sample(list(JobState), n)) for n in (1, 2, 3)]
    arrays = sorted({one.array_id for one in jobs})
    choices = list(
        product(
            [frozenset[JobState](), ACTIVE, ENDED, frozenset(JobState), *some_states],
            ["", *USERS, "nobody"],
            [*NAMES, "none"],
            [None, *LABELS, ("exp", "")],
            ["", *random.sample(arrays, 2), "arr"],
            [*TEAMS, "nobody's"],
            QUEUES,
        )
    )
    # Half of them with few conditions: where all must hold there is mostly nothing to find.
    plain = [one for one in choices if sum(map(bool, one)) <= 2]
    for states, user, name, label, array_id, team, queue in random.sample(choices, 150) + random.sample(plain, 150):
        wanted = JobFilter(states, user, name, label, array_id, team, queue)
        limit = random.choice([1, 2, 7, 200])
        before = random.choice([None, None, random.choice(jobs).seq, 0])
        assert run(store.page(wanted, limit=limit, before=before)) == expected(jobs, wanted, limit, before), wanted


def test_following_next_before_gives_each_job_once(both: tuple[SqlStore, Run]) -> None:
    store, run = both
    jobs = some_jobs(store, run, Random(7))
    for wanted in (
        JobFilter(),
        JobFilter(user="ada"),
        JobFilter(states=ENDED),
        JobFilter(ACTIVE, "bo"),
        JobFilter(team="nlp"),
        JobFilter(queue="train"),
    ):
        found: list[Job] = []
        before: int | None = None
        while True:
            page = run(store.page(wanted, limit=3, before=before))
            found += page.jobs
            if page.next_before is None:
                break
            before = page.next_before
        assert found == [one for one in reversed(jobs) if matches(one, wanted)]


SHAPES = {
    "primary": Shape(),
    "jobs_by_state": Shape(("FAILED", "LOST")),
    "jobs_by_user": Shape(user=True),
    "jobs_by_user_state": Shape(tuple(sorted(ENDED)), user=True),
    "jobs_by_name": Shape(name=True),
    "jobs_by_user_name": Shape(user=True, name=True),
    "jobs_by_array": Shape(array=True),
    "jobs_by_team_state": Shape(team=True),
    "labels": Shape(label=True),
}


@pytest.mark.parametrize("index", SHAPES)
def test_a_page_is_read_from_its_index(both: tuple[SqlStore, Run], index: str) -> None:
    store, run = both
    # Old jobs of one person under many young ones of another: where a planner goes by averages it goes wrong.
    for user in ("ada", "bo"):
        made = run(store.insert(array(f"{user}1", 2000, user=user, name=user, team=user, labels=(("k", user),))))
        run(store.update([ended(one) for one in made]))
    values = {
        "user": "ada",
        "name": "ada",
        "array": "ada1",
        "team": "ada",
        "key": "k",
        "value": "ada",
        "before": 3999,
        "n": 51,
    }
    with store._database.readers.connect() as connection:
        text, fixed = page_text(SHAPES[index], connection.dialect)
        if connection.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", fixed | values)
            plan = [row[3] for row in rows]
            assert not [step for step in plan if step.startswith(("SCAN jobs", "SCAN labels", "SCAN specs"))], plan
            first = next(step for step in plan if step.startswith("SEARCH"))
            assert "seq<?" in first or "rowid<?" in first
            assert {"primary": "PRIMARY KEY", "labels": "autoindex_labels"}.get(index, f"INDEX {index} ") in first
        else:
            connection.exec_driver_sql("ANALYZE")
            rows = connection.exec_driver_sql(f"EXPLAIN {text}", fixed | values)
            plan = [row[0] for row in rows]
            used = {"primary": "jobs_pkey", "labels": "labels_pkey"}.get(index, index)
            assert [step for step in plan if f"Scan Backward using {used} " in step], plan
