"""The known runs: their records, their jobs in Slurm, their verdicts."""

import logging
import pwd
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from danlu.engines.base import Observation, RunState
from danlu.engines.slurm.known_run import KnownRun, end_from_json, end_to_json
from danlu.engines.slurm.poll import Poller
from danlu.engines.slurm.run_folders import Folders, Record, batches
from danlu.engines.slurm.text.options import ALREADY_BEGUN, NO_FOLDER, Begun, Ended
from danlu.engines.slurm.text.parse_jobs import OVER, QueueLine
from danlu.engines.slurm.timing import Timing
from danlu.engines.slurm.verdict import ACCEPTED, UNKNOWN, Evidence, choose, extras, judge
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

EXIT_FILES_AT_ONCE = 256


class Runs:
    def __init__(self, folders: Folders, poller: Poller, timing: Timing) -> None:
        self._timing = timing
        self._folders = folders
        self._poller = poller
        self.known: dict[str, KnownRun] = {}
        self.changes = 0  # number of changed observations
        self._polled_at: float | None = None
        self._round_at = 0.0  # monotonic start of the last `settle`
        self._unchanged: set[str] = set()  # pending runs with the same line as at their last verdict
        self._next_read = 0

    def load(self, records: Sequence[Record]) -> None:
        self._polled_at = self._folders.last_heartbeat()
        for record in records:
            self.known[record.run_id] = KnownRun(record, end_from_json(record.end) if record.end else None)

    def is_known(self, run_id: str) -> bool:
        """True: the run must not be submitted, because Slurm has, had or may have its job."""
        run = self.known.get(run_id)
        return run is not None and run.state is not RunState.UNKNOWN

    def record_of(self, run_id: str) -> Record | None:
        run = self.known.get(run_id)
        return run.record if run else None

    def seen_of(self, run_id: str) -> Observation | None:
        run = self.known.get(run_id)
        return run.seen if run else None

    def owner_of(self, run_id: str) -> int | None:
        record = self.record_of(run_id)
        return record.uid if record else None

    def begun_number(self, run_id: str) -> int | None:
        """The job number of a started run before its end."""
        run = self.known.get(run_id)
        return run.begun.number if run and run.begun else None

    @property
    def has_active(self) -> bool:
        return any(run.is_active for run in self.known.values())

    def submitting(self, record: Record) -> None:
        run = self.known.setdefault(record.run_id, KnownRun(record))
        run.is_submitting = True
        run.past = run.exit_code = run.unclear_since = None
        run.unclear_polls = 0
        self._unchanged.discard(run.id)
        self._see(run, None)

    def submitted(self, run_id: str) -> None:
        run = self.known[run_id]
        run.is_submitting, run.submitted_at = False, time.monotonic()
        self._poller.jobs.touch(run_id)  # the owner is known now

    def accepted(self, run_id: str) -> None:
        run = self.known[run_id]
        run.submit_failure = None
        if run.seen is None:
            self._see(run, ACCEPTED)

    async def end(self, run_id: str, seen: Observation) -> None:
        """Save the end before people see it: a later server must report the same end."""
        run = self.known[run_id]
        run.is_submitting = False
        run.record.end = end_to_json(seen)
        try:
            await self._folders.in_time(self._folders.write, run.record)
        except (OSError, EngineDown):
            run.record.end = None  # a later poll finds the same end
            raise
        if self.known.get(run_id) is run:
            self.known[run_id] = run = KnownRun(run.record)  # the facts are no longer needed
            self._see(run, seen)

    async def forget(self, run_ids: Collection[str]) -> None:
        """Forget ended runs, and runs unknown to Slurm: a later job of such a run is a stray."""
        over = [
            run_id
            for run_id in run_ids
            if (run := self.known.get(run_id)) and (not run.is_active or run.state is RunState.UNKNOWN)
        ]
        for run_id in over:
            run = self.known.pop(run_id)
            self._unchanged.discard(run_id)
            if run.record.number is not None:
                self._poller.jobs.forget(run_id, run.record.number, time.monotonic())
            self._see(run, None)
        for some in batches(over):
            await self._folders.in_time(self._folders.forget, some)

    def _see(self, run: KnownRun, seen: Observation | None) -> None:
        self.changes += 1
        self._poller.jobs.touch(run.id)
        run.seen = seen

    def line_of(self, run_id: str) -> QueueLine | None:
        run = self.known.get(run_id)
        return choose(self._evidence(run)) if run else None

    def number_of(self, run_id: str) -> int | None:
        """The current job number in Slurm. The answer to the submit counts until Slurm lists the job: a killed
        controller may reuse the number."""
        run = self.known.get(run_id)
        if run is None or not run.is_active:
            return None
        if line := self._poller.jobs.waiting.get(run_id) or self.line_of(run_id):
            return line.number
        return run.record.number if run.seen is None or run.seen is ACCEPTED else None

    async def drop_extras(self) -> list[QueueLine]:
        """Pending duplicates of runs with a job, to be cancelled. Their numbers are saved first: otherwise the end of a
        duplicate would count as the end of the run."""
        dropped: list[QueueLine] = []
        for run in [run for run_id in self._poller.jobs.duplicated if (run := self.known.get(run_id))]:
            evidence = self._evidence(run)
            if not run.is_active or not (copies := extras(evidence)):
                continue
            kept = evidence.begun or choose(evidence)
            run.record.number = kept.number if kept else None
            run.record.dropped = sorted({*run.record.dropped, *(line.number for line in copies)})
            await self._folders.in_time(self._folders.write, run.record)
            dropped += copies
        return dropped

    async def read_exits(self) -> bool:
        """Read the exit files of some running runs; this costs the controller nothing. True: some runs ended."""
        waiting = self._poller.jobs.waiting
        listed = [run for run_id in self._poller.jobs.ours if run_id not in waiting and (run := self.known.get(run_id))]
        running = [run for run in listed if run.state is RunState.RUNNING]
        start = self._next_read % max(len(running), 1)
        some = (running[start:] + running[:start])[:EXIT_FILES_AT_ONCE]
        self._next_read = start + len(some)
        found = await self._read(some)
        return bool(found) and await self._judge_all(found)

    async def settle(self) -> bool:
        """Judge the runs after a poll. True: some observations changed."""
        now, self._round_at = time.time(), time.monotonic()
        if self._polled_at is None or now - self._polled_at > 0.8 * self._poller.min_job_age_s:
            for run in self.known.values():
                run.was_unobserved |= run.is_active
        self._polled_at = now
        active = [run for run in self._changed() if self._is_open(run)]
        self._notice_restarts(active)
        await self._read([run for run in active if self._may_have_written(run)])
        unsure = await self._ask_accounting(active) | await self._ask_exit_codes(active)
        has_changed = await self._judge_all([run for run in active if run.id not in unsure])
        for run_id in self._poller.jobs.ours.keys() & self.known.keys():
            self.known[run_id].was_unobserved = False
        return has_changed

    def _changed(self) -> list[KnownRun]:
        """All runs except the unchanged pending runs: these are most of the runs on a busy cluster."""
        self._unchanged -= self._poller.jobs.changed
        self._poller.jobs.changed.clear()
        return [self.known[run_id] for run_id in self.known.keys() - self._unchanged]

    def _is_open(self, run: KnownRun) -> bool:
        return run.is_active and not run.is_submitting and self._poller.began_at > run.submitted_at

    def _lines_in_slurm(self, run: KnownRun) -> Sequence[QueueLine]:
        return self._poller.jobs.ours.get(run.id, ())

    def _may_have_written(self, run: KnownRun) -> bool:
        lines = self._lines_in_slurm(run)
        if not lines or any(not line.is_waiting for line in lines):
            return True
        # A pending run has files of an earlier attempt: seen running before, or not yet seen by this server.
        return run.seen is None or run.state is RunState.RUNNING

    def _notice_restarts(self, runs: Sequence[KnownRun]) -> None:
        """Slurm lists a new attempt before the attempt writes a file: the files still describe the attempt before."""
        for run, begun in [(run, run.begun) for run in runs if run.begun]:
            before = run.seen.started_at if run.seen else None
            # Slurm also corrects the start time of an attempt after a wait for a powered up node.
            latest = max([at for at in (before, begun.started_at) if at], default=None)
            for line in self._lines_in_slurm(run):
                is_later = before and latest and line.starts_at and line.starts_at > latest
                if line.number == begun.number and (line.is_waiting or is_later):
                    run.ended_attempt = begun.restart

    async def _read(self, runs: Sequence[KnownRun]) -> list[KnownRun]:
        """The runs with an exit file."""
        return [found for some in batches(runs) for found in await self._read_some(some)]

    async def _read_some(self, runs: Sequence[KnownRun]) -> list[KnownRun]:
        def read() -> Iterator[tuple[KnownRun, Begun | None, Ended | None]]:
            for run in runs:
                ended = self._folders.ended(run.record)
                lines = self._lines_in_slurm(run)
                if ended is None and all(line.is_over for line in lines):
                    self._folders.freshen(run.record)
                    ended = self._folders.ended(run.record)
                is_first = run.begun is None or not lines or ended is not None
                is_again = any(line.is_waiting for line in lines) or run.is_restarting
                yield run, self._folders.begun(run.record) if is_first or is_again else None, ended

        found = []
        for run, begun, ended in await self._folders.in_time(lambda: list(read())):
            if begun and begun.token in run.record.tokens:
                if run.begun is None or run.begun.number != begun.number:
                    self._poller.jobs.touch(run.id)
                run.begun = begun
            run.ended = ended if ended and ended.token in run.record.tokens else None
            if run.ended:
                found.append(run)
        return found

    async def _ask_accounting(self, active: Sequence[KnownRun]) -> set[str]:
        """Read dropped jobs from accounting. Returns the ids without an answer: these get no verdict now."""
        gone = {
            run.record.number: run
            for run in active
            if run.record.number is not None
            and not self._lines(run)
            and (run.ended is None or run.ended.by_slurm)
            and self._is_settled(run)
        }
        try:
            found = await self._poller.accounting_of(gone.keys())
        except EngineDown:
            return {run.id for run in gone.values()}
        for past in found:
            run = gone.get(past.number)
            # A killed controller may have reused the number for another user.
            if run and past.state in OVER and past.user == _name_of(run.record.uid):
                run.past = past
        return set()

    async def _ask_exit_codes(self, active: Sequence[KnownRun]) -> set[str]:
        """Read the exit codes of ended jobs without an exit file (a full disk). Returns the ids without an answer."""
        mute = {
            run.begun.number: run
            for run in active
            if run.begun
            and run.ended is None
            and run.exit_code is None
            and (line := choose(self._evidence(run))) is not None
            and line.is_over
            and self._is_settled(run)
        }
        try:
            found = await self._poller.exit_codes(mute)
        except EngineDown:  # or Slurm dropped a job meanwhile: the next poll decides
            return {run.id for run in mute.values()}
        for number, code in found.items():
            if number in mute and code not in (ALREADY_BEGUN, NO_FOLDER):  # codes of a duplicate without an effect
                mute[number].exit_code = code
        return set()

    def _lines(self, run: KnownRun) -> Sequence[QueueLine]:
        lines = self._lines_in_slurm(run)
        if not run.record.dropped:
            return lines
        # A duplicate may have started before its cancellation: then its job is the run.
        dropped = {*run.record.dropped} - {run.begun.number if run.begun else None}
        return [line for line in lines if not (line.is_over and line.number in dropped)]

    def _evidence(self, run: KnownRun) -> Evidence:
        return run.evidence(self._lines(run), is_settled=self._is_settled(run))

    def _is_settled(self, run: KnownRun) -> bool:
        """At the start of this round: Slurm was asked about exactly these runs before their verdicts."""
        return run.is_settled(self._timing.settles_after_s, self._round_at)

    async def _judge_all(self, runs: Sequence[KnownRun]) -> bool:
        has_changed = False
        for run in runs:
            if run.is_active:
                has_changed |= await self._judge(run)
        return has_changed

    async def _judge(self, run: KnownRun) -> bool:
        """True: the observation changed."""
        if self.known.get(run.id) is not run:
            return False  # forgotten meanwhile
        seen = judge(self._evidence(run), self._poller.seats)
        if seen is UNKNOWN and run.submit_failure:
            seen = replace(UNKNOWN, reason=run.submit_failure)
        if seen is None:
            run.unclear_since = run.unclear_since or time.monotonic()
            run.unclear_polls += 1
            return False
        if seen.state is not RunState.UNKNOWN:
            run.unclear_since, run.unclear_polls = None, 0
        if seen.state is RunState.PENDING and run.id in self._poller.jobs.waiting:
            self._unchanged.add(run.id)
        else:
            self._unchanged.discard(run.id)
        if seen == run.seen:
            return False
        if seen.state is not RunState.ENDED:
            self._see(run, seen)
            return True
        try:
            await self.end(run.id, seen)
        except OSError as error:
            if not run.is_unsaved:
                log.warning("cannot save the end of %s yet: %s", run.id, error.strerror)
            run.is_unsaved = True
            return False
        return True


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
