"""Snapshots of the active jobs and their rules, in the form that `plan()` reads."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain

from danlu.domain.charge import Charge
from danlu.domain.job import Job, JobSpec, Reason
from danlu.domain.quota import keys_of
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Seat
from danlu.engines.base import Abilities, ExternalRun
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Waiting
from danlu.state.active_jobs import ActiveJobs, Group
from danlu.state.inventory import Inventory
from danlu.state.occupancy import unknown_seats
from danlu.state.people import Roster
from danlu.state.usage import Tally

# How long an engine's card usage may lag behind its job list.
MOMENT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Standing:
    """The state besides the jobs: nodes and queues, people with their quotas, and past usage."""

    roster: Roster
    tally: Tally
    inventory: Inventory = field(default_factory=Inventory)
    grace: timedelta = timedelta(seconds=30)
    abilities: Abilities = Abilities()  # of the engine
    waiting_there: int = 1 << 62  # how many jobs of one person may wait in the engine's queue


class Outlook:
    """Makes snapshots, and reuses the parts that did not change since the last snapshot. Holds the last plan, to
    explain why a job waits."""

    def __init__(self, standing: Standing) -> None:
        self.plan = Plan()
        self.estimates: Mapping[str, datetime] = {}  # when the engine expects to start jobs that wait in its queue
        self.standing = standing
        self._stamp = standing.roster.stamp
        self._waiting: dict[str, tuple[int, Waiting]] = {}
        self._given: dict[str, tuple[int, Holding | Waiting]] = {}
        self._unknown_since: dict[str, datetime] = {}  # taken cards of unknown runs

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes whenever people, their quotas, or the inventory change."""
        return self.standing.roster.stamp, self.standing.inventory.stamp

    def snapshot(
        self,
        active_jobs: ActiveJobs,
        now: datetime,
        *,
        ended: Sequence[Job] = (),
        charges: Iterable[Charge] = (),
    ) -> Snapshot:
        """All active jobs, without the runs in `ended`: these runs are over, but not yet written. `charges` is
        the usage of these runs.
        Later changes do not affect the snapshot: another thread may use it."""
        standing, quotas = self.standing, dict(self.standing.roster.quotas)
        if self._stamp != standing.roster.stamp:
            self._stamp = standing.roster.stamp
            self._waiting.clear()
        given = self._all_given(active_jobs, {job.id for job in ended}, now)
        holding = [one for one in given if isinstance(one, Holding)]
        others = [_other_holding(one) for one in standing.inventory.others if one.seats]
        # With a single person's jobs, fair share has no meaning.
        is_shared = len(active_jobs.users) > 1 or bool(quotas)
        return Snapshot(
            now,
            standing.inventory.nodes,
            self._entries(active_jobs, Counter(job.array_id for job in ended if job.array_id)),
            (*holding, *others, *self._of_nobody([*holding, *others], now)),
            pending=tuple(one for one in given if isinstance(one, Waiting)) if standing.abilities.places else (),
            engine_places=standing.abilities.places,
            room_for=standing.inventory.room_for,
            waiting_there=standing.waiting_there,
            queues=standing.inventory.queues,
            quotas=quotas,
            use=_with(standing.tally.use(now), charges) if is_shared else {},
            spent=_with(standing.tally.spent(quotas, now), charges) if quotas else {},
            boosted=standing.roster.boosted(now) if is_shared else frozenset(),
            shards_per_gpu=standing.inventory.shards_per_gpu,
        )

    def _of_nobody(self, held: Sequence[Holding], now: datetime) -> list[Holding]:
        """Taken cards without a known run. Such cards are normal for a moment while runs start and end; in that moment
        no job should be asked to make room."""
        told = self.standing.inventory.now
        seats: dict[str, list[Seat]] = {}
        for seat in chain.from_iterable((one.seat, *one.more) for one in held) if told else ():
            seats.setdefault(seat.node, []).append(seat)
        unknown = {
            f"{name}:{seat.gpus or seat.shared_gpu}": seat
            for name, engine_says in told.items()
            for seat in unknown_seats(name, seats.get(name, ()), engine_says)
        }
        self._unknown_since = {key: self._unknown_since.get(key, now) for key in unknown}
        is_new = {key for key, since in self._unknown_since.items() if now - since < MOMENT}
        return [Holding(key, seat, now if key in is_new else None) for key, seat in unknown.items()]

    def _all_given(self, active_jobs: ActiveJobs, over: Collection[str], now: datetime) -> list[Holding | Waiting]:
        """All jobs that the engine has: on a seat, or waiting for a seat there."""
        given: dict[str, tuple[int, Holding | Waiting]] = {}
        for job in active_jobs.holding():
            if job.id not in over:
                known = self._given.get(job.id)
                if known is None or known[0] != job.version:
                    known = (job.version, self._given_of(job, now))
                given[job.id] = known
        self._given = given
        return [one for _, one in given.values()]

    def _given_of(self, job: Job, now: datetime) -> Holding | Waiting:
        if not job.seats:
            return entry_of(job.spec, job.id, job.user, job.seq)
        held = holding_of(job, now, self.standing.grace)
        return replace(held, ask=job.spec.ask) if self.standing.abilities.places else held

    def _entries(self, active_jobs: ActiveJobs, freed: Mapping[str, int]) -> tuple[Waiting, ...]:
        """All waiting groups. `freed`: by array, how many running tasks have ended."""
        waiting: dict[str, tuple[int, Waiting]] = {}
        for group in active_jobs.groups():
            known = self._waiting.get(group.key)
            if known is None or known[0] != group.stamp:
                known = (group.stamp, self._waiting_of(active_jobs, group))
            waiting[group.key] = known
        self._waiting = waiting
        entries = [entry for _, entry in waiting.values()]
        if freed:
            for index, group in enumerate(active_jobs.groups()):
                if group.key in freed:
                    entries[index] = self._waiting_of(active_jobs, group, freed[group.key])
        return tuple(entries)

    def _waiting_of(self, active_jobs: ActiveJobs, group: Group, freed: int = 0) -> Waiting:
        """A group of queued jobs; `freed` of its running tasks have ended."""
        spec, at_once = group.spec, group.spec.at_once
        person = self.standing.roster.persons.get(group.user)
        blocked = _blocked(active_jobs, group) if group.blocked else None
        if person is not None and not person.is_enabled:
            blocked = Reason(ReasonCode.DISABLED, f"the account of {person.name} is disabled")
        elif spec.team and not self.standing.roster.is_in(group.user, spec.team):
            blocked = Reason(ReasonCode.LEFT_TEAM, f"{group.user} is no longer in the team {spec.team}")
        may_start = group.free if at_once is None else min(group.free, at_once - group.running + freed)
        return entry_of(spec, group.key, group.user, group.seq, count=group.count, may_start=may_start, blocked=blocked)


