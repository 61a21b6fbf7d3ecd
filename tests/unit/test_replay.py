"""Traces with known answers, and what holds for every replay."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from danlu.domain.job import Reason
from danlu.domain.quota import Quota
from danlu.domain.resources import Ask, Node
from danlu.tools.simulate.replay import Fate, Life, Policy, Replay, Run, TraceJob
from tests.builders import node

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = 3600.0


def job(key: str, submit: float = 0, lasts: float = 100, *, limit: float | None = None, **fields: Any) -> TraceJob:
    """A job of one card unless its ask says otherwise; seconds."""
    asked: dict[str, Any] = {} if "shards" in fields else {"gpus": 1}
    asked |= {name: fields.pop(name) for name in ("gpus", "shards", "cpus", "memory_mib", "nodes") if name in fields}
    fields = {"user": "li", "time_limit": limit and timedelta(seconds=limit)} | fields
    return TraceJob(key, submit, lasts, Ask(**asked), **fields)


def replayed(*jobs: TraceJob, cards: int = 1, skips: bool = True, **policy: Any) -> dict[str, Life]:
    replay = Replay(jobs, Policy(**({"nodes": (node(gpus=cards),)} | policy)), BEGIN, skips=skips)
    for _ in replay.moments():
        pass
    return {life.job.key: life for life in replay.lives}


def spans(lives: dict[str, Life]) -> dict[str, list[tuple[float, float]]]:
    return {key: [(run.start_s, run.end_s) for run in life.runs] for key, life in lives.items()}


def test_one_after_the_other_on_one_card() -> None:
    lives = replayed(job("a", 0, 100), job("b", 10, 50), job("c", 20, 5))
    assert spans(lives) == {"a": [(0, 100)], "b": [(100, 150)], "c": [(150, 155)]}
    assert {life.fate for life in lives.values()} == {Fate.DONE}


def test_the_order_of_the_file_decides_between_equal_times_only() -> None:
    lives = replayed(job("late", 10), job("first", 5), job("second", 5))
    assert [lives[key].first_start_s for key in ("first", "second", "late")] == [5, 105, 205]


def test_priority_goes_first() -> None:
    lives = replayed(job("a"), job("b", 1), job("c", 2, priority=9))
    assert lives["c"].first_start_s == 100
    assert lives["b"].first_start_s == 200


def test_a_short_one_goes_ahead_if_it_delays_nobody() -> None:
    """Of two cards one is busy for 100 s; the next wants both; one that ends within that time fits in between."""
    running, big = job("a", 0, 100, limit=100), job("big", 1, 10, gpus=2, limit=20)
    fits = replayed(running, big, job("small", 2, 50, limit=60), cards=2)
    assert (fits["small"].first_start_s, fits["big"].first_start_s) == (2, 100)
    would_delay = replayed(running, big, job("small", 2, 50, limit=160), cards=2)
    assert (would_delay["small"].first_start_s, would_delay["big"].first_start_s) == (110, 100)


def test_a_limit_ends_a_run() -> None:
    lives = replayed(job("a", 0, 100, limit=30), job("b", 0, 30, limit=30))
    assert spans(lives) == {"a": [(0, 30)], "b": [(30, 60)]}
    assert (lives["a"].fate, lives["b"].fate) == (Fate.TIMED_OUT, Fate.DONE)


def test_a_job_of_no_length_is_over_at_once() -> None:
    lives = replayed(job("a", 5, 0), job("b", 5, 1))
    assert spans(lives) == {"a": [(5, 5)], "b": [(5, 6)]}


def test_what_never_fits_is_named_and_in_nobodys_way() -> None:
    lives = replayed(job("big", gpus=2), job("b", 1), job("refused", 1, refused=Reason("queue_limit", "too long")))
    assert lives["big"].fate is Fate.NEVER
    assert lives["big"].reason is not None
    assert lives["big"].reason.code == "never_fits"
    assert lives["b"].first_start_s == 1
    assert (lives["refused"].fate, lives["refused"].runs) == (Fate.NEVER, [])


def test_with_a_step_plans_wait_for_its_multiples() -> None:
    lives = replayed(job("a", 1, 30), job("b", 2, 30), job("c", 30, 1), step=timedelta(seconds=30))
    assert spans(lives) == {"a": [(30, 60)], "b": [(60, 90)], "c": [(90, 91)]}


def test_shards_share_a_card() -> None:
    lives = replayed(job("a", shards=32), job("b", shards=32), job("c", shards=1))
    assert [lives[key].first_start_s for key in "abc"] == [0, 0, 100]
    assert lives["a"].gpus == 0.5


def test_it_may_be_left_at_any_moment() -> None:
    replay = Replay([job("a", 0, 100), job("b", 0, 100), job("c", 1000)], Policy((node(gpus=1),)), BEGIN)
    next(replay.moments())
    assert [life.fate for life in replay.lives] == [Fate.RUNNING, Fate.WAITING, Fate.AHEAD]


# Any trace.


def some_jobs(seed: int, count: int, *, teams: int = 3, quiet_s: float = 200) -> list[TraceJob]:
    """Jobs of all kinds for a small cluster; a few are too large for it."""
    rng = random.Random(seed)
    at_s, jobs = 0.0, []
    for number in range(count):
        at_s += rng.choice((0, 0, 1, quiet_s))
        team = f"t{rng.randrange(teams)}"
        ask = rng.choice(
            (
                Ask(gpus=1), Ask(gpus=1, cpus=2), Ask(gpus=2, cpus=3), Ask(gpus=4), Ask(shards=16), Ask(shards=40),
                Ask(cpus=4, memory_mib=512), Ask(gpus=1, memory_mib=3000), Ask(gpus=5), Ask(gpus=2, gpu_model="A100"),
                Ask(gpus=1, nodes=2),
            )
        )  # fmt: skip
        lasts = float(rng.choice((0, 5, 60, 300, 1000)))
        limit = rng.choice((None, timedelta(seconds=60), timedelta(seconds=2000)))
        fields: dict[str, Any] = {"priority": rng.choice((5, 5, 7)), "is_preemptible": rng.random() < 0.5}
        jobs.append(
            TraceJob(str(number), at_s, lasts, ask, f"{team}u{rng.randrange(2)}", team, "", time_limit=limit, **fields)
        )
    return jobs


NODES: tuple[Node, ...] = (
    node("n1", gpus=4, cpus=8, memory_mib=4096),
    node("n2", gpus=4, model="A100", cpus=8, memory_mib=4096),
)
QUOTAS = {
    "team:t0": Quota(gpus=2, borrow=True),
    "team:t1": Quota(gpus=4, borrow=True),
    "team:t2": Quota(gpus=2),
    "user:t1u0": Quota(gpus=1, jobs=3),
}


def outcome(replay: Replay) -> list[tuple[str, Fate, tuple[Run, ...]]]:
    return [(life.job.key, life.fate, tuple(life.runs)) for life in replay.lives]


@pytest.mark.parametrize("quotas", [{}, QUOTAS], ids=["free", "quotas"])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_trace_gives_the_same_lives_and_skipping_changes_nothing(seed: int, quotas: dict[str, Quota]) -> None:
    found = []
    for skips in (True, True, False):
        replay = Replay(some_jobs(seed, 150), Policy(NODES, quotas=quotas), BEGIN, skips=skips)
        for _ in replay.moments():
            pass
        found.append((outcome(replay), replay.plans))
    assert found[0] == found[1]
    assert found[0][0] == found[2][0]
    assert found[0][1] < found[2][1] or quotas  # where cards are lent, hardly a plan can be left out
    assert bool(quotas) == any(life.preemptions for life in replay.lives), "runs are stopped where cards are lent"


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_lost(seed: int) -> None:
    jobs = some_jobs(seed, 200)
    replay = Replay(jobs, Policy(NODES), BEGIN)
    starts: Counter[str] = Counter()
    for moment in replay.moments():
        starts.update(start.key for start in moment.plan.starts)
        keys = [w.key for w in moment.snapshot.waiting] + [held.key for held in moment.snapshot.holding]
        assert len(keys) == len(set(keys)), "in two places at once"
    assert {life.job.key for life in replay.lives} == {each.key for each in jobs}
    for life in replay.lives:
        assert life.fate in (Fate.DONE, Fate.TIMED_OUT, Fate.NEVER)
        assert starts[life.job.key] == len(life.runs)
        assert bool(life.runs) == (life.fate is not Fate.NEVER)
        assert all(run.start_s >= life.job.submit_s for run in life.runs)
        if life.fate is Fate.DONE and not life.preemptions:
            assert life.runs[0].end_s - life.runs[0].start_s == pytest.approx(life.job.duration_s)
