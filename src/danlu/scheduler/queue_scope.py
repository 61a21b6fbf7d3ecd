"""Which part of the fleet an entry may use: all of it, or what its queue names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from danlu.domain.queue import Queue


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes of some regions, and their cards of some models."""

    queue: Queue | None  # None: everything
    regions: tuple[int, ...]
    models: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.queue.name if self.queue else ""


class Regions:
    """Nodes that the same queues name make one region: a queue is some regions, and no node is looked at in vain."""

    def __init__(self, queues: Mapping[str, Queue], nodes: Iterable[str]) -> None:
        self._of_node: dict[str, int] = {}
        self._of_queue: dict[str, tuple[int, ...]] = {}
        self.count = 1
        naming = [queue for queue in queues.values() if queue.nodes]
        if not naming:
            return
        marks: dict[tuple[bool, ...], int] = {}
        for name in nodes:
            mark = tuple([name in queue.nodes for queue in naming])
            self._of_node[name] = marks.setdefault(mark, len(marks))
        self.count = len(marks)
        for position, queue in enumerate(naming):
            self._of_queue[queue.name] = tuple(region for mark, region in marks.items() if mark[position])

    def of_node(self, name: str) -> int:
        return self._of_node.get(name, 0)

    def of_queue(self, queue: Queue | None) -> tuple[int, ...]:
        if queue is None or not queue.nodes:
            return tuple(range(self.count))
        return self._of_queue[queue.name]
