"""Resolve a typed reference (`k3fz`, `@`, `@~1`, an array's id, a number, `ENGINE:17`) to jobs."""

import re

from danlu.actions.jobs.external import is_others, refuse_others
from danlu.domain.job import Job, JobId
from danlu.domain.people import Actor
from danlu.errors import Ambiguous, Invalid, NotFound
from danlu.state.jobs import JobCache
from danlu.store.protocol import JobFilter

# An array has at most this many tasks, so a whole array fits a single page.
WHOLE_ARRAY = 100_000


async def resolve_id(cache: JobCache, actor: Actor, ref: str) -> str:
    """The id of the job or array meant by `ref`."""
    if match := re.fullmatch(r"@(?:~(\d{1,6}))?", ref):
        back = int(match[1] or 0)
        found = await cache.store.latest(actor.name, back)
        if found is None:
            which = "no job yet" if not back else f"fewer than {back + 1} jobs"
            raise NotFound(f"you have {which}", "submit one: `danlu run -- echo hello`")
        return found
    if ref in cache.active_jobs.jobs:
        return ref
    if is_others(ref, cache.engine_prefix):
        for job in cache.active_jobs.holding():
            if cache.engine_id(job) == ref:
                return job.id
        refuse_others(ref)
    if match := re.fullmatch(r"(\d{1,15})(?:_(\d{1,9}))?", ref):
        return await _numbered(cache, ref, int(match[1]), match[2])
    if not re.fullmatch(r"[a-z0-9]{1,12}(_\d{0,9})?", ref):
        raise NotFound(f"no job `{ref}`", "an id looks like `k3fz82aw`; `danlu ps` lists yours")
    candidates = await cache.store.find(ref)
    if not candidates:
        raise NotFound(f"no job `{ref}`", "`danlu ps` lists yours")
    if len(candidates) > 1:
        raise Ambiguous(f"`{ref}` fits several jobs: {', '.join(candidates[:5])}", "type more of the id")
    return candidates[0]


async def _numbered(cache: JobCache, ref: str, number: int, index: str | None) -> str:
    """`7` and `7_3`. An id begins with a letter, so a number is never the beginning of one."""
    first = await cache.store.numbered(number)
    is_array = first is not None and first.array_id and first.group_number == number
    if first is not None and is_array and index is not None:
        task = f"{first.array_id}_{int(index)}"
        if await cache.get(JobId(task)) is not None:
            return task
    elif first is not None and index is None:
        return first.array_id if is_array else first.id
    raise NotFound(f"no job `{ref}`", "`danlu ps` lists yours")


async def resolve(cache: JobCache, actor: Actor, ref: str) -> list[Job]:
    """The job, or every task of the array, meant by `ref`."""
    job_id = await resolve_id(cache, actor, ref)
    job = await cache.get(job_id)
    if job is not None:
        return [job]
    page = await cache.store.page(JobFilter(array_id=job_id), limit=WHOLE_ARRAY)
    if not page.jobs:
        raise NotFound(f"no job `{ref}`", "`danlu ps` lists yours")
    # A job in memory is at least as new as the same job read from the store.
    return [cache.active_jobs.jobs.get(job.id, job) for job in reversed(page.jobs)]


async def resolve_one(cache: JobCache, actor: Actor, ref: str) -> Job:
    """A single job; an array must name its task."""
    jobs = await resolve(cache, actor, ref)
    if len(jobs) > 1 or (jobs[0].array_id and ref == jobs[0].array_id):
        first = jobs[0]
        raise Invalid(f"{first.array_id} is an array of {len(jobs)} jobs", f"pick one, for example `{first.id}`")
    return jobs[0]
