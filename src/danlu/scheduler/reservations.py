"""Start times of waiting entries: each of the first entries gets a reserved seat that later entries must not delay."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import merge

from danlu.domain.resources import Ask, Seat
from danlu.scheduler.capacity import Cards
from danlu.scheduler.node_timeline import FAR, NEVER, FreeNode, Step, Taken, Want, time_of
from danlu.scheduler.placement import Fleet, Spot
from danlu.scheduler.snapshot import Waiting

MAX_RESERVATIONS = 100  # entries with a reserved seat; later entries get a rough estimate
MAX_WIDE_RESERVATIONS = 10  # of these, entries on several nodes: their seats take longer to compute
_WIDE_TRIES = 50  # times at which several nodes are tried together before the start counts as unknown
HORIZON_S = 10 * 365 * 86400.0  # start times after this are unknown

Fit = tuple[Step, Taken]


def seconds_of(limit: timedelta | None) -> float:
    return NEVER if limit is None else limit.total_seconds()


class Reservations:
    """The reserved seats. They are computed only when a run might delay them, or when an estimate is requested."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._step_indexes: dict[tuple[int, Cards], list[Step]] = {}  # by region and cards
        self._starts: dict[str, float] = {}
        self._rough: dict[tuple[int | str | None, ...], float] = {}
        self.pending: list[Waiting] = []
        self.slots_left = MAX_RESERVATIONS
        self._wide_left = MAX_WIDE_RESERVATIONS

    def request(self, waiting: Waiting) -> bool:
        """Queue a reservation, if reservations are left and the entry could ever run."""
        if not self._fleet.fits_ever(waiting):
            return False
        if waiting.ask.nodes > 1:
            if not self._wide_left:
                return False
            self._wide_left -= 1
        self.slots_left -= 1
        self.pending.append(waiting)
        return True

    def _want(self, waiting: Waiting, ask: Ask, limit: float) -> Want:
        scope = self._fleet.scope(waiting.queue)
        assert scope
        return self._fleet.want(ask, limit, scope)

    def resolve(self) -> None:
        """Compute the queued reservations, in order. No run may take a seat between `request` and this call."""
        if not self._step_indexes:
            self._build_steps()
        for waiting in self.pending:
            want = self._want(waiting, waiting.ask, seconds_of(waiting.time_limit))
            self._starts.setdefault(waiting.key, self._reserve(waiting.key, want))
        self.pending.clear()

    def _reserve(self, key: str, want: Want) -> float:
        """Reserve the earliest foreseeable seat, or the seat that lacks the fewest resources."""
        if want.nodes > 1:
            at, spots = self._earliest_joint_fit(want) or self._far_joint_fit(want)
            for node, taken in spots:
                node.reserve(key, want, taken, at)
            return at
        # The run fits an empty node, and after its last step every node is empty.
        step, taken = self._earliest_fit(want) or _far_fit(self._step_indexes_for(want), want)
        step.node.reserve(key, want, taken, step.at)
        return step.at

    def start_of(self, key: str) -> float:
        """The start of an entry's reservation; NEVER without a reservation."""
        if self.pending:
            self.resolve()
        return self._starts.get(key, NEVER)

    def earliest_start(self, want: Want, before: float = FAR) -> float:
        """The earliest start of a run beside all reservations; NEVER if unknown, or not before `before`."""
        self.resolve()
        if want.nodes > 1:
            together = self._earliest_joint_fit(want, before)
            return together[0] if together else NEVER
        fit = self._earliest_fit(want, before)
        return fit[0].at if fit else NEVER

    def release_early(self, seat: Seat, end: float, at: float) -> None:
        """Release a seat earlier than expected."""
        node = self._fleet.nodes.get(seat.node)
        if node is not None:
            node.release_early(seat, end, at)
            if self._step_indexes:
                node.refresh()

    def estimate(self, waiting: Waiting, place: int, now: datetime) -> datetime | None:
        """The start of the entry's next job; None if the start depends on a run without a time limit."""
        if self.pending:
            self.resolve()
        seconds = self._starts.get(waiting.key)
        if seconds is None:
            seconds = self._rough_start(waiting) * max(place / MAX_RESERVATIONS, 1.0)
        return now + timedelta(seconds=seconds) if seconds <= HORIZON_S else None

    def _rough_start(self, waiting: Waiting) -> float:
        """The earliest start of a run of about this size beside all reservations."""
        ask, limit = waiting.ask, waiting.time_limit
        cpus, memory, shards = ask.cpus.bit_length(), ask.memory_mib.bit_length(), ask.shards.bit_length()
        lasts = None if limit is None else int(limit.total_seconds()).bit_length()
        key = (waiting.queue, ask.nodes, ask.gpus, ask.gpu_model, shards, cpus, memory, lasts)
        seconds = self._rough.get(key)
        if seconds is None:
            rough = Ask(ask.gpus, ask.gpu_model, _least(shards), _least(cpus), _least(memory), ask.nodes)
            want = self._want(waiting, rough, NEVER if lasts is None else _least(lasts))
            seconds = self._rough[key] = self.earliest_start(want)
        return seconds

    def _build_steps(self) -> None:
        for node in self._fleet.nodes.values():
            node.step_index = self._step_indexes.setdefault((node.region, node.cards), [])
            node.step_index.extend(node.build_steps())
        for step_index in self._step_indexes.values():
            step_index.sort(key=time_of)

    def _earliest_fit(self, want: Want, before: float = FAR) -> Fit | None:
        """The earliest fit after now that does not depend on the end of a run without a time limit."""
        best: Fit | None = None
        for step_index in self._step_indexes_for(want):
            best = _first_fit(step_index, want, best, before)
        return best

    def _earliest_joint_fit(self, want: Want, before: float = FAR) -> tuple[float, list[Spot]] | None:
        """The earliest time after now at which a run fits on several nodes at once."""
        able = {node.order: node for node in self._fleet.nodes_in(want.regions) if _has(node.steps[0], want)}
        tries = _WIDE_TRIES
        for step in merge(*self._step_indexes_for(want), key=time_of):
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

    def _far_joint_fit(self, want: Want) -> tuple[float, list[Spot]]:
        """A fit on several nodes after all current runs have ended, on the nodes that lack the fewest resources."""
        nodes = self._fleet.nodes_in(want.regions)
        at = max([FAR, *(node.steps[-1].at for node in nodes)])
        spots = spots_at(sorted(nodes, key=lambda node: _missing(node, want)), want, at, want.nodes)
        assert spots, "a run that fits empty nodes found none"
        return at, spots

    def _step_indexes_for(self, want: Want) -> list[list[Step]]:
        needs_cards = want.gpus or want.shards
        return [
            step_index
            for (region, cards), step_index in self._step_indexes.items()
            if region in want.regions and (not needs_cards or any(model in cards.by_model for model in want.models))
        ]


