"""The last known nodes, queues and runs from outside Danlu."""

from collections.abc import Mapping, Sequence

from danlu.domain.queue import Queue
from danlu.domain.resources import SHARDS_PER_GPU, Node
from danlu.engines.base import ExternalRun, NodeNow, RunState


class Inventory:
    """The inventory is fixed if Danlu has the machines to itself. A cluster with its own scheduler reports a new
    inventory at every look. Before the first report `is_known` is False, and no message says that a node or a queue
    does not exist."""

    def __init__(
        self,
        nodes: Sequence[Node] = (),
        queues: Mapping[str, Queue] | None = None,
        *,
        shards_per_gpu: int = SHARDS_PER_GPU,
        is_known: bool = True,
    ) -> None:
        self.nodes = tuple(nodes)
        self.queues = queues or {}
        self.others: tuple[ExternalRun, ...] = ()  # runs from outside Danlu that have not ended
        self.now: Mapping[str, NodeNow] = {}  # the engine's own report of each node, if any
        self.room_for = 1 << 62  # how many more runs the queue of the engine accepts
        self._shards_per_gpu = shards_per_gpu
        self.is_known = is_known
        self.stamp = 0  # a new number after every change that matters for planning

    def heard(
        self,
        nodes: Sequence[Node],
        queues: Mapping[str, Queue],
        others: Sequence[ExternalRun] = (),
        now: Mapping[str, NodeNow] | None = None,
    ) -> None:
        before = (self.nodes, self.queues, self._seated(), self.now)
        self.nodes, self.queues, self.now = tuple(nodes), dict(queues), dict(now or {})
        self.others = tuple(one for one in others if one.state is not RunState.ENDED)
        # Waiting runs take no resources: their changes need no new plan.
        if not self.is_known or before != (self.nodes, self.queues, self._seated(), self.now):
            self.is_known = True
            self.stamp += 1

    def _seated(self) -> list[ExternalRun]:
        return [one for one in self.others if one.seats]

    @property
    def shards_per_gpu(self) -> int:
        """The value of the first card; without cards, the configured value."""
        return next((gpu.shards for node in self.nodes for gpu in node.gpus), self._shards_per_gpu)
