"""The loop that moves jobs: see what became of the runs, plan, write it down, then tell the engine."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from danlu.actions.planning import Outlook
from danlu.domain.job import Job, JobState, Reason
from danlu.domain.resources import Node, Seat
from danlu.engines.base import Engine, Handle, Launch, Observation, RunState
from danlu.errors import Conflict, DanluError, Unreachable
from danlu.loops.dependencies import release_dependents
from danlu.loops.settle import settle
from danlu.scheduler.plan import plan
from danlu.store.base import PastRun
from danlu.store.book import Book

log = logging.getLogger(__name__)

# Only after trouble, or to meet a moment that nothing announces; work itself is announced.
RETRY_S = 1.0
LOOK_ANYWAY_S = 30.0

Prepare = Callable[[Job], Awaitable[Launch]]


class Schedule:
    """Everything the loop keeps between two ticks. Nothing here is needed to go on after a crash."""

    def __init__(self, book: Book, engine: Engine, nodes: Sequence[Node], prepare: Prepare, grace: timedelta) -> None:
        self.book = book
        self.engine = engine
        self.nodes = nodes
        self.prepare = prepare
        self.grace = grace
        self.outlook = Outlook()
        self.trouble: DanluError | None = None  # why nothing moves, for who asks
        self._preparing: set[str] = set()
        self._stops_sent: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Tick whenever something changed, for ever."""
        await self._forget_the_written()
        changed = self.book.changed
        while True:
            changed.clear()
            try:
                await self.tick(datetime.now(UTC))
                self.trouble = None
                pause = LOOK_ANYWAY_S
            except Conflict:
                changed.set()  # somebody was faster: look again
                pause = RETRY_S
            except Unreachable as error:
                if self.trouble is None or self.trouble.text != error.text:
                    log.warning("%s", error.text)
                self.trouble = error
                pause = RETRY_S
            except Exception:
                log.exception("a scheduling tick failed; it is tried again")
                pause = RETRY_S
            # Not wait_for: when both happen at once, it would swallow the cancellation that ends this loop.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()

    async def _forget_the_written(self) -> None:
        """A server that was killed after writing an end and before saying so left its engine remembering it."""
        held = {job.handle for job in self.book.live.holding()}
        with contextlib.suppress(Unreachable):
            await self.engine.forget([handle for handle in self.engine.ended() if handle not in held])

    async def tick(self, now: datetime) -> None:
        """Load, think, apply."""
        live = self.book.live
        held = list(live.holding())
        seen = await self.engine.observe([Handle(job.handle) for job in held if job.handle])
        settled, past = self._settle(held, seen, now)
        over = [job for job in settled if not job.state.holds_seat]
        made = plan(self.outlook.snapshot(live, self.nodes, now, ended=over))
        self.outlook.plan = made
        starts: dict[str, int] = {}
        for start in made.starts:
            starts[start.key] = starts.get(start.key, 0) + 1
        ids = {key: iter(live.next_ids(key, count)) for key, count in starts.items()}
        starting = [self._started(live.jobs[next(ids[start.key])], start.seat, now) for start in made.starts]
        if settled or starting:
            await self.book.update([*settled, *starting], past)
        await self._tell(held, seen, over, starting)
        await release_dependents(self.book, over, now)

    def _settle(
        self, held: Sequence[Job], seen: Mapping[Handle, Observation], now: datetime
    ) -> tuple[list[Job], list[PastRun]]:
        settled: list[Job] = []
        past: list[PastRun] = []
        for job in held:
            observation = seen.get(Handle(job.handle or ""))
            if observation is None:
                continue
            after, run = settle(job, observation, now=now)
            if after is not job:
                settled.append(after)
            if run is not None:
                past.append(run)
        return settled, past

    def _started(self, job: Job, seat: Seat, now: datetime) -> Job:
        handle = self.engine.handle(job.run_id)
        why = Reason("starting", "is being started")
        return job.moved(JobState.STARTING, why=why, at=now, seat=seat, handle=handle)

    async def _tell(
        self, held: Sequence[Job], seen: Mapping[Handle, Observation], over: Sequence[Job], starting: Sequence[Job]
    ) -> None:
        """Tell the engine what is written down by now; each of these may be told again after a crash."""
        settled_ids = {job.id for job in over}
        unstarted = [
            job
            for job in held
            if job.state is JobState.STARTING
            and job.id not in settled_ids
            and (found := seen.get(Handle(job.handle or "")))
            and found.state is RunState.UNKNOWN
        ]
        await self._start([*starting, *unstarted])
        handles = {job.id: Handle(job.handle) for job in held if job.handle}
        if over:
            await self.engine.forget([handles[job.id] for job in over])
            for job in over:
                self._stops_sent.pop(job.id, None)
        for job in self.book.live.holding():
            if job.stop_requested_at and self._stops_sent.get(job.id) != job.reason.code:
                await self._stop(job)

    async def _stop(self, job: Job) -> None:
        how = job.reason.code
        grace = timedelta(0) if how == "stopping_kill" else self.grace
        notice = job.spec.notice if how == "stopping" else None
        await self.engine.stop(Handle(job.handle or ""), grace=grace, notice=notice)
        self._stops_sent[job.id] = how

    async def _start(self, jobs: Sequence[Job]) -> None:
        """Start runs. Those with a snapshot are laid out first, without holding up the others."""
        ready = [job for job in jobs if not job.spec.snapshot]
        if ready:
            await self.engine.start([await self.prepare(job) for job in ready])
        for job in jobs:
            if job.spec.snapshot and job.id not in self._preparing:
                self._preparing.add(job.id)
                task = asyncio.create_task(self._prepare_and_start(job))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _prepare_and_start(self, job: Job) -> None:
        try:
            launch = await self.prepare(job)
            await self.engine.start([launch])
            if job.id not in self.book.live.jobs:  # it was stopped while its code was laid out
                await self.engine.stop(launch.handle, grace=timedelta(0))
        except Unreachable as error:
            log.warning("%s waits to be started: %s", job.id, error.text)
        except DanluError as error:
            await self._give_up(job, Reason("not_prepared", f"its code could not be laid out: {error.text}"))
        finally:
            self._preparing.discard(job.id)
            self.book.changed.set()

    async def _give_up(self, job: Job, why: Reason) -> None:
        now = datetime.now(UTC)
        try:
            current = self.book.live.jobs.get(job.id)
            if current is not None and current.run_id == job.run_id:
                await self.book.update([current.moved(JobState.FAILED, why=why, at=now)])
        except (Conflict, Unreachable) as error:
            log.warning("%s stays as it is: %s", job.id, error.text)
