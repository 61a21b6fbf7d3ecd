"""Engines that queue and place by themselves: who is handed over, who waits for quota, who gives back."""

from collections import Counter
from dataclasses import replace

from hypothesis import given

from danlu.domain.quota import Quota
from danlu.domain.resources import Seat
from danlu.scheduler.admission import Admission
from danlu.scheduler.plan import plan, seat_now
from danlu.scheduler.quota_accounts import NOTHING, add_up, amounts_of_ask, amounts_of_run
from danlu.scheduler.snapshot import Snapshot, Stop, Wait, Waiting
from tests.builders import holding, node, snapshot, waiting
from tests.unit.test_plan_people_properties import snapshots

FOUR = node(gpus=4, cpus=64)


def elsewhere(*parts: object, pending: tuple[Waiting, ...] = (), **options: object) -> Snapshot:
    return replace(snapshot(*parts, **options), engine_places=True, pending=pending)  # type: ignore[arg-type]


def test_all_within_their_quotas_are_handed_over_room_or_not() -> None:
    made = plan(elsewhere(FOUR, *(waiting(key, gpus=4) for key in "abc")))
    assert made.handed == ("a", "b", "c")
    assert [start.key for start in made.starts] == ["a"]
    assert made.waits["b"].reason.code == "no_gpus"


def test_who_is_over_quota_waits_here_and_not_there() -> None:
    given = waiting("p", gpus=3, user="li")
    made = plan(elsewhere(FOUR, waiting("a", gpus=2, user="li"), pending=(given,), quotas={"user:li": Quota(gpus=4)}))
    assert made.handed == ()
    assert made.waits["a"].reason.text == "li holds 3 of their 4 GPUs, this asks for 2 more"


def test_tasks_of_an_array_go_as_its_limit_says() -> None:
    made = plan(elsewhere(FOUR, waiting("a", gpus=4, count=9, may_start=3)))
    assert made.handed == ("a", "a", "a")


def test_no_more_are_handed_over_than_the_engines_queue_takes() -> None:
    at = replace(elsewhere(FOUR, waiting("a", gpus=4, count=9, may_start=5), waiting("b", gpus=1)), room_for=3)
    made = plan(at)
    assert made.handed == ("a", "a", "a")
    assert [made.waits[key].reason.code for key in "ab"] == ["crowded", "crowded"]


def test_who_sends_thousands_is_not_before_all_others() -> None:
    given = (waiting("p", gpus=4, user="li"),)
    parts = (waiting("a", gpus=4, count=900, user="li"), waiting("b", gpus=4, user="wang"))
    made = plan(replace(elsewhere(FOUR, *parts, pending=given), waiting_there=3))
    assert sorted(made.handed) == ["a", "a", "b"]
    assert made.waits["a"].reason.code == "crowded"


def test_who_borrows_is_handed_over_only_if_nobody_waits_for_that_room() -> None:
    quotas = {"team:nlp": Quota(gpus=1, borrow=True)}
    borrower = waiting("a", gpus=2, team="nlp", is_preemptible=True)
    assert plan(elsewhere(FOUR, borrower, quotas=quotas)).handed == ("a",)
    owner = waiting("p", gpus=4, team="cv")
    made = plan(elsewhere(FOUR, borrower, pending=(owner,), quotas=quotas))
    assert made.handed == ()
    assert "borrow" in made.waits["a"].reason.text or made.waits["a"].reason.code == "no_gpus"


def test_what_was_borrowed_is_given_back_to_an_owner_who_waits_there() -> None:
    quotas = {"team:nlp": Quota(gpus=1, borrow=True), "team:cv": Quota(gpus=4)}
    borrowed = holding("b", gpus=(0, 1, 2, 3), team="nlp", is_preemptible=True, minutes=60)
    for owner in ("waiting", "pending"):
        entry = waiting("o", gpus=2, team="cv")
        if owner == "waiting":
            made = plan(elsewhere(FOUR, borrowed, entry, quotas=quotas))
            assert made.handed == ("o",)
        else:
            made = plan(elsewhere(FOUR, borrowed, pending=(entry,), quotas=quotas))
        assert made.stops == (Stop("b", "o"),)
        assert made.waits["o"].reason.code == "reclaiming"


