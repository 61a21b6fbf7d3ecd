"""Who is before whom: priority, then who is boosted, then fair share, then age."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import Protocol

from danlu.domain.people import is_boosted
from danlu.domain.quota import team_key, user_key
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting

_age = attrgetter("seq")
_priority = attrgetter("priority")

# A run counts for an hour at least, or for its time limit if that is shorter: who asks for little time is before
# others, who asks for much is not punished for it before it is used, and leaving the limit out gains nothing.
_EXPECTED = timedelta(hours=1)
# Less than a GPU-minute is no difference: use that has faded to nothing must not rank for ever behind none at all.
_RANKS_PER_HOUR = 60
_LAST = (1 << 62, 0, 0)


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """High priority first, then by age."""
    # Two stable sorts on bare integers cost half of one sort on pairs.
    ordered = sorted(waiting, key=_age)
    ordered.sort(key=_priority, reverse=True)
    return ordered


class Turns(Protocol):
    """The queue, one entry at a time; who is next depends on what those before were given."""

    def __iter__(self) -> Iterator[Waiting]: ...

    def charge(self, waiting: Waiting) -> bool:
        """Count a run of the entry that starts or is promised; True if nobody else could be next now."""

    def put_back(self, rest: Waiting) -> None:
        """An array goes on when it is its owner's turn again."""


class Line:
    """The queue of one person."""

    def __init__(self, entries: Iterable[Waiting]) -> None:
        self._entries = in_order(entries)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    def charge(self, waiting: Waiting) -> bool:
        return True

    def put_back(self, rest: Waiting) -> None:
        raise AssertionError("it is nobody else's turn")


class Share:
    """GPU-hours used, in parts of what one is due; only whole ranks are compared."""

    __slots__ = ("_part", "_use", "rank")

    def __init__(self, use: float, weight: int) -> None:
        self._part = _RANKS_PER_HOUR / weight
        self._use = 0.0
        self.rank = 0
        self.add(use)

    def add(self, hours: float) -> None:
        self._use += hours
        self.rank = int(self._use * self._part)


