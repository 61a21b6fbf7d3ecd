"""Quotas: how much a person or team may hold, and holds now."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from danlu.actions.audit import entry
from danlu.actions.jobs.views import Holder, by_end, holders_of, holders_of_other
from danlu.actions.people.context import PeopleContext
from danlu.domain.job import Job
from danlu.domain.people import Actor, demand
from danlu.domain.quota import (
    Quota,
    keys_of,
    member_key,
    parse_holder,
    parse_quota,
    render_quota,
    split_member,
    team_key,
    user_key,
)
from danlu.engines.base import ExternalRun
from danlu.errors import Invalid, NotFound
from danlu.scheduler.admission import hours_since
from danlu.scheduler.quota_accounts import NOTHING, add_up, amounts_of_ask, amounts_of_run
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting
from danlu.state.people import Roster
from danlu.store.people_protocol import Limit


@dataclass(frozen=True, slots=True)
class Amounts:
    """An amount of each limited resource; `gpus` includes shards, as parts of a card."""

    gpus: float
    shards: int
    cpus: int
    memory_mib: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A holder: the quota, the held and waiting amounts, and the GPU hours spent in the present period."""

    holder: str
    quota: Quota | None
    held: Amounts
    waiting: Amounts
    spent_gpu_hours: float | None  # None without a quota, because the quota defines the period
    since: datetime | None  # when the period began
    holders: tuple[Holder, ...]  # the runs behind `held`, the next to end first


async def set_quota(
    context: PeopleContext, actor: Actor, holder: str, words: Sequence[str], *, now: datetime
) -> Quota | None:
    """Change the named parts of a holder's quota; the rest stays. Returns None if no limit is left."""
    holder = _checked(context.roster, actor, holder)
    if not words:
        raise Invalid("what should the quota be?", "for example `gpus=8 borrow=yes`; `danlu quota clear` lifts it")
    async with context.changing:
        before = context.roster.quotas.get(holder)
        after = parse_quota(words, before or Quota())
        await _record(context, actor, holder, before, None if after == Quota() else after, now)
    return context.roster.quotas.get(holder)


async def clear_quota(context: PeopleContext, actor: Actor, holder: str, *, now: datetime) -> bool:
    """Remove the quota. Returns whether there was a quota."""
    holder = _checked(context.roster, actor, holder)
    async with context.changing:
        before = context.roster.quotas.get(holder)
        await _record(context, actor, holder, before, None, now)
    return before is not None


async def _record(
    context: PeopleContext, actor: Actor, holder: str, before: Quota | None, after: Quota | None, now: datetime
) -> None:
    if before == after:
        return
    was = render_quota(before) if before else ""
    detail = f"{render_quota(after) if after else 'none'} (was {was or 'none'})"
    await context.roster.record([Limit(holder, after)], [entry(actor, "quota.set", holder, detail, now=now)])


def _checked(roster: Roster, actor: Actor, holder: str) -> str:
    """The holder's key, if the person or team exists and the actor may set the quota."""
    kind, name = parse_holder(holder)
    if kind == "team":
        # A quota must prevent a leader from giving the own team more.
        demand(actor, "quota.set", "", f"the quota of team {name}", ask="an administrator")
    elif kind == "user":
        # A user's quota limits the jobs for every team and for no team: too much for a leader's right.
        ask = "an administrator; a leader sets what their jobs for the team hold: `member:USER@TEAM`"
        demand(actor, "quota.set", "", f"the quota of {name}", ask=ask)
    else:
        user, team = split_member(name)
        # For the same reason a leader cannot set the own quota.
        teams = (team,) if user != actor.name else ()
        demand(actor, "quota.set", "", f"the quota of {user} in team {team}", teams=teams)
    return find_holder(roster, holder)


