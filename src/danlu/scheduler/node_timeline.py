"""Free resources of one node, now and later. Times are seconds from now."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from copy import copy
from math import inf
from operator import attrgetter

from danlu.domain.resources import Ask, Node, Seat
from danlu.scheduler.capacity import Cards

FAR = 1e12  # assumed end of a run without a time limit
NEVER = inf
_ANY_MEMORY = -(1 << 60)  # below the free memory of any node, even of a node that shrank

Taken = tuple[tuple[int, ...], int | None]  # whole cards, and the card on which shards are taken
NO_CARDS: Taken = ((), None)


class Want:
    """The resources that one run needs, and for how long."""

    __slots__ = ("cpus", "gpus", "lasts", "memory", "memory_floor", "models", "nodes", "regions", "shards", "until")

    def __init__(self, ask: Ask, models: tuple[str, ...], limit: float, regions: tuple[int, ...] = (0,)) -> None:
        self.gpus = ask.gpus
        self.shards = ask.shards
        self.cpus = ask.cpus
        self.memory = ask.memory_mib
        self.memory_floor = ask.memory_mib or _ANY_MEMORY
        self.nodes = ask.nodes
        self.models = models
        self.regions = regions  # the regions that the run may use
        self.until = limit  # end of the run if started now
        self.lasts = limit if limit < FAR else FAR


class Step:
    """Free resources of a node from a time on. `cards`, and `shards` of the freest card, may be too high, never too
    low."""

    __slots__ = ("at", "cards", "cpus", "memory", "node", "shards")

    def __init__(self, at: float, node: "FreeNode", cpus: int, memory: int, cards: int, shards: int) -> None:
        self.at = at
        self.node = node
        self.cpus = cpus
        self.memory = memory
        self.cards = cards
        self.shards = shards


class Reservation:
    """A seat reserved for a waiting entry."""

    __slots__ = ("cards", "end", "key", "shards", "shared", "start", "want")

    def __init__(self, key: str, start: float, want: Want, taken: Taken) -> None:
        self.key = key
        self.start = start
        self.end = start + want.lasts
        self.want = want
        self.cards, self.shared = taken
        self.shards = want.shards


time_of = attrgetter("at")
time_and_order = attrgetter("at", "node.order")


class FreeNode:
    __slots__ = (
        "buckets", "busy", "cards", "cpus", "free", "memory", "name", "order", "region", "releases", "reservations",
        "shares", "step_index", "steps", "unlimited_cpus", "unlimited_memory",
    )  # fmt: skip

    def __init__(self, node: Node, order: int, cards: Cards, region: int = 0) -> None:
        self.name = node.name
        self.order = order
        self.region = region
        self.cards = cards
        self.cpus = node.cpus
        self.memory = node.memory_mib
        self.free = {model: list(indices) for model, indices in cards.by_model.items()}
        self.busy: dict[int, float] = {}  # card -> time when it is empty
        self.shares: dict[int, list[tuple[float, int]]] = {}  # shared card -> (end, shards) of each part
        self.releases: list[tuple[float, int, int]] = []  # (time, cpus, memory)
        self.unlimited_cpus = 0  # held by runs without a time limit
        self.unlimited_memory = 0
        self.reservations: list[Reservation] = []
        self.buckets: list[dict[int, dict[int, FreeNode]]] = []  # the index buckets of Fleet that hold this node
        self.steps: list[Step] = []
        self.step_index: list[Step] = []  # the steps of all nodes in the region with the same cards, by time

    def hold(self, seat: Seat, end: float) -> None:
        """Count a seat that a run holds already, even if the node no longer has the resources."""
        self._spend(seat.cpus, seat.memory_mib, end)
        if seat.gpus:
            self._hold_cards(seat.gpus, end)
        if seat.shared_gpu is not None:
            self._hold_shards(seat.shared_gpu, seat.shards, end)

    def take(self, want: Want, taken: Taken) -> None:
        """Give a seat to a run that starts now."""
        cards, shared = taken
        end = want.lasts
        self._spend(want.cpus, want.memory, end)
        if cards:
            self._hold_cards(cards, end)
        if shared is not None:
            self._hold_shards(shared, want.shards, end)
        if self.steps:
            self.occupy(want, taken, 0.0)

    def _spend(self, cpus: int, memory: int, end: float) -> None:
        self.cpus -= cpus
        self.memory -= memory
        if end >= FAR:
            self.unlimited_cpus += cpus
            self.unlimited_memory += memory
        self.releases.append((end, cpus, memory))

    def _hold_cards(self, indices: Iterable[int], end: float) -> None:
        busy, model_of = self.busy, self.cards.model_of
        for index in indices:
            if index in busy:  # two runs report the same card: the card is busy until both have ended
                self.shares.pop(index, None)
                busy[index] = max(busy[index], end)
            elif index in model_of:
                self.free[model_of[index]].remove(index)
                busy[index] = end

    def _hold_shards(self, index: int, shards: int, end: float) -> None:
        busy = self.busy
        if index in busy:
            busy[index] = max(busy[index], end)
            if index in self.shares:
                self.shares[index].append((end, shards))
        elif index in self.cards.model_of:
            self.free[self.cards.model_of[index]].remove(index)
            busy[index] = end
            self.shares[index] = [(end, shards)]

    def shard_room(self, index: int, at: float = 0.0) -> int:
        """The free shards of a card at a time, without regard to reservations."""
        if index in self.shares:
            return self.cards.shards_of[index] - sum(shards for end, shards in self.shares[index] if end > at)
        return self.cards.shards_of[index] if self.busy.get(index, 0.0) <= at else 0

    def free_cards(self, models: Iterable[str]) -> int:
        return sum([len(self.free.get(model, ())) for model in models])

    def free_shards(self, models: Iterable[str]) -> int:
        """The free shards of the freest card."""
        model_of, shards_of = self.cards.model_of, self.cards.shards_of
        fresh = [shards_of[index] for model in models for index in self.free.get(model, ())]
        return max(fresh + [self.shard_room(index) for index in self.shares if model_of[index] in models], default=0)

    # Later: steps and reservations.

    def build_steps(self) -> list[Step]:
        """Compute the steps from the known releases; return the steps after now."""
        gains: dict[float, list[int]] = {}
        for end, cpus, memory in self.releases:
            gain = gains.setdefault(end, [0, 0, 0])
            gain[0] += cpus
            gain[1] += memory
        for end in self.busy.values():
            gains[end][2] += 1
        cpus, memory, cards = self.cpus, self.memory, sum(map(len, self.free.values()))
        self.steps = [Step(0.0, self, cpus, memory, cards, self._freest_card(cards, 0.0))]
        for at in sorted(gains):
            more_cpus, more_memory, more_cards = gains[at]
            cpus += more_cpus
            memory += more_memory
            cards += more_cards
            self.steps.append(Step(at, self, cpus, memory, cards, self._freest_card(cards, at)))
        return self.steps[1:]

    def _freest_card(self, cards: int, at: float) -> int:
        if cards:
            return max(self.cards.shards_of.values())
        return max((self.shard_room(index, at) for index in self.shares), default=0)

    def occupy(self, want: Want, taken: Taken, start: float) -> None:
        """Subtract a run from all steps during which it runs."""
        first, last = self._step_at(start), self._step_at(start + want.lasts)
        cards = len(taken[0])
        for step in self.steps[first:last]:
            step.cpus -= want.cpus
            step.memory -= want.memory
            step.cards -= cards

    def release_early(self, seat: Seat, end: float, at: float) -> None:
        """Release a seat at `at`, before its expected end. If steps exist, the caller must call `refresh`."""
        self.releases.remove((end, seat.cpus, seat.memory_mib))
        self.releases.append((at, seat.cpus, seat.memory_mib))
        if end >= FAR:
            self.unlimited_cpus -= seat.cpus
            self.unlimited_memory -= seat.memory_mib
        busy, shares = self.busy, self.shares
        for index in seat.gpus:
            if busy.get(index) == end and index not in shares:
                busy[index] = at
        shared = seat.shared_gpu
        if shared is not None and (end, seat.shards) in shares.get(shared, ()):
            shares[shared].remove((end, seat.shards))
            shares[shared].append((at, seat.shards))
            busy[shared] = max(until for until, _ in shares[shared])

    def refresh(self) -> None:
        """Recompute the steps, here and in the shared step index."""
        step_index = self.step_index
        step_index[:] = [step for step in step_index if step.node is not self]
        for step in self.build_steps():
            insort(step_index, step, key=time_and_order)
        for reservation in self.reservations:
            self.occupy(reservation.want, (reservation.cards, reservation.shared), reservation.start)

    def with_early_release(self, leaving: Iterable[tuple[Seat, float]], at: float) -> "FreeNode":
        """A copy of this node in which these seats, each with its expected end, are released at `at`."""
        other = copy(self)
        other.busy = dict(self.busy)
        other.shares = {index: list(parts) for index, parts in self.shares.items()}
        other.releases = list(self.releases)
        other.step_index = []
        for seat, end in leaving:
            other.release_early(seat, end, at)
        other.refresh()
        return other

    def reserve(self, key: str, want: Want, taken: Taken, start: float) -> None:
        self.reservations.append(Reservation(key, start, want, taken))
        self.occupy(want, taken, start)

    def _step_at(self, at: float) -> int:
        steps = self.steps
        position = bisect_left(steps, at, key=time_of)
        if position == len(steps) or steps[position].at != at:
            before = steps[position - 1]
            step = Step(at, self, before.cpus, before.memory, before.cards, before.shards)
            steps.insert(position, step)
            insort(self.step_index, step, key=time_and_order)
        return position

    def step_in_force(self, at: float) -> Step:
        return self.steps[bisect_right(self.steps, at, key=time_of) - 1]

    def ready(self) -> Step:
        """The resources that are free after all runs with a time limit have ended and the others have not."""
        return self.steps[bisect_left(self.steps, FAR, key=time_of) - 1]

    def ready_cards(self, models: Iterable[str], at_hand: Step) -> int:
        """The free cards of these models at that step."""
        by_model = self.cards.by_model
        if len(by_model) == 1:
            return at_hand.cards
        busy = self.busy
        return sum(busy.get(index, 0.0) < FAR for model in models for index in by_model.get(model, ()))

    def seat_between(self, want: Want, start: float, end: float) -> Taken | None:
        """Cards for a run from start to end beside all reservations, or None."""
        memory = want.memory_floor
        for step in self.steps:
            if step.at >= end:
                break
            if step.at < start:
                continue
            if step.cpus < want.cpus or step.memory < memory:
                return None
            # A run without a time limit must not delay a reservation, even if the other runs without a limit never end.
            if (
                end == NEVER
                and step.at >= FAR
                and (step.cpus - self.unlimited_cpus < want.cpus or step.memory - self.unlimited_memory < memory)
            ):
                return None
        if want.gpus:
            cards = self._whole_between(want, start, end)
            return (cards, None) if cards else None
        if want.shards:
            shared = self._share_between(want, start, end)
            return None if shared is None else ((), shared)
        return NO_CARDS

    def _whole_between(self, want: Want, start: float, end: float) -> tuple[int, ...]:
        reserved: set[int | None] = set()
        for reservation in self.reservations:
            if reservation.start < end and reservation.end > start:
                reserved.update(reservation.cards)
                reserved.add(reservation.shared)
        busy, by_model, gpus = self.busy, self.cards.by_model, want.gpus
        groups = [
            [index for index in by_model.get(model, ()) if busy.get(index, 0.0) <= start and index not in reserved]
            for model in want.models
        ]
        # Prefer the card that is freed last before the start: earlier cards stay available. A far reservation prefers
        # cards that are free now, because the next release is unknown.
        sign = 1.0 if start >= FAR else -1.0
        for group in groups:
            group.sort(key=lambda index: sign * busy.get(index, 0.0))
        enough = [group for group in groups if len(group) >= gpus]
        if enough:
            # A far reservation prefers the model with the most free cards; otherwise the smallest sufficient group.
            best = min(enough, key=lambda group: (start >= FAR and busy.get(group[gpus - 1], 0.0), len(group)))
            return tuple(sorted(best[:gpus]))
        groups.sort(key=len, reverse=True)
        mixed = [index for group in groups for index in group][:gpus]
        return tuple(sorted(mixed)) if len(mixed) == gpus else ()

    def _share_between(self, want: Want, start: float, end: float) -> int | None:
        rooms: list[tuple[int, int]] = []
        sign, at = (-1, FAR / 2) if start >= FAR else (1, start)
        for model in want.models:
            for index in self.cards.by_model.get(model, ()):
                reserved = self._reserved_shards(index, start, end)
                if self.shard_room(index, start) - reserved >= want.shards:
                    rooms.append((sign * (self.shard_room(index, at) - reserved), index))
        return min(rooms)[1] if rooms else None

    def _reserved_shards(self, index: int, start: float, end: float) -> int:
        reserved = 0
        for reservation in self.reservations:
            if reservation.start < end and reservation.end > start:
                if index in reservation.cards:
                    return self.cards.shards_of[index]
                if reservation.shared == index:
                    reserved += reservation.shards
        return reserved
