"""Where a run would sit now: the best fit among all nodes, found without looking at each."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property

from danlu.domain.resources import Ask, Node, Seat
from danlu.scheduler.capacity import Capacity, Cards, cards_of, fitting_models
from danlu.scheduler.free import FAR, NO_CARDS, FreeNode, Taken, Want
from danlu.scheduler.snapshot import Holding

_OVERDUE = 1.0  # a run past its limit is being stopped: its seat is expected in a second
_NO_CARDS_AT_ALL = -1

Spot = tuple[FreeNode, Taken]


class Fleet:
    """The nodes that take jobs, kept by how many cards of a model and how many CPUs they have free."""

    def __init__(self, nodes: tuple[Node, ...], holding: Iterable[Holding], now: datetime) -> None:
        self.all_nodes = nodes
        self.nodes: dict[str, FreeNode] = {}
        kinds: dict[Cards, None] = {}
        for node in nodes:
            if node.accepts_jobs:
                cards = cards_of(node)
                kinds[cards] = None
                self.nodes[node.name] = FreeNode(node, len(self.nodes), cards)
        self.kinds = tuple(kinds)
        self.models = tuple(dict.fromkeys([model for cards in kinds for model in cards.by_model]))
        self.most_cards = max([len(cards.model_of) for cards in kinds], default=0)
        # (model, free cards of it) or (None, free cards at all) -> free CPUs -> nodes
        self._shelves: dict[tuple[str | None, int], dict[int, dict[int, FreeNode]]] = {}
        # (model, free shards) -> shared cards
        self._shared: dict[tuple[str, int], dict[tuple[int, int], FreeNode]] = {}
        self._hold(holding, now)
        self._mixed = [free for free in self.nodes.values() if len(free.free) > 1]
        for free in self.nodes.values():
            self._shelve(free)
            for index in free.shares:
                self._shelve_shared(free, index)

    @cached_property
    def capacity(self) -> Capacity:
        """What the nodes that take jobs could hold if they were empty."""
        return Capacity(node for node in self.all_nodes if node.accepts_jobs)

    def want(self, ask: Ask, limit: float) -> Want:
        return Want(ask, fitting_models(self.models, ask.gpu_model), limit)

    def _hold(self, holding: Iterable[Holding], now: datetime) -> None:
        nodes = self.nodes
        for held in holding:
            node = nodes.get(held.seat.node)
            if node is not None:
                end = FAR if held.ends_at is None else max((held.ends_at - now).total_seconds(), _OVERDUE)
                node.hold(held.seat, end)

    def _shelve(self, node: FreeNode) -> None:
        node.homes = homes = []
        cpus = node.cpus
        if cpus < 1:  # every job needs a CPU
            return
        total = 0 if node.free else _NO_CARDS_AT_ALL
        shelves = self._shelves
        for model, free in node.free.items():
            if free:
                total += len(free)
                homes.append(shelves.setdefault((model, len(free)), {}))
        homes.append(shelves.setdefault((None, total), {}))
        order = node.order
        for by_cpus in homes:
            by_cpus.setdefault(cpus, {})[order] = node

    def _unshelve(self, node: FreeNode) -> None:
        order, cpus = node.order, node.cpus
        for by_cpus in node.homes:
            nodes = by_cpus[cpus]
            del nodes[order]
            if not nodes:
                del by_cpus[cpus]

    def _shelve_shared(self, node: FreeNode, index: int) -> None:
        room = node.shard_room(index)
        if room > 0:
            self._shared.setdefault((node.cards.model_of[index], room), {})[node.order, index] = node

    def _unshelve_shared(self, node: FreeNode, index: int) -> None:
        key = (node.cards.model_of[index], node.shard_room(index))
        cards = self._shared[key]
        del cards[node.order, index]
        if not cards:
            del self._shared[key]

    def take(self, spot: Spot, want: Want) -> Seat:
        """Give the spot away."""
        node, taken = spot
        cards, shared = taken
        self._unshelve(node)
        if shared is not None and shared in node.shares:
            self._unshelve_shared(node, shared)
        node.take(want, taken)
        self._shelve(node)
        if shared is None:
            return Seat(node.name, want.cpus, want.memory, cards)
        self._shelve_shared(node, shared)
        return Seat(node.name, want.cpus, want.memory, (), shared, want.shards)

    def find(self, want: Want) -> Spot | None:
        """The best fit for a run that starts now and delays no promised seat."""
        if want.gpus:
            return self._find_whole(want)
        if want.shards:
            return self._find_shared(want) or self._find_fresh(want)
        for node in self._candidates((None,), _NO_CARDS_AT_ALL, want):
            if not node.pins or node.seat_between(want, 0.0, want.until):
                return node, NO_CARDS
        return None

    def _candidates(self, models: tuple[str | None, ...], least: int, want: Want) -> Iterator[FreeNode]:
        """Nodes with at least so many free cards of one of the models, the tightest first."""
        shelves, cpus, memory = self._shelves, want.cpus, want.memory_floor
        for count in range(least, self.most_cards + 1):
            for model in models:
                by_cpus = shelves.get((model, count))
                if by_cpus:
                    for free_cpus in sorted(by_cpus):
                        if free_cpus >= cpus:
                            for node in by_cpus[free_cpus].values():
                                if node.memory >= memory:
                                    yield node

    def _find_whole(self, want: Want) -> Spot | None:
        gpus, memory = want.gpus, want.memory_floor
        several = len(want.models) > 1
        for node in self._candidates(want.models, gpus, want):
            if node.pins or several:
                taken = node.seat_between(want, 0.0, want.until) if node.pins else _one_model(node, want)
                if taken:
                    return node, taken
            else:
                return node, (tuple(node.free[want.models[0]][:gpus]), None)
        for node in self._mixed if several else ():
            if node.memory >= memory and node.cpus >= want.cpus and node.free_cards(want.models) >= gpus:
                taken = node.seat_between(want, 0.0, want.until)
                if taken:
                    return node, taken
        return None

    def _find_shared(self, want: Want) -> Spot | None:
        """A card that others share already: the fullest with room."""
        models = want.models
        rooms = sorted({room for model, room in self._shared if room >= want.shards and model in models})
        for room in rooms:
            for model in models:
                for (_, index), node in self._shared.get((model, room), {}).items():
                    if node.cpus < want.cpus or node.memory < want.memory_floor:
                        continue
                    taken = node.seat_between(want, 0.0, want.until) if node.pins else ((), index)
                    if taken:
                        return node, taken
        return None

    def _find_fresh(self, want: Want) -> Spot | None:
        """A card that nobody uses yet, on the node with the fewest of them."""
        for node in self._candidates(want.models, 1, want):
            taken = node.seat_between(want, 0.0, want.until)
            if taken:
                return node, taken
        return None

    def lacks_cards(self, want: Want) -> bool:
        """Is there no node with enough free cards, whatever its CPUs and memory?"""
        if not want.gpus and not want.shards:
            return False
        shelves = self._shelves
        counts = range(want.gpus or 1, self.most_cards + 1)
        if any(shelves.get((model, count)) for count in counts for model in want.models):
            return False
        if want.shards:
            return not any(room >= want.shards and model in want.models for model, room in self._shared)
        return not any(node.free_cards(want.models) >= want.gpus for node in self._mixed)


def _one_model(node: FreeNode, want: Want) -> Taken:
    """Whole cards of the model with the fewest sufficient ones."""
    enough = [free for model in want.models if len(free := node.free.get(model, ())) >= want.gpus]
    return tuple(min(enough, key=len)[: want.gpus]), None
