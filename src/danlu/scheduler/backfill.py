"""When those that cannot start now will: each of the first ones is promised a seat that later ones must leave whole."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from danlu.domain.resources import Ask
from danlu.scheduler.capacity import Cards
from danlu.scheduler.free import FAR, NEVER, Step, Taken, Want
from danlu.scheduler.placement import Fleet
from danlu.scheduler.snapshot import Waiting

EXACT_PROMISES = 100  # waiting entries that are promised a seat; those after them get a rough estimate
HORIZON_S = 10 * 365 * 86400.0  # nobody can say what happens after this

Promise = tuple[Step, Taken]


def seconds_of(limit: timedelta | None) -> float:
    return NEVER if limit is None else limit.total_seconds()


class Book:
    """The promised seats. They are worked out only when somebody might get in the way, or asks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._lanes: dict[tuple[int, Cards], list[Step]] = {}  # by region and cards
        self._starts: dict[str, float] = {}
        self._rough: dict[tuple[int | str | None, ...], float] = {}
        self.pending: list[Waiting] = []
        self.open = EXACT_PROMISES

    def note(self, waiting: Waiting) -> None:
        """Remember to promise a seat, if promises are left and it could ever have one."""
        scope = self._fleet.scope(waiting.queue)
        if scope and self._fleet.capacity(scope).fits(waiting.ask):
            self.open -= 1
            self.pending.append(waiting)

    def _want(self, waiting: Waiting, ask: Ask, limit: float) -> Want:
        scope = self._fleet.scope(waiting.queue)
        assert scope
        return self._fleet.want(ask, limit, scope)

    def settle(self) -> None:
        """Work out the promises noted so far, in order. No run may be given a seat between `note` and this."""
        if not self._lanes:
            self._unroll()
        for waiting in self.pending:
            want = self._want(waiting, waiting.ask, seconds_of(waiting.time_limit))
            # It fits some empty node, and after its last step every node is empty.
            step, taken = self._foreseeable(want) or _far_fit(self._lanes_for(want), want)
            self._starts[waiting.key] = step.at
            step.node.pin(waiting.key, want, taken, step.at)
        self.pending.clear()

    def estimate(self, waiting: Waiting, place: int, now: datetime) -> datetime | None:
        """When the next of it may start; None if that depends on a run without a time limit."""
        if self.pending:
            self.settle()
        seconds = self._starts.get(waiting.key)
        if seconds is None:
            seconds = self._rough_start(waiting) * max(place / EXACT_PROMISES, 1.0)
        return now + timedelta(seconds=seconds) if seconds <= HORIZON_S else None

    def _rough_start(self, waiting: Waiting) -> float:
        """When a run of about this size fits beside all promises."""
        ask, limit = waiting.ask, waiting.time_limit
        cpus, memory, shards = ask.cpus.bit_length(), ask.memory_mib.bit_length(), ask.shards.bit_length()
        lasts = None if limit is None else int(limit.total_seconds()).bit_length()
        key = (waiting.queue, ask.gpus, ask.gpu_model, shards, cpus, memory, lasts)
        seconds = self._rough.get(key)
        if seconds is None:
            rough = Ask(ask.gpus, ask.gpu_model, _least(shards), _least(cpus), _least(memory))
            want = self._want(waiting, rough, NEVER if lasts is None else _least(lasts))
            promise = self._foreseeable(want)
            seconds = self._rough[key] = promise[0].at if promise else NEVER
        return seconds

    def _unroll(self) -> None:
        for node in self._fleet.nodes.values():
            node.lane = self._lanes.setdefault((node.region, node.cards), [])
            node.lane.extend(node.unroll())
        for lane in self._lanes.values():
            lane.sort(key=lambda step: step.at)

    def _foreseeable(self, want: Want) -> Promise | None:
        """The first moment after now at which a run fits and where, if no run without a limit has to end for it."""
        best: Promise | None = None
        for lane in self._lanes_for(want):
            best = _first_fit(lane, want, best)
        return best

    def _lanes_for(self, want: Want) -> list[list[Step]]:
        needs_cards = want.gpus or want.shards
        return [
            lane
            for (region, cards), lane in self._lanes.items()
            if region in want.regions and (not needs_cards or any(model in cards.by_model for model in want.models))
        ]


def _least(bits: int) -> int:
    """The smallest number of so many bits: numbers of the same length share one rough estimate."""
    return 1 << bits - 1 if bits else 0


def _first_fit(lane: list[Step], want: Want, best: Promise | None) -> Promise | None:
    """The first fit in the foreseeable part of a lane, if it is before the best so far."""
    cpus, memory, cards, shards = want.cpus, want.memory_floor, want.gpus, want.shards
    end = best[0].at if best else FAR
    for step in lane:
        if step.at >= end:
            break
        if step.cards >= cards and step.cpus >= cpus and step.memory >= memory and step.shards >= shards:
            taken = step.node.seat_between(want, step.at, step.at + want.lasts)
            if taken:
                return step, taken
    return best


def _far_fit(lanes: Iterable[list[Step]], want: Want) -> Promise:
    """A fit that needs runs without a time limit to end, on the node where the least is missing."""

    def missing(step: Step) -> tuple[float, int, int, int, int]:
        node = step.node
        ready = node.ready()
        cards = want.gpus - node.ready_cards(want.models, ready) if want.gpus else want.shards - ready.shards
        return (
            step.at,
            max(cards, 0),
            max(want.cpus - ready.cpus, 0),
            max(want.memory_floor - ready.memory, 0),
            node.order,
        )

    candidates = [
        step
        for lane in lanes
        for step in lane
        if step.at >= FAR
        and step.cards >= want.gpus
        and step.cpus >= want.cpus
        and step.memory >= want.memory_floor
        and step.shards >= want.shards
    ]
    for step in sorted(candidates, key=missing):
        taken = step.node.seat_between(want, step.at, step.at + want.lasts)
        if taken:
            return step, taken
    raise AssertionError("a run that fits an empty node found none")
