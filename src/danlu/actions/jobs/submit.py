"""What people do with jobs."""

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from danlu.actions.audit import of_jobs
from danlu.actions.cluster.queue_rules import (
    check_queue,
    check_written,
    choose_queue,
    choose_team,
    default_time,
    written_queue,
)
from danlu.actions.jobs.limits import Limits, check_limits
from danlu.actions.jobs.references import resolve, resolve_id
from danlu.actions.jobs.run_as import RunAs
from danlu.domain.job import DEFAULT_PRIORITY, Dependency, Job, JobId, JobSpec, JobState, Reason, RunId
from danlu.domain.parsing import ArrayAsk, parse_count, parse_dependency
from danlu.domain.people import Actor, demand
from danlu.domain.queue import Queue
from danlu.domain.request import JobRequest, changed_request, check_request, outline, request_of, spec_of
from danlu.domain.resources import Node
from danlu.engines.base import Abilities, Engine, Handle
from danlu.engines.kinds import KINDS
from danlu.errors import Conflict, EngineDown, Invalid, Refused, StoreDown, TooBig
from danlu.provision.paths import remove_run_folders, shelf_of
from danlu.scheduler.plan import fits_ever
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache

# No vowels and nothing that looks alike: an id is read aloud and typed.
_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"
ID_LENGTH = 8
TRIES = 20
STOPS_AT_ONCE = REMOVED_AT_ONCE = 1000  # others have their turn in between
# How a stop was asked for is remembered in the reason, so that a restarted server stops it the same way.
STOPPING = {"": "stopping", "now": "stopping_now", "kill": "stopping_kill"}


def new_id() -> str:
    """Random: ids of several installations on one machine must not meet. The first is a letter, for shells and eyes."""
    letters = _ALPHABET[:19]
    noise = os.urandom(ID_LENGTH)
    return letters[noise[0] % len(letters)] + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in noise[1:])


@dataclass(frozen=True, slots=True)
class Rules:
    """What this installation accepts."""

    inventory: Inventory
    default_time: timedelta | None = None
    pretends: str = ""  # the file whose cluster this machine only plays
    looks_at_folders: bool = True  # not for root: people would learn what is in folders that are closed to them
    abilities: Abilities = Abilities()  # of the engine
    run_as: RunAs = field(default_factory=RunAs)
    limits: Limits = field(default_factory=Limits)
    files_dir: str = ""  # snapshots and run folders
    snapshot_limit_bytes: int = 100 * 2**20
    shelf_limit_bytes: int = 0  # of all snapshots of one person; 0: none
    sweep_soon: Callable[[], None] = lambda: None  # jobs are gone, and perhaps nobody needs their snapshots

    @property
    def nodes(self) -> Sequence[Node]:
        return self.inventory.nodes

    @property
    def queues(self) -> Mapping[str, Queue]:
        """None: every job may use everything."""
        return self.inventory.queues


async def submit(
    cache: JobCache,
    rules: Rules,
    actor: Actor,
    wanted: JobRequest,
    *,
    key: str = "",
    cloned: str = "",
    now: datetime,
) -> Sequence[Job]:
    """Accept a job or an array, durably. The same key again gives what the first one made.
    `cloned` says from which one, if it is a clone."""
    demand(actor, "job.submit", actor.name, "a new job")
    rules.run_as.check(actor.name)
    spec, array = accept(rules, actor, wanted)
    if rules.looks_at_folders and not os.path.isdir(spec.workdir):
        raise Invalid(f"the folder `{spec.workdir}` does not exist on this machine", "see `--workdir`")
    if spec.snapshot:
        await asyncio.to_thread(shelf_of(rules.files_dir, actor.name).check, spec.snapshot)
    after, waiting_for = await _dependencies(cache, actor, wanted.after)
    environ_id = ""
    if wanted.environ is not None:
        environ_id = hashlib.sha256(json.dumps(sorted(wanted.environ.items())).encode()).hexdigest()[:32]
    spec = replace(spec, after=after, environ=environ_id)
    for _ in range(TRIES):
        try:
            check_limits(cache, rules.limits, actor, len(array.indices) if array else 1)
        except Refused:
            if key and (made := await cache.store.by_key(actor.name, key)):
                return made  # they are in already, and may be what fills the room
            raise
        # No await from the check to the insert: two submits cannot take the same room.
        jobs = _new_jobs(new_id(), actor, spec, array, waiting_for, now)
        noted = of_jobs(actor, "job.clone" if cloned else "job.submit", jobs, cloned, now=now)
        try:
            return await cache.insert(jobs, key=key, environ=wanted.environ, audit=noted)
        except Conflict:
            continue  # the random id is taken
    raise Conflict("no free job id was found", "try again")


