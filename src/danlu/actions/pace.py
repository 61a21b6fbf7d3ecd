"""How often somebody may try: some tries are free, then each further one waits twice as long."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address
from math import ceil

from danlu.errors import TooMany


@dataclass(slots=True)
class _Tries:
    count: int
    last_at: datetime
    open_at: datetime


class Pace:
    """Counts tries by key, in memory. Tries are forgotten after `memory` without a new one."""

    def __init__(
        self,
        *,
        free: int,
        first: timedelta = timedelta(seconds=1),
        longest: timedelta = timedelta(minutes=5),
        memory: timedelta = timedelta(hours=1),
        most_keys: int = 10_000,
    ) -> None:
        self._free, self._first, self._longest, self._memory = free, first, longest, memory
        self._most_keys = most_keys
        self._tries: dict[str, _Tries] = {}  # the one that was tried last is at the end

    def wait(self, key: str, now: datetime) -> timedelta:
        """How long until the next try; zero: it may be now."""
        found = self._tries.get(key)
        if found is None or now - found.last_at >= self._memory:
            return timedelta()
        return max(found.open_at - now, timedelta())

    def count(self, key: str, now: datetime) -> None:
        found = self._tries.pop(key, None)
        count = found.count + 1 if found is not None and now - found.last_at < self._memory else 1
        beyond = count - self._free
        pause = timedelta() if beyond < 0 else min(self._first * 2 ** min(beyond, 30), self._longest)
        self._tries[key] = _Tries(count, now, now + pause)
        if len(self._tries) > self._most_keys:
            del self._tries[next(iter(self._tries))]

    def forget(self, key: str) -> None:
        self._tries.pop(key, None)

    def give_back(self, key: str) -> None:
        """The last try was none that counts."""
        if found := self._tries.get(key):
            found.count -= 1
            found.open_at = found.last_at


class Gate:
    """The pace of logins, by name and by where they come from. A try counts before its password is looked at:
    many at once are no way around."""

    def __init__(self) -> None:
        self._names = Pace(free=5)
        self._origins = Pace(free=30)

    def enter(self, name: str, origin: str, now: datetime) -> None:
        wait = max(self._names.wait(name, now), self._origins.wait(place_of(origin), now))
        if wait:
            raise too_many("too many wrong logins", wait)
        self._names.count(name, now)
        self._origins.count(place_of(origin), now)

    def passed(self, name: str, origin: str) -> None:
        self._names.forget(name)
        self._origins.give_back(place_of(origin))


def too_many(what: str, wait: timedelta) -> TooMany:
    seconds = ceil(wait.total_seconds())
    return TooMany(f"{what}: wait {seconds} seconds", "then try again", retry_after_s=seconds)


def place_of(origin: str) -> str:
    """What counts as one place: with IPv6 everybody has a whole network of addresses."""
    try:
        address = ip_address(origin)
    except ValueError:
        return origin
    return address.exploded[:19] if isinstance(address, IPv6Address) else origin
