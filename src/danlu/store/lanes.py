"""The order of writes. Each person has a lane of arrays, and the lanes take turns: a person waits for at most one
turn of every other person."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

from danlu.store.operations import Change, Find, Insert

Asked = tuple[Change, "asyncio.Future[Any]"]

TURN_ROWS = 5_000  # a person's small arrays that share one commit; a larger array has a commit of its own


class Lanes:
    """Lanes in turn; within a lane, first come, first served."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, deque[Asked]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def sorted_out(self, asked: Iterable[Asked]) -> list[Asked]:
        """Put arrays into their lanes. Returns the rest, for the next commit."""
        rest: list[Asked] = []
        for one in asked:
            change = one[0]
            if isinstance(change, Insert) and len(change.jobs) > 1:
                self._lanes.setdefault(change.jobs[0].user, deque()).append(one)
            elif isinstance(change, Find) and change.user in self._lanes:
                self._lanes[change.user].append(one)  # the insert in question may still be in the lane
            else:
                rest.append(one)
        return rest

    def turn(self) -> list[Asked]:
        """The changes of the next lane for one commit."""
        if not self._lanes:
            return []
        user, lane = self._lanes.popitem(last=False)
        some, rows = [lane.popleft()], 0
        while lane and (rows := rows + _rows(some[-1])) + _rows(lane[0]) <= TURN_ROWS:
            some.append(lane.popleft())
        if lane:
            self._lanes[user] = lane  # behind the others
        return some


def _rows(asked: Asked) -> int:
    change = asked[0]
    return len(change.jobs) if isinstance(change, Insert) else 0
