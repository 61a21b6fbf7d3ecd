"""What observations of runs make of their jobs. Pure."""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from danlu.domain.job import Job, JobState, Reason
from danlu.domain.ledger import Charge, charge_of
from danlu.engines.base import Ending, Handle, Observation, RunState
from danlu.store.base import PastRun

_RETRIED = frozenset({JobState.FAILED, JobState.LOST})
# The reason of a run that was asked to make room for the owner of what it borrowed.
GIVING_BACK = "giving_back"


@dataclass(frozen=True, slots=True)
class Settled:
    jobs: list[Job]  # that change by what was seen
    past: list[PastRun]  # runs that are over though their job is not
    charges: list[Charge]  # what the runs that are over have used


def settle_all(
    held: Iterable[Job],
    seen: Mapping[Handle, Observation],
    *,
    now: datetime,
    shards_per_gpu: int,
    charges_all: bool = True,
) -> Settled:
    """`charges_all`: also for runs that held no card."""
    found = Settled([], [], [])
    for job in held:
        observation = seen.get(Handle(job.handle or ""))
        if observation is None:
            continue
        after, past = settle(job, observation, now=now)
        if after is job:
            continue
        found.jobs.append(after)
        if past is not None:
            found.past.append(past)
        begun, ended = (past.started_at, past.ended_at) if past else (after.started_at, after.ended_at)
        if begun and ended and (charges_all or (job.seat and (job.seat.gpus or job.seat.shards))):
            found.charges.append(charge_of(job, begun, ended, shards_per_gpu))
    return found


def settle(job: Job, seen: Observation, *, now: datetime) -> tuple[Job, PastRun | None]:
    """The job as it stands after what was seen (the same object if nothing changed), and the run
    that is over if the job is to be tried again."""
    if seen.state is RunState.UNKNOWN:
        if job.state is JobState.STARTING:
            if not job.stop_requested_at:
                return job, None  # it is still to be started
            why = Reason("stopped", "stopped before it started")
            return _ended(job, JobState.CANCELLED, why, None, now)
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
    gives_back = job.reason.code == GIVING_BACK
    tries = job.attempt - job.given_back
    if not gives_back and (state not in _RETRIED or tries > job.spec.retries or job.stop_requested_at):
        return job.moved(state, why=why, at=at, exit_code=exit_code), None
    if gives_back:
        why = Reason("given_back", "gave back what it had borrowed")
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
    if gives_back:
        again = Reason("given_back", f"run {job.attempt} {why.text}; waits to go on")
        return job.moved(JobState.QUEUED, why=again, at=at, given_back=job.given_back + 1), past
    again = Reason("retry", f"run {tries} of {job.spec.retries + 1} {why.text}; waits to be tried again")
    return job.moved(JobState.QUEUED, why=again, at=at), past
