"""All active jobs in memory, indexed for the scheduling loop. A change costs its own size, not the queue's."""

import asyncio
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice
from types import MappingProxyType

from danlu.domain.job import ACTIVE, Job, JobId, JobSpec, JobState
from danlu.domain.resources import Ask


class Group:
    """Jobs that share a place in the queue: a single job, or the tasks of an array that have not started. Every change
    of the group sets a new `stamp`, so that results computed from the group can be cached."""

    __slots__ = ("_again", "_free", "_fresh", "key", "running", "seq", "spec", "stamp", "user")

    def __init__(self, first: Job, running: int) -> None:
        self.key = first.group
        self.user = first.user
        self.spec: JobSpec = first.spec
        self.seq = first.seq  # of the first waiting job; never rises while any job of the group waits
        self.running = running
        self.stamp = 0
        self._free = 0
        # Nearly all jobs leave from the front. Few jobs come back for another attempt: a small sorted list.
        self._fresh: OrderedDict[JobId, int] = OrderedDict()
        self._again: list[tuple[int, JobId]] = []

    @property
    def ask(self) -> Ask:
        return self.spec.ask

    @property
    def priority(self) -> int:
        return self.spec.priority

    @property
    def time_limit(self) -> timedelta | None:
        return self.spec.time_limit

    @property
    def order(self) -> tuple[int, int, str]:
        return -self.spec.priority, self.seq, self.key

    @property
    def count(self) -> int:
        """The number of waiting jobs."""
        return len(self._fresh) + len(self._again)

    @property
    def free(self) -> int:
        """The number of jobs that wait only for free resources."""
        return self._free

    @property
    def blocked(self) -> bool:
        """Every job of the group waits for another job."""
        return self._free == 0

    @property
    def ids(self) -> Iterator[JobId]:
        """In order of submission."""
        if not self._again:
            return iter(self._fresh)
        return (job_id for _, job_id in merge(self._again, ((seq, job_id) for job_id, seq in self._fresh.items())))

    def _add(self, job: Job) -> None:
        if not self._fresh or job.seq > self._fresh[next(reversed(self._fresh))]:
            self._fresh[job.id] = job.seq
        else:
            insort(self._again, (job.seq, job.id))
        self._free += not job.waiting_for

    def _drop(self, job: Job) -> None:
        if self._fresh.pop(job.id, None) is None:
            del self._again[bisect_left(self._again, (job.seq, job.id))]
        self._free -= not job.waiting_for


