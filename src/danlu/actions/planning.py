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
        waiting, old_waiting = {}, self._waiting
        for group in live.groups():
            known = old_waiting.get(group.key)
            if known is None or known[0] != group.stamp:
                known = (group.stamp, waiting_of(group))
            waiting[group.key] = known
        holding, old_holding = {}, self._holding
        for job in live.holding():
            if job.id not in over:
                held = old_holding.get(job.id)
                if held is None or held[0] != job.version:
                    held = (job.version, holding_of(job))
                holding[job.id] = held
        self._waiting, self._holding = waiting, holding
        entries = [entry for _, entry in waiting.values()]
        if freed:
            entries = [waiting_of(group, freed[group.key]) if group.key in freed else entry
                       for group, entry in zip(live.groups(), entries, strict=True)]  # fmt: skip
        return Snapshot(now, tuple(nodes), tuple(entries), tuple(held for _, held in holding.values()))


def waiting_of(group: Group, freed: int = 0) -> Waiting:
    """A group of queued jobs; `freed` of its running tasks are over."""
    count = len(group.ids)
    may_start = count if group.at_once is None else min(count, group.at_once - group.running + freed)
    return Waiting(
        key=group.key,
        ask=group.ask,
        seq=group.seq,
        priority=group.priority,
        time_limit=group.time_limit,
        count=count,
        may_start=may_start,
        blocked=_blocked(group),
    )


def holding_of(job: Job) -> Holding:
    assert job.seat is not None
    limit = job.spec.time_limit
    ends_at = job.started_at + limit if job.started_at and limit else None
    return Holding(job.id, job.seat, ends_at)


def _blocked(group: Group) -> Reason | None:
    if not group.waiting_for:
        return None
    names = ", ".join(dependency.on for dependency in group.waiting_for)
    how = "to succeed" if any(d.kind == "ok" for d in group.waiting_for) else "to end"
    return Reason("dependency", f"waits for {names} {how}")
