"""Boosts: a leader puts a person's jobs first for some days, visible to the whole team."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from danlu.actions.audit import entry
from danlu.actions.jobs.submit import new_id
from danlu.actions.people.context import PeopleContext
from danlu.domain.parsing import parse_moment
from danlu.domain.people import Actor, Boost, demand, may
from danlu.errors import Invalid, NotFound
from danlu.state.people import Roster
from danlu.store.people_protocol import NoBoost, PeopleChange

MAX_DAYS = 30
MAX_WHY = 300


async def boost(
    context: PeopleContext, actor: Actor, user: str, *, until: str, why: str, team: str = "", now: datetime
) -> Boost:
    """Put a person's jobs for a team before all other jobs of the same priority. Replaces an active boost of this
    person for the same team."""
    roster = context.roster
    teams = [one.team for one in roster.memberships(user)]
    if team and team not in teams:
        raise Invalid(f"{user[:40]} is not in the team `{team[:40]}`", "leave `--team` out, or see `danlu team show`")
    demand(actor, "boost.set", "", f"the order of {user[:40]}'s jobs", teams=[team] if team else teams)
    if user not in roster.persons:
        raise NotFound(f"there is no person `{user[:40]}`", "`danlu user list` shows who there is")
    ends_at = _end_of(until, now)
    why = " ".join(why.split())
    if not why:
        raise Invalid("a boost needs a why: the team will read it", 'for example `--why "NeurIPS deadline"`')
    if len(why) > MAX_WHY or not why.isprintable():
        raise Invalid(f"--why takes at most {MAX_WHY} printable characters")
    async with context.changing:
        # A leader's boost is for the led team. An administrator's boost without a team is for all jobs.
        chosen = team or next((one for one in teams if actor.leads(one)), teams[0] if len(teams) == 1 else "")
        made = Boost(new_id(), user, chosen, actor.name, why, now, ends_at)
        replaced = [one for one in active(roster, now) if (one.user, one.team) == (user, chosen)]
        changes: list[PeopleChange] = [*(NoBoost(one.id) for one in replaced), made]
        detail = f"{made.id} until {ends_at:%Y-%m-%d %H:%M} UTC: {why}"
        await roster.record(changes, [entry(actor, "boost.set", user, detail, now=now)])
    return made


def _end_of(until: str, now: datetime) -> datetime:
    if not until:
        raise Invalid("until when?", "for example `--until 2026-07-01` or `--until 3d`")
    ends_at = parse_moment(until, "--until", now=now, ahead=True)
    if ends_at <= now:
        raise Invalid(f"--until must be in the future, and `{until[:40]}` is not")
    if ends_at > now + timedelta(days=MAX_DAYS):
        raise Invalid(f"a boost lasts at most {MAX_DAYS} days", f"for example `--until {MAX_DAYS}d`; it can be renewed")
    return ends_at


async def end_boost(context: PeopleContext, actor: Actor, boost_id: str, *, now: datetime) -> Boost:
    """End a boost early."""
    roster = context.roster
    found = next((one for one in active(roster, now) if one.id == boost_id), None)
    if found is None:
        demand(actor, "boost.set", "", "this boost", teams=[one.team for one in actor.teams])
        raise NotFound(f"no boost `{boost_id[:40]}`", "`danlu boost` lists them")
    demand(actor, "boost.set", "", f"the boost of {found.user}", teams={found.team} - {""})
    async with context.changing:
        await roster.record([NoBoost(found.id)], [entry(actor, "boost.set", found.user, f"{found.id} ended", now=now)])
    return found


def listed(roster: Roster, actor: Actor, *, now: datetime) -> list[Boost]:
    """The boosts visible to the actor, the next to end first."""
    return [one for one in active(roster, now) if may(actor, "boost.list", one.user, _teams_of(roster, one))]


def active(roster: Roster, now: datetime) -> list[Boost]:
    return sorted((one for one in roster.boosts.values() if one.until > now), key=lambda one: (one.until, one.id))


def _teams_of(roster: Roster, one: Boost) -> Sequence[str]:
    return [one.team, *(membership.team for membership in roster.memberships(one.user))]
