"""What should run next."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from danlu.domain.resources import Seat
from danlu.scheduler.backfill import Book
from danlu.scheduler.capacity import fits_ever
from danlu.scheduler.explain import ARRAY_LIMIT, Explainer
from danlu.scheduler.free import NEVER
from danlu.scheduler.ordering import in_order
from danlu.scheduler.placement import Fleet
from danlu.scheduler.snapshot import Plan, Snapshot, Start, Wait, Waiting

__all__ = ["fits_ever", "plan", "seat_now"]

# (queue, nodes, gpus, shards, model) -> asks that found no room: cpus, memory, seconds
Shape = tuple[str, int, int, int, str | None]
Misfits = dict[Shape, list[tuple[int, int, float]]]
_EVERYTHING = (0, 0, 0.0)
_HOPELESS = {"never_fits", "closed", "no_queue"}


def plan(snapshot: Snapshot) -> Plan:
    """Decide who starts where, and why the others wait. The same snapshot gives the same plan."""
    fleet = Fleet(snapshot)
    book = Book(fleet)
    starts: list[Start] = []
    left: dict[str, Waiting] = {}
    limited: set[str] = set()
    misfits: Misfits = {}
    for waiting in in_order(snapshot.waiting):
        if waiting.count <= 0:
            continue
        if waiting.blocked is None and waiting.may_start > 0:
            ask = waiting.ask
            until = NEVER if waiting.time_limit is None else waiting.time_limit.total_seconds()
            # Room only shrinks during a plan: what asks for no less than one that found none finds none.
            shape = (waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model)
            for cpus, memory, seconds in misfits.get(shape, ()):
                if ask.cpus >= cpus and ask.memory_mib >= memory and until >= seconds:
                    break
            else:
                begun = _start(waiting, until, fleet, book, misfits, starts)
                if begun == waiting.count:
                    continue
                if begun == waiting.may_start:
                    limited.add(waiting.key)
                    left[waiting.key] = waiting
                    continue
            if book.open:
                book.note(waiting)
        left[waiting.key] = waiting
    return Plan(tuple(starts), Waits(left, limited, fleet, book, snapshot.now))


def seat_now(snapshot: Snapshot, waiting: Waiting) -> Seat | Wait:
    """Where a new entry would run if it were submitted now, or why not yet."""
    made = plan(replace(snapshot, waiting=(*snapshot.waiting, waiting)))
    for start in made.starts:
        if start.key == waiting.key:
            return start.seat
    return made.waits[waiting.key]


def _start(waiting: Waiting, until: float, fleet: Fleet, book: Book, misfits: Misfits, starts: list[Start]) -> int:
    """Start as many of an entry as may and can; return how many."""
    ask, key = waiting.ask, waiting.key
    shape = (waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model)
    scope = fleet.scope(waiting.queue)
    if scope is None:
        misfits[shape] = [_EVERYTHING]
        return 0
    want = fleet.want(ask, until, scope)
    most = min(waiting.count, waiting.may_start)
    for begun in range(most):
        spot = fleet.find(want)
        if spot and book.pending:
            book.settle()
            spot = fleet.find(want)
        if spot is None:
            misfit = _EVERYTHING if fleet.lacks_cards(want) else (ask.cpus, ask.memory_mib, until)
            misfits[shape] = [other for other in misfits.get(shape, ()) if not _asks_no_less(other, misfit)]
            misfits[shape].append(misfit)
            return begun
        starts.append(Start(key, fleet.take(spot, want)))
    return most


def _asks_no_less(one: tuple[int, int, float], other: tuple[int, int, float]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] >= other[2]


class Waits(Mapping[str, Wait]):
    """By key, in order of the queue. A wait is worded and estimated when it is first looked at."""

    def __init__(self, left: dict[str, Waiting], limited: set[str], fleet: Fleet, book: Book, now: datetime) -> None:
        self._left = left
        self._limited = limited
        self._book = book
        self._now = now
        self._explainer = Explainer(fleet)
        self._places: dict[str, int] = {}
        self._made: dict[str, Wait] = {}

    def __getitem__(self, key: str) -> Wait:
        wait = self._made.get(key)
        if wait is None:
            wait = self._made[key] = self._make(self._left[key])
        return wait

    def __iter__(self) -> Iterator[str]:
        return iter(self._left)

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, key: object) -> bool:
        return key in self._left

    def __repr__(self) -> str:
        return repr(dict(self))

    def _make(self, waiting: Waiting) -> Wait:
        if not self._places:
            self._places = {key: place for place, key in enumerate(self._left, 1)}
        place = self._places[waiting.key]
        if waiting.blocked is not None:
            return Wait(waiting.blocked, place)
        if waiting.may_start <= 0 or waiting.key in self._limited:
            return Wait(ARRAY_LIMIT, place)
        reason = self._explainer.why(waiting)
        if reason.code in _HOPELESS:
            return Wait(reason, place)
        return Wait(reason, place, self._book.estimate(waiting, place, self._now))
