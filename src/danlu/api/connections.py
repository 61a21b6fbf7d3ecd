"""Limits the connections of each client, and ends connections over a limit: descriptors of the server are few."""

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from danlu.actions.people.rate_limit import place_of
from danlu.errors import TooMany

log = logging.getLogger(__name__)

PEER = "uid:"  # before the Unix user at the other end, where a remote client has an address
LINE = "danlu.line"  # the Line of a request, in its ASGI scope
PATIENCE_S = 20.0  # a whole request, or the next piece of a known person's request, comes within this time
QUIET_S = 60.0  # a flood is over after this time without another refusal
MOST_DESCRIPTORS = 1 << 16  # upper bound for connections: each connection takes memory too


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections may be open at once. People behind a NAT share an address, so the limit per address only
    counts strangers: connections that no token has identified yet."""

    strangers_of_one: int  # from the same address, without a valid token so far
    strangers: int
    of_one: int  # per person, or per Unix user on the Unix socket
    remote: int  # all over TCP
    local: int  # all Unix users, except root and the server's own user


def limits_for(descriptors: int) -> Limits:
    """Leave at least a quarter of the descriptors free for root, for files, for starting jobs, and for shells in jobs,
    which take five descriptors each."""
    most = min(descriptors, MOST_DESCRIPTORS)
    return Limits(min(256, most // 8), min(2048, most // 4), most // 8, most // 2, most // 4)


@dataclass(slots=True, eq=False)
class Line:
    """One open connection."""

    lines: "Lines"
    address: str  # an IP address (with IPv6: its network), or `uid:1000`
    key: str  # the owner of the limit: a person or an address
    end: Callable[[], object]
    is_known: bool = False  # a person, a Unix user or a proxy
    is_busy: bool = False  # the server works on the request
    is_remote: bool = True

    def recognize(self, person: str) -> None:
        """A token identified the person. Raises TooMany if the person already has too many connections."""
        if not self.is_known:
            self.lines.recognize(self, person)

    def waits(self) -> None:
        """A request begins, or continues."""
        self.lines.waiting.pop(self, None)
        self.lines.waiting[self] = self.lines.clock()

    def has_asked(self) -> None:
        """The request is complete."""
        self.lines.waiting.pop(self, None)


@dataclass(slots=True)
class _Flood:
    """A period in which connections are refused or ended; logged once at its start and once at its end."""

    last_at: float = -math.inf
    count: int = 0
    is_on: bool = False


@dataclass(slots=True)
class Lines:
    """All open connections. Over a limit, the oldest waiting stranger gives way: a client with a real request sends the
    request at once, and is no stranger a moment later."""

    limits: Limits
    clock: Callable[[], float]
    proxies: frozenset[str] = frozenset()  # each proxy address stands for many people
    patience_s: float = PATIENCE_S
    waiting: dict[Line, float] = field(default_factory=dict)  # incomplete requests, and since when; oldest first
    _held: dict[str, dict[Line, None]] = field(default_factory=dict)  # by key, oldest first
    _strangers: int = 0
    _remote: int = 0
    _local: int = 0
    _flood: _Flood = field(default_factory=_Flood)
    _free: frozenset[str] = field(default_factory=lambda: frozenset({f"{PEER}0", f"{PEER}{os.getuid()}"}))

    def take(self, origin: str, end: Callable[[], None]) -> Line | None:
        """Register a new connection from `origin`. None: there are too many. `end` ends the connection at once."""
        is_remote = not origin.startswith(PEER)
        address = place_of(origin) if is_remote else origin
        line = Line(self, address, address, end, not is_remote or origin in self.proxies, is_remote=is_remote)
        if not (self._has_room(line) or self._makes_room(line)):
            self._tell(line)
            return None
        self._add(line)
        line.waits()
        return line

    def let_go(self, line: Line) -> None:
        line.has_asked()
        held = self._held.get(line.key, {})
        if line not in held:
            return
        del held[line]
        if not held:
            del self._held[line.key]
        self._count(line, -1)

    def recognize(self, line: Line, person: str) -> None:
        key = f"user:{person}"
        if len(self._held.get(key, ())) >= self.limits.of_one:
            raise TooMany("you have too many connections open", "end some of your commands")
        if line in self._held.get(line.key, ()):  # the connection may have closed meanwhile
            is_waiting = line in self.waiting
            self.let_go(line)
            line.key, line.is_known = key, True
            self._add(line)
            if is_waiting:
                line.waits()

    def look(self) -> None:
        """End connections with overdue requests, and log the end of a flood. A clock calls this."""
        now = self.clock()
        while self.waiting:
            line, since = next(iter(self.waiting.items()))
            if now - since < self.patience_s:
                break
            line.has_asked()
            line.end()
        flood = self._flood
        if flood.is_on and now - flood.last_at >= QUIET_S:
            log.warning("connections are back within the limits: %d were refused or ended", flood.count)
            self._flood = _Flood()

    def _has_room(self, line: Line) -> bool:
        limits, count = self.limits, len(self._held.get(line.key, ()))
        if line.key in self._free:
            return True
        if not line.is_remote:
            return count < limits.of_one and self._local < limits.local
        if self._remote >= limits.remote:
            return False
        return line.is_known or (count < limits.strangers_of_one and self._strangers < limits.strangers)

    def _makes_room(self, line: Line) -> bool:
        """Whether a waiting stranger gave way: from the same address if this address has too many connections, else
        from the address with the most."""
        if not line.is_remote:
            return False
        keys = [key for key, held in self._held.items() if not next(iter(held)).is_known]
        if len(self._held.get(line.key, ())) >= self.limits.strangers_of_one:
            keys = [line.key]
        for key in sorted(keys, key=lambda key: -len(self._held[key])):
            for other in self._held[key]:
                if not other.is_busy and not other.is_known:
                    self._tell(other)
                    self.let_go(other)
                    other.end()
                    return True
        return False

    def _add(self, line: Line) -> None:
        self._held.setdefault(line.key, {})[line] = None
        self._count(line, 1)

    def _count(self, line: Line, change: int) -> None:
        if line.is_remote:
            self._remote += change
            self._strangers += change * (not line.is_known)
        elif line.key not in self._free:
            self._local += change

    def _tell(self, line: Line) -> None:
        flood = self._flood
        flood.last_at, flood.count = self.clock(), flood.count + 1
        if not flood.is_on:
            flood.is_on = True
            log.warning(
                "too many connections: %d over TCP, %d of them without a token, %d of %s; "
                "new ones are refused, or the oldest without a token are ended",
                self._remote,
                self._strangers,
                len(self._held.get(line.key, ())),
                line.address,
            )
