"""Who is before whom in the queue."""

from collections.abc import Iterable
from operator import attrgetter

from danlu.scheduler.snapshot import Waiting

_age = attrgetter("seq")
_priority = attrgetter("priority")


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """High priority first, then by age."""
    # Two stable sorts on bare integers cost half of one sort on pairs.
    ordered = sorted(waiting, key=_age)
    ordered.sort(key=_priority, reverse=True)
    return ordered
