"""Teams: their members and leaders."""

from dataclasses import dataclass, replace
from datetime import datetime

from danlu.actions.audit import entry
from danlu.actions.people.context import PeopleContext
from danlu.actions.people.users import find_person, make_folders
from danlu.domain.people import Actor, Invitation, Membership, Team, check_name, demand
from danlu.errors import NotFound, Refused
from danlu.provision.homes import Folder
from danlu.state.people import Roster
from danlu.store.people_protocol import Member, NoInvitation, PeopleChange


@dataclass(frozen=True, slots=True)
class TeamView:
    team: Team
    members: tuple[Member, ...]
    invited: tuple[Invitation, ...] = ()
    warning: str = ""  # for the person who changed the team

    @property
    def leaders(self) -> tuple[str, ...]:
        return tuple(one.user for one in self.members if one.membership and one.membership.is_leader)


def find_team(roster: Roster, name: str) -> Team:
    if (team := roster.teams.get(name)) is None:
        raise NotFound(f"no team `{name[:40]}`", "`danlu team list` shows them")
    return team


def view(roster: Roster, name: str) -> TeamView:
    team = find_team(roster, name)
    seen = TeamView(team, tuple(roster.members(name)), roster.invitations(team=name))
    return seen if seen.leaders else replace(seen, warning=f"nobody leads {name}: `danlu team leader {name} USER`")


def listed(context: PeopleContext, actor: Actor) -> list[TeamView]:
    demand(actor, "team.list", actor.name, "the list of teams")
    return [view(context.roster, name) for name in sorted(context.roster.teams)]


def show(context: PeopleContext, actor: Actor, name: str) -> TeamView:
    demand(actor, "team.show", actor.name, f"team {name[:40]}")
    return view(context.roster, name)


async def create(context: PeopleContext, actor: Actor, name: str, *, now: datetime) -> tuple[TeamView, list[Folder]]:
    demand(actor, "team.create", "", f"team {name[:40]}")
    async with context.changing:
        if check_name(name, "a team") in context.roster.teams:
            raise Refused(f"there is a team `{name}` already", f"`danlu team show {name}`")
        await context.roster.record([Team(name, now)], [entry(actor, "team.create", name, now=now)])
    return view(context.roster, name), await make_folders(context, "", [name])


async def add(context: PeopleContext, actor: Actor, team: str, user: str, *, now: datetime) -> TeamView:
    """Add an account to a team as an administrator, or invite the account as a leader. A leader can only invite:
    membership gives leaders power over the member's jobs, so the person must agree. Members stay as they are."""
    demand(actor, "team.add", "", f"team {team[:40]}", teams=(team,))
    async with context.changing:
        find_team(context.roster, team)
        find_person(context.roster, user)
        is_invited = context.roster.invitation(user, team) is not None
        if membership_of(context.roster, user, team) is not None:
            pass
        elif actor.is_admin:
            changes: list[PeopleChange] = [Member(user, team, Membership(team))]
            changes += [NoInvitation(user, team)] if is_invited else []
            await context.roster.record(changes, [entry(actor, "team.add", team, user, now=now)])
        elif not is_invited:
            noted = entry(actor, "team.add", team, f"{user}, invited", now=now)
            await context.roster.record([Invitation(user, team, actor.name, now)], [noted])
    return view(context.roster, team)


async def join(context: PeopleContext, actor: Actor, team: str, *, now: datetime) -> TeamView:
    """Accept an invitation. Members stay as they are."""
    demand(actor, "team.join", actor.name, f"team {team[:40]}")
    async with context.changing:
        find_team(context.roster, team)
        if membership_of(context.roster, actor.name, team) is None:
            invitation = context.roster.invitation(actor.name, team)
            # The invitation of a former leader is void.
            if invitation is None or not _may_invite(context.roster, invitation):
                raise NotFound(
                    f"{actor.name} is not invited into team {team}",
                    f"ask a leader of it: `danlu team add {team} {actor.name}`",
                )
            changes: list[PeopleChange] = [Member(actor.name, team, Membership(team)), NoInvitation(actor.name, team)]
            noted = entry(actor, "team.join", team, f"{actor.name}, invited by {invitation.by}", now=now)
            await context.roster.record(changes, [noted])
    return view(context.roster, team)


