"""What an observation makes of a job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from danlu.domain.job import Job, JobId, JobSpec, JobState, Reason
from danlu.domain.resources import Seat
from danlu.engines.base import Ending, Observation, RunState
from danlu.loops.settle import describe_exit, settle

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEAT = Seat("desk", cpus=1)


def running(*, retries: int = 0, state: JobState = JobState.RUNNING) -> Job:
    job = Job(JobId("a"), "li", JobSpec(("true",), "/", retries=retries), NOW)
    return replace(job, state=state, seat=SEAT, handle="h", started_at=NOW if state is JobState.RUNNING else None)


def over(ending: Ending, code: int | None = None) -> Observation:
    return Observation(RunState.ENDED, NOW, NOW + timedelta(seconds=5), ending, code)


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        (over(Ending.EXITED, 0), JobState.SUCCEEDED, "ended with success"),
        (over(Ending.EXITED, 3), JobState.FAILED, "exited with code 3"),
        (over(Ending.EXITED, 139), JobState.FAILED, "killed by SIGSEGV (exit code 139)"),
        (over(Ending.STOPPED, 143), JobState.CANCELLED, "stopped on request"),
        (over(Ending.TIMED_OUT, 143), JobState.TIMED_OUT, "stopped at its time limit"),
        (over(Ending.NOT_STARTED, 127), JobState.FAILED, "it could not be started"),
        (over(Ending.LOST), JobState.LOST, "it died with its machine"),
    ],
)
def test_every_ending_has_its_state_and_a_sentence(seen: Observation, state: JobState, text: str) -> None:
    job, past = settle(running(), seen, now=NOW)
    assert (job.state, job.reason.text, past) == (state, text, None)
    assert job.exit_code == seen.exit_code


def test_a_run_too_short_to_be_seen_running_has_a_start_time_all_the_same() -> None:
    job, _ = settle(running(state=JobState.STARTING), over(Ending.EXITED, 0), now=NOW)
    assert job.started_at == NOW
    assert job.ended_at == NOW + timedelta(seconds=5)
    assert job.version == 2


def test_a_run_that_goes_on_changes_nothing() -> None:
    job = running()
    assert settle(job, Observation(RunState.RUNNING), now=NOW) == (job, None)


def test_a_starting_job_unknown_to_the_engine_is_still_to_be_started() -> None:
    job = running(state=JobState.STARTING)
    assert settle(job, Observation(RunState.UNKNOWN), now=NOW)[0] is job


def test_a_running_job_unknown_to_the_engine_is_lost() -> None:
    assert settle(running(), Observation(RunState.UNKNOWN), now=NOW)[0].state is JobState.LOST


def test_a_job_stopped_before_its_engine_knew_it_is_cancelled() -> None:
    job = replace(running(state=JobState.STARTING), stop_requested_at=NOW)
    assert settle(job, Observation(RunState.UNKNOWN), now=NOW)[0].state is JobState.CANCELLED


@pytest.mark.parametrize("ending", [Ending.EXITED, Ending.LOST])
def test_failed_and_lost_runs_are_tried_again_if_asked(ending: Ending) -> None:
    job, past = settle(running(retries=1), over(ending, 1), now=NOW)
    assert (job.state, job.attempt, job.seat, job.handle, job.started_at) == (JobState.QUEUED, 2, None, None, None)
    assert past is not None
    assert (past.attempt, past.exit_code, past.node) == (1, 1, "desk")
    again = replace(job, state=JobState.RUNNING, seat=SEAT, handle="h2", started_at=NOW)
    assert settle(again, over(ending, 1), now=NOW)[0].state.is_ended


def test_a_stopped_or_timed_out_job_is_not_tried_again() -> None:
    stopping = replace(running(retries=3), stop_requested_at=NOW, reason=Reason("stopping", ""))
    assert settle(stopping, over(Ending.EXITED, 1), now=NOW)[0].state is JobState.FAILED
    assert settle(running(retries=3), over(Ending.TIMED_OUT), now=NOW)[0].state is JobState.TIMED_OUT


def test_a_clock_set_back_never_makes_a_job_end_before_it_began() -> None:
    seen = Observation(RunState.ENDED, NOW, NOW - timedelta(days=1), Ending.EXITED, 0)
    job, _ = settle(running(), seen, now=NOW - timedelta(days=1))
    assert job.ended_at == job.started_at == NOW


def test_exit_codes_in_words() -> None:
    assert describe_exit(None) == "ended, and nobody knows how"
    assert describe_exit(255) == "exited with code 255"
