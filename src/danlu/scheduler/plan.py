"""Decide which jobs start now."""

from collections import Counter
from dataclasses import replace
from functools import cached_property

from danlu.domain.resources import Seat
from danlu.scheduler.admission import BORROWS, ENTITLED, OVER, Admission, Standing
from danlu.scheduler.capacity import fits_ever
from danlu.scheduler.node_timeline import NEVER, Want
from danlu.scheduler.ordering import QueueOrder, Usage, is_single_owner, queue_order
from danlu.scheduler.placement import Fleet
from danlu.scheduler.preemption import Reclaim
from danlu.scheduler.reasons import NotStarted, Waits
from danlu.scheduler.reservations import Reservations
from danlu.scheduler.snapshot import Plan, Snapshot, Start, Stop, Wait, Waiting

__all__ = ["fits_ever", "plan", "seat_now"]

# (queue, nodes, gpus, shards, model) -> asks that found no room: cpus, memory, seconds
Shape = tuple[str, int, int, int, str | None]
Misfits = dict[Shape, list[tuple[int, int, float]]]
_EVERYTHING = (0, 0, 0.0)


def plan(snapshot: Snapshot) -> Plan:
    """Decide which entries start where, which borrowed runs stop, and why the others wait. The same snapshot gives the
    same plan."""
    made = Pass(snapshot)
    made.place_pending()
    made.place(snapshot.waiting, ENTITLED)
    if made.borrowers:
        made.place(made.borrowers, BORROWS)
    waits = Waits(made.not_started, made.fleet, made.reservations, made.admission, snapshot.now)
    return Plan(tuple(made.starts), waits, made.stops, tuple(made.handed))


def seat_now(snapshot: Snapshot, waiting: Waiting) -> Seat | Wait:
    """The seat of a new entry if submitted now, or the reason to wait."""
    made = plan(replace(snapshot, waiting=(*snapshot.waiting, waiting)))
    for start in made.starts:
        if start.key == waiting.key:
            return start.seat
    return made.waits[waiting.key]


