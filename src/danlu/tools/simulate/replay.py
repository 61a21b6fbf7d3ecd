"""Replay a trace of jobs through `plan()`. Times are seconds since the start of the trace."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from heapq import heapify, heappop, heappush
from math import ceil

from danlu.domain.job import DEFAULT_PRIORITY, Reason
from danlu.domain.queue import Queue
from danlu.domain.quota import Quota, keys_of
from danlu.domain.resources import SHARDS_PER_GPU, Ask, Node
from danlu.scheduler.node_timeline import NEVER
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Start, Waiting
from danlu.tools.simulate.past_use import Past
from danlu.tools.simulate.quick_fit import Room

LONGEST_PERIOD_DAYS = 31


class Fate(StrEnum):
    AHEAD = "ahead"  # not yet submitted
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    TIMED_OUT = "timed_out"
    NEVER = "never"  # refused, or no node could ever run the job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of the trace, with its real duration."""

    key: str
    submit_s: float
    duration_s: float
    ask: Ask
    user: str = ""
    team: str = ""
    queue: str = ""
    priority: int = DEFAULT_PRIORITY
    time_limit: timedelta | None = None
    is_preemptible: bool = False
    refused: Reason | None = None  # why the job would be refused


@dataclass(frozen=True, slots=True)
class Boosted:
    """A user who goes first for a limited time."""

    user: str
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Policy:
    """The machines and rules to simulate."""

    nodes: tuple[Node, ...]
    queues: Mapping[str, Queue] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    boosts: tuple[Boosted, ...] = ()
    half_life: timedelta = timedelta(days=7)
    grace: timedelta = timedelta(seconds=30)  # a stopped run holds its seat this long
    step: timedelta | None = None  # plan only at multiples of this; None: at every change
    resumes: bool = True  # a stopped run continues from its checkpoint; otherwise from the start
    shards_per_gpu: int = SHARDS_PER_GPU


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt: the time a seat was held."""

    start_s: float
    end_s: float


class Life:
    """The history of a job."""

    __slots__ = ("fate", "gpus", "job", "left_s", "reason", "runs", "seq", "start_s", "times_out", "waiting")

    def __init__(self, job: TraceJob, seq: int, shards_per_gpu: int) -> None:
        self.job = job
        self.seq = seq
        self.fate = Fate.AHEAD
        self.reason: Reason | None = job.refused
        self.runs: list[Run] = []  # ended runs
        self.start_s = 0.0  # of the current run
        self.times_out = False  # the current run ends at its time limit, before its work is done
        self.left_s = job.duration_s
        self.gpus = (job.ask.gpus + job.ask.shards / shards_per_gpu) * job.ask.nodes
        self.waiting = Waiting(
            key=job.key,
            ask=job.ask,
            seq=seq,
            priority=job.priority,
            time_limit=job.time_limit,
            user=job.user,
            team=job.team,
            queue=job.queue,
            is_preemptible=job.is_preemptible,
        )

    @property
    def preemptions(self) -> int:
        return len(self.runs) - (self.fate in (Fate.DONE, Fate.TIMED_OUT))

    @property
    def first_start_s(self) -> float | None:
        if self.runs:
            return self.runs[0].start_s
        return self.start_s if self.fate is Fate.RUNNING else None

    @property
    def end_s(self) -> float | None:
        return self.runs[-1].end_s if self.fate in (Fate.DONE, Fate.TIMED_OUT) else None


class Kind(IntEnum):
    """Kinds of events, in the order of processing at equal times."""

    END = 0
    RELEASE = 1  # a stopped run releases its seat
    SUBMIT = 2
    WAKE = 3  # a new day: a quota period may have started


@dataclass(frozen=True, slots=True)
class Moment:
    """A call of `plan()`."""

    at_s: float
    snapshot: Snapshot
    plan: Plan


Event = tuple[float, Kind, int, int]  # time, kind, job, attempt


class Replay:
    """Replay a trace once. The caller may stop at any time; `lives` then shows the progress of each job."""

    def __init__(self, jobs: Iterable[TraceJob], policy: Policy, begin: datetime, *, skips: bool = True) -> None:
        """`skips`: omit plans that can neither start nor stop a run. The outcome is the same."""
        self.policy = policy
        self.begin = begin
        self.now_s = 0.0
        self.plans = 0
        ordered = sorted(jobs, key=lambda job: job.submit_s)  # stable: file order for equal times
        self.lives = [Life(job, seq, policy.shards_per_gpu) for seq, job in enumerate(ordered)]
        self._by_key = {life.job.key: life for life in self.lives}
        self._events: list[Event] = [(life.job.submit_s, Kind.SUBMIT, life.seq, 0) for life in self.lives]
        heapify(self._events)
        self._waiting: dict[str, Waiting] = {}
        self._holding: dict[str, Holding] = {}
        self._past = Past(policy.quotas, policy.half_life, begin)
        self._room = Room(policy.nodes, policy.queues) if skips else None
        self._may_borrow = any(quota.borrow for quota in policy.quotas.values())
        self._stoppable = 0  # preemptible runs without a stop request
        self._hopeless: dict[tuple[object, ...], Reason | None] = {}
        self._days_without_start = 0
        self._wakes_at = -1.0

    def moments(self) -> Iterator[Moment]:
        """Advance the time; yield every plan after its starts and stops are applied."""
        while self._events:
            at_s = self.now_s = self._next_moment()
            while self._events and self._events[0][0] <= at_s:
                self._happen(*heappop(self._events))
            if self._waiting and (self._room is None or self._is_worth_a_plan(self._room)):
                yield self._plan(at_s)
            self._wake_tomorrow(at_s)
        self._give_up()

    def _next_moment(self) -> float:
        first = self._events[0][0]
        if self.policy.step is None:
            return first
        step = self.policy.step.total_seconds()
        return max(first, ceil(first / step) * step)  # never earlier, despite rounding

    def _happen(self, at_s: float, kind: Kind, seq: int, attempt: int) -> None:
        life = self.lives[seq]
        if kind is Kind.SUBMIT:
            self._submit(life)
        elif kind is Kind.WAKE:
            self._days_without_start += 1
        elif life.fate is Fate.RUNNING and len(life.runs) == attempt:
            if kind is Kind.END:
                self._end(life, at_s)
            else:
                self._release(life, at_s)

    def _submit(self, life: Life) -> None:
        life.reason = life.reason or self._why_never(life.job)
        if life.reason is not None:
            life.fate = Fate.NEVER
            return
        self._enqueue(life)

    def _enqueue(self, life: Life) -> None:
        life.fate = Fate.WAITING
        self._waiting[life.job.key] = life.waiting
        if self._room:
            self._room.enter(life.waiting)

    def _plan(self, at_s: float) -> Moment:
        now = self._at(at_s)
        policy = self.policy
        snapshot = Snapshot(
            now=now,
            nodes=policy.nodes,
            waiting=tuple(self._waiting.values()),
            holding=tuple(self._holding.values()),
            queues=policy.queues,
            quotas=policy.quotas,
            use=self._past.use(at_s),
            spent=self._past.spent(at_s),
            boosted=frozenset(one.user for one in policy.boosts if one.from_s <= at_s < one.until_s),
            shards_per_gpu=policy.shards_per_gpu,
        )
        made = plan(snapshot)
        self.plans += 1
        for stop in made.stops:
            self._stop(self._by_key[stop.key], at_s)
        for start in made.starts:
            self._start(self._by_key[start.key], start, at_s)
        return Moment(at_s, snapshot, made)

    def _start(self, life: Life, start: Start, at_s: float) -> None:
        job = life.job
        waiting = self._waiting.pop(job.key)
        limit = job.time_limit
        now = self._at(at_s)
        self._holding[job.key] = Holding(
            key=job.key,
            seat=start.seat,
            ends_at=now + limit if limit else None,
            more=start.more,
            user=job.user,
            team=job.team,
            queue=job.queue,
            is_preemptible=job.is_preemptible,
            started_at=now,
        )
        if self._room:
            self._room.leave(waiting)
            self._room.take(start.seat, *start.more)
        self._stoppable += job.is_preemptible
        lasts_s = NEVER if limit is None else limit.total_seconds()
        life.fate, life.start_s, life.times_out = Fate.RUNNING, at_s, lasts_s < life.left_s
        heappush(self._events, (at_s + min(lasts_s, life.left_s), Kind.END, life.seq, len(life.runs)))
        self._days_without_start = 0

    def _stop(self, life: Life, at_s: float) -> None:
        """Ask a run to write a checkpoint. The run ends after its grace period, or earlier by itself."""
        key, grace = life.job.key, self.policy.grace
        held = self._holding[key]
        if held.is_stopping:
            return
        by = self._at(at_s) + grace
        ends_at = by if held.ends_at is None else min(held.ends_at, by)
        self._holding[key] = replace(held, is_stopping=True, ends_at=ends_at)
        self._stoppable -= 1
        if self.policy.resumes:
            life.left_s -= at_s - life.start_s
        heappush(self._events, (at_s + grace.total_seconds(), Kind.RELEASE, life.seq, len(life.runs)))

    def _end(self, life: Life, at_s: float) -> None:
        """End a run; also a run that was asked to stop and finished within its grace period."""
        self._let_go(life, at_s)
        life.fate = Fate.TIMED_OUT if life.times_out else Fate.DONE

    def _release(self, life: Life, at_s: float) -> None:
        """Put a stopped job back into the queue, at its old position."""
        self._let_go(life, at_s)
        self._enqueue(life)

    def _let_go(self, life: Life, at_s: float) -> None:
        held = self._holding.pop(life.job.key)
        life.runs.append(Run(life.start_s, at_s))
        self._stoppable -= held.is_preemptible and not held.is_stopping
        if self._room:
            self._room.give_back(held.seat, *held.more)
        self._past.add(life.job.user, life.job.team, life.gpus, life.start_s, at_s)

    def _is_worth_a_plan(self, room: Room) -> bool:
        """Whether any run can be started or stopped at all. Order, reservations and quotas only restrict further."""
        return (self._may_borrow and self._stoppable > 0) or room.fits_any()

    def _why_never(self, job: TraceJob) -> Reason | None:
        """Why the job could not start even on an empty cluster; None if it could."""
        quotas = self.policy.quotas
        held = tuple(quotas.get(key) for key in keys_of(job.user, job.team))
        kind = (job.ask, job.queue, job.is_preemptible, held)
        if kind not in self._hopeless:
            alone = Waiting(
                job.key, job.ask, 0, user=job.user, team=job.team, queue=job.queue, is_preemptible=job.is_preemptible
            )
            policy = self.policy
            empty = Snapshot(
                self.begin,
                policy.nodes,
                (alone,),
                queues=policy.queues,
                quotas=quotas,
                shards_per_gpu=policy.shards_per_gpu,
            )
            made = plan(empty)
            self._hopeless[kind] = None if made.starts else made.waits[job.key].reason
        return self._hopeless[kind]

    def _wake_tomorrow(self, at_s: float) -> None:
        """Add an event at midnight, when quota periods start: entries over their GPU-hours may continue then."""
        if not self._waiting or not self._past.has_periods or self._wakes_at > at_s:
            return
        if self._holding or self._days_without_start <= LONGEST_PERIOD_DAYS:
            midnight = self._at(at_s).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            self._wakes_at = (midnight - self.begin).total_seconds()
            heappush(self._events, (self._wakes_at, Kind.WAKE, 0, 0))

    def _give_up(self) -> None:
        """No event is left: mark the remaining jobs as never starting."""
        if self._waiting:
            waits = self._plan(self.now_s).plan.waits
            for key in list(self._waiting):
                life = self._by_key[key]
                life.fate, life.reason = Fate.NEVER, waits[key].reason
            self._waiting.clear()

    def _at(self, at_s: float) -> datetime:
        return self.begin + timedelta(seconds=at_s)