def test_a_borrower_that_waits_there_takes_nothing_back() -> None:
    quotas = {"team:nlp": Quota(gpus=1, borrow=True)}
    borrowed = holding("b", gpus=(0, 1, 2, 3), team="nlp", is_preemptible=True, minutes=60)
    other = waiting("p", gpus=4, team="nlp", is_preemptible=True)
    assert plan(elsewhere(FOUR, borrowed, pending=(other,), quotas=quotas)).stops == ()


def test_a_borrower_that_came_after_it_does_not_make_an_owner_one() -> None:
    quotas = {"team:nlp": Quota(gpus=1, borrow=True), "team:cv": Quota(gpus=2, borrow=True)}
    borrowed = holding("b", gpus=(0, 1, 2, 3), team="nlp", is_preemptible=True, minutes=60)
    owner, borrower = (waiting(key, gpus=2, team="cv", is_preemptible=True) for key in ("o", "p"))
    assert plan(elsewhere(FOUR, borrowed, pending=(owner, borrower), quotas=quotas)).stops == (Stop("b", "o"),)


def test_a_run_whose_cards_are_not_known_yet_counts_what_it_asked_for() -> None:
    held = replace(holding("h", user="li"), ask=waiting(gpus=4).ask)
    made = plan(elsewhere(FOUR, held, waiting("a", gpus=1, user="li"), quotas={"user:li": Quota(gpus=4)}))
    assert made.handed == ()


def test_a_wish_learns_whether_it_would_start_now() -> None:
    assert isinstance(seat_now(elsewhere(FOUR), waiting("a", gpus=4)), Seat)
    answer = seat_now(elsewhere(FOUR, pending=(waiting("p", gpus=2),)), waiting("a", gpus=4))
    assert isinstance(answer, Wait)


@given(snapshots)
def test_nobody_is_forgotten_and_no_quota_is_exceeded(seen: Snapshot) -> None:
    """What waits there counts as what runs does; only who may borrow goes beyond a quota."""
    given_away = tuple(entry for entry in seen.waiting[::3] if entry.blocked is None)
    rest = tuple(entry for entry in seen.waiting if entry not in given_away)
    once = tuple(replace(entry, key=f"{entry.key}.p", count=1, may_start=1) for entry in given_away)
    at = replace(seen, waiting=rest, engine_places=True, pending=once)
    made = plan(at)
    assert plan(at) == made
    handed = Counter(made.handed)
    assert not Counter(start.key for start in made.starts) - handed
    for entry in rest:
        assert 0 <= handed[entry.key] <= max(min(entry.count, entry.may_start), 0)
        assert handed[entry.key] == entry.count or entry.key in made.waits or not entry.count
    before, after = held_by(at, Counter()), held_by(at, handed)
    for holder, quota in at.quotas.items():
        if quota.borrow:
            continue
        for kind, limit in Admission(at, lambda _: 0.0)._account(holder).limits:
            assert after[holder][kind] <= max(limit, before[holder][kind])


def held_by(at: Snapshot, handed: Counter[str]) -> dict[str, list[int]]:
    total = {holder: list(NOTHING) for holder in at.quotas}
    for run in at.holding:
        for holder in (f"user:{run.user}", f"team:{run.team}"):
            if holder in total:
                add_up(total[holder], amounts_of_run(run, at.shards_per_gpu))
    for entry in (*at.pending, *at.waiting):
        times = 1 if entry in at.pending else handed[entry.key]
        for holder in (f"user:{entry.user}", f"team:{entry.team}"):
            if holder in total:
                for _ in range(times):
                    add_up(total[holder], amounts_of_ask(entry.ask, at.shards_per_gpu))
    return total
