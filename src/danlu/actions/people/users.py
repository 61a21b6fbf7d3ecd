"""Accounts as administrators and team-mates see them: list, show, create, disable, enable, role."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from danlu.actions.audit import entry
from danlu.actions.people import passwords
from danlu.actions.people.context import PeopleContext
from danlu.domain.job import JobState
from danlu.domain.people import Actor, Membership, Person, Role, check_name, demand
from danlu.domain.quota import Quota, user_key
from danlu.errors import Forbidden, Invalid, NotFound, Refused
from danlu.provision.homes import Folder, make_home, make_team_folder
from danlu.state.jobs import JobCache
from danlu.state.people import Roster
from danlu.store.people_protocol import Limit, Member, PeopleChange
from danlu.unix.users import find_unix_user, lowest_uid, machine_admins

# Where a name is expected, these words have another meaning.
_RESERVED = frozenset({"all", "everybody", "me", "none"})


def find_person(roster: Roster, name: str) -> Person:
    if (person := roster.persons.get(name)) is None:
        raise NotFound(f"no account `{name[:40]}`", "`danlu user list` shows them")
    return person


def refuse_disabled(person: Person) -> None:
    if not person.is_enabled:
        raise Forbidden(f"the account of {person.name} is disabled", "ask an administrator", code="disabled")


def actor_for(context: PeopleContext, person: Person, *, origin: str, most: Role = Role.ADMIN) -> Actor:
    """The actor for a person, with at most the role `most`."""
    role = person.role if most is Role.ADMIN else Role.MEMBER
    teams = context.roster.memberships(person.name)
    return Actor(person.name, role, teams, origin, trusted_with(context, teams))


def trusted_with(context: PeopleContext, memberships: Sequence[Membership]) -> frozenset[tuple[str, str]]:
    """The pairs of team and member whose jobs a leader may read and enter: the present members of the led teams.
    Administrators are left out: their jobs can hold secrets that would turn the leader into an administrator."""
    if not context.rules.leads_see_all:
        return frozenset()
    led = [one.team for one in memberships if one.is_leader]
    members = [(team, member.user) for team in led for member in context.roster.members(team)]
    return frozenset(pair for pair in members if not is_admin(context.roster, pair[1]))


def is_admin(roster: Roster, name: str) -> bool:
    """True by role, and for root and the server's own user: on the Unix socket the kernel vouches for both."""
    person = roster.persons.get(name)
    return (person is not None and person.role is Role.ADMIN) or name in machine_admins()


def unix_actor(context: PeopleContext, name: str, *, is_owner: bool, origin: str) -> Actor:
    """The actor for a Unix user named by the kernel. Root and the server's own user are administrators, even against
    the roster."""
    person = context.roster.persons.get(name)
    if is_owner:
        teams = context.roster.memberships(name)
        return Actor(name, Role.ADMIN, teams, origin, is_alone=not context.is_shared)
    if person is not None:
        refuse_disabled(person)
        return replace(actor_for(context, person, origin=origin), is_unix_user=True)
    if context.rules.needs_account:
        raise Forbidden(
            f"{name} has no account here", "ask for one: `danlu account ask --team TEAM`", code="no_account"
        )
    return Actor(name, origin=origin, is_unix_user=True)


def is_last_admin(roster: Roster, name: str) -> bool:
    admins = [one.name for one in roster.persons.values() if one.role is Role.ADMIN and one.is_enabled]
    return admins == [name]


def check_new_name(roster: Roster, name: str, *, by_admin: bool, as_submitter: bool = False) -> str:
    """Refuse a name that is in use or stands for power on this machine. Where jobs run `as_submitter`, even an
    administrator cannot give away such a name: an administrator of Danlu is not root."""
    check_word(name)
    if name in roster.persons:
        raise Refused(f"there is an account `{name}` already", "take another name")
    found = find_unix_user(name)
    uid = found.pw_uid if found else -1
    if uid == 0 and by_admin:
        raise Refused(
            f"`{name}` is the machine's own administrator: it is one here too, without an account, and in no team",
            "for work in a team, take another name: `danlu user create NAME --team TEAM`",
        )
    # Jobs may run as the Unix user of this name.
    if uid == 0 or (0 < uid < lowest_uid() and (as_submitter or not by_admin)) or (not by_admin and uid == os.getuid()):
        raise Refused(f"the name `{name}` is taken by the machine", "take another name")
    return name


def check_word(name: str) -> None:
    """Refuse a word that can never name an account. `uid1000` is such a word: Unix users without a name are called by
    their number (`api.desk`)."""
    check_name(name, "an account")
    if name in _RESERVED or re.fullmatch(r"uid\d+", name):
        raise Refused(f"the name `{name}` is taken by the machine", "take another name")


def account_changes(person: Person, memberships: Sequence[Membership], quota: Quota | None) -> list[PeopleChange]:
    """The changes of a new account: the person, the teams, the quota."""
    changes: list[PeopleChange] = [person]
    changes += [Member(person.name, one.team, one) for one in memberships]
    if quota is not None:
        changes.append(Limit(user_key(person.name), quota))
    return changes


