"""The scheduling loop: observe the runs, plan, record the decisions, then instruct the engine."""

import asyncio
import contextlib
import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from danlu.domain.charge import Charge
from danlu.domain.job import Job, JobId, JobState, Reason
from danlu.domain.people import is_boosted
from danlu.domain.queue import Queue
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Seat
from danlu.engines.base import ExternalRun, Handle, HasQueues, KnowsNodes, Observation, RunState, SeesOthers
from danlu.errors import Conflict, DanluError, Unreachable
from danlu.loops.dependencies import release_dependents, release_overdue
from danlu.loops.dispatch import Dispatcher
from danlu.loops.external_usage import ExternalUsage, reckon
from danlu.loops.settle import GIVING_BACK, settle_all
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Plan, Snapshot
from danlu.state.jobs import JobCache
from danlu.state.snapshots import Outlook
from danlu.store.protocol import PastRun

log = logging.getLogger(__name__)

# Pauses after an error, and for changes without an announcement; new work announces itself.
RETRY_S = 1.0
LOOK_ANYWAY_S = 30.0
# A tick that takes longer than this is reported. Longer than the longest pause between two ticks.
LATE_S = 60.0
# With more entries than this, a thread makes the plan: requests must not wait for a long plan.
THINKS_APART = 200
LOOK_ANYWAY = timedelta(seconds=LOOK_ANYWAY_S / 2)
# Announced ends release dependencies; this sweep repairs the leftovers of a race.
SWEEP_EVERY = timedelta(minutes=1)


QueuesWith = Callable[[Sequence[Queue]], Mapping[str, Queue]]


def _as_they_are(queues: Sequence[Queue]) -> dict[str, Queue]:
    return {queue.name: queue for queue in queues}


