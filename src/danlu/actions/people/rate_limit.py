"""How often somebody may try: some tries are free, then each further one waits twice as long."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address
from math import ceil

from danlu.domain.amounts import render_count
from danlu.errors import TooMany

MOST_KNOWN = 10_000


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

    def is_free(self, key: str, now: datetime) -> bool:
        """Whether the next try is one of those that cost nothing."""
        found = self._tries.get(key)
        return found is None or found.count < self._free or now - found.last_at >= self._memory

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


class LoginLimiter:
    """The pace of logins. A try counts before its password is looked at: many at once are no way around.

    Each place has some tries for each name, and some for all names. Many places that try one name share some more;
    a place whose own are used up adds nothing to those, so that one place alone keeps nobody out of another, and who
    has logged in from a place before does not have to share."""

    def __init__(self) -> None:
        self._tries = Pace(free=5)  # of one name from one place
        self._places = Pace(free=30)
        self._names = Pace(free=50)  # from all places that are not known for it
        self._known: dict[str, None] = {}  # names with a place from which they came in, the last at the end

    def enter(self, name: str, origin: str, now: datetime) -> None:
        place = place_of(origin)
        here = _together(name, place)
        is_known = here in self._known
        wait = max(
            self._tries.wait(here, now),
            self._places.wait(place, now),
            timedelta() if is_known else self._names.wait(name, now),
        )
        if wait:
            raise too_many("too many wrong logins", wait)
        is_free = self._tries.is_free(here, now)
        self._tries.count(here, now)
        self._places.count(place, now)
        if is_free and not is_known:
            self._names.count(name, now)

    def passed(self, name: str, origin: str) -> None:
        here = _together(name, place_of(origin))
        if here not in self._known:
            self._names.give_back(name)
        self._known.pop(here, None)
        self._known[here] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._tries.forget(here)
        self.passed_place(origin)

    def was_no_guess(self, name: str, origin: str, now: datetime) -> None:
        """The last try had a right password, but not of an account: the try does not count, and wrong ones still do."""
        here = _together(name, place_of(origin))
        self._tries.give_back(here)
        if here not in self._known and self._tries.is_free(here, now):
            self._names.give_back(name)
        self.passed_place(origin)

    def enter_place(self, origin: str, now: datetime) -> None:
        """A try at what nobody's name goes with."""
        if wait := self._places.wait(place_of(origin), now):
            raise too_many("too many wrong tries", wait)
        self._places.count(place_of(origin), now)

    def passed_place(self, origin: str) -> None:
        self._places.give_back(place_of(origin))


def _together(name: str, place: str) -> str:
    return f"{place} {name}"  # a place has no blanks but in `unix socket`, which is one place


def too_many(what: str, wait: timedelta) -> TooMany:
    seconds = ceil(wait.total_seconds())
    return TooMany(f"{what}: wait {render_count(seconds, 'second')}", "then try again", retry_after_s=seconds)


def place_of(origin: str) -> str:
    """What counts as one place: with IPv6 everybody has a whole network of addresses."""
    try:
        address = ip_address(origin)
    except ValueError:
        return origin
    if not isinstance(address, IPv6Address):
        return origin
    # Who listens on both hears from IPv4 in this form: they are not all one network.
    return str(address.ipv4_mapped) if address.ipv4_mapped else address.exploded[:19]