class Uses:
    """What people and teams used: in the past, faded; by what they hold; and by what this plan gives them.

    A person without a team is a team of their own. Runs without cards count as the part of the cluster's cards that
    they take of its CPUs.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.now
        self._use = snapshot.use
        self._quotas = snapshot.quotas
        self._shards_per_gpu = snapshot.shards_per_gpu
        cards = sum([len(node.gpus) for node in snapshot.nodes])
        self._cards_per_cpu = (cards or 1) / (sum([node.cpus for node in snapshot.nodes]) or 1)
        self._shares: dict[str, Share] = {}
        self._owners: dict[tuple[str, str], tuple[Share, Share]] = {}
        for held in snapshot.holding:
            hours = self._held_hours(held)
            for share in self._owners.get((held.user, held.team)) or self.of(held.user, held.team):
                share.add(hours)

    def of(self, user: str, team: str) -> tuple[Share, Share]:
        """The shares of the team and of the person."""
        owner = self._owners.get((user, team))
        if owner is None:
            person = user_key(user)
            group = team_key(team) if team else person
            owner = self._owners[user, team] = (self._share("of " + group, group, True), self._share(person, person))
        return owner

    def _share(self, name: str, holder: str, is_weighted: bool = False) -> Share:
        share = self._shares.get(name)
        if share is None:
            quota = self._quotas.get(holder) if is_weighted else None
            weight = max(quota.gpus or 1, 1) if quota else 1
            share = self._shares[name] = Share(self._use.get(holder, 0.0), weight)
        return share

    def charge(self, waiting: Waiting) -> None:
        """Count a run of an entry whose owner is known."""
        ask, limit = waiting.ask, waiting.time_limit
        cards = ask.gpus + ask.shards / self._shards_per_gpu or ask.cpus * self._cards_per_cpu
        hours = 1.0 if limit is None or limit >= _EXPECTED else limit.total_seconds() / 3600
        hours *= ask.nodes * cards
        group, person = self._owners[waiting.user, waiting.team]
        group.add(hours)
        person.add(hours)

    def _held_hours(self, held: Holding) -> float:
        seat, ask = held.seat, held.ask
        if ask is None:
            cards = len(seat.gpus) + seat.shards / self._shards_per_gpu or seat.cpus * self._cards_per_cpu
        else:
            cards = ask.gpus + ask.shards / self._shards_per_gpu or ask.cpus * self._cards_per_cpu
        lasts = _EXPECTED
        if held.started_at:
            if held.ends_at and not held.is_stopping:
                lasts = min(held.ends_at - held.started_at, lasts)
            lasts = max(self._now - held.started_at, lasts)
        return (1 + len(held.more)) * cards * lasts.total_seconds() / 3600


class _Team:
    """The entries of one team, of one priority: whose of its people is next."""

    __slots__ = ("heap", "lines", "people", "share")

    def __init__(self, share: Share) -> None:
        self.share = share
        self.people: list[Share] = []
        self.lines: list[list[Waiting]] = []  # of each, the next one last
        self.heap: list[tuple[int, int, int]] = []  # rank and age of the next of each

    def top(self) -> tuple[int, int, int] | None:
        heap = self.heap
        while heap:
            found = heap[0]
            line = self.lines[found[2]]
            if not line:
                heappop(heap)
                continue
            fresh = (self.people[found[2]].rank, line[-1].seq, found[2])
            if fresh == found:
                return found
            heapreplace(heap, fresh)
        return None


class FairTurns:
    """The queue of several people. Use only grows during a plan, so places are put right when they come up."""

    def __init__(self, entries: Iterable[Waiting], uses: Uses, boosted: frozenset[str]) -> None:
        self._uses = uses
        lines: dict[tuple[int, bool, str, str], list[Waiting]] = {}
        for entry in sorted(entries, key=_age, reverse=True):
            key = (-entry.priority, not is_boosted(boosted, entry.user, entry.team), entry.team, entry.user)
            line = lines.get(key)
            if line is None:
                line = lines[key] = []
            line.append(entry)
        self._lines = sorted(lines.items(), key=lambda item: item[0], reverse=True)  # the first ones last
        self._teams: list[_Team] = []
        self._heap: list[tuple[int, int, int, int]] = []
        self._current: list[Waiting] = []

    def __iter__(self) -> Iterator[Waiting]:
        while self._lines:
            self._open_class()
            heap, teams = self._heap, self._teams
            while heap:
                found = heap[0]
                team = teams[found[3]]
                top = team.top()
                if top is None:
                    heappop(heap)
                    continue
                fresh = (team.share.rank, top[0], top[1], found[3])
                if fresh != found:
                    heapreplace(heap, fresh)
                    continue
                self._current = line = team.lines[top[2]]
                person = team.people[top[2]]
                # Who is given nothing often stays first: then nobody's place needs to be put right.
                others = min(
                    [key[:3] for key in heap[1:3]] + [(fresh[0], *key[:2]) for key in team.heap[1:3]], default=_LAST
                )
                yield line.pop()
                while line and (team.share.rank, person.rank, line[-1].seq) < others:
                    yield line.pop()

    def _open_class(self) -> None:
        """The next of the classes of priority and boost, all its people at once."""
        first = self._lines[-1][0][:2]
        teams: dict[Share, _Team] = {}
        while self._lines and self._lines[-1][0][:2] == first:
            (_, _, name, user), line = self._lines.pop()
            share, person = self._uses.of(user, name)
            team = teams.get(share)
            if team is None:
                team = teams[share] = _Team(share)
            team.heap.append((person.rank, line[-1].seq, len(team.lines)))
            team.people.append(person)
            team.lines.append(line)
        self._teams = list(teams.values())
        self._heap = []
        for index, team in enumerate(self._teams):
            heapify(team.heap)
            self._heap.append((team.share.rank, *team.heap[0][:2], index))
        heapify(self._heap)

    def charge(self, waiting: Waiting) -> bool:
        self._uses.charge(waiting)
        return len(self._heap) == 1 and len(self._teams[self._heap[0][3]].heap) == 1

    def put_back(self, rest: Waiting) -> None:
        self._current.append(rest)


def turns_of(entries: tuple[Waiting, ...] | list[Waiting], uses: Uses | None, boosted: frozenset[str]) -> Turns:
    """Without uses all entries are of one person."""
    return Line(entries) if uses is None else FairTurns(entries, uses, boosted)


def is_of_one(entries: Iterable[Waiting]) -> bool:
    """Do all entries belong to the same person in the same team?"""
    first: Waiting | None = None
    for entry in entries:
        if first is None:
            first = entry
        elif entry.user != first.user or entry.team != first.team:
            return False
    return True
