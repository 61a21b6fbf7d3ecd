"""Jobs that wait for others: let go when those have ended, or ended themselves when that will never be."""

import logging
from collections.abc import Iterable
from datetime import datetime

from danlu.domain.job import Job, JobState, Reason
from danlu.errors import Conflict
from danlu.store.base import Outcome
from danlu.store.book import Book

log = logging.getLogger(__name__)


async def release_dependents(book: Book, ended: Iterable[Job], now: datetime) -> None:
    """After these have ended, move on those who waited for them."""
    refs: set[str] = set()
    for job in ended:
        if job.state.is_ended:
            refs.add(job.id)
            if job.array_id and not book.live.active_in(job.array_id):
                refs.add(job.array_id)
    await _release(book, {job_id for ref in refs for job_id in book.live.dependents(ref)}, now)


async def release_all(book: Book, now: datetime) -> None:
    """At start: what ended while nobody looked."""
    await _release(book, {job.id for job in book.live.jobs.values() if job.waiting_for}, now)


async def _release(book: Book, waiting: Iterable[str], now: datetime) -> None:
    queue = set(waiting)
    outcomes: dict[str, Outcome] = {}
    while queue:
        job = book.live.jobs.get(queue.pop())  # type: ignore[call-overload]
        if job is None or job.state is not JobState.QUEUED:
            continue
        for dependency in job.waiting_for:
            if dependency.on not in outcomes:
                outcomes[dependency.on] = await book.store.outcome(dependency.on)
        after = look(job, outcomes, now)
        if after is job:
            continue
        try:
            await book.update([after])
        except Conflict:
            queue.add(job.id)
            continue
        if after.state.is_ended:
            queue |= set(book.live.dependents(after.id))
            if after.array_id and not book.live.active_in(after.array_id):
                queue |= set(book.live.dependents(after.array_id))
            outcomes.clear()


def look(job: Job, outcomes: dict[str, Outcome], now: datetime) -> Job:
    """The job without the dependencies that are met; cancelled if one never will be."""
    left = []
    for dependency in job.waiting_for:
        outcome = outcomes[dependency.on]
        if outcome.active:
            left.append(dependency)
        elif dependency.kind == "ok" and outcome.succeeded < outcome.known:
            why = Reason("dependency_failed", f"{dependency.on}, which it waited for, ended without success")
            return job.moved(JobState.CANCELLED, why=why, at=now)
    return job if len(left) == len(job.waiting_for) else job.changed(waiting_for=tuple(left))