class Pass:
    """One pass over the queue: first the entries within their quotas, then the entries that borrow."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.fleet = Fleet(snapshot)
        self.reservations = Reservations(self.fleet)
        self.admission = Admission(snapshot, self.reservations.start_of) if snapshot.quotas else None
        self.starts: list[Start] = []
        self.handed: list[str] = []
        # Entries in the engine's queue.
        self._at_engine = Counter((entry.user, entry.queue) for entry in snapshot.pending)
        self.not_started = NotStarted()
        self.borrowers: list[Waiting] = []
        self._snapshot = snapshot
        self._usage = None if is_single_owner(snapshot.waiting) else Usage(snapshot)
        self._misfits: Misfits = {}

    def place(self, entries: tuple[Waiting, ...] | list[Waiting], stage: Standing) -> None:
        order = queue_order(entries, self._usage, self._snapshot.boosted)
        admission, misfits, left = self.admission, self._misfits, self.not_started.entries
        reservations, over, is_single_owner = self.reservations, self.not_started.over, self._usage is None
        hands_over = self._hands_over(stage)
        for waiting in order:
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
                        # the short form of `_defer`, for the thousands of entries in a long queue
                        left[waiting.key] = waiting
                        over.add(waiting.key)
                    else:
                        self._defer(waiting, until, standing)
                    continue
            shape = (waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model)
            # Room only shrinks during a plan: after a misfit, an ask of the same shape that is no smaller cannot fit
            # either.
            for cpus, memory, seconds in () if hands_over else misfits.get(shape, ()):
                if ask.cpus >= cpus and ask.memory_mib >= memory and until >= seconds:
                    break
            else:
                if self._start(waiting, until, shape, order, stage):
                    continue
            left[waiting.key] = waiting
            if reservations.slots_left or not is_single_owner:
                self._wait_for_room(waiting, until, order, stage)

    def _start(self, waiting: Waiting, until: float, shape: Shape, order: QueueOrder, stage: Standing) -> bool:
        """Start as many jobs of an entry as possible until the turn of another owner; False if the entry waits for
        room."""
        admission, scope = self.admission, self.fleet.scope(waiting.queue)
        if scope is None:
            return False
        want = self.fleet.want(waiting.ask, until, scope)
        most, hands_over = min(waiting.count, waiting.may_start), self._hands_over(stage)
        places_itself = self._snapshot.engine_places
        if places_itself and most > (room := self._room_at_engine(waiting)):
            most = room
            self.not_started.crowded.add(waiting.key)
            self.not_started.entries[waiting.key] = waiting
        for started in range(1, most + 1):
            seats = self._take(want, shape)
            if not seats and not hands_over:
                return False
            if seats:
                self.starts.append(Start(waiting.key, seats[0], seats[1:]))
            else:
                self._reserve_at_engine(waiting, until, is_entitled=True)
            if places_itself:
                self.handed.append(waiting.key)
                self._at_engine[waiting.user, waiting.queue] += 1
            is_alone = order.charge(waiting)
            if admission is not None:
                admission.take(waiting, until)
            if started == most:
                break
            if not is_alone:
                order.put_back(_rest(waiting, started))
                return True
            if admission is not None and (standing := admission.standing(waiting, until)) > stage:
                self._defer(_rest(waiting, started), until, standing)
                return True
        if most < waiting.count and waiting.key not in self.not_started.crowded:
            self.not_started.limited.add(waiting.key)
            self.not_started.entries[waiting.key] = waiting
        return True

    # Engines with a queue of their own.

    def _hands_over(self, stage: Standing) -> bool:
        """Whether the engine gets the entries of this stage even without room, to wait in its own queue."""
        return self._snapshot.engine_places and stage is ENTITLED

    def _room_at_engine(self, waiting: Waiting) -> int:
        """The number of jobs of an entry that the engine's queue accepts now. The engine keeps the order of arrival, so
        a user who hands over thousands of jobs at once would be ahead of everyone whose turn comes later."""
        snapshot = self._snapshot
        return max(
            0,
            min(
                snapshot.room_for - len(self.handed),
                snapshot.waiting_there - self._at_engine[waiting.user, waiting.queue],
            ),
        )

    def place_pending(self) -> None:
        """Place the entries in the engine's queue first: the resources they will use are not lent, and borrowed
        resources are given back for them."""
        admission = self.admission
        owners, borrowers = list(self._snapshot.pending), []
        if admission is not None:
            owners = [one for one in self._snapshot.pending if one.key in admission.entitled]
            borrowers = [one for one in self._snapshot.pending if one.key not in admission.entitled]
        for entries in (owners, borrowers):
            for waiting in queue_order(entries, None, self._snapshot.boosted):
                ask, limit = waiting.ask, waiting.time_limit
                until, scope = NEVER if limit is None else limit.total_seconds(), self.fleet.scope(waiting.queue)
                if scope is None:
                    continue
                shape = (waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model)
                is_hopeless = any(
                    _asks_no_less((ask.cpus, ask.memory_mib, until), misfit) for misfit in self._misfits.get(shape, ())
                )
                if is_hopeless or not self._take(self.fleet.want(ask, until, scope), shape):
                    self._reserve_at_engine(waiting, until, is_entitled=entries is owners)

    def _reserve_at_engine(self, waiting: Waiting, until: float, *, is_entitled: bool) -> None:
        """Reserve a seat for an entry in the engine's queue, and stop borrowed runs if the entry is entitled."""
        self.not_started.entries[waiting.key] = waiting
        admission = self.admission
        if admission is not None and is_entitled and admission.has_right(waiting):
            cards = self._reclaim.make_room(waiting, until)
            if cards is not None:
                self.not_started.reclaiming[waiting.key] = self.not_started.reclaiming.get(waiting.key, 0) + cards
        if self.reservations.slots_left:
            self.reservations.request(waiting)

    def _take(self, want: Want, shape: Shape) -> tuple[Seat, ...]:
        """Take seats for one run; empty if there is no room."""
        fleet, reservations = self.fleet, self.reservations
        spots = fleet.find(want)
        if spots and reservations.pending:
            reservations.resolve()
            spots = fleet.find(want)
        if spots:
            if len(spots) == 1:
                return (fleet.take(spots[0], want),)
            return tuple([fleet.take(spot, want) for spot in spots])
        misfit = _EVERYTHING if fleet.lacks_cards(want) else (want.cpus, want.memory, want.until)
        others = [other for other in self._misfits.get(shape, ()) if not _asks_no_less(other, misfit)]
        self._misfits[shape] = [*others, misfit]
        return ()

    def _wait_for_room(self, waiting: Waiting, until: float, order: QueueOrder, stage: Standing) -> None:
        """Reserve a seat while reservations are left. For an entitled entry, borrowed runs give their resources
        back."""
        reservations, admission = self.reservations, self.admission
        if stage is BORROWS:
            self.not_started.borrowing.add(waiting.key)
        if not reservations.slots_left:
            order.charge(waiting)
            return
        if admission is None or stage is not ENTITLED:
            if reservations.request(waiting):
                order.charge(waiting)
            return
        for _ in range(min(waiting.count, waiting.may_start)):
            cards = self._reclaim.make_room(waiting, until) if admission.has_right(waiting) else None
            if not reservations.request(waiting):
                return
            order.charge(waiting)
            admission.reserve(waiting, until)
            if cards is None:
                return
            self.not_started.reclaiming[waiting.key] = self.not_started.reclaiming.get(waiting.key, 0) + cards
            if not reservations.slots_left or admission.standing(waiting, until) > stage:
                return

    @cached_property
    def _reclaim(self) -> Reclaim:
        assert self.admission is not None
        return Reclaim(self._snapshot, self.fleet, self.reservations, self.admission)

    @property
    def stops(self) -> tuple[Stop, ...]:
        return tuple(self._reclaim.stops) if "_reclaim" in self.__dict__ else ()

    def _defer(self, rest: Waiting, until: float, standing: Standing) -> None:
        """Defer an entry: borrowers come after all others, entries over quota wait for runs of their holder to end."""
        if standing is BORROWS:
            self.borrowers.append(rest)
        elif self.admission is not None:
            self.not_started.entries[rest.key] = rest
            self.not_started.over.add(rest.key)
            if self.admission.first_over is not None and self.fleet.fits_ever(rest):
                self.admission.refuse(rest, until)


def _rest(waiting: Waiting, started: int) -> Waiting:
    return replace(waiting, count=waiting.count - started, may_start=waiting.may_start - started)


def _asks_no_less(one: tuple[int, int, float], other: tuple[int, int, float]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] >= other[2]
