"""Priorities of pending runs (`Nice`). A negative value needs the rights of the server, and a job number from a poll:
the number in a user's `sbatch` output may be forged."""

import logging
from collections import defaultdict
from collections.abc import Collection

from danlu.engines.slurm.commands import Commands, is_unreachable, number_lists
from danlu.engines.slurm.run_folders import Folders, Record, batches
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.messages import last_words
from danlu.engines.slurm.text.options import nice_of

log = logging.getLogger(__name__)


class Priorities:
    def __init__(self, commands: Commands, folders: Folders, runs: Runs) -> None:
        self._commands = commands
        self._folders = folders
        self._runs = runs
        self._outdated: set[str] = set()

    def load(self) -> None:
        for run in self._runs.known.values():
            self.check(run.record)

    def check(self, record: Record) -> None:
        if record.end is None and record.priority is not None and record.nice != _wanted(record):
            self._outdated.add(record.run_id)

    def boost(self, run_id: str, is_boosted: bool) -> None:
        record = self._runs.record_of(run_id)
        if record and record.is_boosted != is_boosted:
            record.is_boosted = is_boosted
            self.check(record)

    async def apply(self) -> None:
        """Send changed priorities to Slurm. Call after a poll."""
        moving: defaultdict[int, dict[int, Record]] = defaultdict(dict)
        for run_id in list(self._outdated):
            record, line = self._runs.record_of(run_id), self._runs.line_of(run_id)
            if record is None or record.end or (line is not None and not line.is_waiting):
                self._outdated.discard(run_id)
            elif line is not None:
                moving[_wanted(record)][line.number] = record
        for nice, records in moving.items():
            for record in records.values():
                record.nice = None
            if not await self._is_written(records.values()):
                continue
            answers = [
                await self._commands.run(("scontrol", "update", f"JobId={numbers}", f"Nice={nice}"))
                for numbers in number_lists(records)
            ]
            if any(map(is_unreachable, answers)):
                continue
            stderr = "\n".join(answer.stderr for answer in answers if answer.stderr)
            for record in records.values():
                self._outdated.discard(record.run_id)
                if "permission denied" in stderr:  # any other error: a job started meanwhile
                    record.note(f"Slurm refused the higher priority: {last_words(stderr)}")
                else:
                    record.nice = nice
                    self.check(record)  # a boost may have come meanwhile
            await self._is_written(records.values())

    async def _is_written(self, records: Collection[Record]) -> bool:
        """Save before the command: after a crash the next server sends the priority again."""
        try:
            for some in batches([*records]):
                await self._folders.in_time(self._folders.write_all, some)
        except OSError as error:
            log.warning("cannot save the priorities of runs: %s", error.strerror)
            return False
        return True


def _wanted(record: Record) -> int:
    return 0 if record.priority is None else nice_of(record.priority, is_boosted=record.is_boosted)
