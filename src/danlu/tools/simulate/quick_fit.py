"""Check quickly whether any waiting job would fit if alone: a cheap test before an expensive plan."""

from collections.abc import Iterable, Mapping

from danlu.domain.queue import Queue
from danlu.domain.resources import Ask, Node, Seat, model_fits
from danlu.scheduler.snapshot import Waiting

Kind = tuple[Ask, str]  # ask and queue


class _Free:
    """Free resources of a node."""

    __slots__ = ("cards", "cpus", "memory", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cpus = node.cpus
        self.memory = node.memory_mib
        self.cards = {gpu.index: gpu.shards for gpu in node.gpus}  # free shards per card

    def change(self, seat: Seat, sign: int) -> None:
        self.cpus += sign * seat.cpus
        self.memory += sign * seat.memory_mib
        for index in seat.gpus:
            self.cards[index] += sign * self.node.gpus[index].shards
        if seat.shared_gpu is not None:
            self.cards[seat.shared_gpu] += sign * seat.shards


class Room:
    """Free seats, and the waiting jobs that fit. It may report a false yes, never a false no."""

    def __init__(self, nodes: Iterable[Node], queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._nodes = {node.name: _Free(node) for node in nodes if node.accepts_jobs}
        self._count: dict[Kind, int] = {}  # waiting jobs of each kind
        self._seats: dict[Kind, set[str]] = {}  # nodes where each kind fits
        self._changed: set[str] = set()
        self._usable: dict[tuple[str, str, str | None], tuple[int, ...]] = {}

    def enter(self, waiting: Waiting) -> None:
        kind = (waiting.ask, waiting.queue)
        self._count[kind] = self._count.get(kind, 0) + 1
        if kind not in self._seats:
            self._seats[kind] = {name for name in self._nodes if self._fits(kind, name)}

    def leave(self, waiting: Waiting) -> None:
        kind = (waiting.ask, waiting.queue)
        self._count[kind] -= 1
        if not self._count[kind]:
            del self._count[kind], self._seats[kind]

    def take(self, *seats: Seat) -> None:
        self._change(seats, -1)

    def give_back(self, *seats: Seat) -> None:
        self._change(seats, +1)

    def fits_any(self) -> bool:
        """Whether any waiting job fits, on all its nodes."""
        for name in self._changed:
            for kind, names in self._seats.items():
                if self._fits(kind, name):
                    names.add(name)
                else:
                    names.discard(name)
        self._changed.clear()
        return any(len(names) >= ask.nodes for (ask, _), names in self._seats.items())

    def _change(self, seats: Iterable[Seat], sign: int) -> None:
        for seat in seats:
            self._nodes[seat.node].change(seat, sign)
            self._changed.add(seat.node)

    def _fits(self, kind: Kind, name: str) -> bool:
        ask, queue = kind
        free = self._nodes[name]
        if free.cpus < ask.cpus or (ask.memory_mib and free.memory < ask.memory_mib):
            return False
        rules = self._queues.get(queue)
        if rules and rules.nodes and name not in rules.nodes:
            return False
        if not ask.gpus and not ask.shards:
            return True
        cards, gpus = free.cards, free.node.gpus
        usable = self._cards(name, queue, ask.gpu_model)
        if ask.shards:
            return any(cards[index] >= ask.shards for index in usable)
        return sum(cards[index] == gpus[index].shards for index in usable) >= ask.gpus

    def _cards(self, name: str, queue: str, wanted: str | None) -> tuple[int, ...]:
        """The cards of a node that match a model in a queue."""
        key = (name, queue, wanted)
        if key not in self._usable:
            rules = self._queues.get(queue)
            models = rules.models if rules else ()
            self._usable[key] = tuple(
                gpu.index
                for gpu in self._nodes[name].node.gpus
                if model_fits(gpu.model, wanted) and (not models or any(model_fits(gpu.model, one) for one in models))
            )
        return self._usable[key]
