"""Past usage in memory for the scheduler: decayed over time, and in the current period."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta

from danlu.domain.charge import Charge, faded, gpu_hours
from danlu.domain.quota import Quota, keys_of

_DAY = timedelta(days=1)
_LONGEST_PERIOD = timedelta(days=31)
_HALF_LIVES = 10  # older usage counts for less than a thousandth


class Tally:
    """`charges` begins at `Tally.since`; older charges do no harm. All keys come from `quota.keys_of`."""

    def __init__(self, half_life: timedelta, charges: Iterable[Charge], now: datetime) -> None:
        self._half_life = half_life
        # The value of the hours at a moment. After this moment the hours of all runs decay together.
        self._faded: dict[str, tuple[float, datetime]] = {}
        self._days: dict[str, dict[int, float]] = {}  # hours by day number; all periods begin at midnight
        self._oldest = (now - _LONGEST_PERIOD).toordinal()
        for charge in charges:
            self.add(charge)

    @staticmethod
    def since(half_life: timedelta, now: datetime) -> datetime:
        """Charges of runs that ended before this time do not matter."""
        return now - max(_HALF_LIVES * half_life, _LONGEST_PERIOD)

    def add(self, charge: Charge) -> None:
        """Add an ended run. The many short jobs without a card cost nearly nothing."""
        if not charge.gpus and not charge.shards:
            return
        for key in keys_of(charge.user, charge.team):
            self._fade_in(key, charge)
            self._spread(self._days.setdefault(key, {}), charge)

    def _fade_in(self, key: str, charge: Charge) -> None:
        hours, at = self._faded.get(key, (0.0, charge.ended_at))
        latest = max(at, charge.ended_at)
        now_worth = faded(hours, latest - at, self._half_life)
        self._faded[key] = (now_worth + faded(charge.gpu_hours, latest - charge.ended_at, self._half_life), latest)

    def _spread(self, days: dict[int, float], charge: Charge) -> None:
        """Each day gets the hours of that day: a run over midnight counts in both periods with its part."""
        start = max(charge.started_at, _midnight(self._oldest))
        while start < charge.ended_at:
            day = start.toordinal()
            end = min(charge.ended_at, _midnight(day + 1))
            days[day] = days.get(day, 0.0) + gpu_hours(charge.gpus, charge.shards, charge.shards_per_gpu, end - start)
            start = end

    def use(self, now: datetime) -> Mapping[str, float]:
        """GPU-hours of the past, after decay."""
        return {key: faded(hours, now - at, self._half_life) for key, (hours, at) in self._faded.items()}

    def spent(self, quotas: Mapping[str, Quota], now: datetime) -> Mapping[str, float]:
        """GPU-hours of ended runs since the period of each quota began."""
        self._forget(now)
        found: dict[str, float] = {}
        for key, quota in quotas.items():
            first = quota.period.start(now).toordinal()
            found[key] = sum(hours for day, hours in self._days.get(key, {}).items() if day >= first)
        return found

    def _forget(self, now: datetime) -> None:
        """Drop the days that no period reaches any more, once a day."""
        oldest = (now - _LONGEST_PERIOD).toordinal()
        if oldest > self._oldest:
            self._oldest = oldest
            for key, days in self._days.items():
                self._days[key] = {day: hours for day, hours in days.items() if day >= oldest}


def _midnight(day: int) -> datetime:
    return datetime.combine(datetime.fromordinal(day), time(), tzinfo=UTC)