async def make_folders(context: PeopleContext, user: str, teams: Sequence[str]) -> list[Folder]:
    """Make the configured folders of a person and of teams. A repeated call does no harm."""
    rules = context.rules
    made = []
    if rules.home and user:
        made.append(await asyncio.to_thread(make_home, rules.home, user, as_submitter=rules.as_submitter))
    if rules.team_folder:
        for team in teams:
            made.append(
                await asyncio.to_thread(make_team_folder, rules.team_folder, team, as_submitter=rules.as_submitter)
            )
    return made


async def create(
    context: PeopleContext,
    actor: Actor,
    *,
    name: str,
    role: str = Role.MEMBER,
    full_name: str = "",
    email: str = "",
    teams: Sequence[str] = (),
    password: str = "",
    now: datetime,
) -> tuple[Person, list[Folder]]:
    """Create an account as an administrator. Without a password the person signs on, or uses the Unix socket."""
    demand(actor, "user.create", "", f"account {name[:40]}")
    if role not in set(Role):
        raise Invalid(f"no role `{role}`", f"one of: {', '.join(Role)}")
    check_said(full_name, email)
    kept = await passwords.hashed(passwords.new_value(password)) if password else ""
    async with context.changing:
        check_new_name(context.roster, name, by_admin=True, as_submitter=context.rules.as_submitter)
        for team in teams:
            if team not in context.roster.teams:
                raise NotFound(f"no team `{team[:40]}`", "`danlu team list` shows them")
        person = Person(name, now, Role(role), full_name=full_name, email=email, password=kept)
        changes = account_changes(person, [Membership(team) for team in teams], context.rules.default_quota)
        detail = f"role {role}" + (f", in {', '.join(teams)}" if teams else "")
        await context.roster.record(changes, [entry(actor, "user.create", name, detail, now=now)])
    return person, await make_folders(context, name, teams)


def check_said(full_name: str, email: str, why: str = "") -> None:
    for what, text, most in (("name", full_name, 100), ("email", email, 200), ("why", why, 1000)):
        if len(text) > most or not all(c.isprintable() for c in text):
            raise Invalid(f"`{what}` is one line of at most {most} characters")


@dataclass(frozen=True, slots=True)
class StillThere:
    """The active jobs of a person."""

    running: tuple[str, ...]
    queued: tuple[str, ...]


def still_there(cache: JobCache, name: str) -> StillThere:
    mine = sorted((job for job in cache.active_jobs.jobs.values() if job.user == name), key=lambda job: job.seq)
    return StillThere(
        tuple(job.id for job in mine if job.state is not JobState.QUEUED),
        tuple(job.id for job in mine if job.state is JobState.QUEUED),
    )


async def disable(context: PeopleContext, actor: Actor, name: str, *, now: datetime) -> Person:
    """Block new work and every login. Data and jobs stay: running jobs go on, queued jobs wait."""
    demand(actor, "user.disable", "", f"account {name[:40]}")
    async with context.changing:
        person = find_person(context.roster, name)
        if person.is_enabled:
            if is_last_admin(context.roster, name):
                raise Refused(f"{name} is the last administrator", "make another one first: `danlu user role`")
            person = replace(person, is_enabled=False)
            await context.roster.record([person], [entry(actor, "user.disable", name, now=now)])
    return person


async def enable(context: PeopleContext, actor: Actor, name: str, *, now: datetime) -> Person:
    demand(actor, "user.enable", "", f"account {name[:40]}")
    async with context.changing:
        person = find_person(context.roster, name)
        if not person.is_enabled:
            person = replace(person, is_enabled=True)
            await context.roster.record([person], [entry(actor, "user.enable", name, now=now)])
    return person


async def set_role(context: PeopleContext, actor: Actor, name: str, role: str, *, now: datetime) -> Person:
    demand(actor, "user.role", "", f"account {name[:40]}")
    if role not in set(Role):
        raise Invalid(
            f"no role `{role}`", f"one of: {', '.join(Role)}; leading is said for a team: `danlu team leader`"
        )
    async with context.changing:
        person = find_person(context.roster, name)
        if person.role != role:
            if is_last_admin(context.roster, name):
                raise Refused(f"{name} is the last administrator", "make another one first")
            person = replace(person, role=Role(role))
            await context.roster.record([person], [entry(actor, "user.role", name, role, now=now)])
    return person


def listed(context: PeopleContext, actor: Actor) -> list[Person]:
    demand(actor, "user.list", actor.name, "the list of accounts")
    return sorted(context.roster.persons.values(), key=lambda person: person.name)


def show(context: PeopleContext, actor: Actor, name: str) -> Person:
    """A person, shown to themselves, their team-mates and administrators."""
    teams = [one.team for one in context.roster.memberships(name)]
    demand(actor, "user.show", name, f"the account of {name[:40]}", teams=teams)
    return find_person(context.roster, name)
