"""The loop that moves jobs: see what became of the runs, plan, write it down, then tell the engine."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from danlu.actions.planning import Outlook
from danlu.domain.job import Job, JobState, Reason
from danlu.domain.resources import Node, Seat
from danlu.engines.base import Handle, Observation, RunState
from danlu.errors import Conflict, DanluError, Unreachable
from danlu.loops.dependencies import release_dependents
from danlu.loops.settle import settle
from danlu.loops.telling import Teller
from danlu.scheduler.plan import plan
from danlu.store.base import PastRun
from danlu.store.book import Book

log = logging.getLogger(__name__)

# Only after trouble, or to meet a moment that nothing announces; work itself is announced.
RETRY_S = 1.0
LOOK_ANYWAY_S = 30.0
LOOK_ANYWAY = timedelta(seconds=LOOK_ANYWAY_S / 2)


class Schedule:
    """What the loop keeps between two ticks. Nothing here is needed to go on after a crash."""

    def __init__(self, book: Book, nodes: Sequence[Node], teller: Teller) -> None:
        self.book = book
        self.nodes = nodes
        self.teller = teller
        self.outlook = Outlook()
        self.trouble: DanluError | None = None  # why nothing moves, for who asks
        self._planned_moves = -1  # of the live jobs, when the last plan had been carried out
        self._planned_at = datetime.min.replace(tzinfo=UTC)

    async def run(self) -> None:
        """Tick whenever something changed, for ever."""
        changed = self.book.changed
        was_away = True
        while True:
            changed.clear()
            try:
                if was_away:
                    await self.teller.forget_the_written()
                    was_away = False
                await self.tick(datetime.now(UTC))
                self.trouble = None
                pause = LOOK_ANYWAY_S
            except Conflict:
                changed.set()  # somebody was faster: look again
                pause = RETRY_S
            except Unreachable as error:
                if self.trouble is None or self.trouble.text != error.text:
                    log.warning("%s", error.text)
                self.trouble = error
                self.teller.engine_was_away()
                was_away = True
                pause = RETRY_S
            except Exception:
                log.exception("a scheduling tick failed; it is tried again")
                pause = RETRY_S
            # Not wait_for: when both happen at once, it would swallow the cancellation that ends this loop.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()

    async def tick(self, now: datetime) -> None:
        """Load, think, apply."""
        live, teller = self.book.live, self.teller
        held = list(live.holding())
        seen = await teller.engine.observe([Handle(job.handle) for job in held if job.handle])
        settled, past = _settle(held, seen, now)
        over = {job.id: job for job in settled if not job.state.holds_seat}
        # Who goes back to the queue keeps its place there: nobody starts before it is in it.
        is_any_retried = any(job.state is JobState.QUEUED for job in over.values())
        is_planned = not over and self._is_planned(now)
        starting = [] if is_any_retried or is_planned else self._plan(list(over.values()), now)
        planned_moves, self._planned_moves = live.moves, -1
        if changes := [*settled, *starting]:
            # While the disk works, the launches are made ready; they are told after it has.
            writing = self.book.update(changes, past, is_planned=not is_any_retried)
            _, launches = await asyncio.gather(writing, teller.launches(starting))
            planned_moves += len(changes)
            await teller.start(launches)
        if not is_any_retried:
            self._planned_moves = planned_moves
        unstarted = [job for job in held if job.id not in over and _is_unstarted(job, seen)]
        await teller.start(await teller.launches(unstarted))
        teller.start_snapshots([*starting, *unstarted])
        await teller.forget([Handle(job.handle) for job in held if job.id in over and job.handle])
        await teller.stop_the_asked()
        await release_dependents(self.book, now)

    def _is_planned(self, now: datetime) -> bool:
        """Nothing has changed since the last plan but what it brought about itself."""
        return self.book.live.moves == self._planned_moves and abs(now - self._planned_at) < LOOK_ANYWAY

    def _plan(self, over: Sequence[Job], now: datetime) -> list[Job]:
        """The jobs that start now, with their seats and the names by which the engine will know them."""
        live = self.book.live
        self._planned_at = now
        made = self.outlook.plan = plan(self.outlook.snapshot(live, self.nodes, now, ended=over))
        counts: dict[str, int] = {}
        for start in made.starts:
            counts[start.key] = counts.get(start.key, 0) + 1
        ids = {key: iter(live.next_ids(key, count)) for key, count in counts.items()}
        return [self._started(live.jobs[next(ids[start.key])], start.seat, now) for start in made.starts]

    def _started(self, job: Job, seat: Seat, now: datetime) -> Job:
        handle = self.teller.engine.handle(job.run_id)
        why = Reason("starting", "is being started")
        return job.moved(JobState.STARTING, why=why, at=now, seat=seat, handle=handle)


def _settle(held: Sequence[Job], seen: Mapping[Handle, Observation], now: datetime) -> tuple[list[Job], list[PastRun]]:
    """What was seen, as the jobs that change by it and the runs that are over though their job is not."""
    settled: list[Job] = []
    past: list[PastRun] = []
    for job in held:
        observation = seen.get(Handle(job.handle or ""))
        if observation is None:
            continue
        after, run = settle(job, observation, now=now)
        if after is not job:
            settled.append(after)
        if run is not None:
            past.append(run)
    return settled, past


def _is_unstarted(job: Job, seen: Mapping[Handle, Observation]) -> bool:
    """Written down as starting, but the engine never heard of it: whoever should have told it was killed."""
    found = seen.get(Handle(job.handle or ""))
    return job.state is JobState.STARTING and found is not None and found.state is RunState.UNKNOWN
