"""What an observation of a run makes of its job. Pure."""

import signal
from dataclasses import replace
from datetime import datetime

from danlu.domain.job import Job, JobState, Reason
from danlu.engines.base import Ending, Observation, RunState
from danlu.store.base import PastRun

_RETRIED = frozenset({JobState.FAILED, JobState.LOST})


def settle(job: Job, seen: Observation, *, now: datetime) -> tuple[Job, PastRun | None]:
    """The job as it stands after what was seen (the same object if nothing changed), and the run
    that is over if the job is to be tried again."""
    if seen.state is RunState.UNKNOWN:
        if job.state is JobState.STARTING:
            if not job.stop_requested_at:
                return job, None  # it is still to be started
            why = Reason("stopped", "stopped before it started")
            return job.moved(JobState.CANCELLED, why=why, at=now), None
        why = Reason("lost", "the engine no longer knows this run")
        return _ended(job, JobState.LOST, why, None, now)
    started_at = seen.started_at or job.started_at or now
    if seen.state is RunState.RUNNING:
        if job.state is JobState.RUNNING:
            return (job if job.notes == seen.notes else job.changed(notes=seen.notes)), None
        assert job.seat is not None
        why = job.reason if job.stop_requested_at else Reason("started", f"running on {job.seat.node}")
        return job.moved(JobState.RUNNING, why=why, at=now, started_at=started_at, notes=seen.notes), None
    state, why = _end(job, seen)
    begun = job.started_at if seen.ending is Ending.NOT_STARTED else job.started_at or started_at
    # Not a new version: it is written together with the end.
    job = replace(job, started_at=begun, notes=seen.notes)
    return _ended(job, state, why, seen.exit_code, seen.ended_at or now)


def _end(job: Job, seen: Observation) -> tuple[JobState, Reason]:
    code = seen.exit_code
    match seen.ending:
        case Ending.STOPPED:
            return JobState.CANCELLED, seen.reason or Reason("stopped", "stopped on request")
        case Ending.TIMED_OUT:
            return JobState.TIMED_OUT, seen.reason or Reason("timed_out", "stopped at its time limit")
        case Ending.NOT_STARTED:
            return JobState.FAILED, seen.reason or Reason("not_started", "it could not be started")
        case Ending.LOST:
            return JobState.LOST, seen.reason or Reason("lost", "it died with its machine")
    if code == 0:
        return JobState.SUCCEEDED, seen.reason or Reason("succeeded", "ended with success")
    return JobState.FAILED, seen.reason or Reason("failed", describe_exit(code))


def describe_exit(code: int | None) -> str:
    """`139` -> killed by SIGSEGV."""
    if code is None:
        return "ended, and nobody knows how"
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        return f"killed by {signal.Signals(code - 128).name} (exit code {code})"
    return f"exited with code {code}"


def _ended(job: Job, state: JobState, why: Reason, exit_code: int | None, at: datetime) -> tuple[Job, PastRun | None]:
    if state not in _RETRIED or job.attempt > job.spec.retries or job.stop_requested_at:
        return job.moved(state, why=why, at=at, exit_code=exit_code), None
    past = PastRun(
        job_id=job.id,
        attempt=job.attempt,
        state=state,
        reason_code=why.code,
        reason_text=why.text,
        started_at=job.started_at,
        ended_at=max(at, job.started_at) if job.started_at else at,
        exit_code=exit_code,
        node=job.seat.node if job.seat else "",
    )
    again = Reason("retry", f"run {job.attempt} of {job.spec.retries + 1} {why.text}; waits to be tried again")
    return job.moved(JobState.QUEUED, why=again, at=at), past
