"""Sign-on: turn the identity provider's claims into a person of this installation.

The provider's subject identifies a person, never the name: people choose names, and a name can pass to another person
later."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from danlu.actions.audit import entry
from danlu.actions.people.context import PeopleContext
from danlu.actions.people.requests import UNDECIDED
from danlu.actions.people.users import account_changes, check_new_name, find_person, make_folders, refuse_disabled
from danlu.domain.people import (
    AccountRequest,
    Actor,
    AuditEntry,
    Membership,
    Person,
    RequestState,
    Team,
    check_name,
    demand,
)
from danlu.domain.quota import Quota
from danlu.errors import DanluError, Invalid, Refused
from danlu.state.people import Roster
from danlu.store.people_protocol import Member, PeopleChange
from danlu.unix.users import is_unix_user

MOST_TEXT = 100
MOST_SUBJECT = 600


@dataclass(frozen=True, slots=True)
class SignonRules:
    """How people and groups of the provider become people and teams of this installation."""

    issuer: str
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    opens_accounts: bool = False
    teams: Mapping[str, str] = field(default_factory=dict)  # group: team
    domains: tuple[str, ...] = ()  # `li@lab.example` may become `li` for these domains only

    @property
    def wanted(self) -> tuple[str, ...]:
        """The claims needed for a decision."""
        verified = ("email_verified",) if self.name_claim == "email" else ()
        return (self.name_claim, *verified, *((self.groups_claim,) if self.teams else ()))


@dataclass(frozen=True, slots=True)
class Identity:
    """A person as the provider knows them. `teams` is None if the provider did not send the groups.
    `claimed_name` is the name claim as the provider sent it; only a new account needs the claim."""

    subject: str
    claimed_name: object = None
    full_name: str = ""
    email: str = ""
    teams: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a sign-on: a person or an error, and in both cases the changes to record."""

    outcome: Person | DanluError
    changes: tuple[PeopleChange, ...] = ()
    audit: tuple[AuditEntry, ...] = ()


async def arrive(
    context: PeopleContext, claims: Mapping[str, Any], rules: SignonRules, *, origin: str, now: datetime
) -> Person:
    """The person behind these claims, brought up to date. Raises an error with the reason if the sign-on is refused."""
    identity = identity_of(claims, rules)
    async with context.changing:
        decision = decide(context.roster, identity, rules, context.rules.default_quota, origin=origin, now=now)
        is_new = isinstance(decision.outcome, Person) and decision.outcome.name not in context.roster.persons
        if decision.changes:
            await context.roster.record(decision.changes, decision.audit)
    if isinstance(decision.outcome, DanluError):
        raise decision.outcome
    if is_new:
        await make_folders(context, decision.outcome.name, sorted(identity.teams or ()))
    return decision.outcome


async def link(context: PeopleContext, actor: Actor, name: str, subject: str, *, now: datetime) -> Person:
    """Link an account to a subject of the provider, as an administrator."""
    demand(actor, "user.link", "", f"account {name[:40]}")
    if len(subject) > MOST_SUBJECT or not subject.isprintable() or not all(subject.partition("|")):
        raise Invalid(f"`{subject[:80]}` is nobody's subject", "it is ISSUER|SUB, as a refused sign-on shows it")
    async with context.changing:
        person = find_person(context.roster, name)
        other = _known(context.roster, subject)
        if other is not None and other.name != name:
            raise Refused(f"they have the account {other.name} already", "link that one to another subject first")
        if person.subject != subject:
            person = replace(person, subject=subject)
            await context.roster.record([person], [entry(actor, "user.link", name, subject, now=now)])
    return person


def identity_of(claims: Mapping[str, Any], rules: SignonRules) -> Identity:
    return Identity(
        subject=f"{rules.issuer}|{claims['sub']}",
        claimed_name=_claimed_name(claims, rules),
        full_name=_text(claims.get("name")),
        email=_text(claims.get("email")),
        teams=_teams(claims, rules),
    )


def _claimed_name(claims: Mapping[str, Any], rules: SignonRules) -> object:
    """The name claim. An e-mail address counts only if verified by the provider: people can type in any address."""
    if rules.name_claim == "email" and claims.get("email_verified") not in (True, "true"):
        return None
    return claims.get(rules.name_claim)


def _new_name(wanted: object, rules: SignonRules) -> str:
    """The name of a new account. `dave@evil.example` is not `dave`: the part before the `@` names a person only within
    a domain, so the configuration must trust the domain."""
    hint = "an administrator can choose another claim: oidc.name_claim"
    if not isinstance(wanted, str) or not wanted:
        what = "verified `email`" if rules.name_claim == "email" else f"`{rules.name_claim}`"
        raise Refused(f"the identity provider does not say who you are: no {what}", hint)
    local, at, domain = wanted.lower().rpartition("@")
    if at and domain not in rules.domains:
        raise Refused(
            f"the identity provider calls you {wanted[:80]!a}, and the domain {domain[:60]!a} is not known here",
            f"known domains: {', '.join(rules.domains) or 'none'}; an administrator adds one to oidc.domains, "
            "or chooses a claim without a domain: oidc.name_claim",
        )
    try:
        return check_name(local if at else domain, "a person")
    except Invalid as error:
        raise Refused(error.text, hint) from error


def _teams(claims: Mapping[str, Any], rules: SignonRules) -> frozenset[str] | None:
    found = claims.get(rules.groups_claim)
    if found is None and rules.groups_claim in (claims.get("_claim_names") or {}):
        return None  # Entra ID leaves out a long list of groups: conclude nothing
    groups = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return frozenset(rules.teams[group] for group in groups if isinstance(group, str) and group in rules.teams)


