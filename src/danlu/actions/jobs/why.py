"""Why a job waits: the reason, the holders of the resources with their end times, and alternatives that start now."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from danlu.actions.cluster.queue_rules import nodes_in
from danlu.actions.jobs.alternatives import Alternative, Choices, Defaults, find_alternatives
from danlu.actions.jobs.limits import check_limits
from danlu.actions.jobs.references import resolve_one
from danlu.actions.jobs.submit import Rules, accept, changed
from danlu.actions.jobs.views import Holder, by_end, holders_of, holders_of_other, reason_for
from danlu.domain.job import Job, JobSpec, JobState, Reason
from danlu.domain.people import Actor, Membership, demand
from danlu.domain.reasons import FOR_ROOM, GUESSED, NO_ALTERNATIVE, NO_ROOM, WITHOUT_HOLDER, ReasonCode
from danlu.domain.request import JobRequest, outline, request_of
from danlu.domain.resources import Ask, Seat, model_fits
from danlu.errors import DanluError
from danlu.scheduler.estimates import with_guess
from danlu.scheduler.plan import plan, seat_now
from danlu.scheduler.reasons_quota import who_fills
from danlu.scheduler.snapshot import Snapshot, Wait, Waiting
from danlu.state.jobs import JobCache
from danlu.state.occupancy import cards_of
from danlu.state.snapshots import Outlook, entry_of

TeamsOf = Callable[[str], tuple[Membership, ...]]


@dataclass(frozen=True, slots=True)
class Why:
    job: Job
    reason: Reason
    place: int | None = None
    estimated_at: datetime | None = None
    is_guess: bool = False
    holders: tuple[Holder, ...] = ()  # of the needed resources, the next to end first
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class DryRun:
    """Where a job would run now, or why the job would wait, with alternatives."""

    answer: Seat | Wait
    alternatives: tuple[Alternative, ...] = ()


async def why(
    cache: JobCache,
    outlook: Outlook,
    rules: Rules,
    teams_of: TeamsOf,
    trouble: Callable[[], DanluError | None],
    actor: Actor,
    ref: str,
    *,
    now: datetime,
) -> Why:
    """Why a job waits, or how the job ended. A new plan makes the answer current. While the engine is away
    (`trouble`), the reason of every active job is this trouble."""
    job = await resolve_one(cache, actor, ref)
    demand(actor, "job.why", job.user, f"job {job.id}", teams=(job.spec.team,))
    answer = await _why(cache, outlook, rules, teams_of, actor, job, now=now)
    away = trouble()
    if away is None or answer.job.state.is_ended:
        return answer
    known = "no more is known" if answer.job.state is JobState.RUNNING else "nothing starts"
    reason = Reason(away.code, f"{away.text}; until it answers, {known}")
    return replace(answer, reason=reason, estimated_at=None, is_guess=False, alternatives=())


async def _why(
    cache: JobCache, outlook: Outlook, rules: Rules, teams_of: TeamsOf, actor: Actor, job: Job, *, now: datetime
) -> Why:
    if job.state not in (JobState.QUEUED, JobState.PENDING):
        return Why(job, reason_for(actor, job, job.reason))
    owner = Actor(job.user, teams=teams_of(job.user))
    choices = choices_of(rules, owner, job.spec)
    snapshot = outlook.snapshot(cache.active_jobs, now)
    wait, found, filling = await asyncio.to_thread(_think, snapshot, job, choices)
    if job.state is JobState.PENDING:
        wait = _as_the_engine_says(job, wait, outlook.estimates.get(job.id))
    elif wait is None:
        return Why(job, Reason(ReasonCode.STARTING, "starts right now"), None, now)
    ways = _Ways(job, wait.reason, rules, filling)
    held = [one for one in cache.active_jobs.holding() if ways.holds(one.id, one.seats, one.spec.ask)]
    others = [one for one in rules.inventory.others if ways.holds(one.id, one.seats, one.ask)]
    all_held = [*(holders_of(one, now) for one in held), *map(holders_of_other, others)]
    holders = sorted(chain.from_iterable(all_held), key=by_end)
    place = wait.place if job.state is JobState.QUEUED else None
    reason = reason_for(actor, job, wait.reason)
    return Why(job, reason, place, wait.estimated_at, wait.is_guess, tuple(holders), found)


def _as_the_engine_says(job: Job, wait: Wait | None, estimated_at: datetime | None) -> Wait:
    """The wait of a job in the engine's own queue. The engine's reason and start time, if given, come before ours."""
    if wait is None:
        return Wait(job.reason, 0, estimated_at)
    reason = job.reason
    if wait.reason.code == ReasonCode.RECLAIMING:
        return wait  # the engine knows nothing of reclaiming
    if reason.is_new and wait.reason.code in NO_ROOM:
        reason = wait.reason  # the engine will find the same reason
    elif reason.code in (ReasonCode.NO_ROOM, ReasonCode.BEHIND) and wait.reason.code in NO_ROOM:
        reason = Reason(reason.code, f"{reason.text}: {wait.reason.text}")
    if estimated_at is not None:
        return Wait(reason, wait.place, estimated_at)
    # Danlu can guess when there is room, but not when a person releases a held job, nor the engine's other conditions.
    guessed = wait.estimated_at if reason.is_new or reason.code in GUESSED else None
    return Wait(reason, wait.place, guessed, is_guess=True)


async def dry_run(
    cache: JobCache, outlook: Outlook, rules: Rules, actor: Actor, wanted: JobRequest, *, now: datetime
) -> DryRun:
    """Where a job would run, or why the job would wait, if submitted now. Nothing is stored."""
    demand(actor, "job.submit", actor.name, "a new job")
    spec, array = accept(rules, actor, wanted)
    check_limits(cache, rules.limits, actor, len(array.indices) if array else 1)
    entry = entry_of(spec, "this job", actor.name, 2**62)
    snapshot, choices = outlook.snapshot(cache.active_jobs, now), choices_of(rules, actor, spec)

    def think() -> DryRun:
        answer = seat_now(snapshot, entry)
        if isinstance(answer, Seat):
            return DryRun(answer)
        guessed = with_guess(answer, replace(snapshot, waiting=(*snapshot.waiting, entry)), entry.key)
        return DryRun(guessed, find_alternatives(snapshot, entry, choices))

    return await asyncio.to_thread(think)


def choices_of(rules: Rules, owner: Actor, spec: JobSpec) -> Choices:
    """The other queues and teams with which the owner's submit would be accepted."""
    wanted = outline(request_of(spec))

    def accepted(**changes: str) -> JobSpec | None:
        try:
            return accept(rules, owner, changed(rules, spec, wanted, changes))[0]
        except DanluError:
            return None

    queues = {
        name: Defaults(found.priority, found.time_limit)
        for name in rules.queues
        if name != spec.queue and (found := accepted(queue=name))
    }
    teams = [one.team for one in owner.teams if one.team != spec.team and accepted(team=one.team)]
    return Choices(queues, teams)


