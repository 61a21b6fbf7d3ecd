"""Quotas: who is over waits and says by how much, holds nobody up, and is not passed for ever by their own."""

from datetime import timedelta
from typing import Any

import pytest

from danlu.domain.job import Reason
from danlu.domain.quota import Period, Quota
from danlu.scheduler.plan import plan, seat_now
from danlu.scheduler.snapshot import Plan, Wait
from tests.builders import NOW, after, holding, node, snapshot, waiting

EIGHT = node(gpus=8, cpus=64)


def started(made: Plan) -> list[str]:
    return [start.key for start in made.starts]


def test_a_team_holds_no_more_than_its_quota_and_others_pass() -> None:
    held = holding("h", gpus=(0, 1, 2), team="nlp", user="wang", minutes=30)
    made = plan(
        snapshot(
            EIGHT,
            held,
            waiting("a", gpus=2, team="nlp", user="wang", seq=1),
            waiting("b", gpus=2, team="cv", user="li", seq=2),
            quotas={"team:nlp": Quota(gpus=4)},
        )
    )
    assert started(made) == ["b"]
    assert made.waits["a"] == Wait(
        Reason("quota", "team nlp holds 3 of its 4 GPUs, this asks for 2 more"), 1, after(30)
    )


@pytest.mark.parametrize(
    ("quota", "ask", "text"),
    [
        (Quota(gpus=1), {"gpus": 1}, "wang holds 1 of their 1 GPU, this asks for 1 more"),
        (Quota(gpus=1), {"shards": 32}, "wang holds 1 of their 1 GPU, this asks for 0.5 more"),
        (Quota(gpus=1), {"gpus": 2}, "asks for 2 GPUs, wang may hold 1 GPU at once"),
        (Quota(shards=8), {"shards": 16}, "asks for 16 shards, wang may hold 8 shards at once"),
        (Quota(cpus=6), {"cpus": 4}, "wang holds 4 of their 6 CPUs, this asks for 4 more"),
        (
            Quota(memory_mib=8192),
            {"memory_mib": 6144},
            "wang holds 4 GiB of their 8 GiB of memory, this asks for 6 GiB more",
        ),
        (Quota(jobs=1), {"cpus": 1}, "wang runs 1 of their 1 job at once"),
    ],
)
def test_every_kind_of_quota_says_by_how_much(quota: Quota, ask: dict[str, Any], text: str) -> None:
    held = holding("h", gpus=(0,), cpus=4, memory_mib=4096, user="wang")
    made = plan(snapshot(EIGHT, held, waiting("a", user="wang", **ask), quotas={"user:wang": quota}))
    assert made.starts == ()
    assert made.waits["a"] == Wait(Reason("quota", text), 1, None)


def test_a_run_on_several_nodes_counts_all_of_them() -> None:
    nodes = [node(f"n{i}", gpus=4) for i in range(4)]
    quotas = {"team:nlp": Quota(gpus=7)}
    made = plan(snapshot(*nodes, waiting("a", gpus=2, nodes=4, team="nlp"), quotas=quotas))
    assert made.waits["a"].reason.text == "asks for 8 GPUs, team nlp may hold 7 GPUs at once"
    made = plan(snapshot(*nodes, waiting("a", gpus=2, nodes=3, team="nlp", count=2), quotas=quotas))
    assert started(made) == ["a"]
    assert made.waits["a"].reason.text == "team nlp holds 6 of its 7 GPUs, this asks for 6 more"


def test_what_starts_in_the_plan_counts() -> None:
    made = plan(snapshot(EIGHT, waiting("a", gpus=1, user="wang", count=9), quotas={"user:wang": Quota(gpus=3)}))
    assert started(made) == ["a", "a", "a"]
    assert made.waits["a"].reason.code == "quota"


def test_both_the_person_and_the_team_must_have_room() -> None:
    quotas = {"team:nlp": Quota(gpus=4), "user:wang": Quota(gpus=1)}
    made = plan(
        snapshot(
            EIGHT,
            waiting("a", gpus=1, user="wang", team="nlp", count=2),
            waiting("b", gpus=1, user="li", team="nlp", count=9),
            quotas=quotas,
        )
    )
    assert sorted(started(made)) == ["a", "b", "b", "b"]
    assert made.waits["a"].reason.text.startswith("wang holds 1 of their 1 GPU")
    assert made.waits["b"].reason.text.startswith("team nlp holds 4 of its 4 GPUs")


def test_what_is_not_asked_for_is_never_too_much() -> None:
    held = holding("h", gpus=(0, 1), user="wang")
    made = plan(snapshot(EIGHT, held, waiting("a", cpus=4, user="wang"), quotas={"user:wang": Quota(gpus=1)}))
    assert started(made) == ["a"]


