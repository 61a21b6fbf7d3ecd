"""Jobs with dependencies: released when their dependencies are met, cancelled when a dependency can never be met."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from danlu.domain.job import Job, JobState, Reason
from danlu.domain.reasons import ReasonCode
from danlu.errors import Conflict
from danlu.state.jobs import JobCache
from danlu.store.protocol import Outcome

AT_ONCE = 1000


async def release_dependents(cache: JobCache, now: datetime) -> None:
    """Move on the jobs whose dependencies have ended since the last call."""
    refs, cache.awaited_ends = cache.awaited_ends, set()  # the set may grow during the queries to the store
    try:
        await _release(cache, {job_id for ref in refs for job_id in cache.active_jobs.dependents(ref)}, now)
    except BaseException:
        cache.awaited_ends |= refs
        raise


async def release_overdue(cache: JobCache, now: datetime) -> None:
    """Move on the jobs whose dependency ended without an announcement: after a restart, or because of a race."""
    cache.awaited_ends |= cache.active_jobs.overdue()
    await release_dependents(cache, now)


async def _release(cache: JobCache, waiting: Iterable[str], now: datetime) -> None:
    """In waves: other jobs may depend on a job cancelled here. In portions: other writes go between."""
    wave = list(dict.fromkeys(waiting))
    while wave:
        some, wave = wave[:AT_ONCE], wave[AT_ONCE:]
        jobs = [job for job_id in some if (job := cache.active_jobs.jobs.get(job_id)) and job.state is JobState.QUEUED]
        refs = {dependency.on for job in jobs for dependency in job.waiting_for}
        outcomes = {ref: await cache.store.outcome(ref) for ref in refs}
        changes = [after for job in jobs if (after := look(job, outcomes, now)) is not job]
        try:
            if changes:
                await cache.update(changes)
        except Conflict:
            wave += some  # another writer changed a job: look again
            continue
        over = {ref for job in changes if job.state.is_ended for ref in (job.id, job.array_id)}
        wave += [job_id for ref in over for job_id in cache.active_jobs.dependents(ref)]


def look(job: Job, outcomes: Mapping[str, Outcome], now: datetime) -> Job:
    """The job without its met dependencies; cancelled if a dependency can never be met."""
    left = []
    for dependency in job.waiting_for:
        outcome = outcomes[dependency.on]
        if outcome.active:
            left.append(dependency)
        elif dependency.kind == "ok" and (outcome.succeeded < outcome.known or not outcome.known):
            how = "ended without success" if outcome.known else "was removed"
            why = Reason(ReasonCode.DEPENDENCY_FAILED, f"{dependency.on}, which it waited for, {how}")
            return job.moved(JobState.CANCELLED, why=why, at=now)
    return job if len(left) == len(job.waiting_for) else job.changed(waiting_for=tuple(left))
