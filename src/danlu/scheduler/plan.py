"""What should run next."""

from collections import Counter
from dataclasses import replace
from functools import cached_property

from danlu.domain.resources import Seat
from danlu.scheduler.admission import BORROWS, ENTITLED, OVER, Admission, Standing
from danlu.scheduler.capacity import fits_ever
from danlu.scheduler.node_timeline import NEVER, Want
from danlu.scheduler.ordering import Turns, Uses, is_of_one, turns_of
from danlu.scheduler.placement import Fleet
from danlu.scheduler.preemption import Reclaim
from danlu.scheduler.reasons import Left, Waits
from danlu.scheduler.reservations import Book
from danlu.scheduler.snapshot import Plan, Snapshot, Start, Stop, Wait, Waiting

__all__ = ["fits_ever", "plan", "seat_now"]

# (queue, nodes, gpus, shards, model) -> asks that found no room: cpus, memory, seconds
Shape = tuple[str, int, int, int, str | None]
Misfits = dict[Shape, list[tuple[int, int, float]]]
_EVERYTHING = (0, 0, 0.0)


def plan(snapshot: Snapshot) -> Plan:
    """Decide who starts where, who gives back what was borrowed, and why the others wait. The same snapshot gives
    the same plan."""
    made = Pass(snapshot)
    made.think_of_pending()
    made.go_through(snapshot.waiting, ENTITLED)
    if made.borrowers:
        made.go_through(made.borrowers, BORROWS)
    waits = Waits(made.left, made.fleet, made.book, made.admission, snapshot.now)
    return Plan(tuple(made.starts), waits, made.stops, tuple(made.handed))


def seat_now(snapshot: Snapshot, waiting: Waiting) -> Seat | Wait:
    """Where a new entry would run if it were submitted now, or why not yet."""
    made = plan(replace(snapshot, waiting=(*snapshot.waiting, waiting)))
    for start in made.starts:
        if start.key == waiting.key:
            return start.seat
    return made.waits[waiting.key]