def test_spent_hours_wait_for_the_next_period() -> None:
    quota = Quota(gpu_hours=10, period=Period.DAY)
    at = snapshot(
        EIGHT,
        waiting("a", gpus=1, team="nlp", seq=1),
        waiting("b", cpus=1, team="nlp", seq=2),
        quotas={"team:nlp": quota},
        spent={"team:nlp": 10.0},
    )
    made = plan(at)
    assert started(made) == ["b"]
    assert made.waits["a"].reason == Reason("quota", "team nlp has spent its 10 GPU-hours of this day")
    assert made.waits["a"].estimated_at == after(12 * 60)


def test_hours_of_what_still_runs_are_spent_too() -> None:
    held = holding("h", gpus=(0, 1), team="nlp", started_at=NOW - timedelta(hours=5))
    quotas = {"team:nlp": Quota(gpu_hours=10, period=Period.DAY)}
    assert plan(snapshot(EIGHT, held, waiting("a", gpus=1, team="nlp"), quotas=quotas)).starts == ()
    more = {"team:nlp": Quota(gpu_hours=11, period=Period.DAY)}
    assert plan(snapshot(EIGHT, held, waiting("a", gpus=1, team="nlp"), quotas=more)).starts


def test_the_estimate_is_when_enough_of_its_own_runs_have_ended() -> None:
    held = [holding(f"h{i}", gpus=(i,), team="nlp", minutes=10 * (i + 1)) for i in range(4)]
    other = holding("o", gpus=(7,), team="cv", minutes=1)
    quotas = {"team:nlp": Quota(gpus=4)}
    made = plan(snapshot(EIGHT, *held, other, waiting("a", gpus=3, team="nlp"), quotas=quotas))
    assert made.waits["a"].estimated_at == after(30)
    endless = [holding(f"h{i}", gpus=(i,), team="nlp") for i in range(4)]
    made = plan(snapshot(EIGHT, *endless, waiting("a", gpus=3, team="nlp"), quotas=quotas))
    assert made.waits["a"].estimated_at is None


class TestNotPassedForEver:
    def test_small_ones_of_the_same_holder_leave_the_quota_to_the_one_before(self) -> None:
        held = [holding(f"h{i}", gpus=(i,), team="nlp", minutes=60) for i in range(3)]
        big, long = waiting("big", gpus=4, team="nlp", seq=1), waiting("long", gpus=1, team="nlp", seq=2)
        short = waiting("short", gpus=1, team="nlp", seq=3, minutes=60)
        quotas = {"team:nlp": Quota(gpus=4)}
        made = plan(snapshot(EIGHT, *held, big, long, quotas=quotas))
        assert made.starts == ()
        text = "would exceed the quota of team nlp together with big, which was before it"
        assert made.waits["long"].reason == Reason("behind", text)
        assert started(plan(snapshot(EIGHT, *held, big, long, short, quotas=quotas))) == ["short"]

    def test_those_that_fit_beside_it_pass(self) -> None:
        held = [holding(f"h{i}", gpus=(i,), team="nlp") for i in range(2)]
        made = plan(
            snapshot(
                EIGHT,
                *held,
                waiting("big", gpus=3, team="nlp", seq=1),
                waiting("cpus", cpus=4, team="nlp", seq=2),
                quotas={"team:nlp": Quota(gpus=4)},
            )
        )
        assert started(made) == ["cpus"]

    def test_the_quota_is_kept_for_one_that_waits_for_room(self) -> None:
        held = [holding("h", gpus=range(6), team="cv", minutes=60)]
        made = plan(
            snapshot(
                EIGHT,
                *held,
                waiting("big", gpus=4, team="nlp", seq=1),
                waiting("long", gpus=1, team="nlp", seq=2, minutes=90),
                waiting("short", gpus=1, team="nlp", seq=3, minutes=60),
                quotas={"team:nlp": Quota(gpus=4)},
            )
        )
        assert started(made) == ["short"]
        assert made.waits["big"].estimated_at == after(60)
        assert made.waits["long"].reason.code == "behind"

    def test_what_could_never_be_held_keeps_nothing(self) -> None:
        made = plan(
            snapshot(
                EIGHT,
                waiting("huge", gpus=8, team="nlp", seq=1),
                waiting("a", gpus=4, team="nlp", seq=2),
                quotas={"team:nlp": Quota(gpus=4)},
            )
        )
        assert started(made) == ["a"]

    def test_what_can_never_run_keeps_nothing_either(self) -> None:
        at = snapshot(
            EIGHT,
            holding("h", gpus=range(4), team="nlp"),
            waiting("wrong", gpus=8, gpu_model="H100", team="nlp", seq=1),
            waiting("a", gpus=2, team="nlp", seq=2),
            quotas={"team:nlp": Quota(gpus=8)},
        )
        made = plan(at)
        assert started(made) == ["a"]
        assert made.waits["wrong"].reason.code == "never_fits"


