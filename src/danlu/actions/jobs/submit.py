"""Submit, clone, stop, remove and wait for jobs."""

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
from danlu.domain.reasons import ReasonCode
from danlu.domain.request import JobRequest, changed_request, check_request, outline, request_of, spec_of
from danlu.domain.resources import Node
from danlu.engines.base import Abilities, Engine, Handle
from danlu.engines.kinds import KINDS
from danlu.errors import Conflict, EngineDown, Invalid, Refused, StoreDown, TooBig
from danlu.provision.paths import remove_run_folders, shelf_of
from danlu.scheduler.plan import fits_ever
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache

# No vowels and no characters with a similar look: people read an id aloud and type the id.
_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"
ID_LENGTH = 8
TRIES = 20
STOPS_AT_ONCE = REMOVED_AT_ONCE = 1000  # other requests get their turn in between
# The reason of a job records the way of the stop, so a restarted server stops the job in the same way.
STOPPING = {"": "stopping", "now": "stopping_now", "kill": "stopping_kill"}


def new_id() -> str:
    """A random id: ids of several installations on the same machine must differ. The first character is a letter, for
    shells and for readers."""
    letters = _ALPHABET[:19]
    noise = os.urandom(ID_LENGTH)
    return letters[noise[0] % len(letters)] + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in noise[1:])


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of this installation for accepting jobs."""

    inventory: Inventory
    default_time: timedelta | None = None
    pretends: str = ""  # the file describing the cluster simulated by this machine
    looks_at_folders: bool = True  # not as root: people would learn about folders closed to them
    abilities: Abilities = Abilities()  # of the engine
    run_as: RunAs = field(default_factory=RunAs)
    limits: Limits = field(default_factory=Limits)
    files_dir: str = ""  # snapshots and run folders
    snapshot_limit_bytes: int = 100 * 2**20
    shelf_limit_bytes: int = 0  # of all snapshots of one person; 0: none
    sweep_soon: Callable[[], None] = lambda: None  # after a removal of jobs, snapshots may be unused

    @property
    def nodes(self) -> Sequence[Node]:
        return self.inventory.nodes

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Without queues every job may use everything."""
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
    """Accept a job or an array, durably. A second submit with the same key returns the jobs of the first submit.
    `cloned` names the source of a clone."""
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
                return made  # the jobs exist already, and may be the reason for the full limit
            raise
        # There is no await between the check and the insert: two submits cannot take the same room.
        jobs = _new_jobs(new_id(), actor, spec, array, waiting_for, now)
        noted = of_jobs(actor, "job.clone" if cloned else "job.submit", jobs, cloned, now=now)
        try:
            return await cache.insert(jobs, key=key, environ=wanted.environ, audit=noted)
        except Conflict:
            continue  # the random id is taken
    raise Conflict("no free job id was found", "try again")


def accept(rules: Rules, actor: Actor, wanted: JobRequest) -> tuple[JobSpec, ArrayAsk | None]:
    """The spec of a request: with a chosen queue and team, and their defaults. Refuses a request against the rules of
    the queue or team, and, if the machines are known, a request no machine could ever run."""
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
    """Accept before the first contact with the cluster, by the configured rules of the queue. Danlu finds out later
    whether the queue exists, and whether any node of the queue can run the job."""
    queue = written_queue(rules.queues, actor, wanted.queue)
    wanted = replace(wanted, queue=queue.name if queue else wanted.queue, team=choose_team(actor, wanted.team, queue))
    time_limit, priority = _defaults(rules, queue)
    spec, array = spec_of(wanted, default_time=time_limit, default_priority=priority)
    check_written(rules.queues, queue, actor, spec)
    return spec, array


def _defaults(rules: Rules, queue: Queue | None) -> tuple[timedelta | None, int]:
    """The time limit and the priority of jobs without their own values."""
    priority = queue.default_priority if queue else None
    return default_time(queue, rules.default_time), priority or DEFAULT_PRIORITY


