"""Who somebody is, and the one table of who may do what."""

from dataclasses import dataclass
from enum import StrEnum

from danlu.errors import Forbidden


class Role(StrEnum):
    MEMBER = "member"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Actor:
    """The person behind a request."""

    name: str
    role: Role = Role.MEMBER


OWNER, STRANGER = "owner", "stranger"

# verb: which kinds of people, besides admins, may do it.
RIGHTS: dict[str, frozenset[str]] = {
    "job.submit": frozenset({OWNER}),
    "job.list": frozenset({OWNER, STRANGER}),
    "job.show": frozenset({OWNER, STRANGER}),
    "job.show_command": frozenset({OWNER}),
    "job.why": frozenset({OWNER, STRANGER}),
    "job.logs": frozenset({OWNER}),
    "job.stop": frozenset({OWNER}),
    "job.exec": frozenset({OWNER}),
    "job.remove": frozenset({OWNER}),
    "job.clone": frozenset({OWNER}),
    "node.list": frozenset({OWNER, STRANGER}),
    "server.status": frozenset({OWNER, STRANGER}),
    "server.stop": frozenset(),
    "token.create": frozenset(),
    "token.list": frozenset(),
    "token.revoke": frozenset(),
}


def may(actor: Actor, verb: str, owner: str) -> bool:
    if actor.role is Role.ADMIN:
        return True
    return (OWNER if actor.name == owner else STRANGER) in RIGHTS[verb]


def demand(actor: Actor, verb: str, owner: str, what: str) -> None:
    """Refuse with a sentence unless the actor may."""
    if not may(actor, verb, owner):
        raise Forbidden(
            f"{what} belongs to {owner}; {actor.name} may not do this",
            "ask its owner or an administrator",
        )
