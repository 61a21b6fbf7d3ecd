"""Turns observations of runs into new states of their jobs. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from danlu.domain.charge import Charge, charge_of
from danlu.domain.job import Job, JobState, Reason, describe_exit
from danlu.domain.reasons import ReasonCode
from danlu.engines.base import Ending, Handle, Observation, RunState
from danlu.store.protocol import PastRun

_RETRIED = frozenset({JobState.FAILED, JobState.LOST})
# Endings of a run that never began: it was stopped, or forgotten, in the queue of its engine.
_UNBEGUN = frozenset({Ending.STOPPED, Ending.LOST})
_SKEW = timedelta(minutes=1)  # how far clocks may differ
# The reason of a run that must return borrowed resources to their owner.
GIVING_BACK = "giving_back"


@dataclass(frozen=True, slots=True)
class Settled:
    jobs: list[Job]  # changed by the observations
    past: list[PastRun]  # ended runs whose job goes on
    charges: list[Charge]  # the usage of the ended runs


def settle_all(
    held: Iterable[Job],
    seen: Mapping[Handle, Observation],
    *,
    now: datetime,
    shards_per_gpu: int,
    charges_all: bool = True,
) -> Settled:
    """`charges_all`: charge also runs without a card."""
    found = Settled([], [], [])
    for job in held:
        observation = seen.get(Handle(job.handle or ""))
        if observation is None:
            continue
        after = job
        for step in _steps(job, observation):
            # The store receives several steps as a single change.
            before = job if after is job else replace(after, version=job.version)
            after, past = settle(before, step, now=now)
            if after is before:
                continue
            if past is not None:
                found.past.append(past)
            begun, ended = (past.started_at, past.ended_at) if past else (after.started_at, after.ended_at)
            if begun and ended and (charges_all or job.spec.ask.gpus or job.spec.ask.shards):
                found.charges.append(charge_of(before, begun, ended, shards_per_gpu))
        if after is not job:
            found.jobs.append(after)
    return found


def _steps(job: Job, seen: Observation) -> tuple[Observation, ...]:
    """The observation, preceded by a RUNNING step if the engine restarted the run between two ticks."""
    if seen.state is not RunState.ENDED or seen.attempt - 1 <= job.requeued:
        return (seen,)
    return Observation(RunState.RUNNING, seen.started_at, attempt=seen.attempt), seen


def settle(job: Job, seen: Observation, *, now: datetime) -> tuple[Job, PastRun | None]:
    """The job after this observation (the same object if nothing changed), and the ended run
    if the job goes on with another run."""
    if seen.state is RunState.UNKNOWN:
        if job.state in (JobState.STARTING, JobState.PENDING):
            if not job.stop_requested_at:
                if seen.reason and seen.reason != job.reason:
                    return job.changed(reason=seen.reason), None
                return job, None  # the start is still to come, or to repeat: a cluster may forget its queue
            why = Reason(ReasonCode.STOPPED, "stopped before it started")
            return _ended(job, JobState.CANCELLED, why, None, now)
        why = Reason(ReasonCode.LOST, "the engine no longer knows this run")
        return _ended(job, JobState.LOST, why, None, now)
    if seen.state is RunState.ENDED:
        return _over(job, seen, now)
    # An engine with its own queue began the run again after the loss of a node.
    past = None
    if seen.attempt - 1 > job.requeued:
        lost = Reason(ReasonCode.LOST, "its node was lost; the engine begins it again")
        past = _past(job, JobState.LOST, lost, None, min(now, seen.started_at or now)) if job.started_at else None
        again = seen.attempt - 1 - job.requeued
        # Not a new version: the store receives this change together with the next step.
        job = replace(job, attempt=job.attempt + again, requeued=job.requeued + again, started_at=None, seats=())
    if seen.state is RunState.PENDING:
        return _pending(job, seen, now), past
    return _running(job, seen, now), past


def _pending(job: Job, seen: Observation, now: datetime) -> Job:
    why = (
        job.reason
        if job.stop_requested_at
        else seen.reason or Reason(ReasonCode.PENDING, "it is in the queue of the engine")
    )
    if job.state is not JobState.PENDING:
        return job.moved(JobState.PENDING, why=why, at=now, started_at=None, seats=(), notes=seen.notes)
    # The reason text may hold numbers that change with every look.
    if why.code == job.reason.code and seen.notes == job.notes:
        return job
    return job.changed(reason=why, notes=seen.notes)


def _running(job: Job, seen: Observation, now: datetime) -> Job:
    seats = seen.seats or job.seats
    if job.state is JobState.RUNNING and job.started_at:
        is_same = job.notes == seen.notes and job.seats == seats
        return job if is_same else job.changed(notes=seen.notes, seats=seats)
    where = ", ".join(seat.node for seat in seats)
    why = job.reason if job.stop_requested_at else Reason(ReasonCode.STARTED, f"running on {where}")
    found = {"started_at": _meant(job, seen.started_at or now, now), "notes": seen.notes, "seats": seats}
    if job.state is JobState.RUNNING:
        return job.changed(reason=why, **found)
    return job.moved(JobState.RUNNING, why=why, at=now, **found)


def _over(job: Job, seen: Observation, now: datetime) -> tuple[Job, PastRun | None]:
    state, why = _end(job, seen)
    begun = job.started_at
    if seen.ending is not Ending.NOT_STARTED and begun is None:
        begun = _meant(job, seen.started_at, now) if seen.started_at else None if seen.ending in _UNBEGUN else now
    # Not a new version: the store receives this change together with the end.
    job = replace(job, started_at=begun, notes=seen.notes, seats=seen.seats or job.seats)
    return _ended(job, state, why, seen.exit_code, _meant(job, seen.ended_at or now, now))


def _meant(job: Job, at: datetime, now: datetime) -> datetime:
    """The time to record. `at` comes from the clock of a node, which may be wrong by years, or from the run itself:
    users must not be charged for hours in the future."""
    return now if at > now + _SKEW else max(at, job.submitted_at)


def _end(job: Job, seen: Observation) -> tuple[JobState, Reason]:
    code = seen.exit_code
    match seen.ending:
        case Ending.STOPPED:
            return JobState.CANCELLED, seen.reason or Reason(ReasonCode.STOPPED, "stopped on request")
        case Ending.TIMED_OUT:
            return JobState.TIMED_OUT, seen.reason or Reason(ReasonCode.TIMED_OUT, "stopped at its time limit")
        case Ending.NOT_STARTED:
            return JobState.FAILED, seen.reason or Reason(ReasonCode.NOT_STARTED, "it could not be started")
        case Ending.LOST:
            return JobState.LOST, seen.reason or Reason(ReasonCode.LOST, "it died with its machine")
    if code == 0:
        return JobState.SUCCEEDED, seen.reason or Reason(ReasonCode.SUCCEEDED, "ended with success")
    return JobState.FAILED, seen.reason or Reason(ReasonCode.FAILED, describe_exit(code))


def _ended(job: Job, state: JobState, why: Reason, exit_code: int | None, at: datetime) -> tuple[Job, PastRun | None]:
    gives_back = job.reason.code == GIVING_BACK
    if not gives_back and (state not in _RETRIED or job.tries > job.spec.retries or job.stop_requested_at):
        return job.moved(state, why=why, at=at, exit_code=exit_code), None
    if gives_back:
        why = Reason(ReasonCode.GIVEN_BACK, "gave back what it had borrowed")
    past = _past(job, state, why, exit_code, at)
    if gives_back:
        again = Reason(ReasonCode.GIVEN_BACK, f"run {job.attempt} {why.text}; waits to go on")
        return job.moved(JobState.QUEUED, why=again, at=at, given_back=job.given_back + job.requeued + 1), past
    again = Reason(
        ReasonCode.RETRY, f"run {job.tries} of {job.spec.retries + 1} {why.full_text}; waits to be tried again"
    )
    return job.moved(JobState.QUEUED, why=again, at=at), past


def _past(job: Job, state: JobState, why: Reason, exit_code: int | None, at: datetime) -> PastRun:
    return PastRun(
        job_id=job.id,
        attempt=job.attempt,
        state=state,
        reason_code=why.code,
        reason_text=why.full_text,
        started_at=job.started_at,
        ended_at=max(at, job.started_at) if job.started_at else at,
        exit_code=exit_code,
        node=",".join(seat.node for seat in job.seats),
    )
