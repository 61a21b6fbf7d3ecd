"""People, teams, and the single table of rights."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from danlu.errors import Forbidden, Invalid


class Role(StrEnum):
    """The role of a person in the whole installation. The role of a leader belongs to a team."""

    MEMBER = "member"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Membership:
    team: str
    is_leader: bool = False
    is_mapped: bool = False  # comes from a group of the sign-on, and ends with the group


@dataclass(frozen=True, slots=True)
class Person:
    """An account. `password` is a slow hash, or empty; `subject` is the identity of the person at the sign-on."""

    name: str
    created_at: datetime
    role: Role = Role.MEMBER
    is_enabled: bool = True
    full_name: str = ""
    email: str = ""
    password: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Invitation:
    """A leader invites an account into a team. The invitation has no effect until the person joins."""

    user: str
    team: str
    by: str
    invited_at: datetime


@dataclass(frozen=True, slots=True)
class Actor:
    """The person behind a request."""

    name: str
    role: Role = Role.MEMBER
    teams: tuple[Membership, ...] = ()
    origin: str = ""  # where the request comes from, for the audit log
    # (team, user): the actor leads the team, and may read and enter the jobs that this user submitted for it
    trusted_with: frozenset[tuple[str, str]] = frozenset()
    is_alone: bool = False  # a personal installation that no other person can reach
    is_unix_user: bool = False  # the kernel confirms that the actor is the Unix user of this name

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def is_in(self, team: str) -> bool:
        return any(one.team == team for one in self.teams)

    def leads(self, team: str) -> bool:
        return any(one.team == team and one.is_leader for one in self.teams)


class RequestState(StrEnum):
    ASKED = "ASKED"
    APPROVED = "APPROVED"  # by a leader of the team
    OPENED = "OPENED"  # the account exists
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class AccountRequest:
    """A request for an account in a team."""

    id: str
    name: str
    team: str
    asked_at: datetime
    state: RequestState = RequestState.ASKED
    full_name: str = ""
    email: str = ""
    why: str = ""
    password: str = ""  # a slow hash, as in Person
    decided_by: str = ""
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Boost:
    """A leader put a person's jobs for the team first for some days. Without a team: all jobs of the person."""

    id: str
    user: str
    team: str
    by: str
    why: str
    created_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change in the audit log: the person, the action, the time and the origin. The store sets `seq`."""

    at: datetime
    who: str
    what: str  # a verb of RIGHTS
    target: str = ""
    detail: str = ""
    origin: str = ""
    seq: int = 0


def is_boosted(boosted: Collection[str], user: str, team: str) -> bool:
    """`boosted` contains people (`li`) for all their jobs, and members (`li@nlp`) for their jobs for this team."""
    return bool(boosted) and (user in boosted or f"{user}@{team}" in boosted)


# The relation of a person to the target of an action. Administrators may do everything.
OWNER, TEAMMATE, LEADER, TRUSTED_LEADER, STRANGER, ANYBODY = (
    "owner", "team-mate", "leader", "trusted leader", "stranger", "anybody",
)  # fmt: skip
_EVERYONE = frozenset({OWNER, TEAMMATE, LEADER, STRANGER})
_NOBODY: frozenset[str] = frozenset()  # administrators only
_PRIVATE = frozenset({OWNER, TRUSTED_LEADER})
_OF_THE_TEAM = frozenset({OWNER, TEAMMATE, LEADER})
_LEADERS = frozenset({LEADER})

# verb: the kinds of people, besides administrators, with this right. `ANYBODY` needs no account.
RIGHTS: dict[str, frozenset[str]] = {
    "job.submit": frozenset({OWNER}),
    "job.list": _EVERYONE,
    "job.show": _EVERYONE,
    "job.show_command": _PRIVATE,
    "job.why": _EVERYONE,
    "job.logs": _PRIVATE,
    "job.stop": frozenset({OWNER, LEADER}),
    "job.exec": _PRIVATE,
    "job.remove": frozenset({OWNER}),
    "job.clone": frozenset({OWNER}),
    "other.list": _EVERYONE,
    "other.show": _EVERYONE,
    "other.stop": frozenset({OWNER}),
    "node.list": _EVERYONE,
    "queue.list": _EVERYONE,
    "server.status": _EVERYONE,
    "server.stop": _NOBODY,
    "account.login": frozenset({ANYBODY}),
    "account.whoami": frozenset({OWNER}),
    "account.logout": frozenset({OWNER}),
    "account.passwd": frozenset({OWNER}),
    "token.create": frozenset({OWNER}),
    "token.list": frozenset({OWNER}),
    "token.revoke": frozenset({OWNER}),
    "request.ask": frozenset({ANYBODY}),
    "request.list": _LEADERS,
    "request.approve": _LEADERS,
    "request.refuse": _LEADERS,
    "request.open": _NOBODY,
    "user.list": _EVERYONE,
    "user.show": _OF_THE_TEAM,
    "user.create": _NOBODY,
    "user.disable": _NOBODY,
    "user.enable": _NOBODY,
    "user.role": _NOBODY,
    "user.link": _NOBODY,
    "team.list": _EVERYONE,
    "team.show": _EVERYONE,
    "team.create": _NOBODY,
    "team.add": _LEADERS,  # a leader only invites; an administrator adds directly
    "team.join": frozenset({OWNER}),
    "team.leave": frozenset({OWNER}),
    "team.remove": _LEADERS,
    "team.leader": _NOBODY,
    "quota.show": _EVERYONE,
    "quota.set": _LEADERS,  # limits on another member's jobs for the team; all other quotas: administrators
    "usage.show": _OF_THE_TEAM,
    "boost.set": _LEADERS,
    "boost.list": _OF_THE_TEAM,
    "audit.list": _NOBODY,
}


def kinds_of(actor: Actor, owner: str, teams: Collection[str] = ()) -> frozenset[str]:
    """The relations of the actor to an object of this owner and these teams."""
    kinds = set()
    if actor.name == owner:
        kinds.add(OWNER)
    if any(actor.is_in(team) for team in teams):
        kinds.add(TEAMMATE)
    if any(actor.leads(team) for team in teams):
        kinds.add(LEADER)
    if any((team, owner) in actor.trusted_with for team in teams):
        kinds.add(TRUSTED_LEADER)
    return frozenset(kinds or {STRANGER})


def may(actor: Actor, verb: str, owner: str, teams: Collection[str] = ()) -> bool:
    rights = RIGHTS[verb]
    return actor.is_admin or ANYBODY in rights or not rights.isdisjoint(kinds_of(actor, owner, teams))


def demand(actor: Actor, verb: str, owner: str, what: str, *, teams: Collection[str] = (), ask: str = "") -> None:
    """Refuse with a sentence unless the actor has the right. The hint names whom to `ask`; default: from the table."""
    if may(actor, verb, owner, teams):
        return
    # The message must not reveal the team.
    others = "a leader of the team or an administrator" if LEADER in RIGHTS[verb] else "an administrator"
    if not owner:
        raise Forbidden(f"{actor.name} may not do this with {what}", f"ask {ask or others}")
    raise Forbidden(
        f"{what} belongs to {owner}; {actor.name} may not do this",
        f"ask {ask or ('its owner or an administrator' if OWNER in RIGHTS[verb] else others)}",
    )


_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


def check_name(name: str, what: str) -> str:
    """Names of people and teams end up in paths, tables and shells."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"`{name[:40]}` is no name for {what}",
            "small letters, digits, `_`, `.` and `-`, beginning with a letter, at most 32",
        )
    return name
