"""Guess a start time when no exact estimate exists: assume an end for runs without a time limit."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from math import ceil

from danlu.domain.reasons import WITHOUT_ESTIMATE, ReasonCode
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Wait, Waiting

# The assumed duration of a run without a time limit that has just begun or has not begun.
_ASSUMED = timedelta(hours=1)


def with_guess(wait: Wait, snapshot: Snapshot, key: str, after: tuple[str, ...] = ()) -> Wait:
    """Return the wait, with a guess if the wait has no estimate. `after`: the jobs and arrays that the entry depends
    on."""
    if wait.estimated_at is not None or wait.reason.code in WITHOUT_ESTIMATE:
        return wait
    guessed = Guess(snapshot).start(key, after)
    return wait if guessed is None else replace(wait, estimated_at=guessed, is_guess=True)


class Guess:
    """A plan in which a run without a time limit lasts as long again as it has run so far, and an hour at least."""

    def __init__(self, snapshot: Snapshot) -> None:
        now = snapshot.now
        self._snapshot = replace(
            snapshot,
            waiting=tuple(
                entry if entry.time_limit else replace(entry, time_limit=_ASSUMED) for entry in snapshot.waiting
            ),
            holding=tuple(
                held if held.ends_at else replace(held, ends_at=_end_of(held, now)) for held in snapshot.holding
            ),
        )

    @cached_property
    def _plan(self) -> Plan:
        return plan(self._snapshot)

    def start(self, key: str, after: tuple[str, ...] = ()) -> datetime | None:
        """The start of the next job of an entry. `after`: the jobs and arrays it depends on. None: waiting does not
        help."""
        if after:
            ends = [end for other in after if (end := self.end(other)) is not None]
            return max(ends, default=None)
        wait = self._plan.waits.get(key)
        if wait is None:
            return self._snapshot.now
        if wait.estimated_at is None and wait.reason.code == ReasonCode.ARRAY_LIMIT:
            return min((held.ends_at for held in self._held(key) if held.ends_at), default=None)
        return wait.estimated_at

    def end(self, key: str) -> datetime | None:
        """The end of an active job, or of the last job of an active array."""
        held = self._held(key)
        ends = [run.ends_at for run in held if run.ends_at]
        entry = self._entry(key)
        start = self.start(entry.key) if entry and entry.blocked is None else None
        if entry and start and entry.time_limit:
            # the array limit bounds how many run at once
            rounds = ceil(entry.count / max(len(held) + entry.may_start, 1))
            ends.append(start + rounds * entry.time_limit)
        return max(ends, default=None)

    def _held(self, key: str) -> list[Holding]:
        return [held for held in self._snapshot.holding if held.key == key or held.key.startswith(f"{key}_")]

    def _entry(self, key: str) -> Waiting | None:
        return next((entry for entry in self._snapshot.waiting if entry.key == key.partition("_")[0]), None)


def _end_of(held: Holding, now: datetime) -> datetime:
    so_far = now - held.started_at if held.started_at else timedelta(0)
    return now + max(so_far, _ASSUMED)