def _text(given: object) -> str:
    return given[:MOST_TEXT] if isinstance(given, str) and given.isprintable() else ""


class _Draft:
    """Collects the decided changes, each with an audit entry."""

    def __init__(self, who: str, origin: str, now: datetime) -> None:
        self.actor, self.now = Actor(who, origin=origin), now
        self.changes: list[PeopleChange] = []
        self.audit: list[AuditEntry] = []

    def add(self, what: str, target: str, detail: str, *changes: PeopleChange) -> None:
        self.changes += changes
        self.audit.append(entry(self.actor, what, target, detail, now=self.now))

    def end(self, outcome: Person | DanluError) -> Decision:
        return Decision(outcome, tuple(self.changes), tuple(self.audit))


def decide(
    roster: Roster, identity: Identity, rules: SignonRules, quota: Quota | None, *, origin: str, now: datetime
) -> Decision:
    """Decide a sign-on without writing anything. The name claim is read only for an unknown person."""
    asked = roster.requests.get(request_id(identity.subject))
    person = _known(roster, identity.subject) or _opened(roster, asked)
    draft = _Draft(person.name if person else "", origin, now)
    try:
        if person is not None:
            refuse_disabled(person)
            person = _described(person, identity, draft)
        else:
            name = _new_name(identity.claimed_name, rules)
            if asked is not None and asked.state in UNDECIDED:
                name = asked.name
            draft.actor = Actor(name, origin=origin)
            if name in roster.persons:
                raise _taken(name, identity)
            check_new_name(roster, name, by_admin=False)
            # With the name of a Unix user, the provider's user would become this Unix user: an administrator decides.
            if not rules.opens_accounts or is_unix_user(name):
                return draft.end(_request(roster, asked, name, identity, draft))
            person = Person(name, now, full_name=identity.full_name, email=identity.email, subject=identity.subject)
            changes = account_changes(person, (), quota)
            draft.add("user.create", person.name, f"at sign-on as {identity.subject}", *changes)
    except DanluError as error:
        return draft.end(error)
    if identity.teams is not None:
        _regroup(roster, person.name, identity.teams, rules, draft, given=asked.team if asked else "")
    return draft.end(person)


def _known(roster: Roster, subject: str) -> Person | None:
    return next((one for one in roster.persons.values() if one.subject == subject), None)


def _opened(roster: Roster, asked: AccountRequest | None) -> Person | None:
    """The account opened for this person's own sign-on request, unless the account has a subject already."""
    if asked is None or asked.state is not RequestState.OPENED:
        return None
    person = roster.persons.get(asked.name)
    return person if person is not None and not person.subject else None


def _described(person: Person, identity: Identity, draft: _Draft) -> Person:
    """The person with the provider's present description; the name of the account stays."""
    described = replace(
        person,
        subject=identity.subject,
        full_name=identity.full_name or person.full_name,
        email=identity.email or person.email,
    )
    if not person.subject:
        draft.add("user.link", person.name, identity.subject, described)
    elif described != person:
        draft.add("account.login", person.name, "full name and e-mail as the provider says", described)
    return described


def _regroup(
    roster: Roster, name: str, wanted: frozenset[str], rules: SignonRules, draft: _Draft, *, given: str
) -> None:
    """Adjust the memberships of mapped teams to the groups; a membership added by hand stays.
    `given` is the team of the account request, which came from a group."""
    held = {one.team: one for one in roster.memberships(name)}
    by_group = {team for team, one in held.items() if one.is_mapped}
    if given in held and given not in by_group and given in wanted and not held[given].is_leader:
        del held[given]
    for team in sorted(wanted - set(held)):
        if team not in roster.teams:
            draft.add("team.create", team, "named in [oidc.teams]", Team(team, draft.now))
        member = Member(name, team, Membership(team, is_mapped=True))
        draft.add("team.add", team, f"{name}, by a group of the sign-on", member)
    for team in sorted((by_group & set(rules.teams.values())) - wanted):
        draft.add("team.remove", team, f"{name}, no longer in its group", Member(name, team, None))


def _taken(name: str, identity: Identity) -> Refused:
    return Refused(
        f"there is an account `{name}` already, and nothing says that it is yours",
        f"an administrator can say so: danlu user link {name} '{identity.subject}'",
    )


def request_id(subject: str) -> str:
    """The same id for the same person, so a repeated request changes nothing; only a sign-on makes such an id."""
    return "s" + hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:15]


def _request(roster: Roster, asked: AccountRequest | None, name: str, identity: Identity, draft: _Draft) -> Refused:
    """Record the account request of an unknown person, once."""
    if asked is not None and asked.state is RequestState.REFUSED:
        return Refused("your request for an account was refused", "ask an administrator why")
    if asked is None:
        team = min(identity.teams or (), default="")
        if team and team not in roster.teams:
            draft.add("team.create", team, "named in [oidc.teams]", Team(team, draft.now))
        request = AccountRequest(
            id=request_id(identity.subject),
            name=name,
            team=team,
            asked_at=draft.now,
            full_name=identity.full_name,
            email=identity.email,
            why=f"signed on as {identity.subject}, there called {_text(identity.claimed_name) or name}",
        )
        draft.add("request.ask", request.name, f"request {request.id}, team {team}, {request.why}", request)
    who = "an administrator decides, because this machine has a Unix user of this name; " if is_unix_user(name) else ""
    return Refused(f"your request for the account `{name}` waits for approval", f"{who}sign on again when it is opened")
