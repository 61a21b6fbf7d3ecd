"""When those that cannot start now will: each of the first ones is promised a seat that later ones must leave whole."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import merge

from danlu.domain.resources import Ask, Seat
from danlu.scheduler.capacity import Cards
from danlu.scheduler.node_timeline import FAR, NEVER, FreeNode, Step, Taken, Want, moment
from danlu.scheduler.placement import Fleet, Spot
from danlu.scheduler.snapshot import Waiting

EXACT_PROMISES = 100  # waiting entries that are promised a seat; those after them get a rough estimate
WIDE_PROMISES = 10  # of them on several nodes, which take longer to find
_WIDE_TRIES = 50  # moments at which several nodes are looked at together, before nobody can say when
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
        self._wide = WIDE_PROMISES

    def note(self, waiting: Waiting) -> bool:
        """Remember to promise a seat, if promises are left and it could ever have one."""
        if not self._fleet.fits_ever(waiting):
            return False
        if waiting.ask.nodes > 1:
            if not self._wide:
                return False
            self._wide -= 1
        self.open -= 1
        self.pending.append(waiting)
        return True

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
            self._starts.setdefault(waiting.key, self._promise(waiting.key, want))
        self.pending.clear()

    def _promise(self, key: str, want: Want) -> float:
        """Promise the first seat that can be foreseen, or the one of which the least is missing."""
        if want.nodes > 1:
            at, spots = self._foreseeable_together(want) or self._far_together(want)
            for node, taken in spots:
                node.pin(key, want, taken, at)
            return at
        # It fits some empty node, and after its last step every node is empty.
        step, taken = self._foreseeable(want) or _far_fit(self._lanes_for(want), want)
        step.node.pin(key, want, taken, step.at)
        return step.at

    def start_of(self, key: str) -> float:
        """When the promised seat of an entry is; NEVER if it has none."""
        if self.pending:
            self.settle()
        return self._starts.get(key, NEVER)

    def foresee(self, want: Want, before: float = FAR) -> float:
        """When a run would fit beside all promises so far; NEVER if nobody can say, or not before a moment."""
        self.settle()
        if want.nodes > 1:
            together = self._foreseeable_together(want, before)
            return together[0] if together else NEVER
        promise = self._foreseeable(want, before)
        return promise[0].at if promise else NEVER

    def hasten(self, seat: Seat, end: float, at: float) -> None:
        """A seat comes free earlier than it was to."""
        node = self._fleet.nodes.get(seat.node)
        if node is not None:
            node.hasten(seat, end, at)
            if self._lanes:
                node.refresh()

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
        key = (waiting.queue, ask.nodes, ask.gpus, ask.gpu_model, shards, cpus, memory, lasts)
        seconds = self._rough.get(key)
        if seconds is None:
            rough = Ask(ask.gpus, ask.gpu_model, _least(shards), _least(cpus), _least(memory), ask.nodes)
            want = self._want(waiting, rough, NEVER if lasts is None else _least(lasts))
            seconds = self._rough[key] = self.foresee(want)
        return seconds

    def _unroll(self) -> None:
        for node in self._fleet.nodes.values():
            node.lane = self._lanes.setdefault((node.region, node.cards), [])
            node.lane.extend(node.unroll())
        for lane in self._lanes.values():
            lane.sort(key=moment)

    def _foreseeable(self, want: Want, before: float = FAR) -> Promise | None:
        """The first moment after now at which a run fits and where, if no run without a limit has to end for it."""
        best: Promise | None = None
        for lane in self._lanes_for(want):
            best = _first_fit(lane, want, best, before)
        return best

    def _foreseeable_together(self, want: Want, before: float = FAR) -> tuple[float, list[Spot]] | None:
        """The first moment after now at which a run fits on several nodes at once."""
        able = {node.order: node for node in self._fleet.nodes_in(want.regions) if _has(node.steps[0], want)}
        tries = _WIDE_TRIES
        for step in merge(*self._lanes_for(want), key=moment):
            if step.at >= before or not tries:
                break
            if _has(step, want):
                able[step.node.order] = step.node
                if len(able) >= want.nodes:
                    tries -= 1
                    spots = spots_at(able.values(), want, step.at, want.nodes)
                    if spots:
                        return step.at, spots
        return None

    def _far_together(self, want: Want) -> tuple[float, list[Spot]]:
        """A fit on several nodes when all that is there has ended, on the nodes where the least is missing."""
        nodes = self._fleet.nodes_in(want.regions)
        at = max([FAR, *(node.steps[-1].at for node in nodes)])
        spots = spots_at(sorted(nodes, key=lambda node: _missing(node, want)), want, at, want.nodes)
        assert spots, "a run that fits empty nodes found none"
        return at, spots

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


def _first_fit(lane: list[Step], want: Want, best: Promise | None, before: float) -> Promise | None:
    """The first fit in the foreseeable part of a lane, if it is before the best so far."""
    cpus, memory, cards, shards = want.cpus, want.memory_floor, want.gpus, want.shards
    end = best[0].at if best else before
    for step in lane:
        if step.at >= end:
            break
        if step.cards >= cards and step.cpus >= cpus and step.memory >= memory and step.shards >= shards:
            taken = step.node.seat_between(want, step.at, step.at + want.lasts)
            if taken:
                return step, taken
    return best


def _has(step: Step, want: Want) -> bool:
    """May there be room at this step? Only the node itself can tell for sure."""
    return (
        step.cards >= want.gpus
        and step.cpus >= want.cpus
        and step.memory >= want.memory_floor
        and step.shards >= want.shards
    )


def spots_at(nodes: Iterable[FreeNode], want: Want, at: float, count: int) -> list[Spot]:
    """The first so many of these nodes that can hold a part of it from a moment on; none if there are fewer."""
    spots: list[Spot] = []
    for node in nodes:
        if _has(node.step_in_force(at), want):
            taken = node.seat_between(want, at, at + want.lasts)
            if taken:
                spots.append((node, taken))
                if len(spots) == count:
                    return spots
    return []


def _missing(node: FreeNode, want: Want) -> tuple[int, int, int, int]:
    """How much is missing on a node when all runs with a time limit have ended and the others have not."""
    ready = node.ready()
    cards = want.gpus - node.ready_cards(want.models, ready) if want.gpus else want.shards - ready.shards
    return (
        max(cards, 0),
        max(want.cpus - ready.cpus, 0),
        max(want.memory_floor - ready.memory, 0),
        node.order,
    )


def _far_fit(lanes: Iterable[list[Step]], want: Want) -> Promise:
    """A fit that needs runs without a time limit to end, on the node where the least is missing."""
    candidates = [step for lane in lanes for step in lane if step.at >= FAR and _has(step, want)]
    for step in sorted(candidates, key=lambda step: (step.at, *_missing(step.node, want))):
        taken = step.node.seat_between(want, step.at, step.at + want.lasts)
        if taken:
            return step, taken
    raise AssertionError("a run that fits an empty node found none")
