"""What jobs can run on: nodes, queues, and the runs of others, as last heard of."""

from collections.abc import Mapping, Sequence

from danlu.domain.queue import Queue
from danlu.domain.resources import Node
from danlu.engines.base import OtherRun


class Inventory:
    """Fixed where Danlu has the machines to itself. A cluster that has a life of its own tells anew with every look;
    until it was first heard of, `is_known` is False, and nobody is told that something does not exist."""

    def __init__(
        self, nodes: Sequence[Node] = (), queues: Mapping[str, Queue] | None = None, *, is_known: bool = True
    ) -> None:
        self.nodes = tuple(nodes)
        self.queues = queues or {}
        self.others: tuple[OtherRun, ...] = ()  # those that did not come through Danlu
        self.room_for = 1 << 62  # how many more runs the queue of the engine takes
        self.is_known = is_known
        self.stamp = 0  # another one after every change

    def heard(self, nodes: Sequence[Node], queues: Mapping[str, Queue], others: Sequence[OtherRun]) -> None:
        found = (tuple(nodes), dict(queues), tuple(others))
        if not self.is_known or found != (self.nodes, self.queues, self.others):
            self.nodes, self.queues, self.others = found
            self.is_known = True
            self.stamp += 1
