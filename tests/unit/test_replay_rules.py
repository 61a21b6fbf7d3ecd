"""Quotas, borrowing, fair share and boosts in a replay: answers that can be worked out by hand."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from danlu.domain.queue import Queue
from danlu.domain.quota import Period, Quota
from danlu.domain.resources import Ask, Node
from danlu.scheduler.snapshot import Holding
from danlu.tools.simulate.generate import Place, generate_trace
from danlu.tools.simulate.metrics import report_of
from danlu.tools.simulate.replay import Boosted, Fate, Life, Policy, Replay, TraceJob
from tests.builders import node

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
HOUR, DAY = 3600.0, 86400.0


def job(
    key: str, submit: float, lasts: float, team: str = "nlp", *, gpus: int = 1, nodes: int = 1, **more: Any
) -> TraceJob:
    return TraceJob(key, submit, lasts, Ask(gpus=gpus, nodes=nodes), **({"user": f"{team}1", "team": team} | more))


def lived(*jobs: TraceJob, cards: int = 2, **policy: Any) -> dict[str, Life]:
    replay = Replay(jobs, Policy(**({"nodes": (node(gpus=cards),)} | policy)), BEGIN)
    for _ in replay.moments():
        pass
    return {life.job.key: life for life in replay.lives}


def spans(life: Life) -> list[tuple[float, float]]:
    return [(run.start_s, run.end_s) for run in life.runs]


def test_a_quota_holds_back_even_before_free_cards() -> None:
    lives = lived(
        job("a", 0, 100), job("b", 0, 100), job("c", 0, 100, "cv"), quotas={"team:nlp": Quota(gpus=1)}, cards=4
    )
    assert [lives[key].first_start_s for key in "abc"] == [0, 100, 0]


def test_what_is_larger_than_its_quota_never_starts_and_is_named() -> None:
    lives = lived(job("a", 0, 100, gpus=2), job("b", 0, 100), quotas={"team:nlp": Quota(gpus=1)})
    assert (lives["a"].fate, lives["b"].fate) == (Fate.NEVER, Fate.DONE)
    assert lives["a"].reason is not None


BORROWING = {"team:nlp": Quota(gpus=1, borrow=True), "team:cv": Quota(gpus=1)}
BORROWERS = (job("own", 0, 100), job("lent", 0, 100, is_preemptible=True), job("owner", 50, 200, "cv"))


def test_a_borrowed_card_comes_back_after_the_grace_and_the_work_goes_on() -> None:
    lives = lived(*BORROWERS, quotas=BORROWING, grace=timedelta(seconds=30))
    assert spans(lives["own"]) == [(0, 100)]
    assert spans(lives["owner"]) == [(80, 280)]
    assert spans(lives["lent"]) == [(0, 80), (100, 150)]  # half of it was done when it was asked
    assert (lives["lent"].preemptions, lives["lent"].fate) == (1, Fate.DONE)


def test_without_checkpoints_it_begins_again() -> None:
    lives = lived(*BORROWERS, quotas=BORROWING, grace=timedelta(seconds=30), resumes=False)
    assert spans(lives["lent"]) == [(0, 80), (100, 200)]


def test_who_is_done_within_the_grace_was_not_stopped() -> None:
    jobs = (*BORROWERS[:1], job("lent", 0, 70, is_preemptible=True), BORROWERS[2])
    lives = lived(*jobs, quotas=BORROWING, grace=timedelta(seconds=30))
    assert spans(lives["lent"]) == [(0, 70)]
    assert lives["lent"].preemptions == 0
    assert spans(lives["owner"]) == [(70, 270)]


def test_borrowed_hours_are_those_above_the_quota() -> None:
    replay = Replay(BORROWERS[:2], Policy((node(gpus=2),), quotas=BORROWING), BEGIN)
    for _ in replay.moments():
        pass
    (team,) = report_of(replay).teams
    assert team.borrowed_gpu_hours == pytest.approx(100 / 3600)


def test_hours_that_are_spent_come_back_with_the_next_period() -> None:
    quotas = {"team:nlp": Quota(gpu_hours=1, period=Period.DAY)}
    lives = lived(job("a", 0, 2 * HOUR), job("b", 3 * HOUR, 60), quotas=quotas)
    assert [lives[key].first_start_s for key in "ab"] == [0, DAY]


def test_who_used_little_goes_before_who_used_much_until_that_fades() -> None:
    """`greedy` holds the only card; then both want it."""

    def order(half_life: timedelta, idle: float) -> list[str]:
        lives = lived(
            job("before", 0, 10 * HOUR, "nlp"),
            job("other", idle, HOUR, "cv"),  # used later, and less
            job("holds", idle + 2 * HOUR, HOUR, "hci"),
            job("greedy", idle + 2 * HOUR + 1, 10, "nlp"),
            job("modest", idle + 2 * HOUR + 2, 10, "cv"),
            cards=1,
            half_life=half_life,
        )
        return sorted(("greedy", "modest"), key=lambda key: lives[key].first_start_s or 0.0)

    assert order(timedelta(days=365), 30 * DAY) == ["modest", "greedy"]
    assert order(timedelta(days=2), 30 * DAY) == ["greedy", "modest"]


def test_who_is_boosted_goes_first_for_that_time_only() -> None:
    jobs = (job("holds", 0, 100, "hci"), job("a", 1, 10, "nlp"), job("b", 2, 10, "cv"))
    boosted = lived(*jobs, cards=1, boosts=(Boosted("cv1", 50, 150),))
    assert [boosted[key].first_start_s for key in "ab"] == [110, 100]
    over = lived(*jobs, cards=1, boosts=(Boosted("cv1", 0, 100),))
    assert [over[key].first_start_s for key in "ab"] == [100, 110]


def test_queues_keep_to_their_nodes() -> None:
    nodes = (node("old", gpus=1), node("new", gpus=1))
    queues = {"old": Queue("old", frozenset({"old"})), "new": Queue("new", frozenset({"new"}))}
    lives = lived(
        job("a", 0, 100, queue="old"),
        job("b", 0, 100, queue="old"),
        job("c", 0, 100, queue="new"),
        job("d", 0, 100, gpus=2, queue="new"),
        nodes=nodes,
        queues=queues,
    )
    assert [lives[key].first_start_s for key in "abc"] == [0, 100, 0]
    assert lives["d"].fate is Fate.NEVER


def test_several_nodes_at_once() -> None:
    nodes = (node("n1", gpus=1), node("n2", gpus=1))
    lives = lived(job("a", 0, 100), job("both", 0, 100, nodes=2), job("three", 0, 1, nodes=3), nodes=nodes)
    assert spans(lives["both"]) == [(100, 200)]
    assert lives["both"].gpus == 2
    assert lives["three"].fate is Fate.NEVER


# Theory: who should wait less under which policy.


def mean_wait(jobs: Iterable[TraceJob], policy: Policy) -> dict[str, float]:
    replay = Replay(jobs, policy, BEGIN)
    for _ in replay.moments():
        pass
    report = report_of(replay)
    waits = {team.name: team.waited_s.mean for team in report.teams if team.waited_s}
    return waits | ({"": report.in_all.waited_s.mean} if report.in_all.waited_s else {})


def test_borrowing_shortens_the_wait_of_who_has_more_work_than_quota() -> None:
    """One team is idle most of the time, another queues: lending helps the second and hardly hurts the first."""
    busy = [job(f"b{n}", n * 100, 400, "busy", is_preemptible=True) for n in range(100)]
    idle = [job(f"i{n}", n * 2000 + 7, 400, "idle") for n in range(5)]
    waits = {}
    for borrow in (False, True):
        quotas = {"team:busy": Quota(gpus=2, borrow=borrow), "team:idle": Quota(gpus=2)}
        policy = Policy((node(gpus=4),), quotas=quotas, grace=timedelta(seconds=30))
        waits[borrow] = mean_wait([*busy, *idle], policy)
    assert waits[True]["busy"] < waits[False]["busy"] / 2
    assert waits[False]["idle"] == 0
    assert waits[True]["idle"] <= 30, "an owner waits for the grace at most"


def test_more_cards_never_make_the_whole_wait_longer() -> None:
    jobs = list(generate_trace(300, 5, Place(tuple(node(f"n{i}", gpus=4) for i in range(2))), 1.2))
    few, many = (Policy(tuple(node(f"n{i}", gpus=4) for i in range(count))) for count in (2, 6))
    assert mean_wait(jobs, many)[""] < mean_wait(jobs, few)[""] / 2


# What holds at every moment.

NODES: tuple[Node, ...] = tuple(node(f"n{number}", gpus=4, cpus=16) for number in range(4))
QUOTAS = {
    "team:nlp": Quota(gpus=6, borrow=True),
    "team:vision": Quota(gpus=4, borrow=True),
    "team:speech": Quota(gpus=3, jobs=2),
    "team:robotics": Quota(gpus=4, gpu_hours=40, period=Period.DAY),
    "user:nlp1": Quota(gpus=4, cpus=8),
}


def held_by(holder: str, holding: Iterable[Holding]) -> list[Holding]:
    kind, _, name = holder.partition(":")
    return [held for held in holding if (held.team if kind == "team" else held.user) == name]


def gpus_of(held: Holding) -> float:
    return sum(len(seat.gpus) + seat.shards / 64 for seat in (held.seat, *held.more))


def assert_within_quotas(after: Iterable[Holding]) -> None:
    """Who may not borrow holds no more than its quota; who may, goes beyond it with preemptible jobs only."""
    for holder, quota in QUOTAS.items():
        mine = held_by(holder, after)
        bound = [held for held in mine if not (quota.borrow and held.is_preemptible)]
        if quota.gpus is not None:
            assert sum(gpus_of(held) for held in bound) <= quota.gpus, holder
        if quota.jobs is not None:
            assert len(bound) <= quota.jobs, holder
        if quota.cpus is not None:
            assert sum(seat.cpus for held in bound for seat in (held.seat, *held.more)) <= quota.cpus, holder


def assert_seats_fit(after: Iterable[Holding]) -> None:
    shards: Counter[tuple[str, int]] = Counter()
    cpus: Counter[str] = Counter()
    for held in after:
        for seat in (held.seat, *held.more):
            cpus[seat.node] += seat.cpus
            shards.update({(seat.node, index): 64 for index in seat.gpus})
            if seat.shared_gpu is not None:
                shards[seat.node, seat.shared_gpu] += seat.shards
    assert all(count <= 64 for count in shards.values())
    assert all(count <= 16 for count in cpus.values())


@pytest.mark.parametrize("seed", range(3))
def test_no_card_and_no_quota_is_ever_exceeded(seed: int) -> None:
    jobs = list(generate_trace(350, seed, Place(NODES), 1.2))
    replay = Replay(jobs, Policy(NODES, quotas=QUOTAS), BEGIN)
    stopped: Counter[str] = Counter()
    for moment in replay.moments():
        after = moment.snapshot.holding + tuple(
            Holding(start.key, start.seat, None, start.more, at.user, at.team, at.queue, at.is_preemptible)
            for start in moment.plan.starts
            for at in moment.snapshot.waiting
            if at.key == start.key
        )
        assert_seats_fit(after)
        assert_within_quotas(after)
        stopped.update(stop.key for stop in moment.plan.stops)
        preemptible = {held.key for held in moment.snapshot.holding if held.is_preemptible}
        assert {stop.key for stop in moment.plan.stops} <= preemptible
    for life in replay.lives:
        assert life.fate in (Fate.DONE, Fate.TIMED_OUT, Fate.NEVER)
        assert life.preemptions <= stopped[life.job.key]
    assert stopped, "it says nothing of borrowing if nobody is stopped"