async def leave(context: PeopleContext, actor: Actor, team: str, *, now: datetime) -> TeamView:
    """Leave a team, or decline an invitation. Jobs submitted for the team stay jobs of the team."""
    demand(actor, "team.leave", actor.name, f"team {team[:40]}")
    async with context.changing:
        find_team(context.roster, team)
        found = membership_of(context.roster, actor.name, team)
        if found is not None and found.is_mapped:
            raise Refused(
                f"{actor.name} is in {team} through a group of the sign-on, which would bring it back",
                "leave that group at the identity provider, or ask an administrator",
            )
        changes = _without(context.roster, actor.name, team)
        if not changes:
            raise NotFound(f"{actor.name} is not in team {team}", f"`danlu team show {team}`")
        noted = entry(actor, "team.leave", team, actor.name if found else f"{actor.name}, invitation declined", now=now)
        await context.roster.record(changes, [noted])
    return view(context.roster, team)


async def remove(context: PeopleContext, actor: Actor, team: str, user: str, *, now: datetime) -> TeamView:
    """Remove a member, or withdraw an invitation. Only an administrator, or the leader in person, removes a leader."""
    demand(actor, "team.remove", "", f"team {team[:40]}", teams=(team,))
    async with context.changing:
        find_team(context.roster, team)
        found = membership_of(context.roster, user, team)
        changes = _without(context.roster, user, team)
        if not changes:
            raise NotFound(f"{user[:40]} is not in team {team}", f"`danlu team show {team}`")
        if found is not None and found.is_leader and user != actor.name:
            demand(actor, "team.leader", "", f"{user}, who leads {team}")
        detail = user if found else f"{user}, invitation withdrawn"
        await context.roster.record(changes, [entry(actor, "team.remove", team, detail, now=now)])
    return view(context.roster, team)


async def set_leader(
    context: PeopleContext, actor: Actor, team: str, user: str, *, is_leader: bool, now: datetime
) -> TeamView:
    """Make a person a leader (and member) of a team, or end the leadership."""
    demand(actor, "team.leader", "", f"team {team[:40]}")
    async with context.changing:
        find_team(context.roster, team)
        find_person(context.roster, user)
        found = membership_of(context.roster, user, team)
        if found is None and not is_leader:
            raise NotFound(f"{user} is not in team {team}", f"`danlu team show {team}`")
        changed = replace(found or Membership(team), is_leader=is_leader)
        if changed != found:
            detail = f"{user} leads" if is_leader else f"{user} leads no longer"
            changes: list[PeopleChange] = [Member(user, team, changed)]
            changes += [NoInvitation(user, team)] if context.roster.invitation(user, team) else []
            await context.roster.record(changes, [entry(actor, "team.leader", team, detail, now=now)])
    return view(context.roster, team)


def _without(roster: Roster, user: str, team: str) -> list[PeopleChange]:
    """The changes to end a membership and an invitation; empty if there is neither."""
    changes: list[PeopleChange] = []
    if membership_of(roster, user, team) is not None:
        changes.append(Member(user, team, None))
    if roster.invitation(user, team) is not None:
        changes.append(NoInvitation(user, team))
    return changes


def _may_invite(roster: Roster, invitation: Invitation) -> bool:
    held = membership_of(roster, invitation.by, invitation.team)
    person = roster.persons.get(invitation.by)
    return held is not None and held.is_leader and (person is None or person.is_enabled)


def membership_of(roster: Roster, user: str, team: str) -> Membership | None:
    return next((one for one in roster.memberships(user) if one.team == team), None)
