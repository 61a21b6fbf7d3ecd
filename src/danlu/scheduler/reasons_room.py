"""Why an entry waits for room, with the amounts after the plan's starts."""

from datetime import timedelta

from danlu.domain.amounts import render_cards, render_cpus, render_list, render_memory, render_nodes
from danlu.domain.job import Reason
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Ask
from danlu.scheduler.capacity import Capacity, fitting_models
from danlu.scheduler.node_timeline import FreeNode
from danlu.scheduler.placement import Fleet
from danlu.scheduler.queue_scope import Scope
from danlu.scheduler.reservations import seconds_of
from danlu.scheduler.snapshot import Waiting

ARRAY_LIMIT = Reason(ReasonCode.ARRAY_LIMIT, "as many tasks of this array run as its limit allows")
CROWDED = Reason(
    ReasonCode.CROWDED,
    "the limit of pending jobs in the cluster's queue is reached; this job is handed over as others start",
)
CLOSED = Reason(ReasonCode.CLOSED, "the nodes that could run this job take no new jobs at present")


class Supply:
    """The nodes with enough matching cards free now, and their largest sizes in CPUs and memory."""

    def __init__(self, fleet: Fleet, ask: Ask, scope: Scope) -> None:
        self.needs_cards = bool(ask.gpus or ask.shards)
        self.where = f" in queue {scope.name}" if scope.name else ""
        nodes = able = fleet.nodes_in(scope.regions)
        self.is_one_node = len(nodes) == 1
        if self.needs_cards:
            models = fitting_models(scope.models, ask.gpu_model)
            able, counts = [], []
            kinds = {cards: cards.count(models) for cards in fleet.kinds}
            nodes = [node for node in nodes if kinds[node.cards]]
            for node in nodes:
                count = node.free_cards(models) if ask.gpus else node.free_shards(models)
                counts.append(count)
                if count >= (ask.gpus or ask.shards):
                    able.append(node)
            self.most, self.free = max(counts, default=0), sum(counts)
            self.total = sum(kinds[node.cards] for node in nodes)
            self.hosts = len(nodes)
        self.able = able
        self.frontier = _largest(able)

    @property
    def most_cpus(self) -> int:
        return max(self.frontier[0].cpus, 0)

    @property
    def most_memory(self) -> int:
        return max(self.frontier[-1].memory, 0)


def _largest(nodes: list[FreeNode]) -> list[FreeNode]:
    """Nodes by falling CPUs and rising memory, without nodes that another node exceeds in both."""
    frontier: list[FreeNode] = []
    for node in sorted(nodes, key=lambda node: (-node.cpus, -node.memory)):
        if not frontier or node.memory > frontier[-1].memory:
            frontier.append(node)
    return frontier


class Explainer:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._supplies: dict[tuple[str, int, int, str | None], Supply] = {}
        self._everything: dict[str, Capacity] = {}
        self._reasons: dict[tuple[int | str | timedelta | None, ...], Reason] = {}

    def why(self, waiting: Waiting) -> Reason:
        ask = waiting.ask
        key = (
            waiting.queue, ask.nodes, ask.gpus, ask.shards, ask.gpu_model, ask.cpus, ask.memory_mib, waiting.time_limit,
        )  # fmt: skip
        reason = self._reasons.get(key)
        if reason is None:
            reason = self._reasons[key] = self._find_why(waiting)
        return reason

    def hopeless(self, waiting: Waiting) -> Reason | None:
        """Why the entry could not run even on an empty cluster; None if it could."""
        scope = self._fleet.scope(waiting.queue)
        if scope is None:
            queue = self._fleet.queues.get(waiting.queue)
            if queue is None:
                return Reason(ReasonCode.NO_QUEUE, f"queue {waiting.queue} does not exist (any more)")
            return Reason(ReasonCode.CLOSED, f"queue {queue.name} starts no jobs at present: {queue.closed}")
        if self._fleet.capacity(scope).fits(waiting.ask):
            return None
        return self._capacity(scope).refusal(waiting.ask) or CLOSED

    def _find_why(self, waiting: Waiting) -> Reason:
        ask = waiting.ask
        scope = self._fleet.scope(waiting.queue)
        hopeless = self.hopeless(waiting)
        if scope is None or hopeless:
            return hopeless or CLOSED
        key = (waiting.queue, ask.gpus, ask.shards, ask.gpu_model)
        supply = self._supplies.get(key)
        if supply is None:
            supply = self._supplies[key] = Supply(self._fleet, ask, scope)
        if ask.nodes > 1:
            return _few_nodes(ask, supply)
        if not supply.frontier:
            return _few_cards(ask, supply)
        for node in supply.frontier:
            if _has_rest(node, ask):
                return _behind(node, waiting)
        return _few_others(ask, supply)

    def _capacity(self, scope: Scope) -> Capacity:
        """The capacity of all nodes, also of nodes that accept no jobs now."""
        if scope.name not in self._everything:
            self._everything[scope.name] = Capacity(self._fleet.all_nodes, scope.queue)
        return self._everything[scope.name]


