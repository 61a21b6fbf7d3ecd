"""Requests for accounts: a person asks for an account in a team, a leader approves, an administrator opens."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from danlu.actions.audit import entry
from danlu.actions.jobs.submit import new_id
from danlu.actions.people import passwords
from danlu.actions.people.context import PeopleContext
from danlu.actions.people.rate_limit import place_of, too_many
from danlu.actions.people.teams import find_team
from danlu.actions.people.users import account_changes, check_new_name, check_said, check_word, make_folders
from danlu.domain.people import AccountRequest, Actor, AuditEntry, Membership, Person, RequestState, demand
from danlu.errors import DanluError, Forbidden, NotFound, Refused
from danlu.provision.homes import Folder
from danlu.state.people import Roster
from danlu.store.people_protocol import PeopleChange
from danlu.unix.users import is_unix_user

MOST_WAITING = 500  # requests made with a password, without a sign-on
ANSWER_WITHIN = timedelta(days=14)
UNDECIDED = (RequestState.ASKED, RequestState.APPROVED)
_REQUEST = "request "  # an audit entry about a request begins with this word and the id


@dataclass(frozen=True, slots=True)
class Decided:
    """A request after a decision. `folders` are the folders made for an opened account."""

    request: AccountRequest
    folders: tuple[Folder, ...] = ()


async def ask(
    context: PeopleContext,
    *,
    name: str,
    team: str,
    password: str,
    full_name: str = "",
    email: str = "",
    why: str = "",
    origin: str,
    now: datetime,
) -> AccountRequest:
    """Ask for an account. Any stranger may ask, at a limited rate. The password is hashed at once, and becomes the
    password of the opened account.

    The answer hides from strangers which accounts, Unix users and requests exist; `conflicts` shows conflicts to the
    deciding people."""
    if wait := context.asks.wait(place_of(origin), now):
        raise too_many("too many requests for an account", wait)
    context.asks.count(place_of(origin), now)
    check_said(full_name, email, why)
    find_team(context.roster, team)
    check_word(name)
    kept = await passwords.hashed(passwords.new_value(password))
    async with context.changing:
        made = AccountRequest(new_id(), name, team, now, full_name=full_name, email=email, why=why, password=kept)
        # The identity is unproven, so the audit entry has an origin and no actor.
        asked = AuditEntry(now, "", "request.ask", name, f"{_REQUEST}{made.id}, team {team}", origin)
        gone = [_ended(one, why, now) for one, why in await _giving_way(context, now)]
        changes: list[PeopleChange] = [made, *(change for change, _ in gone)]
        await context.roster.record(changes, [asked, *(noted for _, noted in gone)])
    return made


async def _giving_way(context: PeopleContext, now: datetime) -> list[tuple[AccountRequest, str]]:
    """Requests of strangers to end now, with the reason: requests without an answer for `ANSWER_WITHIN`, and above
    `MOST_WAITING` the oldest request of the address with the most. A flood from a single address thus cannot block
    requests from other addresses."""
    waiting = [one for one in context.roster.requests.values() if one.state is RequestState.ASKED and one.password]
    overdue = [one for one in waiting if now - one.asked_at >= ANSWER_WITHIN]
    gone = [(one, f"no answer in {ANSWER_WITHIN.days} days") for one in overdue]
    if len(waiting) - len(overdue) >= MOST_WAITING:
        asked = await context.store.audit(limit=4 * MOST_WAITING, what="request.ask")
        origins = {one.detail.removeprefix(_REQUEST).partition(",")[0]: place_of(one.origin) for one in asked}
        by_place: dict[str, list[AccountRequest]] = {}
        for one in waiting:
            if one not in overdue:
                by_place.setdefault(origins.get(one.id, one.id), []).append(one)
        most = max(by_place.values(), key=len)
        gone.append((most[0], f"gave way: {MOST_WAITING} requests wait, {len(most)} of them from one address"))
    return gone


def _ended(request: AccountRequest, why: str, now: datetime) -> tuple[AccountRequest, AuditEntry]:
    detail = f"{_REQUEST}{request.id}, team {request.team}: {why}"
    ended = replace(request, state=RequestState.REFUSED, decided_at=now, password="")
    return ended, AuditEntry(now, "", "request.refuse", request.name, detail)


def conflicts(context: PeopleContext, asked: Sequence[AccountRequest]) -> dict[str, str]:
    """For the deciding people, by request id: why the name is not available, or how many requests compete for the
    name."""
    waiting = Counter(one.name for one in context.roster.requests.values() if one.state in UNDECIDED)
    found = {}
    for one in asked:
        if one.state not in UNDECIDED:
            continue
        try:
            check_new_name(context.roster, one.name, by_admin=False)
        except DanluError as error:
            found[one.id] = error.text
        else:
            if waiting[one.name] > 1:
                found[one.id] = f"{waiting[one.name]} requests for this name: ask the person for the id of theirs"
    return found


def listed(context: PeopleContext, actor: Actor, *, decided: bool = False) -> list[AccountRequest]:
    """The requests of the teams led by the actor, for an administrator all requests; the newest first."""
    led = [one.team for one in actor.teams if one.is_leader]
    demand(actor, "request.list", "", "requests for accounts", teams=led)
    found = [one for one in context.roster.requests.values() if actor.is_admin or one.team in led]
    found = [one for one in found if decided or one.state in UNDECIDED]
    return sorted(found, key=lambda one: one.asked_at, reverse=True)


async def approve(context: PeopleContext, actor: Actor, request_id: str, *, now: datetime) -> Decided:
    """Approve a request. With `leaders_open` the approval also opens the account; for the name of a Unix user a
    leader's approval does not: the requester may be a stranger, and would become this Unix user in Danlu."""
    request = _find(context, actor, "request.approve", request_id)
    if request.state in UNDECIDED:
        check_new_name(context.roster, request.name, by_admin=False)
    if context.rules.leaders_open and (actor.is_admin or not is_unix_user(request.name)):
        return await _open(context, actor, request_id, now, verb="request.approve")
    async with context.changing:
        request = _undecided(context, request_id)
        if request.state is RequestState.ASKED:
            request = replace(request, state=RequestState.APPROVED, decided_by=actor.name, decided_at=now)
            await context.roster.record([request], [_entry(actor, "request.approve", request, now)])
    return Decided(request)