def accept(rules: Rules, actor: Actor, wanted: JobRequest) -> tuple[JobSpec, ArrayAsk | None]:
    """What a wish means here: its queue and team chosen, their defaults filled in. Refuses what their rules do not
    allow, and what no machine here could ever run; as long as the machines are known."""
    check_request(wanted)
    if not rules.abilities.many_nodes and (nodes := parse_count(wanted.nodes, "--nodes")) > 1:
        why = "one machine plays all the nodes" if rules.pretends else "there is only this machine"
        clusters = " or ".join(kind.title for kind in KINDS.values() if kind.abilities.many_nodes)
        hint = f"leave `--nodes` out: {why}, and several at once take a {clusters} cluster"
        raise TooBig(f"a job runs on one node here, this one asks for {nodes}", hint)
    if not rules.inventory.is_known:
        return _accept_unseen(rules, actor, wanted)
    queue = choose_queue(rules.queues, actor, wanted.queue)
    team = choose_team(actor, wanted.team, queue)
    if queue is not None or team:
        wanted = replace(wanted, queue=queue.name if queue else "", team=team)

    def spec_in(queue: Queue | None, wanted: JobRequest) -> tuple[JobSpec, ArrayAsk | None]:
        time_limit, priority = _defaults(rules, queue)
        return spec_of(wanted, default_time=time_limit, default_priority=priority)

    spec, array = spec_in(queue, wanted)
    if queue is not None:
        check_queue(rules.queues, queue, rules.nodes, actor, spec, lambda other: spec_in(other, outline(wanted))[0])
    elif (never := fits_ever(rules.nodes, spec.ask)) is not None:
        raise TooBig(never.text, "see what there is: `danlu nodes`")
    return spec, array


def _accept_unseen(rules: Rules, actor: Actor, wanted: JobRequest) -> tuple[JobSpec, ArrayAsk | None]:
    """Before the cluster was first heard of: by what is written down of the queue. Whether there is such a queue, and
    anything in it that could run the job, turns out later."""
    queue = written_queue(rules.queues, actor, wanted.queue)
    wanted = replace(wanted, queue=queue.name if queue else wanted.queue, team=choose_team(actor, wanted.team, queue))
    time_limit, priority = _defaults(rules, queue)
    spec, array = spec_of(wanted, default_time=time_limit, default_priority=priority)
    check_written(rules.queues, queue, actor, spec)
    return spec, array


def _defaults(rules: Rules, queue: Queue | None) -> tuple[timedelta | None, int]:
    """The time limit and the priority of jobs that name none."""
    priority = queue.default_priority if queue else None
    return default_time(queue, rules.default_time), priority or DEFAULT_PRIORITY


def changed(rules: Rules, spec: JobSpec, wanted: JobRequest, changes: Mapping[str, Any]) -> JobRequest:
    """The wish that once was this spec, with other options. What it only had from its queue it gets anew from
    another one."""
    if changes.get("queue", spec.queue) != spec.queue:
        time_limit, priority = _defaults(rules, rules.queues.get(spec.queue))
        if spec.time_limit == time_limit:
            wanted = replace(wanted, time="")
        if spec.priority == priority:
            wanted = replace(wanted, priority="")
    return changed_request(wanted, changes)