class TestBorrowing:
    def test_only_what_is_preemptible_goes_beyond_the_quota(self) -> None:
        quotas = {"team:nlp": Quota(gpus=2, borrow=True)}
        made = plan(
            snapshot(
                EIGHT,
                holding("h", gpus=(0, 1), team="nlp"),
                waiting("firm", gpus=2, team="nlp", seq=1),
                waiting("loose", gpus=2, team="nlp", seq=2, is_preemptible=True),
                quotas=quotas,
            )
        )
        assert started(made) == ["loose"]
        text = "team nlp holds 2 of its 2 GPUs, this asks for 2 more; `--preemptible` would let it use idle cards"
        assert made.waits["firm"].reason == Reason("quota", text)

    def test_without_borrow_nothing_does(self) -> None:
        made = plan(
            snapshot(
                EIGHT,
                waiting("a", gpus=3, team="nlp", is_preemptible=True),
                quotas={"team:nlp": Quota(gpus=2)},
            )
        )
        assert made.starts == ()
        assert made.waits["a"].reason.code == "quota"

    def test_a_person_without_the_right_to_borrow_does_not_borrow_through_the_team(self) -> None:
        quotas = {"team:nlp": Quota(gpus=1, borrow=True), "user:wang": Quota(gpus=2)}
        entry = waiting("a", gpus=1, team="nlp", user="wang", is_preemptible=True, count=9)
        made = plan(snapshot(EIGHT, entry, quotas=quotas))
        assert started(made) == ["a", "a"]
        assert made.waits["a"].reason.text.startswith("wang holds 2 of their 2 GPUs")

    def test_borrowers_come_after_all_who_are_entitled(self) -> None:
        made = plan(
            snapshot(
                node(gpus=3),
                waiting("loan", gpus=2, team="nlp", is_preemptible=True, priority=9),
                waiting("own", gpus=2, team="cv", priority=1),
                quotas={"team:nlp": Quota(gpus=1, borrow=True)},
            )
        )
        assert started(made) == ["own"]
        assert made.waits["loan"].reason.code == "no_gpus"
        assert "team nlp holds 0 of its 1 GPU" in made.waits["loan"].reason.text

    def test_a_borrower_leaves_a_promised_seat_whole(self) -> None:
        made = plan(
            snapshot(
                node(gpus=4),
                holding("h", gpus=(0, 1), minutes=30),
                waiting("own", gpus=4, team="cv"),
                waiting("long", gpus=1, team="nlp", is_preemptible=True),
                waiting("short", gpus=1, team="nlp", is_preemptible=True, minutes=30),
                quotas={"team:nlp": Quota(gpus=0, borrow=True)},
            )
        )
        assert started(made) == ["short"]
        assert made.waits["own"].estimated_at == after(30)

    def test_what_a_team_borrowed_does_not_keep_it_from_its_own_quota(self) -> None:
        held = [holding(f"h{i}", gpus=(i,), team="nlp", is_preemptible=True) for i in range(6)]
        made = plan(
            snapshot(
                EIGHT,
                *held,
                waiting("firm", gpus=2, team="nlp"),
                quotas={"team:nlp": Quota(gpus=4, borrow=True)},
            )
        )
        assert started(made) == ["firm"]


def test_a_dry_run_knows_quotas() -> None:
    at = snapshot(EIGHT, holding("h", gpus=(0, 1), user="wang"), quotas={"user:wang": Quota(gpus=2)})
    answer = seat_now(at, waiting("new", gpus=1, user="wang"))
    assert isinstance(answer, Wait)
    assert answer.reason.code == "quota"
    assert not isinstance(seat_now(at, waiting("new", gpus=1, user="li")), Wait)


def test_what_limits_a_member_limits_the_jobs_for_that_team_only() -> None:
    held = holding("h", gpus=(0,), team="nlp", user="li", minutes=30)
    made = plan(
        snapshot(
            EIGHT,
            held,
            waiting("for-nlp", gpus=1, team="nlp", user="li", seq=1),
            waiting("for-cv", gpus=1, team="cv", user="li", seq=2),
            waiting("for-none", gpus=1, user="li", seq=3),
            waiting("other", gpus=1, team="nlp", user="wang", seq=4),
            quotas={"member:li@nlp": Quota(gpus=1)},
        )
    )
    assert sorted(started(made)) == ["for-cv", "for-none", "other"]
    assert made.waits["for-nlp"].reason.text == "li in team nlp holds 1 of their 1 GPU, this asks for 1 more"