class Pass:
    """One pass over the queue: first those within their quotas, then those who borrow what is left."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.fleet = Fleet(snapshot)
        self.book = Book(self.fleet)
        self.admission = Admission(snapshot, self.book.start_of) if snapshot.quotas else None
        self.starts: list[Start] = []
        self.handed: list[str] = []
        self._there = Counter((entry.user, entry.queue) for entry in snapshot.pending)  # who waits at the engine's
        self.left = Left()
        self.borrowers: list[Waiting] = []
        self._snapshot = snapshot
        self._uses = None if is_of_one(snapshot.waiting) else Uses(snapshot)
        self._misfits: Misfits = {}

    def go_through(self, entries: tuple[Waiting, ...] | list[Waiting], stage: Standing) -> None:
        turns = turns_of(entries, self._uses, self._snapshot.boosted)
        admission, misfits, left = self.admission, self._misfits, self.left.entries
        book, over, is_of_one = self.book, self.left.over, self._uses is None
        hands_over = self._hands_over(stage)
        for waiting in turns:
            if waiting.count <= 0:
                continue
            if waiting.blocked is not None or waiting.may_start <= 0:
                left[waiting.key] = waiting
                continue
            ask, limit = waiting.ask, waiting.time_limit
            until = NEVER if limit is None else limit.total_seconds()
            if admission is not None:
                standing = admission.standing(waiting, until)
                if standing > stage:
                    if standing == OVER and admission.first_over is None:
                        left[waiting.key] = waiting  # as below, for the thousands of a long queue
                        over.add(waiting.key)
                    else:
                        self._set_aside(waiting, until, standing)
                    continue
            shape = (waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model)
            # Room only shrinks during a plan: what asks for no less than one that found none finds none.
            for cpus, memory, seconds in () if hands_over else misfits.get(shape, ()):
                if ask.cpus >= cpus and ask.memory_mib >= memory and until >= seconds:
                    break
            else:
                if self._start(waiting, until, shape, turns, stage):
                    continue
            left[waiting.key] = waiting
            if book.open or not is_of_one:
                self._wait_for_room(waiting, until, turns, stage)

    def _start(self, waiting: Waiting, until: float, shape: Shape, turns: Turns, stage: Standing) -> bool:
        """Start as many of an entry as may and can, until it is somebody else's turn; False if it waits for room."""
        admission, scope = self.admission, self.fleet.scope(waiting.queue)
        if scope is None:
            return False
        want = self.fleet.want(waiting.ask, until, scope)
        most, hands_over = min(waiting.count, waiting.may_start), self._hands_over(stage)
        places_itself = self._snapshot.engine_places
        if places_itself and most > (room := self._room_there(waiting)):
            most = room
            self.left.crowded.add(waiting.key)
            self.left.entries[waiting.key] = waiting
        for begun in range(1, most + 1):
            seats = self._take(want, shape)
            if not seats and not hands_over:
                return False
            if seats:
                self.starts.append(Start(waiting.key, seats[0], seats[1:]))
            else:
                self._foresee(waiting, until, is_entitled=True)
            if places_itself:
                self.handed.append(waiting.key)
                self._there[waiting.user, waiting.queue] += 1
            is_alone = turns.charge(waiting)
            if admission is not None:
                admission.take(waiting, until)
            if begun == most:
                break
            if not is_alone:
                turns.put_back(_rest(waiting, begun))
                return True
            if admission is not None and (standing := admission.standing(waiting, until)) > stage:
                self._set_aside(_rest(waiting, begun), until, standing)
                return True
        if most < waiting.count and waiting.key not in self.left.crowded:
            self.left.limited.add(waiting.key)
            self.left.entries[waiting.key] = waiting
        return True

    # Engines with a queue of their own.

    def _hands_over(self, stage: Standing) -> bool:
        """Does the engine get those of this stage even if there is no room? Its own queue is the place to wait."""
        return self._snapshot.engine_places and stage is ENTITLED

    def _room_there(self, waiting: Waiting) -> int:
        """How many of an entry the engine's queue takes now. It keeps the order of arrival: who sends it thousands
        would be before all others, whose turn comes here."""
        snapshot = self._snapshot
        return max(
            0,
            min(
                snapshot.room_for - len(self.handed), snapshot.waiting_there - self._there[waiting.user, waiting.queue]
            ),
        )

    def think_of_pending(self) -> None:
        """Those that wait in the engine's queue come first: what they will take is not lent, and what was lent is
        given back for them."""
        admission = self.admission
        owners, borrowers = list(self._snapshot.pending), []
        if admission is not None:
            owners = [one for one in self._snapshot.pending if one.key in admission.entitled]
            borrowers = [one for one in self._snapshot.pending if one.key not in admission.entitled]
        for entries in (owners, borrowers):
            for waiting in turns_of(entries, None, self._snapshot.boosted):
                ask, limit = waiting.ask, waiting.time_limit
                until, scope = NEVER if limit is None else limit.total_seconds(), self.fleet.scope(waiting.queue)
                if scope is None:
                    continue
                shape = (waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model)
                is_hopeless = any(
                    _asks_no_less((ask.cpus, ask.memory_mib, until), misfit) for misfit in self._misfits.get(shape, ())
                )
                if is_hopeless or not self._take(self.fleet.want(ask, until, scope), shape):
                    self._foresee(waiting, until, is_entitled=entries is owners)

    def _foresee(self, waiting: Waiting, until: float, *, is_entitled: bool) -> None:
        """For an entry that waits, or will, in the engine's queue: keep a seat in mind, and have what was borrowed
        given back if it is entitled to it."""
        self.left.entries[waiting.key] = waiting
        admission = self.admission
        if admission is not None and is_entitled and admission.has_right(waiting):
            cards = self._reclaim.make_room(waiting, until)
            if cards is not None:
                self.left.reclaiming[waiting.key] = self.left.reclaiming.get(waiting.key, 0) + cards
        if self.book.open:
            self.book.note(waiting)

    def _take(self, want: Want, shape: Shape) -> tuple[Seat, ...]:
        """Seats for one run, taken; none if there is no room."""
        fleet, book = self.fleet, self.book
        spots = fleet.find(want)
        if spots and book.pending:
            book.settle()
            spots = fleet.find(want)
        if spots:
            if len(spots) == 1:
                return (fleet.take(spots[0], want),)
            return tuple([fleet.take(spot, want) for spot in spots])
        misfit = _EVERYTHING if fleet.lacks_cards(want) else (want.cpus, want.memory, want.until)
        others = [other for other in self._misfits.get(shape, ()) if not _asks_no_less(other, misfit)]
        self._misfits[shape] = [*others, misfit]
        return ()

    def _wait_for_room(self, waiting: Waiting, until: float, turns: Turns, stage: Standing) -> None:
        """Promise a seat while there are promises left; who is entitled gets back what others borrowed."""
        book, admission = self.book, self.admission
        if stage is BORROWS:
            self.left.borrowing.add(waiting.key)
        if not book.open:
            turns.charge(waiting)
            return
        if admission is None or stage is not ENTITLED:
            if book.note(waiting):
                turns.charge(waiting)
            return
        for _ in range(min(waiting.count, waiting.may_start)):
            cards = self._reclaim.make_room(waiting, until) if admission.has_right(waiting) else None
            if not book.note(waiting):
                return
            turns.charge(waiting)
            admission.promise(waiting, until)
            if cards is None:
                return
            self.left.reclaiming[waiting.key] = self.left.reclaiming.get(waiting.key, 0) + cards
            if not book.open or admission.standing(waiting, until) > stage:
                return

    @cached_property
    def _reclaim(self) -> Reclaim:
        assert self.admission is not None
        return Reclaim(self._snapshot, self.fleet, self.book, self.admission)

    @property
    def stops(self) -> tuple[Stop, ...]:
        return tuple(self._reclaim.stops) if "_reclaim" in self.__dict__ else ()

    def _set_aside(self, rest: Waiting, until: float, standing: Standing) -> None:
        """Not now: those who borrow come after all others, those over their quota wait for their own runs to end."""
        if standing is BORROWS:
            self.borrowers.append(rest)
        elif self.admission is not None:
            self.left.entries[rest.key] = rest
            self.left.over.add(rest.key)
            if self.admission.first_over is not None and self.fleet.fits_ever(rest):
                self.admission.refuse(rest, until)


def _rest(waiting: Waiting, begun: int) -> Waiting:
    return replace(waiting, count=waiting.count - begun, may_start=waiting.may_start - begun)


def _asks_no_less(one: tuple[int, int, float], other: tuple[int, int, float]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] >= other[2]