class Schedule:
    """The state of the loop between two ticks. A restart after a crash needs none of this state."""

    def __init__(
        self,
        cache: JobCache,
        dispatcher: Dispatcher,
        outlook: Outlook,
        queues_with: QueuesWith = _as_they_are,
        others: ExternalUsage | None = None,
    ) -> None:
        """`queues_with` applies the rules of this installation to the queues of the engine."""
        self.cache = cache
        self.dispatcher = dispatcher
        self.outlook = outlook
        self._queues_with = queues_with
        self.late_s = LATE_S
        self._failure: DanluError | None = None  # why the last tick failed
        self._active_at = time.monotonic()  # when a tick last began or ended
        # Not the default pool: a plan must not wait behind requests of users.
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="plan")
        # Counter of moves and stamp of the outlook after the last plan was carried out.
        self._planned: tuple[int, tuple[int, int]] | None = None
        self._settled: Mapping[Handle, Observation] = {}  # observations of the last complete tick
        self._boosted: frozenset[str] | None = None  # people whose jobs the engine puts first
        self._is_unclear = False  # the engine did not know a run at the last tick
        self._planned_at = self._swept_at = datetime.min.replace(tzinfo=UTC)
        self._others = others or ExternalUsage()  # external runs at the last tick

    @property
    def trouble(self) -> DanluError | None:
        """Why nothing moves: the last tick failed, or no tick ends."""
        late_s = time.monotonic() - self._active_at
        if late_s < self.late_s:
            return self._failure
        text = f"the scheduler has not moved for {late_s:.0f} seconds, and nothing starts"
        return DanluError(text, "its log may say more; a restart of the server ends no job", code="scheduler_late")

    async def run(self) -> None:
        """Tick after every change, forever."""
        changed = self.cache.changed
        was_away = True
        while True:
            changed.clear()
            self._active_at = time.monotonic()
            try:
                if was_away:
                    await self.dispatcher.forget_the_written()
                    was_away = False
                await self.tick(datetime.now(UTC))
                self._failure = None
                pause = LOOK_ANYWAY_S
            except Conflict:
                changed.set()  # another writer was faster: look again
                pause = RETRY_S
            except Unreachable as error:
                if self._failure is None or self._failure.text != error.text:
                    log.warning("%s", error.text)
                self._failure = error
                self.dispatcher.engine_was_away()
                was_away = True
                pause = RETRY_S
            except Exception:
                log.exception("a scheduling tick failed; it is tried again")
                self._failure = DanluError("something went wrong in the server, and is tried again: see its log")
                pause = RETRY_S
            self._active_at = time.monotonic()
            # Not `wait_for`: if both happen at once, `wait_for` swallows the cancellation, which should end this loop.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()

    async def tick(self, now: datetime) -> None:
        """Load, think, apply."""
        active_jobs, dispatcher, standing = self.cache.active_jobs, self.dispatcher, self.outlook.standing
        await self._look_around(now)
        held = list(active_jobs.holding())
        seen = await dispatcher.engine.observe([Handle(job.handle) for job in held if job.handle])
        news = self._news(held, seen)
        found = settle_all(
            news,
            seen,
            now=now,
            shards_per_gpu=standing.inventory.shards_per_gpu,
            charges_all=bool(standing.roster.persons),  # a personal server charges cards only
        )
        over = {job.id: job for job in found.jobs if not job.state.is_given}
        # A job that returns to the queue keeps its place: no other job starts before the return is recorded.
        is_any_back = any(job.state is JobState.QUEUED for job in over.values())
        starting: list[Job] = []
        changes = found.jobs
        planned = (active_jobs.moves, self.outlook.stamp)
        if not is_any_back and (over or not self._is_planned(now)):
            made = await self._plan(list(over.values()), found.charges, now)
            starting = self._started(made, now)
            changes = [*self._with_stops(found.jobs, made, now), *starting]
        self._planned = None
        if changes:
            # Launches are prepared during the disk write; the engine receives the launches after the write.
            writing = self._write(changes, found.past, found.charges, is_planned=not is_any_back)
            _, launches = await asyncio.gather(writing, dispatcher.launches(starting))
            await dispatcher.start(launches)
        if not is_any_back:
            self._planned = (planned[0] + len(changes), planned[1])
        unstarted: list[Job] = []
        if active_jobs.counts()[JobState.STARTING] or standing.abilities.places:
            unstarted = [job for job in news if job.id not in over and _is_unstarted(job, seen)]
        await dispatcher.start(await dispatcher.launches(unstarted))
        dispatcher.start_snapshots([*starting, *unstarted])
        await dispatcher.forget([Handle(job.handle) for job in held if job.id in over and job.handle])
        await dispatcher.stop_the_asked()
        if abs(now - self._swept_at) >= SWEEP_EVERY:  # the clock may be set back
            await release_overdue(self.cache, now)
            self._swept_at = now
        await release_dependents(self.cache, now)
        if seen is not self._settled:
            self._settled = seen
            self._is_unclear = any(found.state is RunState.UNKNOWN for found in seen.values())

    def _news(self, held: Sequence[Job], seen: Mapping[Handle, Observation]) -> Sequence[Job]:
        """The jobs whose observation differs from the last tick. The queue of a cluster may hold thousands of jobs
        without any change."""
        if not self.outlook.standing.abilities.places:
            return held
        before = self._settled
        if seen == before and not self._is_unclear:
            return ()
        self.outlook.estimates = _estimates(held, seen)
        odd = {handle for handle, found in seen.items() if found.state is RunState.UNKNOWN}
        return [
            job
            for job in held
            if (handle := job.handle or "") in odd or seen.get(Handle(handle)) is not before.get(Handle(handle))
        ]

    async def _look_around(self, now: datetime) -> None:
        """Refresh nodes, queues and external runs, if the engine reports live changes."""
        engine = self.dispatcher.engine
        if engine.abilities.live_nodes:
            nodes = await engine.inventory()
            others = await engine.others() if isinstance(engine, SeesOthers) else ()
            inventory = self.outlook.standing.inventory
            queues: Sequence[Queue] = ()
            if isinstance(engine, HasQueues):
                queues = engine.queues()
                inventory.room_for = engine.room_for()
            words = engine.nodes_now() if isinstance(engine, KnowsNodes) else {}
            inventory.heard(nodes, self._queues_with(queues), others, words)
            await self._charge_others(others, now)
            if isinstance(engine, HasQueues):
                await self._reorder(engine, now)

    async def _reorder(self, engine: HasQueues, now: datetime) -> None:
        """Move the jobs of boosted people to the front of the engine's own queue too."""
        boosted = self.outlook.standing.roster.boosted(now)
        if boosted != self._boosted:
            waiting = [job for job in self.cache.active_jobs.holding() if job.state is not JobState.RUNNING]
            first = {Handle(job.handle): is_boosted(boosted, job.user, job.spec.team) for job in waiting if job.handle}
            await engine.reorder(first)
            self._boosted = boosted

    async def _charge_others(self, others: Sequence[ExternalRun], now: datetime) -> None:
        standing = self.outlook.standing
        found = reckon(
            self._others,
            others,
            now=now,
            shards_per_gpu=standing.inventory.shards_per_gpu,
            charges_all=bool(standing.roster.persons),
        )
        if found.charges:
            await self._write((), (), found.charges, is_planned=True)
        self._others = found

    async def _write(
        self, jobs: Sequence[Job], past: Sequence[PastRun], charges: Sequence[Charge], *, is_planned: bool
    ) -> None:
        """Record the changes. A recorded charge counts at once, even if a concurrent step of the tick fails."""
        await self.cache.update(jobs, past, charges, is_planned=is_planned)
        for charge in charges:
            self.outlook.standing.tally.add(charge)

    def _is_planned(self, now: datetime) -> bool:
        """True: nothing has changed since the last plan, except by the plan itself."""
        is_same = self._planned == (self.cache.active_jobs.moves, self.outlook.stamp)
        return is_same and abs(now - self._planned_at) < LOOK_ANYWAY

    async def _plan(self, over: Sequence[Job], charges: Sequence[Charge], now: datetime) -> Plan:
        self._planned_at = now
        snapshot = self.outlook.snapshot(self.cache.active_jobs, now, ended=over, charges=charges)
        is_long = len(snapshot.waiting) + len(snapshot.pending) > THINKS_APART
        self.outlook.plan = await self._plan_apart(snapshot) if is_long else plan(snapshot)
        return self.outlook.plan

    async def _plan_apart(self, snapshot: Snapshot) -> Plan:
        return await asyncio.get_running_loop().run_in_executor(self._planner, _thought, snapshot)

    def _started(self, made: Plan, now: datetime) -> list[Job]:
        """The jobs that start now, with the handle for the engine, and with their seats unless the engine chooses the
        seats."""
        active_jobs, why = self.cache.active_jobs, Reason(ReasonCode.STARTING, "is being started")
        begun: list[tuple[str, tuple[Seat, ...]]] = [(key, ()) for key in made.handed]
        if not self.outlook.standing.abilities.places:
            begun = [(start.key, (start.seat, *start.more)) for start in made.starts]
        counts = Counter(key for key, _ in begun)
        ids = {key: iter(active_jobs.next_ids(key, count)) for key, count in counts.items()}
        started = []
        for key, seats in begun:
            job_id = next(ids[key], None)
            if job_id is None:
                continue  # the job was stopped while the plan was made
            job = active_jobs.jobs[job_id]
            handle = self.dispatcher.engine.handle(job.run_id)
            started.append(job.moved(JobState.STARTING, why=why, at=now, seats=seats, handle=handle))
        return started

    def _with_stops(self, settled: Sequence[Job], made: Plan, now: datetime) -> list[Job]:
        """The settled jobs, and the jobs that must give back borrowed resources."""
        changed = {job.id: job for job in settled}
        for stop in made.stops:
            job = changed.get(JobId(stop.key)) or self.cache.active_jobs.jobs.get(stop.key)
            why = Reason(GIVING_BACK, f"makes room for {stop.wanted_by}, to which belongs what this one borrowed")
            if job is not None and job.state.is_given and not job.stop_requested_at:
                changed[job.id] = job.changed(stop_requested_at=now, reason=why)
        return list(changed.values())


def _estimates(held: Sequence[Job], seen: Mapping[Handle, Observation]) -> dict[str, datetime]:
    """When the engine expects to start the jobs of its queue, as far as known."""
    return {
        job.id: found.estimated_at
        for job in held
        if (found := seen.get(Handle(job.handle or ""))) is not None
        and found.state is RunState.PENDING
        and found.estimated_at is not None
    }


def _thought(snapshot: Snapshot) -> Plan:
    """Plan without garbage collection: a long plan makes a hundred thousand objects and no cycles, and the search for
    cycles would take a third of the time."""
    gc.disable()
    try:
        return plan(snapshot)
    finally:
        gc.enable()


def _is_unstarted(job: Job, seen: Mapping[Handle, Observation]) -> bool:
    """Is the run recorded as started, but unknown to the engine? Either the server was killed before the request, or
    the engine has forgotten the request."""
    found = seen.get(Handle(job.handle or ""))
    return job.state is not JobState.RUNNING and found is not None and found.state is RunState.UNKNOWN
