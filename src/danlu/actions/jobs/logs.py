"""A job's log: whole, its tail, or followed to the end through waiting, running and retries."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from danlu.actions.jobs.references import resolve_one
from danlu.domain.job import Job, JobState, RunId
from danlu.domain.people import Actor, demand
from danlu.engines.base import Engine, GrowingLog, LogSource
from danlu.errors import EngineDown, Invalid
from danlu.state.jobs import JobCache

HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The job's state changed (or this is the first look); the next log bytes begin at `offset`."""

    job: Job
    offset: int


@dataclass(frozen=True, slots=True)
class LogBytes:
    data: bytes


@dataclass(frozen=True, slots=True)
class StillHere:
    """Nothing happened for a while."""


Followed = JobSeen | LogBytes | StillHere


async def find_log(
    cache: JobCache, engine: Engine, actor: Actor, ref: str, attempt: int | None
) -> tuple[Job, LogSource]:
    """The job and the log, if the actor may read the log."""
    job = await resolve_one(cache, actor, ref)
    check_reader(actor, job)
    if attempt is not None and not 1 <= attempt <= job.attempt:
        raise Invalid(f"{job.id} has had {job.attempt} attempts, there is no attempt {attempt}")
    if attempt is None or attempt >= job.attempt - job.requeued:
        return job, engine.logs(job.run_id)
    # A run restarted by its engine has a single log for all these attempts, named after the first attempt.
    logs = [engine.logs(RunId(f"{job.id}.{number}")) for number in range(attempt, 0, -1)]
    for log in logs:
        if await log.size() is not None:
            return job, log
    return job, logs[0]


def check_reader(actor: Actor, job: Job) -> None:
    """Refuse an actor without the right to read the job's log. The right can end while the actor reads."""
    demand(actor, "job.logs", job.user, f"the log of {job.id}", teams=(job.spec.team,))


async def read_log(log: LogSource, *, offset: int = 0, tail: int | None = None) -> tuple[int, AsyncIterator[bytes]]:
    """The length and the bytes from `offset`, or from the start of the last `tail` lines, to the present end of the
    log."""
    start = offset if tail is None else await log.start_of_tail(tail)
    length = max(0, (await log.size() or 0) - start)
    return length, log.read(start, length)


async def follow_to_end(
    cache: JobCache, engine: Engine, job: Job, *, offset: int = 0, tail: int | None = None
) -> AsyncGenerator[Followed, None]:
    """Follow the states and the log of a job until the job has ended."""
    offset = offset if tail is None else await engine.logs(job.run_id).start_of_tail(tail)
    bell = _Bell()
    growing: GrowingLog | None = None
    seen: Job | None = None
    try:
        while True:
            # Read the job before the log: an ended run writes no more, so the log read afterwards is complete.
            current = cache.active_jobs.jobs.get(job.id) or await cache.store.get(job.id)
            if current is None:
                return  # the job ended and was removed
            if seen is None or current.version != seen.version:
                if not current.state.is_ended:
                    bell.ring_on(cache.active_jobs.watch(job.id))
                if seen is None or current.run_id == seen.run_id:
                    seen = current
                    if not current.state.is_ended:
                        yield JobSeen(current, offset)
            try:
                if growing is None and (seen.state is not JobState.QUEUED or current.run_id != seen.run_id):
                    growing = await engine.logs(seen.run_id).follow()
                if growing is not None:
                    bell.ring_on(growing.growth())
                    if data := await growing.read(offset):
                        offset += len(data)
                        yield LogBytes(data)
                        continue
            except (EngineDown, OSError):  # the log is unreadable now and may have more bytes
                await bell.heard()
                yield StillHere()
                continue
            if current.run_id != seen.run_id:
                # The log of the previous run is read to the end; continue with the next attempt.
                if growing is not None:
                    growing.close()
                growing, seen, offset = None, None, 0
                continue
            if current.state.is_ended:
                yield JobSeen(current, offset)
                return
            if not await bell.heard():
                yield StillHere()
    finally:
        bell.close()
        if growing is not None:
            growing.close()


class _Bell:
    """Rings when any of several futures is done, and softly after a while without events.
    Each follower makes a single bell: a new wait on several futures for each line would cost more than the line."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._futures: list[asyncio.Future[Any]] = []
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(HEARTBEAT_S, self._soft_ring)

    def ring_on(self, future: "asyncio.Future[Any]") -> None:
        if not any(future is known for known in self._futures):
            self._futures = [known for known in self._futures if not known.done()]
            self._futures.append(future)
            future.add_done_callback(self._ring)

    async def heard(self) -> bool:
        """Wait for the bell. False: the ring was only the heartbeat."""
        await self._rung.wait()
        self._rung.clear()
        quiet_s = self._loop.time() - self._heard_at
        self._heard_at = self._loop.time()
        return quiet_s < HEARTBEAT_S

    def close(self) -> None:
        self._timer.cancel()
        for future in self._futures:
            future.remove_done_callback(self._ring)

    def _ring(self, _: "asyncio.Future[Any]") -> None:
        self._rung.set()

    def _soft_ring(self) -> None:
        self._rung.set()
        self._timer = self._loop.call_later(HEARTBEAT_S, self._soft_ring)