def _think(
    snapshot: Snapshot, job: Job, choices: Choices
) -> tuple[Wait | None, tuple[Alternative, ...], Collection[str]]:
    """Why the job waits, the alternatives, and the runs in the job's full quota."""
    key = job.group if job.state is JobState.QUEUED else job.id
    wait = plan(snapshot).waits.get(key)
    entry = next((one for one in (*snapshot.waiting, *snapshot.pending) if one.key == key), None)
    if wait is not None and job.state is JobState.QUEUED:
        wait = with_guess(wait, snapshot, key, tuple(one.on for one in job.waiting_for))
    if wait is None or entry is None or wait.reason.code in NO_ALTERNATIVE or job.waiting_for:
        return wait, (), ()
    filling = who_fills(snapshot, entry) if wait.reason.code == ReasonCode.QUOTA else ()
    return wait, find_alternatives(_less(snapshot, entry), entry, choices), filling


def _less(snapshot: Snapshot, entry: Waiting) -> Snapshot:
    """The snapshot without one job of this entry."""
    rest = (replace(entry, count=entry.count - 1, may_start=min(entry.may_start, entry.count - 1)),)
    others = [one for one in snapshot.waiting if one.key != entry.key]
    pending = tuple(one for one in snapshot.pending if one.key != entry.key)
    return replace(snapshot, waiting=(*others, *(rest if entry.count > 1 else ())), pending=pending)


class _Ways:
    """Finds the runs in the way of a waiting job: runs in the job's quota, or runs with resources of the wanted kind in
    the job's queue."""

    def __init__(self, waiting: Job, reason: Reason, rules: Rules, filling: Collection[str]) -> None:
        self._ask, self._reason, self._filling = waiting.spec.ask, reason, filling
        self._is_pending = waiting.state is JobState.PENDING
        queue = rules.queues.get(waiting.spec.queue)
        self._nodes = {node.name: node for node in (nodes_in(queue, rules.nodes) if queue else rules.nodes)}

    def holds(self, key: str, seats: Sequence[Seat], ask: Ask) -> bool:
        """Whether this run is in the way."""
        if self._reason.code in WITHOUT_HOLDER or (self._is_pending and self._reason.code not in FOR_ROOM):
            return False
        if self._reason.code == ReasonCode.QUOTA:
            return key in self._filling
        return any(self._is_such(seat, ask) for seat in seats)

    def _is_such(self, seat: Seat, held: Ask) -> bool:
        node = self._nodes.get(seat.node)
        if node is None:
            return False
        if not (self._ask.gpus or self._ask.shards):
            return True
        cards = cards_of(seat)
        # The engine may not have named the run's cards yet: any card is possible then.
        is_any = not cards and bool(held.gpus or held.shards)
        return any((is_any or gpu.index in cards) and model_fits(gpu.model, self._ask.gpu_model) for gpu in node.gpus)
