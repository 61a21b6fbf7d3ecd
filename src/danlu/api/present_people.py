"""The JSON of the REST API about people: request bodies, answers, and their shapes for OpenAPI."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from danlu.actions.people.teams import TeamView
from danlu.api.answers import Answer
from danlu.api.bodies import time_out
from danlu.api.fields import Text, Texts
from danlu.domain.people import AccountRequest, AuditEntry, Invitation, Membership, Person, Role
from danlu.provision.homes import Folder
from danlu.state.people import Roster
from danlu.store.protocol import Token


class Given(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LoginIn(Given):
    user: Text
    password: Text
    is_hashed: bool = False


class FirstIn(Given):
    code: Text
    user: Text
    password: Text


class PasswordIn(Given):
    new: Text
    old: Text = ""
    is_hashed: bool = False


class TokenIn(Given):
    name: Text
    user: Text = ""
    role: Text = Role.MEMBER
    days: int | None = None


class UserIn(Given):
    name: Text
    role: Text = Role.MEMBER
    full_name: Text = ""
    email: Text = ""
    teams: Texts = ()
    password: Text = ""


class RoleIn(Given):
    role: Text


class TeamIn(Given):
    name: Text


class RequestIn(Given):
    user: Text
    team: Text
    password: Text
    full_name: Text = ""
    email: Text = ""
    why: Text = ""


class RefuseIn(Given):
    why: Text = ""


class TokenOut(Answer):
    id: str
    user: str
    role: str
    name: str
    created_at: str
    expires_at: str | None


class NewToken(TokenOut):
    token: str


class TokenList(Answer):
    items: list[TokenOut]


class MembershipOut(Answer):
    team: str
    is_leader: bool


class MyTeam(MembershipOut):
    leaders: list[str]


class InvitationOut(Answer):
    user: str
    team: str
    by: str
    invited_at: str


class Me(Answer):
    user: str
    role: str
    full_name: str
    email: str
    has_account: bool
    teams: list[MyTeam]
    invitations: list[InvitationOut]
    by: str
    token: TokenOut | None
    server: str


class Ended(Answer):
    ended: int


class UserOut(Answer):
    name: str
    full_name: str
    role: str
    is_enabled: bool
    teams: list[MembershipOut]


class UserList(Answer):
    items: list[UserOut]


class FolderOut(Answer):
    path: str
    made: bool
    said: str


class ShownUser(UserOut):
    email: str
    created_at: str
    has_password: bool
    signs_on: bool
    running: list[str]
    queued: list[str]


class NewUser(UserOut):
    folders: list[FolderOut]


class MemberOut(Answer):
    user: str
    full_name: str
    is_leader: bool
    is_enabled: bool


class TeamOut(Answer):
    name: str
    created_at: str
    leaders: list[str]
    members: list[MemberOut]
    invited: list[InvitationOut]
    warning: str


class TeamList(Answer):
    items: list[TeamOut]


class NewTeam(TeamOut):
    folders: list[FolderOut]


class RequestOut(Answer):
    id: str
    user: str
    team: str
    state: str
    full_name: str
    email: str
    why: str
    asked_at: str
    decided_by: str
    decided_at: str | None
    conflict: str


class RequestList(Answer):
    items: list[RequestOut]


class DecidedOut(RequestOut):
    folders: list[FolderOut]


class AuditOut(Answer):
    seq: int
    at: str
    who: str
    what: str
    target: str
    detail: str
    origin: str


class AuditPage(Answer):
    items: list[AuditOut]
    next: int | None


def token_out(token: Token, roster: Roster) -> dict[str, Any]:
    """`role` is the role in effect: the token's role, but never more than the person's role."""
    person = roster.persons.get(token.user)
    role = min(token.role, person.role, key=list(Role).index) if person else token.role
    return {
        "id": token.id,
        "user": token.user,
        "role": role,
        "name": token.name,
        "created_at": time_out(token.created_at),
        "expires_at": time_out(token.expires_at),
    }


def memberships_out(memberships: Sequence[Membership]) -> list[dict[str, Any]]:
    return [{"team": one.team, "is_leader": one.is_leader} for one in memberships]


def my_teams_out(memberships: Sequence[Membership], roster: Roster) -> list[dict[str, Any]]:
    """The teams of a person, with the leaders of each team."""
    found = memberships_out(memberships)
    for one in found:
        led = roster.members(one["team"])
        one["leaders"] = [each.user for each in led if each.membership and each.membership.is_leader]
    return found


def invitations_out(invitations: Sequence[Invitation]) -> list[dict[str, Any]]:
    return [
        {"user": one.user, "team": one.team, "by": one.by, "invited_at": time_out(one.invited_at)}
        for one in invitations
    ]


def user_out(person: Person, roster: Roster) -> dict[str, Any]:
    return {
        "name": person.name,
        "full_name": person.full_name,
        "role": person.role,
        "is_enabled": person.is_enabled,
        "teams": memberships_out(roster.memberships(person.name)),
    }


def folders_out(folders: Sequence[Folder]) -> list[dict[str, Any]]:
    return [{"path": one.path, "made": one.is_made, "said": one.said} for one in folders]


def team_out(view: TeamView, roster: Roster) -> dict[str, Any]:
    members = []
    for one in view.members:
        person = roster.persons.get(one.user)
        members.append(
            {
                "user": one.user,
                "full_name": person.full_name if person else "",
                "is_leader": one.user in view.leaders,
                "is_enabled": person.is_enabled if person else True,
            }
        )
    return {
        "name": view.team.name,
        "created_at": time_out(view.team.created_at),
        "leaders": list(view.leaders),
        "members": members,
        "invited": invitations_out(view.invited),
        "warning": view.warning,
    }


def request_out(request: AccountRequest, conflict: str = "") -> dict[str, Any]:
    return {
        "id": request.id,
        "user": request.name,
        "team": request.team,
        "state": request.state,
        "full_name": request.full_name,
        "email": request.email,
        "why": request.why,
        "asked_at": time_out(request.asked_at),
        "decided_by": request.decided_by,
        "decided_at": time_out(request.decided_at),
        "conflict": conflict,
    }


def audit_out(entry: AuditEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": time_out(entry.at),
        "who": entry.who,
        "what": entry.what,
        "target": entry.target,
        "detail": entry.detail,
        "origin": entry.origin,
    }
