"""Getting in: somebody asks for an account in a team, its leader approves, an administrator opens it."""

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

MOST_WAITING = 500  # of people who came with nothing but a password
ANSWER_WITHIN = timedelta(days=14)
UNDECIDED = (RequestState.ASKED, RequestState.APPROVED)
_REQUEST = "request "  # with the id, what the audit log tells of a request begins with


@dataclass(frozen=True, slots=True)
class Decided:
    """A request after somebody's word. `folders` is what opening it made."""

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
    """Anybody may ask, not too often. The password is hashed at once, and is the account's if it is opened.

    The answer does not tell strangers which accounts, Unix users and requests there are: `conflicts` tells the people
    who decide."""
    if wait := context.asks.wait(place_of(origin), now):
        raise too_many("too many requests for an account", wait)
    context.asks.count(place_of(origin), now)
    check_said(full_name, email, why)
    find_team(context.roster, team)
    check_word(name)
    kept = await passwords.hashed(passwords.new_value(password))
    async with context.changing:
        made = AccountRequest(new_id(), name, team, now, full_name=full_name, email=email, why=why, password=kept)
        # Nobody has proved to be this person: the log says where it came from.
        asked = AuditEntry(now, "", "request.ask", name, f"{_REQUEST}{made.id}, team {team}", origin)
        gone = [_ended(one, why, now) for one, why in await _giving_way(context, now)]
        changes: list[PeopleChange] = [made, *(change for change, _ in gone)]
        await context.roster.record(changes, [asked, *(noted for _, noted in gone)])
    return made


async def _giving_way(context: PeopleContext, now: datetime) -> list[tuple[AccountRequest, str]]:
    """Requests of strangers that end now, and why: those that nobody answered for long, and the oldest one of the
    address with the most if there are too many. So a flood from elsewhere keeps nobody from asking."""
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
    """By id of a request, for the people who decide about it: why its name cannot be given, or who else wants it."""
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
    """Leaders see their teams', administrators all; the newest first."""
    led = [one.team for one in actor.teams if one.is_leader]
    demand(actor, "request.list", "", "requests for accounts", teams=led)
    found = [one for one in context.roster.requests.values() if actor.is_admin or one.team in led]
    found = [one for one in found if decided or one.state in UNDECIDED]
    return sorted(found, key=lambda one: one.asked_at, reverse=True)


async def approve(context: PeopleContext, actor: Actor, request_id: str, *, now: datetime) -> Decided:
    """A leader's word; where the configuration says that it is enough, it opens the account. It is not for the name
    of a Unix user: who asks may be anybody, and would be that user here."""
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
    """An administrator's word: the account, the membership, the quota and the folders. Said again, it makes the
    folders that are missing."""
    request = _find(context, actor, "request.open", request_id)
    if request.state is RequestState.OPENED:
        # Again: the account is there, and a folder may be missing, if the server died before it was made.
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
    """The newest request for an account of this name that waits for an answer: whoever asks again sees their own, and
    learns nothing of the others."""
    found = [one for one in roster.requests.values() if one.name == name and one.state in UNDECIDED]
    return found[-1] if found else None


def not_open(request: AccountRequest) -> Forbidden:
    """What somebody is told who asked for an account, and comes with the password that they chose."""
    if request.state is RequestState.APPROVED:
        text = f"your account `{request.name}` is approved by {request.decided_by} and not open yet"
        return Forbidden(text, "an administrator opens it; log in again then", code="not_open")
    text = f"your request for the account `{request.name}` waits for a leader of {request.team or 'a team'}"
    return Forbidden(text, "log in again when it is open", code="not_open")


async def _open(context: PeopleContext, actor: Actor, request_id: str, now: datetime, *, verb: str) -> Decided:
    async with context.changing:
        request = _undecided(context, request_id)
        # Somebody who asked by signing on may be in no team yet.
        name, teams = request.name, [find_team(context.roster, request.team).name] if request.team else []
        check_new_name(context.roster, name, by_admin=False)
        person = Person(name, now, full_name=request.full_name, email=request.email, password=request.password)
        opened = replace(request, state=RequestState.OPENED, decided_by=actor.name, decided_at=now, password="")
        changes = account_changes(person, [Membership(team) for team in teams], context.rules.default_quota)
        said = "opened" if request.state is RequestState.APPROVED or verb == "request.approve" else "opened unapproved"
        await context.roster.record([*changes, opened], [_entry(actor, verb, opened, now, said)])
    return Decided(opened, tuple(await make_folders(context, name, teams)))


def _find(context: PeopleContext, actor: Actor, verb: str, request_id: str) -> AccountRequest:
    """The request, if the actor may do this with it. Others do not even learn which there are."""
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
