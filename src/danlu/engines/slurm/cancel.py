"""Passing on stops: by numbers that were just seen to be these runs', of their owners, many with one command."""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta

from danlu.domain.parsing import Notice
from danlu.engines.slurm.commands import Commands
from danlu.engines.slurm.poll import Look
from danlu.engines.slurm.run_folders import Folders, Record
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.options import BELL, render_stop
from danlu.engines.slurm.text.parse_jobs import QueueLine
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=30)
# A signal to a script that Slurm is just starting may be lost. Whoever has heard it takes no harm from another.
RINGS, AGAIN_S = 3, 3.0
AT_ONCE = 200  # with one command
_WAITING = ("--state=PENDING",)
_BELL = (f"--signal={BELL}", "--batch")


class Stops:
    def __init__(
        self, commands: Commands, folders: Folders, look: Look, runs: Runs, on_told: Callable[[], None]
    ) -> None:
        self._commands = commands
        self._folders = folders
        self._look = look
        self._runs = runs
        self._on_told = on_told
        # All by the monotonic clock: one that is set must not end anybody's grace.
        self._asked: dict[str, float] = {}  # since when their time runs; anew in a new server, which tells them anew
        self._rung: dict[str, list[float]] = {}  # runs whose scripts were told: when, each time
        self._cancelled: dict[str, float] = {}  # runs that waited: when, for looks that began before
        self._passing = asyncio.Lock()
        self._soon: asyncio.Task[None] | None = None

    def load(self) -> None:
        now = time.monotonic()
        self._asked = {run_id: now for run_id, record in self._runs.records.items() if record.stop and not record.end}

    async def close(self) -> None:
        if self._soon:
            self._soon.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._soon

    async def ask(self, record: Record, grace: timedelta, notice: Notice | None) -> None:
        """Told, not waited for. Where its word cannot be written, it is ended by force when its time is over."""
        text = render_stop(grace, notice)
        if record.stop is None or record.stop["text"] != text:
            lead = notice.lead if notice else timedelta()
            record.stop = {"at": time.time(), "last_s": (lead + grace).total_seconds(), "text": text}
            self._rung.pop(record.run_id, None)
            self._asked.pop(record.run_id, None)
        self._asked.setdefault(record.run_id, time.monotonic())
        await self._folders.in_time(self._write, record)
        if self._soon is None or self._soon.done():
            self._soon = asyncio.create_task(self._pass_on_soon())

    async def pass_on(self) -> None:
        """Each stop once; again, and by force, if it did not help."""
        async with self._passing:
            due: defaultdict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
            lines = {}
            for run_id, line in self._open_lines():
                if (how := self._how(run_id, line)) is not None:
                    due[how][line.number] = run_id
                    lines[line.number] = line
            for how, run_ids in due.items():
                async for number in self._cancel(how, [lines[number] for number in run_ids]):
                    self._on_told()
                    if how is _WAITING:
                        self._cancelled[run_ids[number]] = time.monotonic()
                    else:
                        self._rung.setdefault(run_ids[number], []).append(time.monotonic())

    async def cancel_waiting(self, lines: Sequence[QueueLine]) -> None:
        """Jobs that are nobody's run, and have not begun."""
        async for _ in self._cancel(_WAITING, lines):
            pass

    async def _pass_on_soon(self) -> None:
        with contextlib.suppress(EngineDown):  # then after the next look
            await self.pass_on()

    def _write(self, record: Record) -> None:
        try:
            self._folders.write(record)
        except OSError as error:  # whoever asked for it knows it too, and asks again after a crash
            log.warning("the stop of %s cannot be written down: %s", record.run_id, error.strerror)
        self._folders.write_stop(record)

    def _open_lines(self) -> Iterator[tuple[str, QueueLine]]:
        for run_id in list(self._asked):
            record = self._runs.records.get(run_id)
            if record is None or record.end:
                del self._asked[run_id]
                self._rung.pop(run_id, None)
                self._cancelled.pop(run_id, None)
            elif (line := self._runs.line_of(run_id)) is not None and not line.is_over:
                yield run_id, line

    def _how(self, run_id: str, line: QueueLine) -> tuple[str, ...] | None:
        """With which words; None if it was told and has time."""
        if line.is_waiting:
            # It may have begun in between: the next look tells.
            return None if self._cancelled.get(run_id, 0.0) > self._look.began_at else _WAITING
        stop, rung = self._runs.records[run_id].stop, self._rung.get(run_id, [])
        assert stop is not None
        now, last = time.monotonic(), max(rung, default=float("-inf"))
        if now > max(self._asked[run_id] + stop["last_s"], last) + OVERDUE.total_seconds():
            return ()
        return _BELL if len(rung) < RINGS and now - last > AGAIN_S else None

    async def _cancel(self, how: tuple[str, ...], lines: Sequence[QueueLine]) -> AsyncIterator[int]:
        """The numbers of those of which Slurm was told."""
        by_owner: defaultdict[int, list[int]] = defaultdict(list)
        for line in lines:
            by_owner[line.uid].append(line.number)
        for uid, numbers in by_owner.items():
            for start in range(0, len(numbers), AT_ONCE):
                some = numbers[start : start + AT_ONCE]
                # If a number names another's job by now, nothing is done to that.
                answer = await self._commands.run(("scancel", f"--user={uid}", *how, *map(str, some)))
                for number in some if answer.code == 0 else ():
                    yield number