async def clone(
    cache: JobCache,
    rules: Rules,
    actor: Actor,
    ref: str,
    changes: Mapping[str, Any],
    *,
    key: str = "",
    now: datetime,
) -> Sequence[Job]:
    """Submit again what was submitted once, with other options where given."""
    demand(actor, "job.submit", actor.name, "a new job")
    found = await resolve(cache, actor, ref)
    job = found[0]
    demand(actor, "job.clone", job.user, f"job {job.id}", teams=(job.spec.team,))
    wanted = request_of(job.spec)
    if not actor.is_in(wanted.team):
        wanted = replace(wanted, team="")  # it becomes a job of the actor's, in a team of the actor's
    is_task = job.array_index is not None and len(found) == 1 and ref != job.array_id
    if is_task:
        wanted = replace(wanted, array=str(job.array_index))
    wanted = changed(rules, job.spec, wanted, changes)
    cloned = f"from {job.id if is_task else job.group}" + (f" of {job.user}" if job.user != actor.name else "")
    return await submit(cache, rules, actor, wanted, key=key, cloned=cloned, now=now)


async def stop(
    cache: JobCache, engine: Engine, actor: Actor, ref: str, *, how: str = "", grace: timedelta, now: datetime
) -> list[Job]:
    """Ask a job or array to end. Queued ones end at once, running ones get their notice and grace.
    `how` hastens: "now" skips the notice, "kill" the grace too. Ended ones are fine."""
    jobs = await resolve(cache, actor, ref)
    for job in jobs:
        demand(actor, "job.stop", job.user, f"job {job.id}", teams=(job.spec.team,))
    audit = of_jobs(actor, "job.stop", [job for job in jobs if not job.state.is_ended], how, now=now)
    # Tasks of an array begin, in their order, and end all the time: the last come first, and where one was changed
    # meanwhile, the others do not wait for it.
    portions = [jobs[start : start + STOPS_AT_ONCE] for start in range(0, len(jobs), STOPS_AT_ONCE)]
    done: dict[JobId, Job] = {}
    is_any_told = False
    tries = TRIES
    while portions:
        some = [cache.active_jobs.jobs.get(job.id, job) for job in portions.pop()]
        after = [stopped(job, actor, how, now) for job in some]
        changes = [new for job, new in zip(some, after, strict=True) if new is not job]
        # The engine first: a job that has filled the disk of the database ends all the same.
        running = [job for job in changes if job.state.is_given]
        with contextlib.suppress(EngineDown):  # the scheduler tells it once more
            for job in running:
                await tell_stop(engine, job, grace)
                is_any_told = True
        try:
            if changes:
                await cache.update(changes, audit=audit)
                audit = []
        except StoreDown as error:
            told = "; what runs was asked to end all the same" if running else ""
            raise StoreDown(f"{error.text}{told}", error.hint) from error
        except Conflict:
            tries -= len(some) == 1
            if not tries:
                raise Conflict(f"{some[0].id} keeps changing", "try again") from None
            some = await cache.get_all([job.id for job in some])
            half = len(some) // 2
            portions += [part for part in (some[:half], some[half:]) if part]
        else:
            done |= {job.id: job for job in after}
            tries = TRIES
    if is_any_told and audit:  # all that the engine was told of had ended before it could be written
        await cache.update([], audit=audit)
    return [done[job.id] for job in jobs if job.id in done]


async def tell_stop(engine: Engine, job: Job, grace: timedelta) -> None:
    """Tell the engine to end the run of a job, in the way that the job's reason says."""
    how = job.reason.code
    notice = None if how in (STOPPING["now"], STOPPING["kill"]) else job.spec.notice
    if job.handle:
        await engine.stop(Handle(job.handle), grace=timedelta(0) if how == STOPPING["kill"] else grace, notice=notice)


