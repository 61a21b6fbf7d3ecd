"""Stops: `scancel` by job numbers from the last poll, limited to the owner, many jobs with one command."""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta

from danlu.domain.parsing import Notice
from danlu.engines.slurm.commands import Commands
from danlu.engines.slurm.poll import Poller
from danlu.engines.slurm.run_folders import Folders, Record
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.options import WAKE_SIGNAL, render_stop
from danlu.engines.slurm.text.parse_jobs import QueueLine
from danlu.engines.slurm.timing import Timing
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

# Slurm may lose a signal to a starting script. A repeated signal does no harm.
WAKE_TRIES = 3
JOBS_PER_COMMAND = 200
_WAITING = ("--state=PENDING",)
_WAKE = (f"--signal={WAKE_SIGNAL}", "--batch")


class Canceller:
    def __init__(
        self,
        commands: Commands,
        folders: Folders,
        poller: Poller,
        runs: Runs,
        on_sent: Callable[[], None],
        timing: Timing,
    ) -> None:
        self._timing = timing
        self._commands = commands
        self._folders = folders
        self._poller = poller
        self._runs = runs
        self._on_sent = on_sent
        # Monotonic times: a change of the system clock must not shorten a grace period.
        self._requested_at: dict[str, float] = {}  # start of the grace period; a new server starts all periods again
        self._woken_at: dict[str, list[float]] = {}  # times of the wake signals to each running script
        self._cancelled_at: dict[str, float] = {}  # pending runs; older polls still list these jobs
        self._sending = asyncio.Lock()
        self._send_task: asyncio.Task[None] | None = None

    def load(self) -> None:
        now = time.monotonic()
        self._requested_at = {
            run_id: now for run_id, run in self._runs.known.items() if run.record.stop and run.is_active
        }

    async def close(self) -> None:
        if self._send_task:
            self._send_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._send_task

    async def request(self, record: Record, grace: timedelta, notice: Notice | None) -> None:
        """Request a stop, and return at once. Without a stop file, Slurm kills the run after the grace period."""
        text = render_stop(grace, notice)
        if record.stop is None or record.stop["text"] != text:
            lead = notice.lead if notice else timedelta()
            record.stop = {"at": time.time(), "last_s": (lead + grace).total_seconds(), "text": text}
            self._woken_at.pop(record.run_id, None)
            self._requested_at.pop(record.run_id, None)
        self._requested_at.setdefault(record.run_id, time.monotonic())
        await self._folders.in_time(self._write, record)
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.create_task(self._send_soon())

    async def send_due(self) -> None:
        """Send each new stop once, repeat lost wake signals, and kill overdue runs."""
        async with self._sending:
            due: defaultdict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
            lines = {}
            for run_id, line in self._open_lines():
                if (how := self._options_for(run_id, line)) is not None:
                    due[how][line.number] = run_id
                    lines[line.number] = line
            for how, run_ids in due.items():
                async for number in self._cancel(how, [lines[number] for number in run_ids]):
                    self._on_sent()
                    if how is _WAITING:
                        self._cancelled_at[run_ids[number]] = time.monotonic()
                    else:
                        self._woken_at.setdefault(run_ids[number], []).append(time.monotonic())

    async def cancel_waiting(self, lines: Sequence[QueueLine]) -> None:
        """Cancel pending jobs without a run."""
        async for _ in self._cancel(_WAITING, lines):
            pass

    async def _send_soon(self) -> None:
        with contextlib.suppress(EngineDown):  # the next poll sends the stops
            await self.send_due()

    def _write(self, record: Record) -> None:
        try:
            self._folders.write(record)
        except OSError as error:  # the caller repeats the stop after a crash
            log.warning("cannot save the stop of %s: %s", record.run_id, error.strerror)
        self._folders.write_stop(record)

    def _open_lines(self) -> Iterator[tuple[str, QueueLine]]:
        for run_id in list(self._requested_at):
            record = self._runs.record_of(run_id)
            if record is None or record.end:
                del self._requested_at[run_id]
                self._woken_at.pop(run_id, None)
                self._cancelled_at.pop(run_id, None)
            elif (line := self._runs.line_of(run_id)) is not None and not line.is_over:
                yield run_id, line

    def _options_for(self, run_id: str, line: QueueLine) -> tuple[str, ...] | None:
        """Options of `scancel` for this run; None: nothing to send now."""
        if line.is_waiting:
            # The job may have started since the last poll: wait for the next poll.
            return None if self._cancelled_at.get(run_id, 0.0) > self._poller.began_at else _WAITING
        stop, woken_at = self._runs.known[run_id].record.stop, self._woken_at.get(run_id, [])
        assert stop is not None
        now, last = time.monotonic(), max(woken_at, default=float("-inf"))
        if now > max(self._requested_at[run_id] + stop["last_s"], last) + self._timing.stop_overdue_s:
            return ()
        return _WAKE if len(woken_at) < WAKE_TRIES and now - last > self._timing.stop_signal_retry_s else None

    async def _cancel(self, how: tuple[str, ...], lines: Sequence[QueueLine]) -> AsyncIterator[int]:
        """Cancel, and yield the numbers of the jobs in successful commands."""
        by_owner: defaultdict[int, list[int]] = defaultdict(list)
        for line in lines:
            by_owner[line.uid].append(line.number)
        for uid, numbers in by_owner.items():
            for start in range(0, len(numbers), JOBS_PER_COMMAND):
                some = numbers[start : start + JOBS_PER_COMMAND]
                # `--user` protects other users: Slurm may reuse a number.
                answer = await self._commands.run(("scancel", f"--user={uid}", *how, *map(str, some)))
                for number in some if answer.code == 0 else ():
                    yield number
