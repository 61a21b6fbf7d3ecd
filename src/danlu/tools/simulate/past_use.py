"""Usage during a replay, in the form that `plan()` needs. Times are seconds since the start of the replay."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from danlu.domain.quota import Quota, keys_of


class Past:
    """GPU-hours of ended runs: decayed for the fair share, and per current quota period."""

    def __init__(self, quotas: Mapping[str, Quota], half_life: timedelta, begin: datetime) -> None:
        self._half_life_s = half_life.total_seconds()
        self._begin = begin
        self._use: dict[str, float] = {}  # as of `_use_at`
        self._use_at = 0.0
        self._periods = {key: quota.period for key, quota in quotas.items() if quota.gpu_hours is not None}
        self._spent = dict.fromkeys(self._periods, (0.0, 0.0))  # (start of the period, hours spent)

    @property
    def has_periods(self) -> bool:
        return bool(self._periods)

    def add(self, user: str, team: str, gpus: float, start_s: float, end_s: float) -> None:
        """Count an ended run."""
        if not gpus:
            return
        hours = gpus * (end_s - start_s) / 3600
        self._use = self.use(end_s)
        self._use_at = max(end_s, self._use_at)
        for key in keys_of(user, team):
            self._use[key] = self._use.get(key, 0.0) + hours
            if key in self._periods:
                since, before = self._current(key, end_s)
                self._spent[key] = (since, before + gpus * (end_s - max(start_s, since)) / 3600)

    def use(self, at_s: float) -> dict[str, float]:
        """The decayed usage of each holder. All entries decay alike, so a single factor is enough."""
        share = 0.5 ** (max(at_s - self._use_at, 0.0) / self._half_life_s)
        return {key: hours * share for key, hours in self._use.items()}

    def spent(self, at_s: float) -> dict[str, float]:
        """GPU-hours since the start of each quota's current period."""
        return {key: self._current(key, at_s)[1] for key in self._periods}

    def _current(self, key: str, at_s: float) -> tuple[float, float]:
        """The start of the holder's current period, and the hours spent since."""
        began = self._periods[key].start(self._begin + timedelta(seconds=at_s))
        since = (began - self._begin).total_seconds()
        known = self._spent[key]
        return known if known[0] == since else (since, 0.0)
