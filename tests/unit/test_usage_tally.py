"""What was used, against plain sums over all charges."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from danlu.domain.charge import Charge, faded
from danlu.domain.quota import Period, Quota
from danlu.state.usage import Tally

NOW = datetime(2026, 3, 18, 15, 30, tzinfo=UTC)  # a Wednesday
WEEK = timedelta(days=7)
HOUR = timedelta(hours=1)


def charge(
    started_at: datetime, held: timedelta, *, user: str = "ada", team: str = "", gpus: int = 1, shards: int = 0
) -> Charge:
    ended_at = started_at + held
    return Charge("r.1", user, team, "", started_at, started_at, ended_at, gpus, shards, 64, 1, 0)


def keys_of(one: Charge) -> set[str]:
    in_team = {f"team:{one.team}", f"member:{one.user}@{one.team}"} if one.team else set()
    return {f"user:{one.user}"} | in_team


def some(random: Random, count: int) -> list[Charge]:
    made = []
    for _ in range(count):
        shards = random.choice([0, 0, 7])
        ended_at = NOW - timedelta(seconds=random.randrange(60 * 86400))
        held = timedelta(seconds=random.choice([0, 5, random.randrange(86400), random.randrange(90 * 86400)]))
        made.append(
            charge(
                ended_at - held,
                held,
                user=random.choice(["ada", "bo"]),
                team=random.choice(["", "nlp", "ada"]),
                gpus=0 if shards else random.randrange(4),
                shards=shards,
            )
        )
    return made


def spent_plainly(charges: Sequence[Charge], key: str, since: datetime) -> float:
    found = 0.0
    for one in charges:
        inside = max(timedelta(0), one.ended_at - max(one.started_at, since))
        if key in keys_of(one):
            found += (one.gpus + one.shards / one.shards_per_gpu) * (inside / HOUR)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_plain_sums(seed: int) -> None:
    random = Random(seed)
    charges = some(random, 200)
    half_life = random.choice([WEEK, timedelta(minutes=1), timedelta(days=1000)])
    tally = Tally(half_life, charges[:150], NOW)
    for one in charges[150:]:
        tally.add(one)
    for later in (timedelta(0), timedelta(hours=9), timedelta(days=40)):
        now = NOW + later
        use = {key: 0.0 for one in charges for key in keys_of(one)}
        for one in charges:
            for key in keys_of(one):
                use[key] += faded(one.gpu_hours, now - one.ended_at, half_life)
        assert tally.use(now) == pytest.approx(use, rel=1e-9, abs=1e-12)
        for period in Period:
            quotas = dict.fromkeys([*use, "user:nobody"], Quota(gpu_hours=1, period=period))
            right = {key: spent_plainly(charges, key, period.start(now)) for key in quotas}
            assert tally.spent(quotas, now) == pytest.approx(right, rel=1e-9, abs=1e-9)


def test_each_quota_has_its_own_period() -> None:
    tally = Tally(WEEK, [charge(NOW - timedelta(days=2), HOUR, team="nlp")], NOW)  # on Monday
    quotas = {"user:ada": Quota(period=Period.DAY), "team:nlp": Quota(period=Period.WEEK)}
    assert tally.spent(quotas, NOW) == {"user:ada": 0, "team:nlp": pytest.approx(1)}
    assert tally.spent(quotas, NOW + WEEK) == {"user:ada": 0, "team:nlp": 0}


def test_a_run_over_the_start_of_a_period_counts_with_its_part() -> None:
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    tally = Tally(WEEK, [charge(midnight - 3 * HOUR, 5 * HOUR, gpus=2)], NOW)
    assert tally.spent({"user:ada": Quota(period=Period.MONTH)}, NOW) == {"user:ada": pytest.approx(4)}


def test_half_is_left_after_a_half_life_and_nothing_counts_more_than_it_was() -> None:
    tally = Tally(WEEK, [charge(NOW - HOUR, HOUR, gpus=8)], NOW)
    assert tally.use(NOW + WEEK) == {"user:ada": pytest.approx(4)}
    assert tally.use(NOW - WEEK) == {"user:ada": pytest.approx(8)}  # a clock that was set back
    assert tally.use(NOW + 10_000 * WEEK) == {"user:ada": pytest.approx(0)}


def test_who_used_no_card_is_not_in_it() -> None:
    tally = Tally(WEEK, [charge(NOW - HOUR, HOUR, gpus=0)], NOW)
    assert tally.use(NOW) == {}


def test_how_far_back_it_matters() -> None:
    assert Tally.since(WEEK, NOW) == NOW - 10 * WEEK
    assert Tally.since(timedelta(hours=1), NOW) <= Period.MONTH.start(NOW)
