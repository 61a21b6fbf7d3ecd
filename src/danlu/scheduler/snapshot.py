"""What `plan()` sees and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from danlu.domain.job import Reason
from danlu.domain.queue import Queue
from danlu.domain.quota import Quota
from danlu.domain.resources import SHARDS_PER_GPU, Ask, Node, Seat


@dataclass(frozen=True, slots=True)
class Waiting:
    """Jobs that wait as one: a single job, or the tasks of an array that have not started."""

    key: str  # the job's id, or the array's
    ask: Ask
    seq: int  # order of submission of the first of them
    priority: int = 5
    time_limit: timedelta | None = None
    count: int = 1  # how many wait
    may_start: int = 1  # how many of them may start now (an array's %N)
    blocked: Reason | None = None  # something other than room keeps all of them (a dependency)
    user: str = ""
    team: str = ""
    queue: str = ""
    is_preemptible: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that holds a seat now."""

    key: str
    seat: Seat
    ends_at: datetime | None = None  # by its time limit, or when its stop is over; None: nobody knows
    more: tuple[Seat, ...] = ()  # its other seats, if it holds several nodes
    user: str = ""
    team: str = ""
    queue: str = ""
    is_preemptible: bool = False
    is_stopping: bool = False
    started_at: datetime | None = None
    ask: Ask | None = None  # what counts against quotas, if not the seats: an engine may tell them late, or in part


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`engine_places`: the engine has a queue of its own and chooses the seats. Then whoever is within the quotas is
    handed over at once, and who borrows as soon as there seems to be room."""

    now: datetime
    nodes: tuple[Node, ...]
    waiting: tuple[Waiting, ...] = ()
    holding: tuple[Holding, ...] = ()
    queues: Mapping[str, Queue] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by `user:NAME` and `team:NAME`, as are the next two
    # GPU-hours of runs that are over: faded, and those in the running period of the quota.
    use: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    boosted: frozenset[str] = frozenset()  # who goes before all others of their priority: `account.is_boosted`
    shards_per_gpu: int = SHARDS_PER_GPU
    engine_places: bool = False
    pending: tuple[Waiting, ...] = ()  # handed over, and waiting in the engine's queue: they hold quota and no seat
    room_for: int = 1 << 62  # how many more the engine's queue takes
    waiting_there: int = 1 << 62  # how many of one person may wait in one of its queues


@dataclass(frozen=True, slots=True)
class Start:
    key: str
    seat: Seat
    more: tuple[Seat, ...] = ()  # the other seats of a job on several nodes


@dataclass(frozen=True, slots=True)
class Stop:
    """A borrowed run that gives its seat back: it is asked to checkpoint and waits again."""

    key: str
    wanted_by: str  # the key of the entry that it makes room for


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a waiting entry (or the rest of it) does not start, and when it may."""

    reason: Reason
    place: int  # its place among all that wait, from 1
    estimated_at: datetime | None = None  # None: nobody can say, e.g. a holder has no time limit
    is_guess: bool = False  # the estimate rests on more than time limits


@dataclass(frozen=True, slots=True)
class Plan:
    starts: tuple[Start, ...] = ()
    waits: Mapping[str, Wait] = field(default_factory=dict)  # by key
    stops: tuple[Stop, ...] = ()
    # Where the engine places: the key of each run that it gets now, in order. What it can start at once is in `starts`
    # too, with a seat that would do; what it will keep waiting in `waits`.
    handed: tuple[str, ...] = ()
