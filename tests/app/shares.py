"""People and teams for the tests of quotas, usage and boosts: two teams, and somebody for each kind."""

from datetime import UTC, datetime, timedelta

import httpx

from danlu.actions.people import tokens
from danlu.domain.people import Actor, Membership, Person, Role, Team
from danlu.store.people_protocol import Member
from tests.app.rig import Rig

ADMIN = Actor("chief", Role.ADMIN)
# name: (role, teams, those of them that they lead)
EVERYBODY = {
    "chief": (Role.ADMIN, (), ()),
    "li": (Role.MEMBER, ("nlp",), ()),
    "wang": (Role.MEMBER, ("nlp", "cv"), ()),
    "prof": (Role.MEMBER, ("nlp",), ("nlp",)),
    "dean": (Role.MEMBER, ("cv",), ("cv",)),
    "both": (Role.MEMBER, ("nlp", "cv"), ("nlp", "cv")),
    "stranger": (Role.MEMBER, (), ()),
}


async def move_in(rig: Rig) -> None:
    now = datetime.now(UTC)
    persons = [Person(name, now, role) for name, (role, _, _) in EVERYBODY.items()]
    members = [
        Member(name, team, Membership(team, team in led))
        for name, (_, teams, led) in EVERYBODY.items()
        for team in teams
    ]
    await rig.desk.roster.record([*persons, Team("nlp", now), Team("cv", now), *members])


async def come(rig: Rig, name: str) -> httpx.AsyncClient:
    """Somebody over the network, with a token."""
    now = datetime.now(UTC)
    role = EVERYBODY[name][0]
    made = await tokens.create(rig.desk.context, ADMIN, user=name, name="test", role=role, days=1, now=now)
    return rig.client(token=made[1])


def day(days: float) -> str:
    """So many days from now, as one writes it."""
    return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