def entry_of(
    spec: JobSpec,
    key: str,
    user: str,
    seq: int,
    *,
    count: int = 1,
    may_start: int = 1,
    blocked: Reason | None = None,
) -> Waiting:
    """The queue entry of a person's jobs with this spec."""
    return Waiting(
        key=key,
        ask=spec.ask,
        seq=seq,
        priority=spec.priority,
        time_limit=spec.time_limit,
        count=count,
        may_start=may_start,
        blocked=blocked,
        user=user,
        team=spec.team,
        queue=spec.queue,
        is_preemptible=spec.is_preemptible,
    )


def holding_of(job: Job, now: datetime, grace: timedelta = timedelta(0)) -> Holding:
    """A run on its seat. A run that is still starting has all its time left."""
    assert job.seat is not None
    spec, started_at = job.spec, job.started_at or now
    ends_at = started_at + spec.time_limit if spec.time_limit else None
    if job.stop_requested_at is not None:
        gone_at = job.stop_requested_at + (spec.notice.lead if spec.notice else timedelta(0)) + grace
        ends_at = gone_at if ends_at is None else min(ends_at, gone_at)
    return Holding(
        job.id,
        job.seat,
        ends_at,
        more=job.seats[1:],
        user=job.user,
        team=spec.team,
        queue=spec.queue,
        is_preemptible=spec.is_preemptible,
        is_stopping=job.stop_requested_at is not None,
        started_at=job.started_at,
    )


def _other_holding(other: ExternalRun) -> Holding:
    """A run from outside Danlu takes its place, and counts against the quotas of its owner."""
    return Holding(
        other.id,
        other.seats[0],
        other.ends_at,
        more=other.seats[1:],
        user=other.user,
        queue=other.queue,
        started_at=other.started_at,
        ask=other.ask,
    )


def _with(hours: Mapping[str, float], charges: Iterable[Charge]) -> Mapping[str, float]:
    total = dict(hours)
    for charge in charges:
        for key in keys_of(charge.user, charge.team):
            total[key] = total.get(key, 0.0) + charge.gpu_hours
    return total


def _blocked(active_jobs: ActiveJobs, group: Group) -> Reason:
    waiting_for = active_jobs.jobs[next(group.ids)].waiting_for
    names = ", ".join(dependency.on for dependency in waiting_for)
    how = "succeed" if any(dependency.kind == "ok" for dependency in waiting_for) else "end"
    return Reason(ReasonCode.DEPENDENCY, f"{names} must {how} first")
