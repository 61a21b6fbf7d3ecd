"""The active jobs as `plan()` wants to see them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from danlu.domain.job import Job, Reason
from danlu.domain.resources import Node
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Waiting
from danlu.store.live import Group, Live


class Outlook:
    """Makes snapshots, keeping what did not change since the last one; holds the last plan for who asks why."""

    def __init__(self) -> None:
        self.plan = Plan()
        self._waiting: dict[str, tuple[int, Waiting]] = {}
        self._holding: dict[str, tuple[int, Holding]] = {}

    def snapshot(self, live: Live, nodes: Iterable[Node], now: datetime, *, ended: Sequence[Job] = ()) -> Snapshot:
        """Everything active as it stands, less the runs that are known to be over but not yet written down."""
        over = {job.id for job in ended}
        freed = Counter(job.array_id for job in ended if job.array_id)
        waiting: dict[str, tuple[int, Waiting]] = {}
        holding: dict[str, tuple[int, Holding]] = {}
        for group in live.groups():
            known = self._waiting.get(group.key)
            if known is None or known[0] != group.stamp:
                known = (group.stamp, waiting_of(live, group))
            waiting[group.key] = known
        for job in live.holding():
            if job.id not in over:
                held = self._holding.get(job.id)
                if held is None or held[0] != job.version:
                    held = (job.version, holding_of(job, now))
                holding[job.id] = held
        self._waiting, self._holding = waiting, holding
        entries = [entry for _, entry in waiting.values()]
        if freed:
            for index, group in enumerate(live.groups()):
                if group.key in freed:
                    entries[index] = waiting_of(live, group, freed[group.key])
        return Snapshot(now, tuple(nodes), tuple(entries), tuple(held for _, held in holding.values()))


def waiting_of(live: Live, group: Group, freed: int = 0) -> Waiting:
    """A group of queued jobs; `freed` of its running tasks are over."""
    at_once = group.spec.at_once
    return Waiting(
        key=group.key,
        ask=group.ask,
        seq=group.seq,
        priority=group.priority,
        time_limit=group.time_limit,
        count=group.count,
        may_start=group.free if at_once is None else min(group.free, at_once - group.running + freed),
        blocked=_blocked(live, group) if group.blocked else None,
    )


def holding_of(job: Job, now: datetime) -> Holding:
    """A run on its seat; one that is only being started has all its time before it."""
    assert job.seat is not None
    limit = job.spec.time_limit
    return Holding(job.id, job.seat, (job.started_at or now) + limit if limit else None)


def _blocked(live: Live, group: Group) -> Reason:
    waiting_for = live.jobs[next(group.ids)].waiting_for
    names = ", ".join(dependency.on for dependency in waiting_for)
    how = "to succeed" if any(dependency.kind == "ok" for dependency in waiting_for) else "to end"
    return Reason("dependency", f"waits for {names} {how}")
