"""The store with the active jobs in memory: every change is written first, then shown to readers and waiters."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from danlu.domain.charge import Charge
from danlu.domain.job import Job, JobId
from danlu.domain.people import AuditEntry
from danlu.engines.base import Engine, Handle, NamesRuns
from danlu.errors import Conflict
from danlu.state.active_jobs import ActiveJobs
from danlu.store.protocol import PastRun, Store


class JobCache:
    """All writes of jobs go through this class, so that `active_jobs` always agrees with the disk."""

    def __init__(self, store: Store, active: Sequence[Job], engine: Engine | None = None) -> None:
        self.store = store
        self._names = engine if isinstance(engine, NamesRuns) else None
        self.active_jobs = ActiveJobs(active)
        self.changed = asyncio.Event()  # the scheduler has work to do
        self.awaited_ends: set[str] = set()  # ended jobs and arrays that other jobs wait for
        self._coming: Counter[str] = Counter()  # by user: jobs that are being inserted

    def active_of(self, user: str) -> int:
        """How many jobs of this person have not ended, including jobs that are being inserted."""
        return self.active_jobs.users.get(user, 0) + self._coming[user]

    @property
    def active(self) -> int:
        """How many jobs have not ended, including jobs that are being inserted."""
        return len(self.active_jobs.jobs) + self._coming.total()

    @property
    def engine_prefix(self) -> str:
        """The prefix of the ids in the engine's own tools; empty if there are no such ids."""
        return self._names.prefix if self._names else ""

    def engine_id(self, job: Job) -> str:
        """The id of a job in the engine's own tools. Empty if there is no such id, or if the engine does not have the
        job now."""
        if self._names is None or not job.handle or not job.state.is_given:
            return ""
        return self._names.name_of(Handle(job.handle))

    async def insert(
        self,
        jobs: Sequence[Job],
        *,
        key: str = "",
        environ: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> Sequence[Job]:
        coming = Counter(job.user for job in jobs)
        self._coming += coming
        try:
            stored = await self.store.insert(jobs, key=key, environ=environ, audit=audit)
        finally:
            self._coming -= coming
        # A repeated key returns old jobs: the jobs in memory may be newer.
        self.active_jobs.apply(job for job in stored if job.id not in self.active_jobs.jobs and not job.state.is_ended)
        # A dependency may have ended between the submitter's check and this insert. Such an end was not
        # announced to any waiting job.
        awaited = {one.on for job in stored for one in job.waiting_for}
        self.awaited_ends |= {ref for ref in awaited if not self.active_jobs.active_in(ref)}
        self.changed.set()
        return stored

    async def update(
        self,
        jobs: Sequence[Job],
        past: Sequence[PastRun] = (),
        charges: Sequence[Charge] = (),
        *,
        audit: Sequence[AuditEntry] = (),
        is_planned: bool = False,
    ) -> None:
        """`is_planned`: the scheduler has already considered all consequences of this change."""
        try:
            await self.store.update(jobs, past, charges, audit)
        except Conflict:
            await self._look_again(jobs)
            raise
        self._show(jobs)
        if not is_planned:
            self.changed.set()

    async def get(self, job_id: str) -> Job | None:
        return self.active_jobs.jobs.get(JobId(job_id)) or await self.store.get(job_id)

    async def get_all(self, ids: Sequence[str]) -> list[Job]:
        """In the order of `ids`, without removed jobs."""
        read = {job.id: job for job in await self.store.get_all(ids)}
        return [found for job_id in ids if (found := self.active_jobs.jobs.get(job_id) or read.get(JobId(job_id)))]

    async def _look_again(self, jobs: Sequence[Job]) -> None:
        """Read the jobs from disk: a commit may have succeeded although its answer was lost."""
        found = await self.store.get_all([job.id for job in jobs])
        # A job that left the memory meanwhile has ended. The older version from this read would bring the job back and
        # run it once more.
        self._show([job for job in found if job.id in self.active_jobs.jobs])

    def _show(self, jobs: Sequence[Job]) -> None:
        """Show written jobs. Announce ended jobs and arrays to the jobs that wait for them."""
        self.active_jobs.apply(jobs)
        ended = {ref for job in jobs if job.state.is_ended for ref in (job.id, job.array_id)}
        self.awaited_ends |= {
            ref for ref in ended if self.active_jobs.is_awaited(ref) and not self.active_jobs.active_in(ref)
        }
