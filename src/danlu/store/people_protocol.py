"""The seam of what is remembered about people, teams, quotas and use. Every write is durable when it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from danlu.domain.charge import Charge
from danlu.domain.people import AccountRequest, AuditEntry, Boost, Invitation, Membership, Person, Team
from danlu.domain.quota import Quota


@dataclass(frozen=True, slots=True)
class Member:
    """That somebody is in a team; `membership` None: no longer."""

    user: str
    team: str
    membership: Membership | None


@dataclass(frozen=True, slots=True)
class NoInvitation:
    user: str
    team: str


@dataclass(frozen=True, slots=True)
class Limit:
    """The quota of `user:NAME` or `team:NAME`; None: none any more."""

    holder: str
    quota: Quota | None


@dataclass(frozen=True, slots=True)
class NoBoost:
    id: str


# Each takes the place of what has the same name or id.
PeopleChange = Person | Team | Member | Invitation | NoInvitation | AccountRequest | Limit | Boost | NoBoost


@dataclass(frozen=True, slots=True)
class People:
    """Everything there is: a lab has hundreds of these, not millions. Ended boosts and decided requests included."""

    persons: tuple[Person, ...] = ()
    teams: tuple[Team, ...] = ()
    members: tuple[Member, ...] = ()
    invitations: tuple[Invitation, ...] = ()
    requests: tuple[AccountRequest, ...] = ()
    limits: tuple[Limit, ...] = ()
    boosts: tuple[Boost, ...] = ()


@dataclass(frozen=True, slots=True)
class UseFilter:
    """Charges of runs that ended in [since, until). Empty fields do not restrict."""

    since: datetime | None = None
    until: datetime | None = None
    user: str = ""
    team: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """What one person used in one team and queue. Hours are of cards, whole or in parts."""

    user: str
    team: str
    queue: str
    runs: int
    gpu_hours: float
    asked_gpu_hours: float  # what their time limits would have allowed; runs without a limit count as held
    cpu_hours: float
    waited_s: float  # of all runs together
    longest_wait_s: float


class PeopleStore(Protocol):
    async def people(self) -> People: ...

    async def record(self, changes: Sequence[PeopleChange], audit: Sequence[AuditEntry] = ()) -> None:
        """Remember all of it or none. Commits are shared with writes of jobs."""
        ...

    async def audit(
        self, *, limit: int, before: int | None = None, who: str = "", what: str = "", target: str = ""
    ) -> Sequence[AuditEntry]:
        """The newest first; `before` is the `seq` to go on from. `what` may be the first part of a verb: `quota`."""
        ...

    async def use(self, wanted: UseFilter) -> Sequence[Use]: ...

    async def charges(self, since: datetime, *, with_gpus: bool = False) -> Sequence[Charge]:
        """Of runs that ended since then, oldest first. `with_gpus`: only those that held a card or a part of one,
        which is quick among millions that did not."""
        ...