def changed(rules: Rules, spec: JobSpec, wanted: JobRequest, changes: Mapping[str, Any]) -> JobRequest:
    """The request behind this spec, with other options. If the queue changes, defaults of the old queue are removed,
    so the defaults of the new queue apply."""
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
    """Submit a job again, with other options where given."""
    demand(actor, "job.submit", actor.name, "a new job")
    found = await resolve(cache, actor, ref)
    job = found[0]
    demand(actor, "job.clone", job.user, f"job {job.id}", teams=(job.spec.team,))
    wanted = request_of(job.spec)
    if not actor.is_in(wanted.team):
        wanted = replace(wanted, team="")  # the clone belongs to the actor and to a team of the actor
    is_task = job.array_index is not None and len(found) == 1 and ref != job.array_id
    if is_task:
        wanted = replace(wanted, array=str(job.array_index))
    wanted = changed(rules, job.spec, wanted, changes)
    cloned = f"from {job.id if is_task else job.group}" + (f" of {job.user}" if job.user != actor.name else "")
    return await submit(cache, rules, actor, wanted, key=key, cloned=cloned, now=now)


async def stop(
    cache: JobCache, engine: Engine, actor: Actor, ref: str, *, how: str = "", grace: timedelta, now: datetime
) -> list[Job]:
    """Ask a job or array to end. Queued jobs end at once, running jobs get their notice and grace.
    `how` speeds up the stop: "now" skips the notice, "kill" also the grace. Ended jobs are no error."""
    jobs = await resolve(cache, actor, ref)
    for job in jobs:
        demand(actor, "job.stop", job.user, f"job {job.id}", teams=(job.spec.team,))
    audit = of_jobs(actor, "job.stop", [job for job in jobs if not job.state.is_ended], how, now=now)
    # Tasks of an array start in order, and end, at any time. The last tasks therefore come first, and a conflict in
    # a single task does not delay the other tasks.
    portions = [jobs[start : start + STOPS_AT_ONCE] for start in range(0, len(jobs), STOPS_AT_ONCE)]
    done: dict[JobId, Job] = {}
    is_any_told = False
    tries = TRIES
    while portions:
        some = [cache.active_jobs.jobs.get(job.id, job) for job in portions.pop()]
        after = [stopped(job, actor, how, now) for job in some]
        changes = [new for job, new in zip(some, after, strict=True) if new is not job]
        # The engine comes first: a job must end even after filling the disk of the database.
        running = [job for job in changes if job.state.is_given]
        with contextlib.suppress(EngineDown):  # the scheduler repeats the stop
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
    if is_any_told and audit:  # all jobs stopped in the engine had ended before the update
        await cache.update([], audit=audit)
    return [done[job.id] for job in jobs if job.id in done]


async def tell_stop(engine: Engine, job: Job, grace: timedelta) -> None:
    """Tell the engine to end the run of a job, in the way given by the job's reason."""
    how = job.reason.code
    notice = None if how in (STOPPING["now"], STOPPING["kill"]) else job.spec.notice
    if job.handle:
        await engine.stop(Handle(job.handle), grace=timedelta(0) if how == STOPPING["kill"] else grace, notice=notice)


def stopped(job: Job, actor: Actor, how: str, now: datetime) -> Job:
    """The job after a stop request."""
    who = "its owner" if actor.name == job.user else actor.name
    if job.state is JobState.QUEUED:
        return job.moved(
            JobState.CANCELLED, why=Reason(ReasonCode.STOPPED, f"stopped by {who} before it started"), at=now
        )
    code = STOPPING[how]
    if job.state.is_ended or job.reason.code == code:
        return job
    reason = Reason(code, f"{who} asked it to stop")
    return job.changed(stop_requested_at=job.stop_requested_at or now, reason=reason)


async def remove(cache: JobCache, engine: Engine, rules: Rules, actor: Actor, ref: str, *, now: datetime) -> list[Job]:
    """Delete ended jobs, with their logs and run folders."""
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
    """Return when all jobs have ended, or after the timeout with the present state."""
    jobs = await resolve(cache, actor, ref)
    for job in jobs:
        demand(actor, "job.show", job.user, f"job {job.id}", teams=(job.spec.team,))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for job in jobs:
                await ended(cache, job.id)
    return await resolve(cache, actor, jobs[0].group if len(jobs) > 1 else jobs[0].id)


async def ended(cache: JobCache, job_id: JobId) -> None:
    """Return when the job is no longer active."""
    while job_id in cache.active_jobs.jobs:
        await cache.active_jobs.watch(job_id)


async def _dependencies(
    cache: JobCache, actor: Actor, written: Iterable[str]
) -> tuple[tuple[Dependency, ...], tuple[Dependency, ...]]:
    """All dependencies with full ids, and the still active dependencies."""
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
