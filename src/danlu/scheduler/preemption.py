"""Choose the borrowed runs that must stop so that an entitled entry gets a seat."""

from datetime import datetime

from danlu.scheduler.admission import Admission
from danlu.scheduler.node_timeline import NEVER, FreeNode, Want
from danlu.scheduler.placement import SOON, Fleet, end_of
from danlu.scheduler.reservations import Reservations, spots_at
from danlu.scheduler.snapshot import Holding, Snapshot, Stop, Waiting

_JUST_AFTER = 1e-6
# queue, nodes, gpus, shards, model, cpus, memory, seconds
_Kind = tuple[str, int, int, int, str | None, int, int, float]


class FreeableBound:
    """An upper bound of a node's free resources if all borrowed runs left: a quick check before the exact one."""

    __slots__ = ("cards", "cpus", "idle", "memory", "node")

    def __init__(self, node: FreeNode, loans: "list[Loan]", by: float) -> None:
        self.node = node
        seats = [seat for loan in loans for seat in loan.seats if seat.node == node.name]
        freed = {index for seat in seats for index in (*seat.gpus, seat.shared_gpu)}
        ended = [(cpus, memory) for end, cpus, memory in node.releases if end <= by]
        ended += [(seat.cpus, seat.memory_mib) for seat in seats]
        busy = node.busy
        # Free cards if no borrowed run leaves.
        self.idle = len(node.cards.model_of) - sum([end > by for end in busy.values()])
        self.cards = self.idle + sum([busy.get(index, 0.0) > by for index in freed if index is not None])
        self.cpus = node.cpus + sum([cpus for cpus, _ in ended])
        self.memory = node.memory + sum([memory for _, memory in ended])

    def is_enough(self, want: Want) -> bool:
        return self.cards >= want.gpus and self.cpus >= want.cpus and self.memory >= want.memory_floor


class Loan:
    """A run that is stopping, or that can be asked to stop."""

    __slots__ = ("bounds", "cards", "end", "held", "nodes", "seats")

    def __init__(self, held: Holding, fleet: Fleet, now: datetime) -> None:
        self.held = held
        self.end = end_of(held, now)
        self.seats = (held.seat, *held.more)
        self.nodes = [fleet.nodes[seat.node] for seat in self.seats if seat.node in fleet.nodes]
        self.cards = sum([len(seat.gpus) or (seat.shared_gpu is not None) for seat in self.seats])
        self.bounds: list[FreeableBound] = []  # of each node

    def is_in(self, regions: tuple[int, ...]) -> bool:
        return any(node.region in regions for node in self.nodes)


