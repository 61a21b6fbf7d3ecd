"""What is free on one node, now and later. Times are seconds from now."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from copy import copy
from math import inf
from operator import attrgetter

from danlu.domain.resources import Ask, Node, Seat
from danlu.scheduler.capacity import Cards

FAR = 1e12  # when a run without a time limit is taken to end
NEVER = inf
_ANY_MEMORY = -(1 << 60)  # below what is free on any node, even on one that shrank

Taken = tuple[tuple[int, ...], int | None]  # whole cards, and the card of which shards are taken
NO_CARDS: Taken = ((), None)


class Want:
    """What one run needs, and for how long."""

    __slots__ = ("cpus", "gpus", "lasts", "memory", "memory_floor", "models", "nodes", "regions", "shards", "until")

    def __init__(self, ask: Ask, models: tuple[str, ...], limit: float, regions: tuple[int, ...] = (0,)) -> None:
        self.gpus = ask.gpus
        self.shards = ask.shards
        self.cpus = ask.cpus
        self.memory = ask.memory_mib
        self.memory_floor = ask.memory_mib or _ANY_MEMORY
        self.nodes = ask.nodes
        self.models = models
        self.regions = regions  # where it may sit
        self.until = limit  # started now, it may hold its seat until then
        self.lasts = limit if limit < FAR else FAR


class Step:
    """What is free on a node from a moment on. `cards`, and `shards` of the freest, may be too high, never too low."""

    __slots__ = ("at", "cards", "cpus", "memory", "node", "shards")

    def __init__(self, at: float, node: "FreeNode", cpus: int, memory: int, cards: int, shards: int) -> None:
        self.at = at
        self.node = node
        self.cpus = cpus
        self.memory = memory
        self.cards = cards
        self.shards = shards


class Pin:
    """A seat promised to a waiting entry."""

    __slots__ = ("cards", "end", "key", "shards", "shared", "start", "want")

    def __init__(self, key: str, start: float, want: Want, taken: Taken) -> None:
        self.key = key
        self.start = start
        self.end = start + want.lasts
        self.want = want
        self.cards, self.shared = taken
        self.shards = want.shards


moment = attrgetter("at")
moment_and_order = attrgetter("at", "node.order")


class FreeNode:
    __slots__ = (
        "busy", "cards", "cpus", "endless_cpus", "endless_memory", "free", "homes", "lane", "memory", "name", "order",
        "pins", "region", "releases", "shares", "steps",
    )  # fmt: skip

    def __init__(self, node: Node, order: int, cards: Cards, region: int = 0) -> None:
        self.name = node.name
        self.order = order
        self.region = region
        self.cards = cards
        self.cpus = node.cpus
        self.memory = node.memory_mib
        self.free = {model: list(indices) for model, indices in cards.by_model.items()}
        self.busy: dict[int, float] = {}  # card -> when it is empty
        self.shares: dict[int, list[tuple[float, int]]] = {}  # shared card -> when which shards end
        self.releases: list[tuple[float, int, int]] = []  # when, cpus, memory
        self.endless_cpus = 0  # held by runs without a time limit
        self.endless_memory = 0
        self.pins: list[Pin] = []
        self.homes: list[dict[int, dict[int, FreeNode]]] = []  # the shelves where Fleet keeps it
        self.steps: list[Step] = []
        self.lane: list[Step] = []  # the steps of all nodes of the region with the same cards

    def hold(self, seat: Seat, end: float) -> None:
        """Count a seat that is held already, even one that the node does not have (any more)."""
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
            self.endless_cpus += cpus
            self.endless_memory += memory
        self.releases.append((end, cpus, memory))

    def _hold_cards(self, indices: Iterable[int], end: float) -> None:
        busy, model_of = self.busy, self.cards.model_of
        for index in indices:
            if index in busy:  # held twice: believe both, let nobody in before the last has left
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
        """How many shards of a card are free at a moment, pins aside."""
        if index in self.shares:
            return self.cards.shards_of[index] - sum(shards for end, shards in self.shares[index] if end > at)
        return self.cards.shards_of[index] if self.busy.get(index, 0.0) <= at else 0

    def free_cards(self, models: Iterable[str]) -> int:
        return sum([len(self.free.get(model, ())) for model in models])

    def free_shards(self, models: Iterable[str]) -> int:
        """The shards free on the freest card."""
        model_of, shards_of = self.cards.model_of, self.cards.shards_of
        fresh = [shards_of[index] for model in models for index in self.free.get(model, ())]
        return max(fresh + [self.shard_room(index) for index in self.shares if model_of[index] in models], default=0)

    # Later: steps and pins.

    def unroll(self) -> list[Step]:
        """Write down what comes free when, as steps; return those after now."""
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
        """Take from all steps of a run."""
        first, last = self._step_at(start), self._step_at(start + want.lasts)
        cards = len(taken[0])
        for step in self.steps[first:last]:
            step.cpus -= want.cpus
            step.memory -= want.memory
            step.cards -= cards

    def hasten(self, seat: Seat, end: float, at: float) -> None:
        """A seat that was to be held until `end` comes free earlier. `refresh` must follow where steps are written."""
        self.releases.remove((end, seat.cpus, seat.memory_mib))
        self.releases.append((at, seat.cpus, seat.memory_mib))
        if end >= FAR:
            self.endless_cpus -= seat.cpus
            self.endless_memory -= seat.memory_mib
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
        """Write the steps down anew, here and in the lane."""
        lane = self.lane
        lane[:] = [step for step in lane if step.node is not self]
        for step in self.unroll():
            insort(lane, step, key=moment_and_order)
        for pin in self.pins:
            self.occupy(pin.want, (pin.cards, pin.shared), pin.start)

    def imagined(self, leaving: Iterable[tuple[Seat, float]], at: float) -> "FreeNode":
        """This node as it will be if these seats, held until then, come free at a moment."""
        other = copy(self)
        other.busy = dict(self.busy)
        other.shares = {index: list(parts) for index, parts in self.shares.items()}
        other.releases = list(self.releases)
        other.lane = []
        for seat, end in leaving:
            other.hasten(seat, end, at)
        other.refresh()
        return other

    def pin(self, key: str, want: Want, taken: Taken, start: float) -> None:
        self.pins.append(Pin(key, start, want, taken))
        self.occupy(want, taken, start)

    def _step_at(self, at: float) -> int:
        steps = self.steps
        position = bisect_left(steps, at, key=moment)
        if position == len(steps) or steps[position].at != at:
            before = steps[position - 1]
            step = Step(at, self, before.cpus, before.memory, before.cards, before.shards)
            steps.insert(position, step)
            insort(self.lane, step, key=moment_and_order)
        return position

    def step_in_force(self, at: float) -> Step:
        return self.steps[bisect_right(self.steps, at, key=moment) - 1]

    def ready(self) -> Step:
        """What is free when all runs with a time limit have ended and the others have not."""
        return self.steps[bisect_left(self.steps, FAR, key=moment) - 1]

    def ready_cards(self, models: Iterable[str], at_hand: Step) -> int:
        """How many cards of these models are free then."""
        by_model = self.cards.by_model
        if len(by_model) == 1:
            return at_hand.cards
        busy = self.busy
        return sum(busy.get(index, 0.0) < FAR for model in models for index in by_model.get(model, ()))

    def seat_between(self, want: Want, start: float, end: float) -> Taken | None:
        """Cards for a run from start to end beside all pins, or None."""
        memory = want.memory_floor
        for step in self.steps:
            if step.at >= end:
                break
            if step.at < start:
                continue
            if step.cpus < want.cpus or step.memory < memory:
                return None
            # A run without a limit must leave a promised seat whole even if the others without one never end.
            if (
                end == NEVER
                and step.at >= FAR
                and (step.cpus - self.endless_cpus < want.cpus or step.memory - self.endless_memory < memory)
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
        pinned: set[int | None] = set()
        for pin in self.pins:
            if pin.start < end and pin.end > start:
                pinned.update(pin.cards)
                pinned.add(pin.shared)
        busy, by_model, gpus = self.busy, self.cards.by_model, want.gpus
        groups = [
            [index for index in by_model.get(model, ()) if busy.get(index, 0.0) <= start and index not in pinned]
            for model in want.models
        ]
        # One that comes free just in time leaves earlier ones to others. But a far promise is kept only by holding
        # on to what is free: nobody knows what comes free next.
        sign = 1.0 if start >= FAR else -1.0
        for group in groups:
            group.sort(key=lambda index: sign * busy.get(index, 0.0))
        enough = [group for group in groups if len(group) >= gpus]
        if enough:
            # Of a far promise, the model of which most is there already; else the fewest sufficient cards.
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
                pinned = self._pinned_shards(index, start, end)
                if self.shard_room(index, start) - pinned >= want.shards:
                    rooms.append((sign * (self.shard_room(index, at) - pinned), index))
        return min(rooms)[1] if rooms else None

    def _pinned_shards(self, index: int, start: float, end: float) -> int:
        pinned = 0
        for pin in self.pins:
            if pin.start < end and pin.end > start:
                if index in pin.cards:
                    return self.cards.shards_of[index]
                if pin.shared == index:
                    pinned += pin.shards
        return pinned