async def open_account(context: PeopleContext, actor: Actor, request_id: str, *, now: datetime) -> Decided:
    """Open an account as an administrator: person, membership, quota and folders. A repeated call makes missing
    folders."""
    request = _find(context, actor, "request.open", request_id)
    if request.state is RequestState.OPENED:
        # A repeated call: the account exists, but a folder is missing if the server died before making the folder.
        return Decided(
            request, tuple(await make_folders(context, request.name, [request.team] if request.team else []))
        )
    return await _open(context, actor, request_id, now, verb="request.open")


async def refuse(context: PeopleContext, actor: Actor, request_id: str, *, why: str, now: datetime) -> Decided:
    _find(context, actor, "request.refuse", request_id)
    check_said("", "", why)
    async with context.changing:
        request = _undecided(context, request_id)
        request = replace(request, state=RequestState.REFUSED, decided_by=actor.name, decided_at=now, password="")
        await context.roster.record([request], [_entry(actor, "request.refuse", request, now, why)])
    return Decided(request)


def undecided_of(roster: Roster, name: str) -> AccountRequest | None:
    """The newest undecided request for an account of this name: a person who repeats a request sees the own request,
    and learns nothing of other people's requests."""
    found = [one for one in roster.requests.values() if one.name == name and one.state in UNDECIDED]
    return found[-1] if found else None


def not_open(request: AccountRequest) -> Forbidden:
    """The answer to a login with the password of an undecided request."""
    if request.state is RequestState.APPROVED:
        text = f"your account `{request.name}` is approved by {request.decided_by} and not open yet"
        return Forbidden(text, "an administrator opens it; log in again then", code="not_open")
    text = f"your request for the account `{request.name}` waits for a leader of {request.team or 'a team'}"
    return Forbidden(text, "log in again when it is open", code="not_open")


async def _open(context: PeopleContext, actor: Actor, request_id: str, now: datetime, *, verb: str) -> Decided:
    async with context.changing:
        request = _undecided(context, request_id)
        # A request made by a sign-on may have no team.
        name, teams = request.name, [find_team(context.roster, request.team).name] if request.team else []
        check_new_name(context.roster, name, by_admin=False)
        person = Person(name, now, full_name=request.full_name, email=request.email, password=request.password)
        opened = replace(request, state=RequestState.OPENED, decided_by=actor.name, decided_at=now, password="")
        changes = account_changes(person, [Membership(team) for team in teams], context.rules.default_quota)
        said = "opened" if request.state is RequestState.APPROVED or verb == "request.approve" else "opened unapproved"
        await context.roster.record([*changes, opened], [_entry(actor, verb, opened, now, said)])
    return Decided(opened, tuple(await make_folders(context, name, teams)))


def _find(context: PeopleContext, actor: Actor, verb: str, request_id: str) -> AccountRequest:
    """The request, if the actor has the right `verb`. Other actors do not even learn which requests exist."""
    request = context.roster.requests.get(request_id)
    teams: Sequence[str] = (request.team,) if request else ()
    demand(actor, verb, "", f"request {request_id[:40]}", teams=teams)
    if request is None:
        raise NotFound(f"no request `{request_id[:40]}`", "`danlu account list` shows them")
    return request


def _undecided(context: PeopleContext, request_id: str) -> AccountRequest:
    request = context.roster.requests[request_id]
    if request.state not in UNDECIDED:
        raise Refused(f"request {request.id} is {request.state.lower()} already, by {request.decided_by}")
    return request


def _entry(actor: Actor, verb: str, request: AccountRequest, now: datetime, said: str = "") -> AuditEntry:
    detail = f"{_REQUEST}{request.id}, team {request.team}" + (f": {said}" if said else "")
    return entry(actor, verb, request.name, detail, now=now)