def _least(bits: int) -> int:
    """The smallest number with this bit length. Asks with the same bit lengths share one rough estimate."""
    return 1 << bits - 1 if bits else 0


def _first_fit(step_index: list[Step], want: Want, best: Fit | None, before: float) -> Fit | None:
    """The first foreseeable fit in these steps, if earlier than the best so far."""
    cpus, memory, cards, shards = want.cpus, want.memory_floor, want.gpus, want.shards
    end = best[0].at if best else before
    for step in step_index:
        if step.at >= end:
            break
        if step.cards >= cards and step.cpus >= cpus and step.memory >= memory and step.shards >= shards:
            taken = step.node.seat_between(want, step.at, step.at + want.lasts)
            if taken:
                return step, taken
    return best


def _has(step: Step, want: Want) -> bool:
    """A quick check of a step; only the node knows for certain."""
    return (
        step.cards >= want.gpus
        and step.cpus >= want.cpus
        and step.memory >= want.memory_floor
        and step.shards >= want.shards
    )


def spots_at(nodes: Iterable[FreeNode], want: Want, at: float, count: int) -> list[Spot]:
    """The first `count` of these nodes that can hold a part of the run from `at` on; empty if there are fewer."""
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
    """How much is missing on a node after all runs with a time limit have ended and the others have not."""
    ready = node.ready()
    cards = want.gpus - node.ready_cards(want.models, ready) if want.gpus else want.shards - ready.shards
    return (
        max(cards, 0),
        max(want.cpus - ready.cpus, 0),
        max(want.memory_floor - ready.memory, 0),
        node.order,
    )


def _far_fit(step_indexes: Iterable[list[Step]], want: Want) -> Fit:
    """A fit that depends on the end of runs without a time limit, on the node that lacks the fewest resources."""
    candidates = [step for step_index in step_indexes for step in step_index if step.at >= FAR and _has(step, want)]
    for step in sorted(candidates, key=lambda step: (step.at, *_missing(step.node, want))):
        taken = step.node.seat_between(want, step.at, step.at + want.lasts)
        if taken:
            return step, taken
    raise AssertionError("a run that fits an empty node found none")
