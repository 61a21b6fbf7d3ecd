"""The order of the queue: priority, then boost, then fair share, then age."""

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

# A run counts for at least an hour, or for its time limit if shorter. Short jobs therefore go first, a long limit costs
# nothing until the time is used, and omitting the limit gains nothing.
_EXPECTED = timedelta(hours=1)
# Differences below a GPU-minute are ignored: usage that has decayed to almost zero must not rank behind zero.
_RANKS_PER_HOUR = 60
_LAST = (1 << 62, 0, 0)


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """High priority first, then by age."""
    # Two stable sorts on bare integers cost half of one sort on pairs.
    ordered = sorted(waiting, key=_age)
    ordered.sort(key=_priority, reverse=True)
    return ordered


class QueueOrder(Protocol):
    """The queue, one entry at a time. The next entry depends on the resources given to the entries before."""

    def __iter__(self) -> Iterator[Waiting]: ...

    def charge(self, waiting: Waiting) -> bool:
        """Count a run of the entry that starts or gets a reservation; True if no other owner can be next."""

    def put_back(self, rest: Waiting) -> None:
        """Return the rest of an array to the queue, for the next turn of its owner."""


class AgeOrder:
    """The queue of a single owner."""

    def __init__(self, entries: Iterable[Waiting]) -> None:
        self._entries = in_order(entries)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    def charge(self, waiting: Waiting) -> bool:
        return True

    def put_back(self, rest: Waiting) -> None:
        raise AssertionError("it is nobody else's turn")


class Share:
    """GPU-hours used relative to the weight. Comparisons use whole ranks only."""

    __slots__ = ("_part", "_use", "rank")

    def __init__(self, use: float, weight: int) -> None:
        self._part = _RANKS_PER_HOUR / weight
        self._use = 0.0
        self.rank = 0
        self.add(use)

    def add(self, hours: float) -> None:
        self._use += hours
        self.rank = int(self._use * self._part)


class Usage:
    """Usage of users and teams: past (decayed), current runs, and starts of this plan.

    A user without a team counts as a team. A run without cards counts by its part of the cluster's CPUs, as the same
    part of the cluster's cards.
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
        """The shares of the team and of the user."""
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
    """The entries of one team with one priority, and whose turn is next within the team."""

    __slots__ = ("backlogs", "heap", "people", "share")

    def __init__(self, share: Share) -> None:
        self.share = share
        self.people: list[Share] = []
        self.backlogs: list[list[Waiting]] = []  # per user; the next entry is last
        self.heap: list[tuple[int, int, int]] = []  # rank and age of each user's next entry

    def top(self) -> tuple[int, int, int] | None:
        heap = self.heap
        while heap:
            found = heap[0]
            backlog = self.backlogs[found[2]]
            if not backlog:
                heappop(heap)
                continue
            fresh = (self.people[found[2]].rank, backlog[-1].seq, found[2])
            if fresh == found:
                return found
            heapreplace(heap, fresh)
        return None


class FairShareOrder:
    """The queue of several owners. Usage only grows during a plan, so heap keys are corrected lazily."""

    def __init__(self, entries: Iterable[Waiting], usage: Usage, boosted: frozenset[str]) -> None:
        self._usage = usage
        backlogs: dict[tuple[int, bool, str, str], list[Waiting]] = {}
        for entry in sorted(entries, key=_age, reverse=True):
            key = (-entry.priority, not is_boosted(boosted, entry.user, entry.team), entry.team, entry.user)
            backlog = backlogs.get(key)
            if backlog is None:
                backlog = backlogs[key] = []
            backlog.append(entry)
        # in reverse order: the first is popped from the end
        self._backlogs = sorted(backlogs.items(), key=lambda item: item[0], reverse=True)
        self._teams: list[_Team] = []
        self._heap: list[tuple[int, int, int, int]] = []
        self._current: list[Waiting] = []

    def __iter__(self) -> Iterator[Waiting]:
        while self._backlogs:
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
                self._current = backlog = team.backlogs[top[2]]
                person = team.people[top[2]]
                # An owner who is given nothing often stays first: then no heap key needs a correction.
                others = min(
                    [key[:3] for key in heap[1:3]] + [(fresh[0], *key[:2]) for key in team.heap[1:3]], default=_LAST
                )
                yield backlog.pop()
                while backlog and (team.share.rank, person.rank, backlog[-1].seq) < others:
                    yield backlog.pop()

    def _open_class(self) -> None:
        """Load all users of the next class of priority and boost."""
        first = self._backlogs[-1][0][:2]
        teams: dict[Share, _Team] = {}
        while self._backlogs and self._backlogs[-1][0][:2] == first:
            (_, _, name, user), backlog = self._backlogs.pop()
            share, person = self._usage.of(user, name)
            team = teams.get(share)
            if team is None:
                team = teams[share] = _Team(share)
            team.heap.append((person.rank, backlog[-1].seq, len(team.backlogs)))
            team.people.append(person)
            team.backlogs.append(backlog)
        self._teams = list(teams.values())
        self._heap = []
        for index, team in enumerate(self._teams):
            heapify(team.heap)
            self._heap.append((team.share.rank, *team.heap[0][:2], index))
        heapify(self._heap)

    def charge(self, waiting: Waiting) -> bool:
        self._usage.charge(waiting)
        return len(self._heap) == 1 and len(self._teams[self._heap[0][3]].heap) == 1

    def put_back(self, rest: Waiting) -> None:
        self._current.append(rest)


def queue_order(
    entries: tuple[Waiting, ...] | list[Waiting], usage: Usage | None, boosted: frozenset[str]
) -> QueueOrder:
    """Without `usage`, all entries belong to one owner."""
    return AgeOrder(entries) if usage is None else FairShareOrder(entries, usage, boosted)


def is_single_owner(entries: Iterable[Waiting]) -> bool:
    """Whether all entries belong to the same user in the same team."""
    first: Waiting | None = None
    for entry in entries:
        if first is None:
            first = entry
        elif entry.user != first.user or entry.team != first.team:
            return False
    return True