class Reclaim:
    """Borrowed runs, and runs that are stopping already. The youngest runs stop first, and no more than necessary.

    A stopped run frees its seat when its grace period ends, or soon, as long as this time is unknown.
    """

    def __init__(self, snapshot: Snapshot, fleet: Fleet, reservations: Reservations, admission: Admission) -> None:
        self.stops: list[Stop] = []
        self._fleet = fleet
        self._reservations = reservations
        borrowed = sorted(admission.borrowed(), key=admission.age_of, reverse=True)
        self._loans = [Loan(held, fleet, snapshot.now) for held in borrowed]
        self._leaving = [Loan(held, fleet, snapshot.now) for held in snapshot.holding if held.is_stopping]
        self._hopeless: set[_Kind] = set()
        by = max([loan.end for loan in self._leaving], default=SOON)
        on_node: dict[str, list[Loan]] = {}
        for loan in self._loans:
            for node in loan.nodes:
                on_node.setdefault(node.name, []).append(loan)
        for name, loans in on_node.items():
            bound = FreeableBound(fleet.nodes[name], loans, by)
            for loan in loans:
                loan.bounds.append(bound)

    def make_room(self, waiting: Waiting, until: float) -> int | None:
        """Stop borrowed runs for an entitled entry without a seat. Return the number of cards that are being given
        back; None if the entry has to wait like any other."""
        if not self._loans and not self._leaving:
            return None
        ask = waiting.ask
        kind = (
            waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model, ask.cpus, ask.memory_mib, until,
        )  # fmt: skip
        scope = self._fleet.scope(waiting.queue)
        if scope is None or kind in self._hopeless:
            return None
        want = self._fleet.want(ask, until, scope)
        leaving = [loan for loan in self._leaving if loan.is_in(scope.regions)]
        by = max([loan.end for loan in leaving], default=SOON)
        if self._reservations.earliest_start(want, by + _JUST_AFTER) < NEVER:
            given = [loan for loan in leaving if loan.held.is_preemptible]
            return sum([loan.cards for loan in given]) if given else None
        chosen = self._choose(want, by)
        if not chosen:
            self._hopeless.add(kind)  # reservations only grow during a plan
            return None
        for loan in chosen:
            self._stop(loan, waiting.key)
        return sum([loan.cards for loan in chosen])

    def _stop(self, loan: Loan, wanted_by: str) -> None:
        for seat in loan.seats:
            self._reservations.release_early(seat, loan.end, SOON)
        for bound in loan.bounds:
            bound.idle += loan.cards
        loan.end = SOON
        self._loans.remove(loan)
        self._leaving.append(loan)
        self.stops.append(Stop(loan.held.key, wanted_by))

    def _choose(self, want: Want, at: float) -> list[Loan]:
        """The youngest sufficient runs, without the unnecessary ones; empty if all together are not enough."""
        leaving: list[Loan] = []
        able: set[str] = set()
        if want.nodes > 1:
            nodes = self._fleet.nodes_in(want.regions)
            able = {node.name for node in nodes if self._holds(node, [], want, at)}
        on_node: dict[str, list[Loan]] = {}
        freed: dict[str, int] = {}  # cards per node
        cards, regions, models = want.gpus, want.regions, frozenset(want.models)
        needs_cards = bool(want.gpus or want.shards)
        for loan in self._loans:
            for bound in loan.bounds:
                node = bound.node
                if bound.cards < cards or node.region not in regions or not bound.is_enough(want):
                    continue
                if needs_cards and models.isdisjoint(node.cards.by_model):
                    continue
                if loan.end > at and node.name not in able:
                    leaving.append(loan)
                    on_node.setdefault(node.name, []).append(loan)
                    freed[node.name] = freed.get(node.name, bound.idle) + loan.cards
                    if freed[node.name] >= cards and self._holds(node, on_node[node.name], want, at):
                        able.add(node.name)
            if len(able) >= want.nodes:
                return self._needed(leaving, able, want, at)
        return []

    def _needed(self, leaving: list[Loan], able: set[str], want: Want, at: float) -> list[Loan]:
        """Drop the runs that can stay. The oldest run is tried first."""
        needed = [loan for loan in dict.fromkeys(leaving) if any(node.name in able for node in loan.nodes)]
        for loan in reversed(needed):
            others = [other for other in needed if other is not loan]
            lost = {node.name for node in loan.nodes if node.name in able and not self._holds(node, others, want, at)}
            if len(able) - len(lost) >= want.nodes:
                needed = others
                able = able - lost
        return needed

    def _holds(self, node: FreeNode, leaving: list[Loan], want: Want, at: float) -> bool:
        """Whether the run would fit on this node at a time if these runs had left before."""
        seats = [(seat, loan.end) for loan in leaving for seat in loan.seats if seat.node == node.name]
        if want.gpus:
            freed = {index for seat, _ in seats for index in (*seat.gpus, seat.shared_gpu)}
            busy, by_model = node.busy, node.cards.by_model
            indices = [index for model in want.models for index in by_model.get(model, ())]
            if sum([index in freed or busy.get(index, 0.0) <= at for index in indices]) < want.gpus:
                return False
        return bool(spots_at([node.with_early_release(seats, SOON)], want, at, 1))
