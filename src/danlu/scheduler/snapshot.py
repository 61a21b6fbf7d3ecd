"""What `plan()` sees and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Node, Seat


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


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that holds a seat now."""

    key: str
    seat: Seat
    ends_at: datetime | None = None  # by its time limit; None: nobody knows


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: datetime
    nodes: tuple[Node, ...]
    waiting: tuple[Waiting, ...] = ()
    holding: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    key: str
    seat: Seat


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a waiting entry (or the rest of it) does not start, and when it may."""

    reason: Reason
    place: int  # its place among all that wait, from 1
    estimated_at: datetime | None = None  # None: nobody can say, e.g. a holder has no time limit


@dataclass(frozen=True, slots=True)
class Plan:
    starts: tuple[Start, ...] = ()
    waits: Mapping[str, Wait] = field(default_factory=dict)  # by key
