"""Who writes next. Arrays wait in a lane for each person, so that nobody waits for more than one turn of another."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

from danlu.store.operations import Change, Find, Insert

Asked = tuple[Change, "asyncio.Future[Any]"]

TURN_ROWS = 5_000  # a person's small arrays that share one commit; a larger array has a commit of its own


class Lanes:
    """The order within a lane stays, and the persons take turns."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, deque[Asked]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def sorted_out(self, asked: Iterable[Asked]) -> list[Asked]:
        """Put arrays into their lanes; give the rest, which is to be written at once."""
        rest: list[Asked] = []
        for one in asked:
            change = one[0]
            if isinstance(change, Insert) and len(change.jobs) > 1:
                self._lanes.setdefault(change.jobs[0].user, deque()).append(one)
            elif isinstance(change, Find) and change.user in self._lanes:
                self._lanes[change.user].append(one)  # it asks for what may still be in the lane
            else:
                rest.append(one)
        return rest

    def turn(self) -> list[Asked]:
        """What the next person writes in one commit."""
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
