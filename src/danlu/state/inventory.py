"""What jobs can run on: nodes, queues, and the runs of others, as last heard of."""

from collections.abc import Mapping, Sequence

from danlu.domain.queue import Queue
from danlu.domain.resources import SHARDS_PER_GPU, Node
from danlu.engines.base import ExternalRun, NodeNow, RunState


class Inventory:
    """Fixed where Danlu has the machines to itself. A cluster that has a life of its own tells anew with every look;
    until it was first heard of, `is_known` is False, and nobody is told that something does not exist."""

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
        self.others: tuple[ExternalRun, ...] = ()  # those that did not come through Danlu, and are not over
        self.now: Mapping[str, NodeNow] = {}  # nodes in the engine's own words, where it has some
        self.room_for = 1 << 62  # how many more runs the queue of the engine takes
        self._shards_per_gpu = shards_per_gpu
        self.is_known = is_known
        self.stamp = 0  # another one after every change of what can be planned with

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
        # Who only waits takes nothing: no new plan is needed for them.
        if not self.is_known or before != (self.nodes, self.queues, self._seated(), self.now):
            self.is_known = True
            self.stamp += 1

    def _seated(self) -> list[ExternalRun]:
        return [one for one in self.others if one.seats]

    @property
    def shards_per_gpu(self) -> int:
        """As the first card says; as it is written down if there are none."""
        return next((gpu.shards for node in self.nodes for gpu in node.gpus), self._shards_per_gpu)