def stopped(job: Job, actor: Actor, how: str, now: datetime) -> Job:
    """What a wish to stop makes of a job."""
    who = "its owner" if actor.name == job.user else actor.name
    if job.state is JobState.QUEUED:
        return job.moved(JobState.CANCELLED, why=Reason("stopped", f"stopped by {who} before it started"), at=now)
    code = STOPPING[how]
    if job.state.is_ended or job.reason.code == code:
        return job
    reason = Reason(code, f"{who} asked it to stop")
    return job.changed(stop_requested_at=job.stop_requested_at or now, reason=reason)


async def remove(cache: JobCache, engine: Engine, rules: Rules, actor: Actor, ref: str, *, now: datetime) -> list[Job]:
    """Forget ended jobs, with their logs and run folders."""
    jobs = await resolve(cache, actor, ref)
    for job in jobs:
        demand(actor, "job.remove", job.user, f"job {job.id}", teams=(job.spec.team,))
    active = [job.id for job in jobs if not job.state.is_ended]
    if active:
        raise Refused(f"{active[0]} has not ended", f"stop it first: `danlu stop {ref}`")
    for needed in {one for job in jobs for one in (job.id, job.array_id) if one}:
        if waiting := cache.active_jobs.dependents(needed):
            raise Conflict(f"{waiting[0]} still waits for the end of {needed}", "try again in a moment")
    audit = of_jobs(actor, "job.remove", jobs, now=now)
    for start in range(0, len(jobs), REMOVED_AT_ONCE):
        await cache.store.remove([job.id for job in jobs[start : start + REMOVED_AT_ONCE]], audit)
        audit = []
    for job in jobs:
        await asyncio.to_thread(remove_run_folders, rules.files_dir, job)
        for attempt in range(1, job.attempt + 1):
            await engine.logs(RunId(f"{job.id}.{attempt}")).remove()
    rules.sweep_soon()
    return jobs


async def wait(cache: JobCache, actor: Actor, ref: str, *, timeout_s: float) -> list[Job]:
    """Come back when all have ended, or after the timeout with whatever is then true."""
    jobs = await resolve(cache, actor, ref)
    for job in jobs:
        demand(actor, "job.show", job.user, f"job {job.id}", teams=(job.spec.team,))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for job in jobs:
                await ended(cache, job.id)
    return await resolve(cache, actor, jobs[0].group if len(jobs) > 1 else jobs[0].id)


async def ended(cache: JobCache, job_id: JobId) -> None:
    """Come back when the job is no longer active."""
    while job_id in cache.active_jobs.jobs:
        await cache.active_jobs.watch(job_id)


async def _dependencies(
    cache: JobCache, actor: Actor, written: Iterable[str]
) -> tuple[tuple[Dependency, ...], tuple[Dependency, ...]]:
    """All dependencies with full ids, and those that still have to be waited for."""
    every: list[Dependency] = []
    open_ones: list[Dependency] = []
    for text in dict.fromkeys(written):
        ref, kind = parse_dependency(text)
        dependency = Dependency(await resolve_id(cache, actor, ref), kind)
        outcome = await cache.store.outcome(dependency.on)
        every.append(dependency)
        if outcome.active:
            open_ones.append(dependency)
        elif kind == "ok" and (outcome.succeeded < outcome.known or not outcome.known):
            how = "has already ended without success" if outcome.known else "was removed"
            raise Refused(
                f"{dependency.on} {how}, so this would never run",
                f"use `--after {dependency.on}:any` to run it all the same",
            )
    return tuple(every), tuple(open_ones)


def _new_jobs(
    job_id: str,
    actor: Actor,
    spec: JobSpec,
    array: ArrayAsk | None,
    waiting_for: tuple[Dependency, ...],
    now: datetime,
) -> list[Job]:
    if array is None:
        return [Job(JobId(job_id), actor.name, spec, now, waiting_for=waiting_for)]
    return [
        Job(
            JobId(f"{job_id}_{index}"),
            actor.name,
            spec,
            now,
            array_id=job_id,
            array_index=index,
            waiting_for=waiting_for,
        )
        for index in array.indices
    ]