class ActiveJobs:
    """The code that commits a change applies the change: in the order of the commits, and before any other `await`."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs: dict[str, Job] = {}
        self.jobs: Mapping[str, Job] = MappingProxyType(self._jobs)
        self._holding: dict[str, Job] = {}
        self._groups: dict[str, Group] = {}
        self._order: list[Group] = []
        self._active: dict[str, int] = {}  # by group, like `_running`
        self._running: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self.users: Mapping[str, int] = MappingProxyType(self._users)  # users with active jobs, and how many
        self._dependents: dict[str, dict[JobId, None]] = {}
        self._counts = dict.fromkeys((state for state in JobState if state in ACTIVE), 0)
        self._watchers: dict[str, dict[asyncio.Future[Job], None]] = {}
        self._stamp = 0
        self.moves = 0  # the number of changes applied since the start
        self.apply(jobs)

    def apply(self, jobs: Iterable[Job]) -> None:
        """Apply committed jobs. Skip versions that are not newer than the known version; remove ended jobs."""
        for job in jobs:
            known = self._jobs.get(job.id)
            if known is not None and known.version >= job.version:
                continue
            self.moves += 1
            if known is not None and known.state.is_given is job.state.is_given and not job.state.is_ended:
                self._stay(known, job)
            else:
                if known is not None:
                    self._take_out(known, job)
                if not job.state.is_ended:
                    self._put_in(job, known)
            self._wake(job)

    def groups(self) -> Sequence[Group]:
        """All waiting groups, high priority first, then in order of submission. Valid until the next `apply`."""
        return self._order

    def group(self, key: str) -> Group | None:
        return self._groups.get(key)

    def next_ids(self, key: str, n: int) -> tuple[JobId, ...]:
        """The first `n` jobs of the group that wait only for free resources."""
        group = self._groups.get(key)
        if group is None:
            return ()
        if group._free == group.count:
            return tuple(islice(group.ids, n))
        return tuple(islice((job_id for job_id in group.ids if not self._jobs[job_id].waiting_for), n))

    def holding(self) -> Collection[Job]:
        return self._holding.values()

    def dependents(self, ref: str) -> tuple[JobId, ...]:
        """The queued jobs that wait for the job or array with this id."""
        return tuple(self._dependents.get(ref, ()))

    def is_awaited(self, ref: str) -> bool:
        """Whether any queued job waits for the job or array with this id."""
        return ref in self._dependents

    def overdue(self) -> set[str]:
        """Jobs and arrays that are no longer active although queued jobs wait for them."""
        return {ref for ref in self._dependents if not self.active_in(ref)}

    def active_in(self, ref: str) -> int:
        """The number of active tasks of the array; for a job: 1 if active, else 0."""
        return self._active.get(ref) or int(ref in self._jobs)

    def counts(self) -> Mapping[JobState, int]:
        return MappingProxyType(self._counts)

    def watch(self, ref: str) -> "asyncio.Future[Job]":
        """A future for the next change of this job, or of any task of this array. The result is the changed job."""
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(ref, {})[future] = None
        future.add_done_callback(lambda done: self._forget(ref, done))
        return future

    def is_watched(self, ref: str) -> bool:
        return ref in self._watchers

    def _forget(self, ref: str, future: "asyncio.Future[Job]") -> None:
        watchers = self._watchers.get(ref)
        if watchers is not None:
            watchers.pop(future, None)
            if not watchers:
                del self._watchers[ref]

    def _wake(self, job: Job) -> None:
        for ref in (job.id, job.array_id):
            for future in self._watchers.pop(ref, ()):
                if not future.done():
                    future.set_result(job)

    def _stay(self, known: Job, job: Job) -> None:
        """The job is still in the queue, or still with the engine."""
        self._counts[known.state] -= 1
        self._counts[job.state] += 1
        self._jobs[job.id] = job
        if job.state.is_given:
            self._holding[job.id] = job
            return
        group = self._groups[job.group]
        group._free += (not job.waiting_for) - (not known.waiting_for)
        self._touch(group)
        if job.waiting_for != known.waiting_for:
            self._wait_no_more(known)
            self._wait_for(job)

    def _take_out(self, job: Job, successor: Job) -> None:
        self._counts[job.state] -= 1
        if successor.state.is_ended:
            del self._jobs[job.id]
            _less(self._active, job.group)
            _less(self._users, job.user)
        if job.state.is_given:
            del self._holding[job.id]
            self._run(job.group, -1)
        else:
            self._leave_queue(job)

    def _put_in(self, job: Job, known: Job | None) -> None:
        self._counts[job.state] += 1
        self._jobs[job.id] = job
        if known is None:
            self._active[job.group] = self._active.get(job.group, 0) + 1
            self._users[job.user] = self._users.get(job.user, 0) + 1
        if job.state.is_given:
            self._holding[job.id] = job
            self._run(job.group, 1)
        else:
            self._join_queue(job)

    def _run(self, key: str, change: int) -> None:
        if change > 0:
            self._running[key] = self._running.get(key, 0) + 1
        else:
            _less(self._running, key)
        if (group := self._groups.get(key)) is not None:
            group.running = self._running.get(key, 0)
            self._touch(group)

    def _join_queue(self, job: Job) -> None:
        group = self._groups.get(job.group)
        if group is None:
            group = self._groups[job.group] = Group(job, self._running.get(job.group, 0))
            if not self._order or self._order[-1].order < group.order:  # the usual case
                self._order.append(group)
            else:
                insort(self._order, group, key=_order)
        elif job.seq < group.seq:
            del self._order[bisect_left(self._order, group.order, key=_order)]
            group.seq = job.seq
            insort(self._order, group, key=_order)
        group._add(job)
        self._touch(group)
        self._wait_for(job)

    def _leave_queue(self, job: Job) -> None:
        group = self._groups[job.group]
        group._drop(job)
        self._touch(group)
        if not group.count:
            del self._groups[job.group]
            del self._order[bisect_left(self._order, group.order, key=_order)]
        self._wait_no_more(job)

    def _wait_for(self, job: Job) -> None:
        for one in job.waiting_for:
            self._dependents.setdefault(one.on, {})[job.id] = None

    def _wait_no_more(self, job: Job) -> None:
        for one in job.waiting_for:
            if waiting := self._dependents.get(one.on):
                waiting.pop(job.id, None)
                if not waiting:
                    del self._dependents[one.on]

    def _touch(self, group: Group) -> None:
        self._stamp += 1
        group.stamp = self._stamp


def _order(group: Group) -> tuple[int, int, str]:
    return group.order


def _less(counts: dict[str, int], key: str) -> None:
    """Decrement a count, and remove the key at zero."""
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
