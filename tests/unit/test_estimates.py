"""When something may start though not everything before it has a time limit."""

from dataclasses import replace
from datetime import timedelta

from danlu.domain.job import Reason
from danlu.scheduler.estimates import with_guess
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Holding, Snapshot, Wait
from tests.builders import NOW, holding, node, snapshot, waiting

DEPENDS = Reason("dependency", "waits for x to succeed")


def guessed(seen: Snapshot, key: str, after: tuple[str, ...] = ()) -> Wait:
    return with_guess(plan(seen).waits[key], seen, key, after)


def runs(key: str, *, minutes_so_far: float, **fields: object) -> Holding:
    return replace(holding(key, **fields), started_at=NOW - timedelta(minutes=minutes_so_far))  # type: ignore[arg-type]


def test_an_estimate_from_time_limits_is_no_guess() -> None:
    seen = snapshot(node(gpus=1), holding("h", gpus=(0,), minutes=30), waiting("a", gpus=1))
    wait = guessed(seen, "a")
    assert (wait.estimated_at, wait.is_guess) == (NOW + timedelta(minutes=30), False)


def test_a_run_without_a_limit_is_taken_to_last_as_long_again() -> None:
    seen = snapshot(node(gpus=1), runs("h", gpus=(0,), minutes_so_far=600), waiting("a", gpus=1))
    assert plan(seen).waits["a"].estimated_at is None
    wait = guessed(seen, "a")
    assert (wait.estimated_at, wait.is_guess) == (NOW + timedelta(hours=10), True)


def test_a_run_that_has_only_just_begun_is_given_an_hour() -> None:
    seen = snapshot(node(gpus=1), runs("h", gpus=(0,), minutes_so_far=1), waiting("a", gpus=1))
    assert guessed(seen, "a").estimated_at == NOW + timedelta(hours=1)


def test_those_before_it_count_with_an_hour_each() -> None:
    parts = [waiting(key, gpus=1) for key in ("a", "b", "c")]
    seen = snapshot(node(gpus=1), runs("h", gpus=(0,), minutes_so_far=1), *parts)
    assert guessed(seen, "c").estimated_at == NOW + timedelta(hours=3)


def test_who_waits_for_another_job_starts_when_that_may_be_over() -> None:
    blocked = waiting("b", blocked=DEPENDS)
    running = snapshot(node(gpus=1), holding("x", gpus=(0,), minutes=20), blocked)
    assert guessed(running, "b", ("x",)).estimated_at == NOW + timedelta(minutes=20)
    queued = snapshot(node(gpus=1), holding("h", gpus=(0,), minutes=20), waiting("x", gpus=1, minutes=30), blocked)
    assert guessed(queued, "b", ("x",)).estimated_at == NOW + timedelta(minutes=50)


def test_an_array_at_its_limit_goes_on_when_its_first_task_may_be_over() -> None:
    tasks = [holding(f"a_{number}", gpus=(number,), minutes=10 * number + 10) for number in (0, 1)]
    seen = snapshot(node(gpus=4), *tasks, waiting("a", gpus=1, count=5, may_start=0))
    assert guessed(seen, "a").estimated_at == NOW + timedelta(minutes=10)


def test_who_waits_for_an_array_waits_for_all_its_rounds() -> None:
    tasks = [holding(f"a_{number}", gpus=(number,), minutes=60) for number in (0, 1)]
    array = waiting("a", gpus=1, minutes=60, count=8, may_start=0)
    seen = snapshot(node(gpus=4), *tasks, array, waiting("b", blocked=DEPENDS))
    assert guessed(seen, "b", ("a",)).estimated_at == NOW + timedelta(hours=5)


def test_what_no_waiting_helps_gets_no_guess() -> None:
    seen = snapshot(node(gpus=1), waiting("a", gpus=2), waiting("b", blocked=Reason("disabled", "…")))
    assert guessed(seen, "a").estimated_at is None
    assert guessed(seen, "b").estimated_at is None