def find_holder(roster: Roster, text: str) -> str:
    """`team:nlp`, `user:li`, `member:li@nlp`, or the bare name of an existing team or person."""
    if ":" in text:
        kind, name = parse_holder(text)
        if kind == "member":
            user, team = split_member(name)
            if not roster.is_in(user, team) and text not in roster.quotas:
                raise NotFound(f"{user} is not in a team `{team}`", "`danlu team list` shows who there is")
            return member_key(user, team)
        known = roster.teams if kind == "team" else roster.persons
        if name not in known:
            what = "team" if kind == "team" else "person"
            raise NotFound(f"there is no {what} `{name}`", _near(name, list(known), f"danlu {kind} list"))
        return f"{kind}:{name}"
    if text in roster.teams:
        return team_key(text)
    if text in roster.persons:
        return user_key(text)
    raise NotFound(
        f"there is no team and no person `{text[:40]}`",
        _near(text, [*roster.teams, *roster.persons], "danlu team list"),
    )


def _near(name: str, names: Sequence[str], command: str) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"`{command}` shows who there is"


def standings(
    roster: Roster,
    snapshot: Snapshot,
    running: Iterable[Job],
    others: Iterable[ExternalRun],
    actor: Actor,
    wanted: str = "",
    *,
    every: bool = False,
) -> list[Standing]:
    """The standing of the named holder; without a name, of the actor and the actor's teams, or with `every` of each
    holder with a quota."""
    demand(actor, "quota.show", actor.name, "the quotas")
    if wanted:
        keys = [find_holder(roster, wanted)]
    elif every:
        keys = sorted(roster.quotas)
    else:
        own = (key for one in actor.teams for key in keys_of(actor.name, one.team)[1:])
        limited = [key for key in own if not key.startswith("member:") or key in roster.quotas]
        keys = [user_key(actor.name), *limited]
    books = {key: _Book() for key in keys}
    for held in snapshot.holding:
        for book in _of(books, held):
            book.hold(held, snapshot.shards_per_gpu)
    for pending in snapshot.pending:
        for book in _of(books, pending):
            add_up(book.held, amounts_of_ask(pending.ask, snapshot.shards_per_gpu))
    for waiting in snapshot.waiting:
        for book in _of(books, waiting):
            book.wait(waiting, snapshot.shards_per_gpu)
    for job in running:
        for key in keys_of(job.user, job.spec.team):
            if key in books:
                books[key].holders += holders_of(job, snapshot.now)
    for other in others:
        if (key := user_key(other.user)) in books:
            books[key].holders += holders_of_other(other)
    return [_standing(key, roster.quotas.get(key), book, snapshot) for key, book in books.items()]


class _Book:
    """The sums of a single holder, counted as in the scheduler. A single pass over the active jobs fills all
    books."""

    def __init__(self) -> None:
        self.held, self.waiting = list(NOTHING), list(NOTHING)
        self.holders: list[Holder] = []
        self.holding: list[Holding] = []

    def hold(self, one: Holding, shards_per_gpu: int) -> None:
        self.holding.append(one)
        add_up(self.held, amounts_of_run(one, shards_per_gpu))

    def wait(self, one: Waiting, shards_per_gpu: int) -> None:
        add_up(self.waiting, [one.count * amount for amount in amounts_of_ask(one.ask, shards_per_gpu)])


def _of(books: Mapping[str, _Book], one: Holding | Waiting) -> Iterator[_Book]:
    for key in keys_of(one.user, one.team):
        if key in books:
            yield books[key]


def _standing(key: str, quota: Quota | None, book: _Book, snapshot: Snapshot) -> Standing:
    holders = tuple(sorted(book.holders, key=by_end))
    held, waiting = _named(book.held, snapshot.shards_per_gpu), _named(book.waiting, snapshot.shards_per_gpu)
    if quota is None:
        return Standing(key, None, held, waiting, None, None, holders)
    since = quota.period.start(snapshot.now)
    spent = snapshot.spent.get(key, 0.0) + sum(hours_since(one, since, snapshot) for one in book.holding)
    return Standing(key, quota, held, waiting, spent, since, holders)


def _named(amounts: Sequence[int], shards_per_gpu: int) -> Amounts:
    cards, shards, cpus, memory_mib, jobs = amounts
    return Amounts(cards / shards_per_gpu, shards, cpus, memory_mib, jobs)
