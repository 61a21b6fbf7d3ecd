"""Whose turn it is: priority, boost, fair share, age."""

from datetime import timedelta

from danlu.domain.quota import Quota
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Plan, Snapshot
from tests.builders import NOW, holding, node, snapshot, waiting


def started(made: Plan) -> list[str]:
    return [start.key for start in made.starts]


def owners(made: Plan) -> str:
    return "".join(start.key[0] for start in made.starts)


def crowd(*names: str, each: int = 6, **fields: object) -> Snapshot:
    """Everybody submitted so many jobs of a card, one person after another, before one node of four."""
    jobs = [waiting(f"{name}{i}", gpus=1, user=name) for name in names for i in range(each)]
    return snapshot(*jobs, **fields)  # type: ignore[arg-type]


def test_people_of_equal_use_take_turns() -> None:
    assert started(plan(crowd("a", "b"))) == ["a0", "b0", "a1", "b1"]


def test_one_person_alone_goes_by_age() -> None:
    assert started(plan(crowd("a"))) == ["a0", "a1", "a2", "a3"]


def test_an_array_takes_turns_too() -> None:
    at = snapshot(waiting("array", gpus=1, count=99, user="a"), waiting("b", gpus=1, user="b"))
    made = plan(at)
    assert started(made) == ["array", "b", "array", "array"]
    assert list(made.waits) == ["array"]


def test_who_used_less_is_first() -> None:
    assert owners(plan(crowd("a", "b", use={"user:a": 10.0, "user:b": 8.0}))) == "bbab"


def test_what_is_held_counts_as_use() -> None:
    held = holding("h", gpus=(0,), user="a")
    jobs = [waiting(f"{name}{i}", gpus=1, user=name) for name in "ab" for i in range(3)]
    assert owners(plan(snapshot(held, *jobs))) == "bab"
    long = holding("h", gpus=(0,), user="a", started_at=NOW - timedelta(hours=9))
    assert owners(plan(snapshot(long, *jobs))) == "bbb"


def test_priority_is_before_use_and_boost_before_fair_share() -> None:
    use = {"user:a": 99.0}
    jobs = [waiting(f"{name}{i}", gpus=1, user=name) for name in "ba" for i in range(3)]
    urgent = waiting("a-urgent", gpus=1, user="a", priority=6)
    assert started(plan(snapshot(*jobs, urgent, use=use))) == ["a-urgent", "b0", "b1", "b2"]
    made = plan(snapshot(*jobs, waiting("b-urgent", gpus=1, user="b", priority=6), use=use, boosted=frozenset("a")))
    assert started(made) == ["b-urgent", "a0", "a1", "a2"]


def test_a_boost_for_a_team_is_for_the_jobs_for_that_team() -> None:
    jobs = [waiting("b", gpus=2, user="b"), waiting("for-cv", gpus=2, user="a", team="cv")]
    jobs.append(waiting("for-nlp", gpus=2, user="a", team="nlp"))
    use = {"user:a": 99.0, "team:nlp": 99.0, "team:cv": 99.0}
    made = plan(snapshot(*jobs, use=use, boosted=frozenset({"a@nlp"})))
    assert started(made) == ["for-nlp", "b"]


def test_teams_share_by_their_quotas_and_people_within_teams() -> None:
    jobs = [
        waiting(f"{user}{i}", gpus=1, user=user, team=team)
        for team, user in (("x", "a"), ("x", "b"), ("y", "c"))
        for i in range(8)
    ]
    quotas = {"team:x": Quota(gpus=6), "team:y": Quota(gpus=2)}
    made = plan(snapshot(node(gpus=8), *jobs, quotas=quotas))
    taken = owners(made)
    assert (taken.count("a"), taken.count("b"), taken.count("c")) == (3, 3, 2)
    made = plan(snapshot(node(gpus=4), *jobs))
    assert sorted(owners(made)) == ["a", "b", "c", "c"]


def test_short_jobs_cost_less() -> None:
    long = [waiting(f"a{i}", gpus=1, user="a") for i in range(4)]
    short = [waiting(f"b{i}", gpus=1, user="b", minutes=20) for i in range(4)]
    assert owners(plan(snapshot(*long, *short))) == "abbb"


def test_a_few_seconds_of_use_are_no_difference() -> None:
    assert started(plan(crowd("a", "b", use={"user:a": 0.001}))) == ["a0", "b0", "a1", "b1"]


def test_those_who_wait_for_room_take_turns_with_their_promises() -> None:
    at = crowd("a", "b", each=2)
    full = holding("h", gpus=range(4), minutes=60)
    made = plan(snapshot(full, *at.waiting))
    assert list(made.waits) == ["a0", "b0", "a1", "b1"]


def test_what_can_never_run_costs_nothing() -> None:
    huge = [waiting(f"huge{i}", gpus=9, user="a") for i in range(5)]
    jobs = [waiting(f"{name}{i}", gpus=1, user=name) for name in "ab" for i in range(3)]
    assert owners(plan(snapshot(*huge, *jobs))) == "abab"


def test_cpus_count_where_no_cards_are_asked_for() -> None:
    jobs = [waiting(f"{name}{i}", cpus=16, user=name) for name in "ab" for i in range(4)]
    assert owners(plan(snapshot(*jobs))) == "abab"
