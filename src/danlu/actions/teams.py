"""Teams: who is in them, and who leads them."""

from dataclasses import dataclass, replace
from datetime import datetime

from danlu.actions.audit import entry
from danlu.actions.office import Office
from danlu.actions.users import find_person, make_folders
from danlu.domain.account import Actor, Membership, Team, check_name, demand
from danlu.errors import NotFound, Refused
from danlu.provision.homes import Folder
from danlu.store.people import Member
from danlu.store.roster import Roster


@dataclass(frozen=True, slots=True)
class TeamView:
    team: Team
    members: tuple[Member, ...]
    warning: str = ""  # what somebody who changed it should know

    @property
    def leaders(self) -> tuple[str, ...]:
        return tuple(one.user for one in self.members if one.membership and one.membership.is_leader)


def find_team(roster: Roster, name: str) -> Team:
    if (team := roster.teams.get(name)) is None:
        raise NotFound(f"no team `{name[:40]}`", "`danlu team list` shows them")
    return team


def view(roster: Roster, name: str) -> TeamView:
    team = find_team(roster, name)
    seen = TeamView(team, tuple(roster.members(name)))
    return seen if seen.leaders else replace(seen, warning=f"nobody leads {name}: `danlu team leader {name} USER`")


def listed(office: Office, actor: Actor) -> list[TeamView]:
    demand(actor, "team.list", actor.name, "the list of teams")
    return [view(office.roster, name) for name in sorted(office.roster.teams)]


def show(office: Office, actor: Actor, name: str) -> TeamView:
    demand(actor, "team.show", actor.name, f"team {name[:40]}")
    return view(office.roster, name)


async def create(office: Office, actor: Actor, name: str, *, now: datetime) -> tuple[TeamView, list[Folder]]:
    demand(actor, "team.create", "", f"team {name[:40]}")
    async with office.changing:
        if check_name(name, "a team") in office.roster.teams:
            raise Refused(f"there is a team `{name}` already", f"`danlu team show {name}`")
        await office.roster.record([Team(name, now)], [entry(actor, "team.create", name, now=now)])
    return view(office.roster, name), await make_folders(office, "", [name])


async def add(office: Office, actor: Actor, team: str, user: str, *, now: datetime) -> TeamView:
    """Take an account into a team. Who is in it already stays as they are."""
    demand(actor, "team.add", "", f"team {team[:40]}", teams=(team,))
    async with office.changing:
        find_team(office.roster, team)
        find_person(office.roster, user)
        if membership_of(office.roster, user, team) is None:
            change = Member(user, team, Membership(team))
            await office.roster.record([change], [entry(actor, "team.add", team, user, now=now)])
    return view(office.roster, team)


async def remove(office: Office, actor: Actor, team: str, user: str, *, now: datetime) -> TeamView:
    """Let somebody go. A leader is let go by an administrator only, or goes."""
    demand(actor, "team.remove", "", f"team {team[:40]}", teams=(team,))
    async with office.changing:
        find_team(office.roster, team)
        found = membership_of(office.roster, user, team)
        if found is None:
            raise NotFound(f"{user[:40]} is not in team {team}", f"`danlu team show {team}`")
        if found.is_leader and user != actor.name:
            demand(actor, "team.leader", "", f"{user}, who leads {team}")
        await office.roster.record([Member(user, team, None)], [entry(actor, "team.remove", team, user, now=now)])
    return view(office.roster, team)


async def set_leader(office: Office, actor: Actor, team: str, user: str, *, is_leader: bool, now: datetime) -> TeamView:
    """Make somebody lead a team (and be in it), or no longer."""
    demand(actor, "team.leader", "", f"team {team[:40]}")
    async with office.changing:
        find_team(office.roster, team)
        find_person(office.roster, user)
        found = membership_of(office.roster, user, team)
        if found is None and not is_leader:
            raise NotFound(f"{user} is not in team {team}", f"`danlu team show {team}`")
        changed = replace(found or Membership(team), is_leader=is_leader)
        if changed != found:
            detail = f"{user} leads" if is_leader else f"{user} leads no longer"
            change = Member(user, team, changed)
            await office.roster.record([change], [entry(actor, "team.leader", team, detail, now=now)])
    return view(office.roster, team)


def membership_of(roster: Roster, user: str, team: str) -> Membership | None:
    return next((one for one in roster.memberships(user) if one.team == team), None)
