"""A job's log: whole, its tail, or followed to the end through waiting, running and retries."""

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from danlu.actions.jobs.references import resolve_one
from danlu.domain.job import Job, JobState
from danlu.domain.people import Actor, demand
from danlu.engines.log_files import Growing, LogFiles, offset_of_tail
from danlu.errors import EngineDown, Invalid
from danlu.provision.paths import log_path_of
from danlu.state.jobs import JobCache

HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The job's state changed (or this is the first look); log bytes that follow begin at `offset`."""

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
    cache: JobCache, files: LogFiles, files_dir: str, actor: Actor, ref: str, attempt: int | None
) -> tuple[Job, str]:
    """The job and the path of its log, if the actor may read it."""
    job = await resolve_one(cache, actor, ref)
    check_reader(actor, job)
    if attempt is not None and not 1 <= attempt <= job.attempt:
        raise Invalid(f"{job.id} has had {job.attempt} attempts, there is no attempt {attempt}")
    if attempt is None or attempt >= job.attempt - job.requeued:
        return job, log_path_of(files_dir, job.run_id)
    # A run that its engine began again has one log for all those attempts, called after the first of them.
    paths = [log_path_of(files_dir, f"{job.id}.{number}") for number in range(attempt, 0, -1)]
    for path in paths:
        if await files.do(os.path.exists, path):
            return job, path
    return job, paths[0]


def check_reader(actor: Actor, job: Job) -> None:
    """Refuse who may not read the job's log, or not any more."""
    demand(actor, "job.logs", job.user, f"the log of {job.id}", teams=(job.spec.team,))


async def first_offset(files: LogFiles, path: str, *, tail: int | None, offset: int) -> int:
    """Where to begin reading; a log that does not exist yet begins at 0."""
    if tail is None:
        return offset
    try:
        return await files.apart(offset_of_tail, path, tail)
    except (FileNotFoundError, BlockingIOError):
        return 0


async def follow_to_end(
    cache: JobCache, files: LogFiles, files_dir: str, job: Job, *, offset: int = 0, tail: int | None = None
) -> AsyncGenerator[Followed, None]:
    """Everything a person in front of a screen wants to see of a job until it has ended."""
    offset = await first_offset(files, log_path_of(files_dir, job.run_id), tail=tail, offset=offset)
    bell = _Bell()
    growing: Growing | None = None
    seen: Job | None = None
    try:
        while True:
            # The look at the job comes before the look at the log: a run that is over writes no more.
            current = cache.active_jobs.jobs.get(job.id) or await cache.store.get(job.id)
            if current is None:
                return  # it ended and was removed
            if seen is None or current.version != seen.version:
                if not current.state.is_ended:
                    bell.ring_on(cache.active_jobs.watch(job.id))
                if seen is None or current.run_id == seen.run_id:
                    seen = current
                    if not current.state.is_ended:
                        yield JobSeen(current, offset)
            try:
                if growing is None and (seen.state is not JobState.QUEUED or current.run_id != seen.run_id):
                    growing = await _open(files, log_path_of(files_dir, seen.run_id))
                if growing is not None:
                    bell.ring_on(growing.growth())
                    if data := await growing.read(offset):
                        offset += len(data)
                        yield LogBytes(data)
                        continue
            except (EngineDown, OSError):  # it cannot be read now, so nobody knows whether that was all
                await bell.heard()
                yield StillHere()
                continue
            if current.run_id != seen.run_id:
                # The log of the run before is read to its end; on with the next attempt.
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


async def _open(files: LogFiles, path: str) -> Growing | None:
    try:
        return await files.open(path)
    except (FileNotFoundError, BlockingIOError):
        return None


class _Bell:
    """Rings when one of several futures is done, and softly when nothing happened for a while.
    One per follower, made once: waiting on several futures anew for each line would cost more than the line."""

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
        """Wait for the bell. False: it was only to say that we are still here."""
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
