"""Input and output of `plan()`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from danlu.domain.job import Reason
from danlu.domain.queue import Queue
from danlu.domain.quota import Quota
from danlu.domain.resources import SHARDS_PER_GPU, Ask, Node, Seat


@dataclass(frozen=True, slots=True)
class Waiting:
    """Jobs that wait together: a single job, or the tasks of an array that have not started."""

    key: str  # id of the job or array
    ask: Ask
    seq: int  # submission order of its first job
    priority: int = 5
    time_limit: timedelta | None = None
    count: int = 1  # waiting jobs
    may_start: int = 1  # of these, jobs that may start now (`%N` of an array)
    blocked: Reason | None = None  # why all of them must wait, apart from room (a dependency)
    user: str = ""
    team: str = ""
    queue: str = ""
    is_preemptible: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that holds a seat now."""

    key: str
    seat: Seat
    ends_at: datetime | None = None  # by its time limit, or the end of its grace period; None: unknown
    more: tuple[Seat, ...] = ()  # the other seats of a run on several nodes
    user: str = ""
    team: str = ""
    queue: str = ""
    is_preemptible: bool = False
    is_stopping: bool = False
    started_at: datetime | None = None
    ask: Ask | None = None  # counts against quotas instead of the seats: an engine may report seats late or in part


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`engine_places`: the engine has its own queue and chooses the seats. Entries within their quotas are then handed
    over at once, and borrowers as soon as there seems to be room."""

    now: datetime
    nodes: tuple[Node, ...]
    waiting: tuple[Waiting, ...] = ()
    holding: tuple[Holding, ...] = ()
    queues: Mapping[str, Queue] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by `user:NAME` and `team:NAME`; `use` and `spent` too
    # GPU-hours of ended runs: decayed, and within the current period of the quota.
    use: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    boosted: frozenset[str] = frozenset()  # first within their priority: see `people.is_boosted`
    shards_per_gpu: int = SHARDS_PER_GPU
    engine_places: bool = False
    pending: tuple[Waiting, ...] = ()  # in the engine's queue: these hold quota, but no seat
    room_for: int = 1 << 62  # jobs that the engine's queue still accepts
    waiting_there: int = 1 << 62  # limit of pending jobs per user in each queue of the engine


@dataclass(frozen=True, slots=True)
class Start:
    key: str
    seat: Seat
    more: tuple[Seat, ...] = ()  # the other seats of a job on several nodes


@dataclass(frozen=True, slots=True)
class Stop:
    """A borrowed run that gives its seat back: the run is asked to checkpoint, and is queued again."""

    key: str
    wanted_by: str  # key of the entry that gets the seat


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a waiting entry (or its remaining part) does not start, and when it may."""

    reason: Reason
    place: int  # position among all waiting entries, from 1
    estimated_at: datetime | None = None  # None: unknown, e.g. a run without a time limit holds the seat
    is_guess: bool = False  # the estimate usage assumptions beyond time limits


@dataclass(frozen=True, slots=True)
class Plan:
    starts: tuple[Start, ...] = ()
    waits: Mapping[str, Wait] = field(default_factory=dict)  # by key
    stops: tuple[Stop, ...] = ()
    # With `engine_places`: the key of each run to hand over now, in order. Runs that fit at once are also in `starts`,
    # with a suitable seat; runs that will wait at the engine are in `waits`.
    handed: tuple[str, ...] = ()
