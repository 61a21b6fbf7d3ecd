"""Passing the recorded decisions on to the engine: start, stop and forget runs.
After a crash the server repeats every request; a repeated request does no harm."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

from danlu.actions.jobs.submit import tell_stop
from danlu.domain.job import Job, JobState, Reason
from danlu.domain.reasons import ReasonCode
from danlu.engines.base import Engine, Handle, Launch
from danlu.errors import Conflict, DanluError, Unreachable
from danlu.state.jobs import JobCache

log = logging.getLogger(__name__)

Prepare = Callable[[Job], Awaitable[Launch]]


class Dispatcher:
    def __init__(self, cache: JobCache, engine: Engine, prepare: Prepare, grace: timedelta) -> None:
        self.cache = cache
        self.engine = engine
        self._prepare = prepare
        self._grace = grace
        self._preparing: set[str] = set()
        self._stops_told: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def launches(self, jobs: Sequence[Job]) -> list[Launch]:
        """The launches of the jobs that can start at once: those without a snapshot."""
        await asyncio.sleep(0)  # lets the writing thread go first: launches are made while it waits for the disk
        found = [await self._launch_or_give_up(job) for job in jobs if not job.spec.snapshot]
        return [launch for launch in found if launch is not None]

    async def start(self, launches: Sequence[Launch]) -> None:
        if launches:
            await self.engine.start(launches)

    def start_snapshots(self, jobs: Sequence[Job]) -> None:
        """Start jobs whose code must be laid out first, without delaying the other jobs."""
        for job in jobs:
            if job.spec.snapshot and job.id not in self._preparing:
                self._preparing.add(job.id)
                task = asyncio.create_task(self._lay_out_and_start(job))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def forget(self, handles: Collection[Handle]) -> None:
        if handles:
            await self.engine.forget(handles)

    async def forget_the_written(self) -> None:
        """Repeat the `forget` of a server that was killed between recording an end and telling the engine."""
        held = {job.handle for job in self.cache.active_jobs.holding()}
        await self.forget([handle for handle in self.engine.ended() if handle not in held])

    async def stop_the_asked(self) -> None:
        """Pass on each stop request once; a more urgent request again."""
        for job in self.cache.active_jobs.holding():
            if job.stop_requested_at and job.handle and self._stops_told.get(job.handle) != (how := job.reason.code):
                await tell_stop(self.engine, job, self._grace)
                self._stops_told[job.handle] = how
        if len(self._stops_told) > 2 * len(self.cache.active_jobs.holding()) + 100:
            held = {job.handle for job in self.cache.active_jobs.holding()}
            self._stops_told = {handle: how for handle, how in self._stops_told.items() if handle in held}

    def engine_was_away(self) -> None:
        """The engine may have forgotten the stop requests."""
        self._stops_told.clear()

    async def _launch_or_give_up(self, job: Job) -> Launch | None:
        try:
            return await self._prepare(job)
        except Unreachable:
            raise
        except Exception as error:
            # Any error ends this run only: the other runs of the tick start.
            if not isinstance(error, DanluError | OSError):
                log.exception("%s could not be made ready", job.id)
            text = error.text if isinstance(error, DanluError) else str(error) or type(error).__name__
            await self._give_up(job, Reason(ReasonCode.NOT_PREPARED, f"it could not be made ready: {text}"))
            return None

    async def _lay_out_and_start(self, job: Job) -> None:
        try:
            launch = await self._launch_or_give_up(job)
            if launch is not None and self._is_wanted(job):  # else the job was stopped during the layout of its code
                await self.engine.start([launch])
                if not self._is_wanted(job):
                    await self.engine.stop(launch.handle, grace=timedelta(0))
        except Unreachable as error:
            log.warning("%s waits to be started: %s", job.id, error.text)
        finally:
            self._preparing.discard(job.id)
            self.cache.changed.set()

    def _is_wanted(self, job: Job) -> bool:
        """Is this run still the current run of its job?"""
        now = self.cache.active_jobs.jobs.get(job.id)
        return now is not None and now.run_id == job.run_id and now.state.is_given

    async def _give_up(self, job: Job, why: Reason) -> None:
        log.warning("%s: %s", job.id, why.text)
        current = self.cache.active_jobs.jobs.get(job.id)
        if current is None or current.run_id != job.run_id:
            return
        with contextlib.suppress(Conflict):  # another writer changed the job; the next tick looks again
            await self.cache.update([current.moved(JobState.FAILED, why=why, at=datetime.now(UTC))])
