"""The best seat for a run now, found through an index instead of a scan of all nodes."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from danlu.domain.resources import Ask, Seat
from danlu.scheduler.capacity import Capacity, Cards, cards_of, fitting_models, models_in
from danlu.scheduler.node_timeline import FAR, NO_CARDS, FreeNode, Taken, Want
from danlu.scheduler.queue_scope import Regions, Scope
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting

SOON = 1.0  # a run past its limit, or asked to give its seat back, is expected to end in a second
_NO_CARDS_AT_ALL = -1

Spot = tuple[FreeNode, Taken]


class Fleet:
    """The nodes that accept jobs, indexed by free cards per model and free CPUs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.all_nodes = snapshot.nodes
        self.nodes: dict[str, FreeNode] = {}
        self.queues = snapshot.queues
        self._scopes: dict[str, Scope | None] = {}
        self._capacities: dict[str, Capacity] = {}
        self._regions = Regions(snapshot.queues, [node.name for node in snapshot.nodes if node.accepts_jobs])
        region_of = self._regions.of_node
        kinds: dict[Cards, None] = {}
        for node in snapshot.nodes:
            if node.accepts_jobs:
                cards = cards_of(node)
                kinds[cards] = None
                self.nodes[node.name] = FreeNode(node, len(self.nodes), cards, region_of(node.name))
        self.kinds = tuple(kinds)
        self.models = tuple(dict.fromkeys([model for cards in kinds for model in cards.by_model]))
        self.most_cards = max([len(cards.model_of) for cards in kinds], default=0)
        count = self._regions.count
        # per region: (model, its free cards) or (None, all free cards) -> free CPUs -> nodes
        self._index: list[dict[tuple[str | None, int], dict[int, dict[int, FreeNode]]]] = [{} for _ in range(count)]
        # per region: (model, free shards) -> shared cards
        self._shared: list[dict[tuple[str, int], dict[tuple[int, int], FreeNode]]] = [{} for _ in range(count)]
        self._hold(snapshot.holding, snapshot.now)
        self._mixed = [free for free in self.nodes.values() if len(free.free) > 1]
        for free in self.nodes.values():
            self._index_node(free)
            for index in free.shares:
                self._index_shared(free, index)

    def scope(self, queue: str) -> Scope | None:
        """The nodes and models that an entry of this queue may use (empty name: no queue). None if the queue is unknown
        or closed."""
        if queue not in self._scopes:
            self._scopes[queue] = self._find_scope(queue)
        return self._scopes[queue]

    def _find_scope(self, name: str) -> Scope | None:
        queue = self.queues.get(name)
        if name and (queue is None or queue.closed):
            return None
        return Scope(queue, self._regions.of_queue(queue), models_in(self.models, queue))

    def capacity(self, scope: Scope) -> Capacity:
        """The largest asks that the nodes that accept jobs could hold if they were empty."""
        capacity = self._capacities.get(scope.name)
        if capacity is None:
            nodes = [node for node in self.all_nodes if node.accepts_jobs]
            cards = {name: node.cards for name, node in self.nodes.items()}
            capacity = self._capacities[scope.name] = Capacity(nodes, scope.queue, cards)
        return capacity

    def fits_ever(self, waiting: Waiting) -> bool:
        """Whether the entry could run on an otherwise empty cluster."""
        scope = self.scope(waiting.queue)
        return scope is not None and self.capacity(scope).fits(waiting.ask)

    def want(self, ask: Ask, limit: float, scope: Scope) -> Want:
        return Want(ask, fitting_models(scope.models, ask.gpu_model), limit, scope.regions)

    def nodes_in(self, regions: tuple[int, ...]) -> list[FreeNode]:
        if len(regions) == self._regions.count:
            return list(self.nodes.values())
        return [node for node in self.nodes.values() if node.region in regions]

    def _hold(self, holding: Iterable[Holding], now: datetime) -> None:
        nodes = self.nodes
        for held in holding:
            end = end_of(held, now)
            node = nodes.get(held.seat.node)
            if node is not None:
                node.hold(held.seat, end)
            for seat in held.more:
                node = nodes.get(seat.node)
                if node is not None:
                    node.hold(seat, end)

    def _index_node(self, node: FreeNode) -> None:
        node.buckets = buckets = []
        cpus = node.cpus
        if cpus < 1:  # every job needs a CPU
            return
        total = 0 if node.free else _NO_CARDS_AT_ALL
        index = self._index[node.region]
        for model, free in node.free.items():
            if free:
                total += len(free)
                buckets.append(index.setdefault((model, len(free)), {}))
        buckets.append(index.setdefault((None, total), {}))
        order = node.order
        for by_cpus in buckets:
            by_cpus.setdefault(cpus, {})[order] = node

    def _unindex_node(self, node: FreeNode) -> None:
        order, cpus = node.order, node.cpus
        for by_cpus in node.buckets:
            nodes = by_cpus[cpus]
            del nodes[order]
            if not nodes:
                del by_cpus[cpus]

    def _index_shared(self, node: FreeNode, index: int) -> None:
        room = node.shard_room(index)
        if room > 0:
            self._shared[node.region].setdefault((node.cards.model_of[index], room), {})[node.order, index] = node

    def _unindex_shared(self, node: FreeNode, index: int) -> None:
        key = (node.cards.model_of[index], node.shard_room(index))
        shared = self._shared[node.region]
        cards = shared[key]
        del cards[node.order, index]
        if not cards:
            del shared[key]

    def take(self, spot: Spot, want: Want) -> Seat:
        """Take the resources of a spot and return its seat."""
        node, taken = spot
        cards, shared = taken
        self._unindex_node(node)
        if shared is not None and shared in node.shares:
            self._unindex_shared(node, shared)
        node.take(want, taken)
        self._index_node(node)
        if shared is None:
            return Seat(node.name, want.cpus, want.memory, cards)
        self._index_shared(node, shared)
        return Seat(node.name, want.cpus, want.memory, (), shared, want.shards)

    def find(self, want: Want) -> tuple[Spot, ...]:
        """The best spots for a run that starts now and delays no reservation, one spot per node; empty if the run does
        not fit."""
        if want.nodes == 1:
            spot = next(self._spots(want), None)
            return (spot,) if spot else ()
        found: dict[int, Spot] = {}
        for spot in self._spots(want):
            found.setdefault(spot[0].order, spot)
            if len(found) == want.nodes:
                return tuple(found.values())
        return ()

    def _spots(self, want: Want) -> Iterator[Spot]:
        """Spots where the run fits now, best first. A node may occur more than once."""
        if want.gpus:
            return self._whole_spots(want)
        if want.shards:
            return self._shard_spots(want)
        return self._plain_spots(want)

    def _candidates(self, models: tuple[str | None, ...], least: int, want: Want) -> Iterator[FreeNode]:
        """Nodes with at least `least` free cards of one of the models, tightest first."""
        regions = [self._index[region] for region in want.regions]
        cpus, memory = want.cpus, want.memory_floor
        for count in range(least, self.most_cards + 1):
            for model in models:
                for index in regions:
                    by_cpus = index.get((model, count))
                    if by_cpus:
                        for free_cpus in sorted(by_cpus):
                            if free_cpus >= cpus:
                                for node in by_cpus[free_cpus].values():
                                    if node.memory >= memory:
                                        yield node

    def _plain_spots(self, want: Want) -> Iterator[Spot]:
        for node in self._candidates((None,), _NO_CARDS_AT_ALL, want):
            if not node.reservations or node.seat_between(want, 0.0, want.until):
                yield node, NO_CARDS

    def _whole_spots(self, want: Want) -> Iterator[Spot]:
        gpus, memory = want.gpus, want.memory_floor
        several = len(want.models) > 1
        for node in self._candidates(want.models, gpus, want):
            if node.reservations or several:
                taken = node.seat_between(want, 0.0, want.until) if node.reservations else _one_model(node, want)
                if taken:
                    yield node, taken
            else:
                yield node, (tuple(node.free[want.models[0]][:gpus]), None)
        for node in self._mixed if several else ():
            if node.region not in want.regions:
                continue
            if node.memory >= memory and node.cpus >= want.cpus and node.free_cards(want.models) >= gpus:
                taken = node.seat_between(want, 0.0, want.until)
                if taken:
                    yield node, taken

    def _shard_spots(self, want: Want) -> Iterator[Spot]:
        """First partly used cards, the fullest with room first; then unused cards, on the node with the fewest of
        them."""
        models = want.models
        regions = [self._shared[region] for region in want.regions]
        rooms = {room for shared in regions for model, room in shared if room >= want.shards and model in models}
        for room in sorted(rooms):
            for model in models:
                for shared in regions:
                    for (_, index), node in shared.get((model, room), {}).items():
                        if node.cpus < want.cpus or node.memory < want.memory_floor:
                            continue
                        taken = node.seat_between(want, 0.0, want.until) if node.reservations else ((), index)
                        if taken:
                            yield node, taken
        for node in self._candidates(models, 1, want):
            taken = node.seat_between(want, 0.0, want.until)
            if taken:
                yield node, taken

    def lacks_cards(self, want: Want) -> bool:
        """Whether no node has enough free cards, regardless of CPUs and memory."""
        if not want.gpus and not want.shards:
            return False
        counts = range(want.gpus or 1, self.most_cards + 1)
        for region in want.regions:
            index = self._index[region]
            if any(index.get((model, count)) for count in counts for model in want.models):
                return False
        if want.shards:
            shared = [key for region in want.regions for key in self._shared[region]]
            return not any(room >= want.shards and model in want.models for model, room in shared)
        mixed = [node for node in self._mixed if node.region in want.regions]
        return not any(node.free_cards(want.models) >= want.gpus for node in mixed)


def end_of(held: Holding, now: datetime) -> float:
    """The end of a run, in seconds from now."""
    if held.ends_at is None:
        return SOON if held.is_stopping else FAR
    return max((held.ends_at - now).total_seconds(), SOON)


def _one_model(node: FreeNode, want: Want) -> Taken:
    """Whole cards of the model with the smallest sufficient number."""
    enough = [free for model in want.models if len(free := node.free.get(model, ())) >= want.gpus]
    return tuple(min(enough, key=len)[: want.gpus]), None
