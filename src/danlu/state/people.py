"""People in memory: every change is written first, then shown to readers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from danlu.domain.people import AccountRequest, AuditEntry, Boost, Invitation, Membership, Person, Team
from danlu.domain.quota import Quota
from danlu.errors import StoreDown
from danlu.store.people_protocol import Limit, Member, NoBoost, NoInvitation, People, PeopleChange, PeopleStore


class Roster:
    """All changes of people, teams, requests, quotas and boosts go through this class.
    Each change calls `on_change` and sets a new `stamp`."""

    def __init__(self, store: PeopleStore, people: People, on_change: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._on_change = on_change
        self._is_unsure = False  # a write was interrupted, and its outcome is not known yet
        self._reading = asyncio.Lock()
        self.stamp = 0
        self._begin(people)

    def _begin(self, people: People) -> None:
        self._persons: dict[str, Person] = {}
        self._teams: dict[str, Team] = {}
        self._by_user: dict[str, dict[str, Membership]] = {}
        self._by_team: dict[str, dict[str, Membership]] = {}
        self._invitations: dict[tuple[str, str], Invitation] = {}
        self._requests: dict[str, AccountRequest] = {}
        self._quotas: dict[str, Quota] = {}
        self._boosts: dict[str, Boost] = {}
        self._show([*people.persons, *people.teams, *people.members, *people.invitations])
        self._show([*people.requests, *people.limits, *people.boosts])

    @property
    def persons(self) -> Mapping[str, Person]:
        return self._persons

    @property
    def teams(self) -> Mapping[str, Team]:
        return self._teams

    @property
    def requests(self) -> Mapping[str, AccountRequest]:
        return self._requests

    @property
    def quotas(self) -> Mapping[str, Quota]:
        """By `user:NAME` and `team:NAME`."""
        return self._quotas

    @property
    def boosts(self) -> Mapping[str, Boost]:
        """Including ended boosts."""
        return self._boosts

    def memberships(self, user: str) -> tuple[Membership, ...]:
        """Sorted by team."""
        held = self._by_user.get(user, {})
        return tuple(held[team] for team in sorted(held))

    def is_in(self, user: str, team: str) -> bool:
        return team in self._by_user.get(user, ())

    def members(self, team: str) -> tuple[Member, ...]:
        """Sorted by name."""
        held = self._by_team.get(team, {})
        return tuple(Member(user, team, held[user]) for user in sorted(held))

    def invitation(self, user: str, team: str) -> Invitation | None:
        return self._invitations.get((user, team))

    def invitations(self, *, user: str = "", team: str = "") -> tuple[Invitation, ...]:
        """Open invitations of a person or of a team, sorted by team and person."""
        found = (one for one in self._invitations.values() if one.user == user or one.team == team)
        open_ones = (one for one in found if not self.is_in(one.user, one.team))
        return tuple(sorted(open_ones, key=lambda one: (one.team, one.user)))

    def boosted(self, now: datetime) -> frozenset[str]:
        """The people whose jobs go first now, in the form that `is_boosted` reads."""
        active = (one for one in self._boosts.values() if one.created_at <= now < one.until)
        return frozenset(f"{one.user}@{one.team}" if one.team else one.user for one in active)

    async def record(self, changes: Sequence[PeopleChange], audit: Sequence[AuditEntry] = ()) -> None:
        """Write all changes or none. After the return, the changes are durable and visible. A cancelled caller does not
        stop the write."""
        await asyncio.shield(asyncio.ensure_future(self._recorded(tuple(changes), audit)))

    async def _recorded(self, changes: Sequence[PeopleChange], audit: Sequence[AuditEntry]) -> None:
        if self._is_unsure:
            await self._look_again()
        try:
            await self._store.record(changes, audit)
        except StoreDown:
            self._is_unsure = True
            raise
        # Answers come in the order of the writes, so the last change shown is the last change written.
        self._show(changes)
        self._tell()

    async def _look_again(self) -> None:
        """Read the people from disk: a commit may have succeeded although its answer was lost."""
        async with self._reading:
            while self._is_unsure:
                stamp = self.stamp
                people = await self._store.people()
                # Otherwise a write happened during this read, and the result may lack the change.
                if stamp == self.stamp:
                    self._is_unsure = False
                    self._begin(people)
                    self._tell()

    def _show(self, changes: Sequence[PeopleChange]) -> None:
        for change in changes:
            self._show_one(change)

    def _tell(self) -> None:
        self.stamp += 1
        self._on_change()

    def _show_one(self, change: PeopleChange) -> None:
        match change:
            case Person(name=name):
                self._persons[name] = change
            case Team(name=name):
                self._teams[name] = change
            case Member(user, team, None):
                self._by_user.get(user, {}).pop(team, None)
                self._by_team.get(team, {}).pop(user, None)
            case Member(user, team, Membership() as membership):
                self._by_user.setdefault(user, {})[team] = membership
                self._by_team.setdefault(team, {})[user] = membership
            case Invitation(user, team):
                self._invitations[user, team] = change
            case NoInvitation(user, team):
                self._invitations.pop((user, team), None)
            case AccountRequest(id=request_id):
                self._requests[request_id] = change
            case Limit(holder, None):
                self._quotas.pop(holder, None)
            case Limit(holder, Quota() as quota):
                self._quotas[holder] = quota
            case Boost(id=boost_id):
                self._boosts[boost_id] = change
            case NoBoost(boost_id):
                self._boosts.pop(boost_id, None)