def _has_rest(node: FreeNode, ask: Ask) -> bool:
    return node.cpus >= ask.cpus and (node.memory >= ask.memory_mib or not ask.memory_mib)


def _few_nodes(ask: Ask, supply: Supply) -> Reason:
    able = sum(_has_rest(node, ask) for node in supply.able)
    free = f"{able}{supply.where} {'has' if able == 1 else 'have'} them free"
    if able >= ask.nodes:
        free += ", but some of these are reserved for earlier jobs"
    return Reason(ReasonCode.NO_NODES, f"needs {render_nodes(ask)}, {free}")


def _few_others(ask: Ask, supply: Supply) -> Reason:
    where = f"on a node with {render_cards(ask)} free" if supply.needs_cards else "on one node"
    where = "here" if supply.is_one_node and not supply.where else where + supply.where
    if ask.cpus > supply.most_cpus:
        return Reason(ReasonCode.NO_CPUS, f"needs {render_cpus(ask.cpus)}, {_at_most(supply.most_cpus)} {where}")
    memory = render_memory(ask.memory_mib)
    if ask.memory_mib > supply.most_memory:
        most = render_memory(supply.most_memory)
        return Reason(ReasonCode.NO_MEMORY, f"needs {memory} of memory, at most {most} are free {where}")
    wanted = [render_cards(ask)] if supply.needs_cards else []
    wanted += [render_cpus(ask.cpus), f"{memory} of memory"]
    return Reason(
        ReasonCode.NO_MEMORY, f"needs {render_list(wanted)}, no single node{supply.where} has them free together"
    )


def _at_most(free: int) -> str:
    return f"at most {free} {'is' if free == 1 else 'are'} free" if free > 0 else "none is free"


def _few_cards(ask: Ask, supply: Supply) -> Reason:
    needs = f"needs {render_cards(ask)}"
    if ask.shards:
        return Reason(ReasonCode.NO_SHARDS, f"{needs}, {_at_most(supply.most)} on one{supply.where}")
    free = f"{supply.free} of {supply.total}{supply.where} {'is' if supply.free == 1 else 'are'} free"
    if supply.hosts == 1 or supply.free < ask.gpus:
        return Reason(ReasonCode.NO_GPUS, f"{needs}, {free}")
    return Reason(ReasonCode.NO_GPUS, f"{needs} on one node, at most {supply.most} are free on one ({free} in all)")


def _behind(node: FreeNode, waiting: Waiting) -> Reason:
    """The entry would fit on this node, but would delay an earlier reservation."""
    until = seconds_of(waiting.time_limit)
    reservations = [reservation for reservation in node.reservations if reservation.start < until]
    if waiting.ask.gpus or waiting.ask.shards:
        free = {index for indices in node.free.values() for index in indices} | set(node.shares)
        reservations = [
            reservation
            for reservation in reservations
            if reservation.shared in free or not free.isdisjoint(reservation.cards)
        ] or reservations
    return Reason(ReasonCode.BEHIND, f"would fit now, but would delay {reservations[0].key}, which was before it")
