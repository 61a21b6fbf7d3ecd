"""The store protocol for people, teams, quotas and usage. Every write is durable on return."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from danlu.domain.charge import Charge
from danlu.domain.people import AccountRequest, AuditEntry, Boost, Invitation, Membership, Person, Team
from danlu.domain.quota import Quota


@dataclass(frozen=True, slots=True)
class Member:
    """The membership of a user in a team; None: removed."""

    user: str
    team: str
    membership: Membership | None


@dataclass(frozen=True, slots=True)
class NoInvitation:
    user: str
    team: str


@dataclass(frozen=True, slots=True)
class Limit:
    """The quota of `user:NAME` or `team:NAME`; None: removed."""

    holder: str
    quota: Quota | None


@dataclass(frozen=True, slots=True)
class NoBoost:
    id: str


# Each change replaces the entry with the same name or id.
PeopleChange = Person | Team | Member | Invitation | NoInvitation | AccountRequest | Limit | Boost | NoBoost


@dataclass(frozen=True, slots=True)
class People:
    """All people data: a lab has hundreds of entries, not millions. Includes ended boosts and decided requests."""

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
    """The usage of a user in a team and queue. Hours are card hours, whole or in parts."""

    user: str
    team: str
    queue: str
    runs: int
    gpu_hours: float
    asked_gpu_hours: float  # allowed by the time limits; a run without a limit counts as held
    cpu_hours: float
    waited_s: float  # sum over all runs
    longest_wait_s: float


class PeopleStore(Protocol):
    async def people(self) -> People: ...

    async def record(self, changes: Sequence[PeopleChange], audit: Sequence[AuditEntry] = ()) -> None:
        """Write all changes or none. Commits are shared with writes of jobs."""
        ...

    async def audit(
        self, *, limit: int, before: int | None = None, who: str = "", what: str = "", target: str = ""
    ) -> Sequence[AuditEntry]:
        """Newest first; `before`: the `seq` to continue from. `what` may be the first part of a verb: `quota`."""
        ...

    async def use(self, wanted: UseFilter) -> Sequence[Use]: ...

    async def charges(self, since: datetime, *, with_gpus: bool = False) -> Sequence[Charge]:
        """Charges of runs that ended since then, oldest first. `with_gpus`: only runs with cards or shards, which an
        index finds quickly among millions of others."""
        ...
