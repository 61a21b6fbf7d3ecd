"""Rate limits: some tries are free, then each further try waits twice as long."""

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
        self._tries: dict[str, _Tries] = {}  # the key of the last try is at the end

    def wait(self, key: str, now: datetime) -> timedelta:
        """The time until the next try; zero: a try is allowed now."""
        found = self._tries.get(key)
        if found is None or now - found.last_at >= self._memory:
            return timedelta()
        return max(found.open_at - now, timedelta())

    def is_free(self, key: str, now: datetime) -> bool:
        """Whether the next try is still free."""
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
        """Do not count the last try."""
        if found := self._tries.get(key):
            found.count -= 1
            found.open_at = found.last_at


class LoginLimiter:
    """The rate limit of logins. A try counts before the password check, so many tries at once do not bypass the limit.

    Each place has some tries for each name, and some for all names. All places together share some more tries for each
    name. A place with no tries left for a name does not use up the shared tries: a single place cannot lock a person
    out everywhere. A person with an earlier login from a place does not need the shared tries there."""

    def __init__(self) -> None:
        self._tries = Pace(free=5)  # by name and place
        self._places = Pace(free=30)
        self._names = Pace(free=50)  # by name, from all places without an earlier login of this name
        self._known: dict[str, None] = {}  # names with a place of a successful login, the last login at the end

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
        """The last try had the right password of an account request: do not count this try; wrong tries still count."""
        here = _together(name, place_of(origin))
        self._tries.give_back(here)
        if here not in self._known and self._tries.is_free(here, now):
            self._names.give_back(name)
        self.passed_place(origin)

    def enter_place(self, origin: str, now: datetime) -> None:
        """Count a try without a name."""
        if wait := self._places.wait(place_of(origin), now):
            raise too_many("too many wrong tries", wait)
        self._places.count(place_of(origin), now)

    def passed_place(self, origin: str) -> None:
        self._places.give_back(place_of(origin))


def _together(name: str, place: str) -> str:
    return f"{place} {name}"  # unambiguous: `unix socket` is the only place with a blank


def too_many(what: str, wait: timedelta) -> TooMany:
    seconds = ceil(wait.total_seconds())
    return TooMany(f"{what}: wait {render_count(seconds, 'second')}", "then try again", retry_after_s=seconds)


def place_of(origin: str) -> str:
    """The place of an address. For IPv6 a place is a /64 network, because each machine has a whole network."""
    try:
        address = ip_address(origin)
    except ValueError:
        return origin
    if not isinstance(address, IPv6Address):
        return origin
    # A server on both protocols sees IPv4 clients as mapped addresses, which are not a single network.
    return str(address.ipv4_mapped) if address.ipv4_mapped else address.exploded[:19]
