"""The places of runs in Slurm's queue: what stands before others is put there by whoever administers Slurm, and only
once its job was seen: what a person's own `sbatch` says is its number may be another's."""

import logging
from collections import defaultdict
from collections.abc import Collection

from danlu.engines.slurm.commands import Commands, is_trouble, listed_together
from danlu.engines.slurm.run_folders import Folders, Record, portions
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.messages import last_words
from danlu.engines.slurm.text.options import nice_of

log = logging.getLogger(__name__)


class Order:
    def __init__(self, commands: Commands, folders: Folders, runs: Runs) -> None:
        self._commands = commands
        self._folders = folders
        self._runs = runs
        self._misplaced: set[str] = set()

    def load(self) -> None:
        for record in self._runs.records.values():
            self.check(record)

    def check(self, record: Record) -> None:
        if record.end is None and record.priority is not None and record.nice != _wanted(record):
            self._misplaced.add(record.run_id)

    def boost(self, run_id: str, is_boosted: bool) -> None:
        record = self._runs.records.get(run_id)
        if record and record.is_boosted != is_boosted:
            record.is_boosted = is_boosted
            self.check(record)

    async def put_right(self) -> None:
        """After a look."""
        moving: defaultdict[int, dict[int, Record]] = defaultdict(dict)
        for run_id in list(self._misplaced):
            record, line = self._runs.records.get(run_id), self._runs.line_of(run_id)
            if record is None or record.end or (line is not None and not line.is_waiting):
                self._misplaced.discard(run_id)
            elif line is not None:
                moving[_wanted(record)][line.number] = record
        for nice, records in moving.items():
            for record in records.values():
                record.nice = None
            if not await self._is_written(records.values()):
                continue
            answers = [
                await self._commands.run(("scontrol", "update", f"JobId={numbers}", f"Nice={nice}"))
                for numbers in listed_together(records)
            ]
            if any(map(is_trouble, answers)):
                continue
            said = "\n".join(answer.said for answer in answers if answer.said)
            for record in records.values():
                self._misplaced.discard(record.run_id)
                if "permission denied" in said:  # else one of them may have begun meanwhile
                    record.note(f"it has no place before others in the queue: {last_words(said)}")
                else:
                    record.nice = nice
                    self.check(record)  # it may have been boosted meanwhile
            await self._is_written(records.values())

    async def _is_written(self, records: Collection[Record]) -> bool:
        """Before Slurm is told: whoever is killed then tells it again."""
        try:
            for some in portions([*records]):
                await self._folders.in_time(self._folders.write_all, some)
        except OSError as error:
            log.warning("the places of runs in Slurm's queue cannot be written down: %s", error.strerror)
            return False
        return True


def _wanted(record: Record) -> int:
    return 0 if record.priority is None else nice_of(record.priority, is_boosted=record.is_boosted)
