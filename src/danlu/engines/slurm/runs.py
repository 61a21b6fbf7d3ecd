"""The runs we know: what was written down of them, what Slurm lists of them, what is true of them."""

import logging
import pwd
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from danlu.domain.job import Reason
from danlu.engines.base import Ending, Observation, RunState
from danlu.engines.slurm.poll import Look
from danlu.engines.slurm.run_folders import Folders, Record, portions
from danlu.engines.slurm.text.options import ALREADY_BEGUN, NO_FOLDER, Begun, Ended
from danlu.engines.slurm.text.parse_jobs import OVER, PastJob, QueueLine
from danlu.engines.slurm.verdict import TAKEN, UNKNOWN, Evidence, choose, extras, judge
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

# So long a run's own word may be on its way through a shared folder after Slurm has spoken.
SETTLES_AFTER_S = 4.0
GLANCES = 256


class Runs:
    def __init__(self, folders: Folders, look: Look) -> None:
        self._folders = folders
        self._look = look
        self.records: dict[str, Record] = {}
        self.seen: dict[str, Observation] = {}
        self.news = 0  # how often something else was seen
        self._begun: dict[str, Begun] = {}
        self._again: dict[str, int] = {}  # which go of theirs is over, and Slurm begins another
        self._ended: dict[str, Ended] = {}
        self._past: dict[str, PastJob] = {}
        self._exit_codes: dict[str, int] = {}
        self._odd_since: dict[str, tuple[float, int]] = {}  # Slurm and the run do not say the same: since when, looks
        self._submitted_at: dict[str, float] = {}  # looks that began before know nothing of it
        self._submitting: set[str] = set()
        self.held_up: dict[str, Reason] = {}  # why a submit came to nothing, as far as is known
        self._looked_at: float | None = None
        self._blind: set[str] = set()  # nobody looked for so long that Slurm may have forgotten their ends
        self._waiting: dict[str, QueueLine] = {}  # what Slurm says of those that were found to wait in its queue
        self._glanced = 0
        self._unwritten: set[str] = set()  # their ends find no room on the disk

    def load(self, records: Sequence[Record]) -> None:
        self._looked_at = self._folders.last_beat()
        for record in records:
            self.records[record.run_id] = record
            if record.end:
                self.seen[record.run_id] = _observation(record.end)

    def is_known(self, run_id: str) -> bool:
        """There is nothing to start: it is here, was here, or may still turn out to be."""
        if run_id not in self.records:
            return False
        seen = self.seen.get(run_id)
        return seen is None or seen.state is not RunState.UNKNOWN

    def owner_of(self, run_id: str) -> int | None:
        record = self.records.get(run_id)
        return record.uid if record else None

    def begun_as(self, run_id: str) -> int | None:
        """Which job of Slurm's it has begun as, if it is not over."""
        begun = self._begun.get(run_id)
        return begun.number if begun else None

    @property
    def has_active(self) -> bool:
        return any(record.end is None for record in self.records.values())

    def submitting(self, record: Record) -> None:
        self.records[record.run_id] = record
        self._submitting.add(record.run_id)
        self._see(record.run_id, None)
        for memory in (self._waiting, self._odd_since, self._past, self._exit_codes):
            memory.pop(record.run_id, None)

    def submitted(self, record: Record) -> None:
        self._submitting.discard(record.run_id)
        self._submitted_at[record.run_id] = time.monotonic()
        self._look.jobs.touch(record.run_id)  # by now it is known whose it is

    def taken(self, record: Record) -> None:
        if record.run_id not in self.seen:
            self._see(record.run_id, TAKEN)
        self.held_up.pop(record.run_id, None)

    async def end(self, record: Record, seen: Observation) -> None:
        """Written down first: what was told once is told again the same."""
        self.records[record.run_id] = record
        self._submitting.discard(record.run_id)
        record.end = _written(seen)
        try:
            await self._folders.in_time(self._folders.write, record)
        except (OSError, EngineDown):
            record.end = None  # it is found again, and told when there is room for it
            raise
        self._see(record.run_id, seen)
        self._think_no_more_of(record.run_id)

    async def forget(self, run_ids: Collection[str]) -> None:
        """Also those of which Slurm knows nothing: one that turns up there after all is a stray."""
        unknown = RunState.UNKNOWN
        over = [
            run_id
            for run_id in run_ids
            if (record := self.records.get(run_id)) and (record.end or self.seen.get(run_id, TAKEN).state is unknown)
        ]
        for run_id in over:
            if (number := self.records.pop(run_id).number) is not None:
                self._look.jobs.bury(run_id, number, time.monotonic())
            self._see(run_id, None)
            self._think_no_more_of(run_id)
        for some in portions(over):
            await self._folders.in_time(self._folders.forget, some)

    def _think_no_more_of(self, run_id: str) -> None:
        for memory in (
            self._begun, self._again, self._ended, self._past, self._exit_codes, self._odd_since, self._submitted_at,
            self.held_up,
        ):  # fmt: skip
            memory.pop(run_id, None)
        self._blind.discard(run_id)
        self._unwritten.discard(run_id)

    def _see(self, run_id: str, seen: Observation | None) -> None:
        self.news += 1
        self._look.jobs.touch(run_id)
        if seen:
            self.seen[run_id] = seen
        else:
            self.seen.pop(run_id, None)

    def line_of(self, run_id: str) -> QueueLine | None:
        record = self.records.get(run_id)
        return choose(self._evidence(record)) if record else None

    def number_of(self, run_id: str) -> int | None:
        """Under which Slurm has it now. What it answered to the submit counts until it lists the job: a controller that
        was killed and forgot it gives the number to somebody else."""
        record = self.records.get(run_id)
        if record is None or record.end:
            return None
        if line := self._look.jobs.calm.get(run_id) or self.line_of(run_id):
            return line.number
        return record.number if self.seen.get(run_id, TAKEN) is TAKEN else None

    async def drop_extras(self) -> list[QueueLine]:
        """Jobs that wait to be a run which another job is already: to be cancelled. Written down first, else their end
        would be taken for the run's where Slurm forgets the other one."""
        dropped: list[QueueLine] = []
        for record in [record for run_id in self._look.jobs.doubled if (record := self.records.get(run_id))]:
            if record.end:
                continue
            evidence = self._evidence(record)
            if not (copies := extras(evidence)):
                continue
            kept = evidence.begun or choose(evidence)
            record.number = kept.number if kept else None
            record.dropped = sorted({*record.dropped, *(line.number for line in copies)})
            await self._folders.in_time(self._folders.write, record)
            dropped += copies
        return dropped

    async def glance(self) -> bool:
        """Has one of those that run written its end? Costs the controller nothing. True if something is new."""
        calm, seen = self._look.jobs.calm, self.seen
        places = [run_id for run_id in self._look.jobs.ours if run_id not in calm]
        running = [run_id for run_id in places if seen.get(run_id, TAKEN).state is RunState.RUNNING]
        start = self._glanced % max(len(running), 1)
        some = (running[start:] + running[:start])[:GLANCES]
        self._glanced = start + len(some)
        found = await self._read([self.records[run_id] for run_id in some if run_id in self.records])
        return bool(found) and await self._judge_all(found)

    async def settle(self) -> bool:
        """After a look. True if something is new."""
        now = time.time()
        if self._looked_at is None or now - self._looked_at > 0.8 * self._look.min_job_age_s:
            self._blind.update(run_id for run_id, record in self.records.items() if record.end is None)
        self._looked_at = now
        active = [record for record in self._restless() if self._is_open(record)]
        self._notice_new_goes(active)
        await self._read([record for record in active if self._may_have_written(record)])
        unsure = await self._ask_accounting(active) | await self._ask_exit_codes(active)
        changed = await self._judge_all([record for record in active if record.run_id not in unsure])
        if self._blind:
            self._blind.difference_update(self._look.jobs.ours)
        return changed

    def _restless(self) -> list[Record]:
        """Of those that wait, nearly all wait as before: they are the same line, and are not thought of again."""
        waiting, changed = self._waiting, self._look.jobs.changed
        while changed:
            waiting.pop(changed.pop(), None)
        return [self.records[run_id] for run_id in self.records.keys() - waiting.keys()]

    def _is_open(self, record: Record) -> bool:
        is_late = self._look.began_at > self._submitted_at.get(record.run_id, 0.0)
        return record.end is None and record.run_id not in self._submitting and is_late

    def _may_have_written(self, record: Record) -> bool:
        lines, before = self._look.jobs.ours.get(record.run_id, ()), self.seen.get(record.run_id)
        if not lines or any(not line.is_waiting for line in lines):
            return True
        # Who waits has run before if it was seen to; or nobody has looked since this server began.
        return before is None or before.state is RunState.RUNNING

    def _notice_new_goes(self, records: Sequence[Record]) -> None:
        """Slurm lists a new go of a run before that has written a word, and what is written tells of the one before."""
        for run_id, begun in [(one.run_id, begun) for one in records if (begun := self._begun.get(one.run_id))]:
            before = self.seen.get(run_id)
            # Slurm also says a later time of the same go, if it had to wait for a node that was switched on for it.
            began = [at for at in (before.started_at if before else None, begun.started_at) if at]
            for line in self._look.jobs.ours.get(run_id, ()):
                is_later = before and before.started_at and line.starts_at and line.starts_at > max(began)
                if line.number == begun.number and (line.is_waiting or is_later):
                    self._again[run_id] = begun.restart

    def _begins_again(self, run_id: str) -> bool:
        """Its new go has not written anything yet."""
        begun = self._begun.get(run_id)
        return begun is not None and self._again.get(run_id) == begun.restart

    async def _read(self, records: Sequence[Record]) -> list[Record]:
        """Those that have written an end."""
        return [found for some in portions(records) for found in await self._read_some(some)]

    async def _read_some(self, records: Sequence[Record]) -> list[Record]:
        def read() -> Iterator[tuple[Record, Begun | None, Ended | None]]:
            for record in records:
                ended = self._folders.ended(record)
                lines = self._look.jobs.ours.get(record.run_id, ())
                if ended is None and all(line.is_over for line in lines):
                    self._folders.freshen(record)
                    ended = self._folders.ended(record)
                is_first = record.run_id not in self._begun or not lines or ended is not None
                is_again = any(line.is_waiting for line in lines) or self._begins_again(record.run_id)
                yield record, self._folders.begun(record) if is_first or is_again else None, ended

        found = []
        for record, begun, ended in await self._folders.in_time(lambda: list(read())):
            if begun and begun.token in record.tokens:
                if self.begun_as(record.run_id) != begun.number:
                    self._look.jobs.touch(record.run_id)
                self._begun[record.run_id] = begun
            if ended and ended.token in record.tokens:
                self._ended[record.run_id] = ended
                found.append(record)
            elif record.run_id in self._ended:
                del self._ended[record.run_id]
        return found

    async def _ask_accounting(self, active: Sequence[Record]) -> set[str]:
        """Those of which it would know more, and does not answer: nothing is concluded about them."""
        gone = {
            record.number: record
            for record in active
            if record.number is not None
            and not self._lines(record)
            and ((word := self._ended.get(record.run_id)) is None or word.by_slurm)
            and self._is_settled(record.run_id)
        }
        try:
            found = await self._look.remembered(gone.keys())
        except EngineDown:
            return {record.run_id for record in gone.values()}
        for past in found:
            record = gone.get(past.number)
            # An old controller that was killed may have given the number to somebody else since.
            if record and past.state in OVER and past.user == _name_of(record.uid):
                self._past[record.run_id] = past
        return set()

    async def _ask_exit_codes(self, active: Sequence[Record]) -> set[str]:
        """Of those that Slurm saw end and that left no word: a full folder takes none. Returns who is not known."""
        mute = [
            record
            for record in active
            if record.run_id in self._begun
            and record.run_id not in self._ended
            and record.run_id not in self._exit_codes
            and (line := choose(self._evidence(record))) is not None
            and line.is_over
            and self._is_settled(record.run_id)
        ]
        numbers = {self._begun[record.run_id].number: record.run_id for record in mute}
        try:
            found = await self._look.exit_codes(numbers)
        except EngineDown:  # or Slurm has let it go meanwhile: the next look tells
            return {*numbers.values()}
        for number, code in found.items():
            if number in numbers and code not in (ALREADY_BEGUN, NO_FOLDER):  # a second copy of it, which did nothing
                self._exit_codes[numbers[number]] = code
        return set()

    def _is_settled(self, run_id: str) -> bool:
        since, looks = self._odd_since.get(run_id, (time.monotonic(), 0))
        return looks >= 2 and time.monotonic() - since >= SETTLES_AFTER_S

    def _lines(self, record: Record) -> Sequence[QueueLine]:
        lines = self._look.jobs.ours.get(record.run_id, ())
        if not record.dropped:
            return lines
        begun = self._begun.get(record.run_id)  # one may have begun before it could be taken back: that is the run
        dropped = {*record.dropped} - {begun.number if begun else None}
        return [line for line in lines if not (line.is_over and line.number in dropped)]

    def _evidence(self, record: Record) -> Evidence:
        run_id = record.run_id
        return Evidence(
            lines=self._lines(record),
            begun=self._begun.get(run_id),
            begins_again=self._begins_again(run_id),
            ended=self._ended.get(run_id),
            past=self._past.get(run_id),
            exit_code=self._exit_codes.get(run_id),
            number=record.number,
            cpus=record.cpus,
            memory_mib=record.memory_mib,
            notes=tuple(record.notes),
            stop_asked=record.stop is not None,
            is_settled=self._is_settled(run_id),
            was_blind=run_id in self._blind,
        )

    async def _judge_all(self, records: Sequence[Record]) -> bool:
        changed = False
        for record in records:
            if record.end is not None:
                continue
            seen = judge(self._evidence(record), self._look.seats)
            if seen is UNKNOWN and record.run_id in self.held_up:
                seen = replace(UNKNOWN, reason=self.held_up[record.run_id])
            if seen is None:
                since, looks = self._odd_since.get(record.run_id, (time.monotonic(), 0))
                self._odd_since[record.run_id] = since, looks + 1
                continue
            if seen.state is not RunState.UNKNOWN:
                self._odd_since.pop(record.run_id, None)
            if seen.state is RunState.PENDING and (line := self._look.jobs.calm.get(record.run_id)):
                self._waiting[record.run_id] = line
            else:
                self._waiting.pop(record.run_id, None)
            if seen == self.seen.get(record.run_id):
                continue
            if seen.state is RunState.ENDED:
                try:
                    await self.end(record, seen)
                except OSError as error:
                    if record.run_id not in self._unwritten:
                        log.warning("the end of %s cannot be written down yet: %s", record.run_id, error.strerror)
                        self._unwritten.add(record.run_id)
                    continue
            self._see(record.run_id, seen)
            changed = True
        return changed


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _written(seen: Observation) -> dict[str, Any]:
    return {
        "started_at": seen.started_at.isoformat() if seen.started_at else None,
        "ended_at": seen.ended_at.isoformat() if seen.ended_at else None,
        "ending": seen.ending.value if seen.ending else None,
        "exit_code": seen.exit_code,
        "reason": [seen.reason.code, seen.reason.full_text] if seen.reason else None,
        "notes": list(seen.notes),
        "attempt": seen.attempt,
    }


def _observation(end: dict[str, Any]) -> Observation:
    return Observation(
        RunState.ENDED,
        started_at=datetime.fromisoformat(end["started_at"]) if end["started_at"] else None,
        ended_at=datetime.fromisoformat(end["ended_at"]) if end["ended_at"] else None,
        ending=Ending(end["ending"]),
        exit_code=end["exit_code"],
        reason=Reason.read(*end["reason"]) if end["reason"] else None,
        notes=tuple(end["notes"]),
        attempt=end["attempt"],
    )
