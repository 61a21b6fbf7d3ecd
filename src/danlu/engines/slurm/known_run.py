"""One run of this installation: its record and all facts about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from danlu.domain.job import Reason
from danlu.engines.base import Ending, Observation, RunState
from danlu.engines.slurm.run_folders import Record
from danlu.engines.slurm.text.options import Begun, Ended
from danlu.engines.slurm.text.parse_jobs import PastJob, QueueLine
from danlu.engines.slurm.verdict import Evidence


@dataclass(slots=True)
class KnownRun:
    """A run of this installation, with all facts about it."""

    record: Record
    seen: Observation | None = None  # the last verdict
    is_submitting: bool = False
    submitted_at: float = 0.0  # monotonic; polls from before do not show the job
    submit_failure: Reason | None = None
    begun: Begun | None = None
    ended: Ended | None = None
    past: PastJob | None = None  # from accounting
    exit_code: int | None = None  # from Slurm
    ended_attempt: int | None = None  # restart count of an attempt after which Slurm started another
    unclear_since: float | None = None  # Slurm and the run's files contradict each other (monotonic)
    unclear_polls: int = 0
    was_unobserved: bool = False  # no poll for so long that Slurm may have dropped an ended job
    is_unsaved: bool = False  # the disk does not take its end

    @property
    def id(self) -> str:
        return self.record.run_id

    @property
    def is_active(self) -> bool:
        return self.record.end is None

    @property
    def state(self) -> RunState | None:
        return self.seen.state if self.seen else None

    @property
    def is_restarting(self) -> bool:
        """Slurm started another attempt, which has written no file yet."""
        return self.begun is not None and self.ended_attempt == self.begun.restart

    def is_settled(self, after_s: float, now: float) -> bool:
        """Unclear for so long that no late file of the run is expected."""
        if self.unclear_since is None or self.unclear_polls < 2:
            return False
        return now - self.unclear_since >= after_s

    def evidence(self, lines: Sequence[QueueLine], *, is_settled: bool) -> Evidence:
        record = self.record
        return Evidence(
            lines=lines,
            begun=self.begun,
            is_restarting=self.is_restarting,
            ended=self.ended,
            past=self.past,
            exit_code=self.exit_code,
            number=record.number,
            cpus=record.cpus,
            memory_mib=record.memory_mib,
            notes=tuple(record.notes),
            stop_asked=record.stop is not None,
            is_settled=is_settled,
            was_unobserved=self.was_unobserved,
        )


def end_to_json(seen: Observation) -> dict[str, Any]:
    return {
        "started_at": seen.started_at.isoformat() if seen.started_at else None,
        "ended_at": seen.ended_at.isoformat() if seen.ended_at else None,
        "ending": seen.ending.value if seen.ending else None,
        "exit_code": seen.exit_code,
        "reason": [seen.reason.code, seen.reason.full_text] if seen.reason else None,
        "notes": list(seen.notes),
        "attempt": seen.attempt,
    }


def end_from_json(end: dict[str, Any]) -> Observation:
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
