"""The state of a run, from Slurm's list and the run's own files. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from danlu.domain.job import Reason, describe_exit
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Seat
from danlu.engines.base import Ending, Observation, RunState
from danlu.engines.slurm.text.messages import explain_end, explain_wait
from danlu.engines.slurm.text.options import Begun, Ended
from danlu.engines.slurm.text.parse_cluster import parse_hostlist
from danlu.engines.slurm.text.parse_jobs import PastJob, QueueLine

UNKNOWN = Observation(RunState.UNKNOWN)
ACCEPTED = Observation(RunState.PENDING, reason=Reason("slurm_new", "accepted by Slurm, not yet scheduled"))
VANISHED = Reason(ReasonCode.LOST, "the job is no longer in Slurm and left no exit status")
FORGOTTEN = Reason(ReasonCode.LOST, "Slurm ended the job and lost the reason, perhaps in a crash of its controller")
SUSPENDED = "Slurm has suspended the job until an administrator resumes it"
_SIGNALS = 128
_RAN = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """All facts about one run. `lines` are the jobs of its user with the run id."""

    lines: Sequence[QueueLine] = ()
    begun: Begun | None = None
    is_restarting: bool = False  # Slurm started a further attempt, which has written no file yet
    ended: Ended | None = None
    past: PastJob | None = None  # from accounting, after Slurm dropped the job
    exit_code: int | None = None  # from Slurm, without an exit file
    number: int | None = None  # Slurm's answer to the submit
    cpus: int = 1
    memory_mib: int = 0
    notes: tuple[str, ...] = ()
    stop_asked: bool = False
    is_settled: bool = False  # the shared folder had enough time to show the run's files
    was_unobserved: bool = False  # no poll for so long that Slurm may have dropped an ended job


def judge(evidence: Evidence, seats: Mapping[int, tuple[Seat, ...]]) -> Observation | None:
    """The observation; None: unclear, the last observation stays."""
    line = choose(evidence)
    ended = evidence.ended
    if ended and evidence.begun and ended.restart != evidence.begun.restart:
        ended = None  # this end belongs to an earlier attempt
    # A killed controller may have lost the start of a run with an own end.
    if ended and (not (line and line.is_waiting) or not _was_killed(ended)):
        return _from_exit_file(ended, line, evidence)
    if line is not None and not line.is_over:
        return _alive(line, evidence, seats)
    if line is not None:
        return _over(line.state, line.reason, line.starts_at, line.ends_at, evidence, evidence.exit_code)
    if not evidence.is_settled:
        return None
    past = evidence.past
    # A job with a run time, but without a start file, belongs to another user: Slurm reused the number.
    if past is not None and (evidence.begun or past.state not in _RAN):
        return _over(past.state, "", past.started_at, past.ended_at, evidence, past.exit_code)
    if evidence.begun:
        return _end(Ending.LOST, None, VANISHED, evidence, evidence.begun.started_at, None)
    if evidence.stop_asked:
        return _end(Ending.STOPPED, None, Reason(ReasonCode.STOPPED, "stopped before it started"), evidence, None, None)
    if evidence.number is not None and evidence.was_unobserved:
        return _end(Ending.LOST, None, VANISHED, evidence, None, None)
    # Never started and unknown to Slurm: a lost submit, or a controller that lost the job. The run may start again.
    return UNKNOWN


def choose(evidence: Evidence) -> QueueLine | None:
    """The job of the run. A repeated submit after a lost answer leaves several jobs."""
    if evidence.begun:
        begun = [line for line in evidence.lines if line.number == evidence.begun.number]
        return begun[0] if begun else None
    ranked = sorted(evidence.lines, key=lambda line: (line.is_over, line.is_waiting, line.number))
    return ranked[0] if ranked else None


def extras(evidence: Evidence) -> list[QueueLine]:
    """Pending duplicates of a run with a job: they would end without an effect."""
    chosen = choose(evidence)
    is_run = chosen is not None and not chosen.is_over
    return [line for line in evidence.lines if line.is_waiting and line != chosen and (is_run or evidence.begun)]


def _alive(line: QueueLine, evidence: Evidence, seats: Mapping[int, tuple[Seat, ...]]) -> Observation:
    begun = evidence.begun if evidence.begun and evidence.begun.number == line.number else None
    if line.is_waiting:
        return Observation(
            RunState.PENDING,
            reason=_explain(line.reason, is_begun=begun is not None),
            estimated_at=line.starts_at,
            attempt=begun.restart + 2 if begun else 1,
            notes=evidence.notes,
        )
    go = begun.restart + (2 if evidence.is_restarting else 1) if begun else 1
    suspended = (SUSPENDED,) if line.state == "SUSPENDED" else ()
    names = parse_hostlist(line.nodelist)
    plain = tuple(Seat(name, evidence.cpus, evidence.memory_mib) for name in names)
    return Observation(
        RunState.RUNNING,
        started_at=line.starts_at,
        seats=seats.get(line.number) or plain,
        attempt=go,
        notes=(*evidence.notes, *suspended),
    )


def _explain(reason: str, *, is_begun: bool) -> Reason:
    """Danlu sets no begin time. Slurm sets one for a restart."""
    if reason != "BeginTime":
        return explain_wait(reason)
    if is_begun:
        return Reason(ReasonCode.BEGIN_TIME, "Slurm starts the job again in a moment")
    return Reason(
        ReasonCode.BEGIN_TIME,
        "Slurm could not start the job, and tries again in a moment; if that repeats: does the controller's machine "
        "have the user (`id` there), and do the nodes see the shared folder?",
    )


def _from_exit_file(ended: Ended, line: QueueLine | None, evidence: Evidence) -> Observation | None:
    is_open = line is not None and not line.is_over
    reason = _reason_of(ended)
    ending, code = ended.ending, ended.exit_code
    if _was_killed(ended):
        if is_open and (ended.by_slurm or not evidence.is_settled):
            return None  # Slurm knows the cause, and may restart the job
        if line is None and ended.by_slurm and not evidence.stop_asked:
            if not evidence.is_settled:
                return None  # the next poll may list the job
            past = explain_end(evidence.past.state) if evidence.past else None
            ending, reason = past or (Ending.LOST, FORGOTTEN)
        elif line is not None and (done := explain_end(line.state)) is not None:
            ending, reason = done
    found = _end(ending, code, reason, evidence, ended.started_at, ended.ended_at)
    return replace(found, notes=(*found.notes, ended.note)) if ended.note else found


def _was_killed(ended: Ended) -> bool:
    """Killed from outside: the run did not exit, and its script did not end it."""
    return ended.ending is Ending.EXITED and (ended.by_slurm or (ended.exit_code or 0) > _SIGNALS)


def _reason_of(ended: Ended) -> Reason | None:
    texts = {
        Ending.STOPPED: ended.text or "stopped on request",
        Ending.TIMED_OUT: "stopped at its time limit",
        Ending.NOT_STARTED: ended.text or "it could not be started",
    }
    if ended.ending is Ending.EXITED:
        return _exit_reason(ended.exit_code, ended.text)
    return Reason(ended.ending.value, texts.get(ended.ending, ended.text))


def _exit_reason(code: int | None, rank: str = "") -> Reason:
    """`rank`: the failed rank of several."""
    if code == 0:
        return Reason(ReasonCode.SUCCEEDED, "ended with success")
    text = describe_exit(code)
    return Reason(ReasonCode.FAILED, f"{text} ({rank})" if rank else text)


def _over(
    state: str,
    reason: str,
    started_at: datetime | None,
    ended_at: datetime | None,
    evidence: Evidence,
    exit_code: int | None = None,
) -> Observation | None:
    """The end by Slurm's list or accounting, without an exit file."""
    begun = evidence.begun
    if begun and not evidence.is_settled:
        return None  # the exit file may still be on its way through the shared folder
    if evidence.stop_asked and state in ("CANCELLED", "FAILED"):
        text = "stopped on request" if begun else "stopped before it started"
        began_at = begun.started_at if begun else None
        return _end(Ending.STOPPED, None, Reason(ReasonCode.STOPPED, text), evidence, began_at, ended_at)
    done = explain_end(state)
    if done is not None:
        code = 137 if state == "OUT_OF_MEMORY" else None
        return _end(done[0], code, done[1], evidence, started_at if begun else None, ended_at)
    if not evidence.is_settled:
        return None
    if begun:
        if exit_code is not None:
            return _end(Ending.EXITED, exit_code, _exit_reason(exit_code), evidence, started_at, ended_at)
        return _end(Ending.LOST, None, VANISHED, evidence, started_at, ended_at)
    detail = f" ({reason})" if reason not in ("", "None", "NonZeroExitCode") else ""
    why = explain_wait(reason) if reason == "BadConstraints" else None
    text = f"the node could not start the job{detail}: does the node see the shared folder, and have the user?"
    return _end(Ending.NOT_STARTED, None, why or Reason(ReasonCode.NOT_STARTED, text), evidence, None, ended_at)


def _end(
    ending: Ending,
    code: int | None,
    reason: Reason | None,
    evidence: Evidence,
    started_at: datetime | None,
    ended_at: datetime | None,
) -> Observation:
    return replace(
        Observation(RunState.ENDED, ending=ending, exit_code=code, reason=reason, notes=evidence.notes),
        started_at=started_at,
        ended_at=max(ended_at, started_at) if ended_at and started_at else ended_at,
        attempt=evidence.begun.restart + 1 if evidence.begun else 1,
    )
