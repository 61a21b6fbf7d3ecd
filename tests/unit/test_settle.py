"""What an observation makes of a job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from danlu.domain.job import Job, JobId, JobSpec, JobState, Reason, describe_exit
from danlu.domain.resources import Ask, Seat
from danlu.engines.base import Ending, Handle, Observation, RunState
from danlu.loops.settle import GIVING_BACK, settle, settle_all

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEAT = Seat("desk", cpus=1)


def running(*, retries: int = 0, state: JobState = JobState.RUNNING) -> Job:
    job = Job(JobId("a"), "li", JobSpec(("true",), "/", retries=retries), NOW)
    return replace(job, state=state, seats=(SEAT,), handle="h", started_at=NOW if state is JobState.RUNNING else None)


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


@pytest.mark.parametrize("attempt", [1, 2])
def test_nobody_is_charged_by_a_clock_that_is_wrong_by_years(attempt: int) -> None:
    """Of a node without a battery, or in a word that its owner wrote."""
    job = running(state=JobState.STARTING)
    years = timedelta(days=3650)
    seen = Observation(RunState.ENDED, NOW - years, NOW + years, Ending.EXITED, 0, attempt=attempt)
    later = NOW + timedelta(hours=1)
    found = settle_all([job], {Handle("h"): seen}, now=later, shards_per_gpu=1)
    assert [(one.started_at, one.ended_at) for one in found.charges] == [(NOW, later)]


def test_a_run_that_goes_on_changes_nothing() -> None:
    job = running()
    assert settle(job, Observation(RunState.RUNNING), now=NOW) == (job, None)


def test_a_starting_job_unknown_to_the_engine_is_still_to_be_started() -> None:
    job = running(state=JobState.STARTING)
    assert settle(job, Observation(RunState.UNKNOWN), now=NOW)[0] is job
    forgotten = running(state=JobState.PENDING)
    assert settle(forgotten, Observation(RunState.UNKNOWN), now=NOW)[0] is forgotten


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
    again = replace(job, state=JobState.RUNNING, seats=(SEAT,), handle="h2", started_at=NOW)
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
    assert describe_exit(139) == "killed by SIGSEGV (exit code 139)"


def asked_to_give_back(*, retries: int = 0, attempt: int = 1, given_back: int = 0) -> Job:
    why = Reason(GIVING_BACK, "makes room for its owner")
    job = running(retries=retries)
    return replace(job, attempt=attempt, given_back=given_back, stop_requested_at=NOW, reason=why)


@pytest.mark.parametrize("seen", [over(Ending.STOPPED, 143), over(Ending.STOPPED, 0), over(Ending.EXITED, 0)])
def test_a_borrower_that_gave_back_waits_again(seen: Observation) -> None:
    job, past = settle(asked_to_give_back(), seen, now=NOW)
    assert (job.state, job.reason.code) == (JobState.QUEUED, "given_back")
    assert (job.attempt, job.given_back, job.stop_requested_at, job.seat) == (2, 1, None, None)
    assert past is not None
    assert past.reason_code == "given_back"


def test_giving_back_uses_up_no_retry() -> None:
    job, _ = settle(asked_to_give_back(retries=1, attempt=1), over(Ending.STOPPED, 143), now=NOW)
    job = replace(job, state=JobState.RUNNING, seats=(SEAT,), handle="h", started_at=NOW, reason=Reason("started", ""))
    job, _ = settle(job, over(Ending.EXITED, 1), now=NOW)
    assert (job.state, job.attempt) == (JobState.QUEUED, 3)
    assert job.reason.text.startswith("run 1 of 2 ")
    job = replace(job, state=JobState.RUNNING, seats=(SEAT,), handle="h", started_at=NOW, reason=Reason("started", ""))
    assert settle(job, over(Ending.EXITED, 1), now=NOW)[0].state is JobState.FAILED


def test_who_is_stopped_while_giving_back_is_stopped() -> None:
    job = replace(asked_to_give_back(), reason=Reason("stopping", "its owner asked it to stop"))
    assert settle(job, over(Ending.STOPPED, 143), now=NOW)[0].state is JobState.CANCELLED


def test_every_run_that_is_over_is_charged_once() -> None:
    borrower = asked_to_give_back()
    borrower = replace(borrower, spec=replace(borrower.spec, ask=Ask(gpus=2, cpus=2)))
    held = [running(), running(retries=1), borrower]
    jobs = [replace(job, handle=str(number), id=JobId(f"j{number}")) for number, job in enumerate(held)]
    seen = {Handle("0"): over(Ending.EXITED, 0), Handle("1"): over(Ending.EXITED, 1), Handle("2"): over(Ending.STOPPED)}
    found = settle_all(jobs, seen, now=NOW, shards_per_gpu=64)
    assert [(one.run_id, one.gpus, one.cpus) for one in found.charges] == [
        ("j0.1", 0, 1),
        ("j1.1", 0, 1),
        ("j2.1", 2, 2),
    ]
    assert {one.ended_at - one.started_at for one in found.charges} == {timedelta(seconds=5)}
    assert [past.job_id for past in found.past] == ["j1", "j2"]
    cards_only = settle_all(jobs, seen, now=NOW, shards_per_gpu=64, charges_all=False)
    assert [one.run_id for one in cards_only.charges] == ["j2.1"]


def test_a_run_that_never_began_is_not_charged() -> None:
    job = running(state=JobState.STARTING)
    seen = {Handle("h"): Observation(RunState.ENDED, None, NOW, Ending.NOT_STARTED, 127)}
    found = settle_all([job], seen, now=NOW, shards_per_gpu=64)
    assert [one.state for one in found.jobs] == [JobState.FAILED]
    assert found.charges == []


def pending(why: str = "no_room", attempt: int = 1) -> Observation:
    return Observation(RunState.PENDING, reason=Reason(why, f"waits: {why}"), attempt=attempt)


def test_a_run_that_waits_in_the_engines_queue_says_why() -> None:
    job = replace(running(state=JobState.STARTING), seats=())
    waits, past = settle(job, pending(), now=NOW)
    assert (waits.state, waits.reason.code, waits.seats, past) == (JobState.PENDING, "no_room", (), None)
    assert settle(waits, pending(), now=NOW)[0] is waits
    assert settle(waits, pending("behind"), now=NOW)[0].reason.code == "behind"
    seen = Observation(RunState.RUNNING, NOW, seats=(SEAT, replace(SEAT, node="other")))
    runs = settle(waits, seen, now=NOW)[0]
    assert (runs.state, runs.seats, runs.reason.text) == (JobState.RUNNING, seen.seats, "running on desk, other")
    assert settle(runs, seen, now=NOW)[0] is runs


def test_cards_that_the_engine_tells_later_are_written_down() -> None:
    late = Observation(RunState.RUNNING, NOW, seats=(replace(SEAT, gpus=(1,)),))
    assert settle(running(), late, now=NOW)[0].seats == late.seats


def test_a_run_that_the_engine_begins_again_is_another_attempt_of_the_same_run() -> None:
    job = running(retries=1)
    later = NOW + timedelta(minutes=5)
    waits, past = settle(job, pending(attempt=2), now=later)
    assert (waits.state, waits.attempt, waits.tries, waits.run_id) == (JobState.PENDING, 2, 1, job.run_id)
    assert waits.started_at is None
    assert waits.seats == ()
    assert past is not None
    assert (past.attempt, past.state, past.node) == (1, JobState.LOST, "desk")
    seen = Observation(RunState.RUNNING, later, seats=(SEAT,), attempt=2)
    runs = settle(waits, seen, now=later)[0]
    assert (runs.attempt, runs.started_at) == (2, later)
    again, past = settle(runs, over(Ending.EXITED, 1), now=later)
    assert (again.state, again.attempt, again.tries) == (JobState.QUEUED, 3, 2)
    assert again.run_id == f"{job.id}.3"
    assert past is not None
    assert past.attempt == 2


def test_a_new_beginning_that_was_missed_is_still_counted() -> None:
    later = NOW + timedelta(minutes=5)
    seen = Observation(RunState.RUNNING, later, seats=(replace(SEAT, node="other"),), attempt=2)
    found = settle_all([running()], {Handle("h"): seen}, now=later, shards_per_gpu=64)
    (job,) = found.jobs
    assert (job.state, job.attempt, job.started_at, job.reason.text) == (JobState.RUNNING, 2, later, "running on other")
    assert [one.attempt for one in found.past] == [1]
    assert len(found.charges) == 1


@pytest.mark.parametrize("ending", [Ending.STOPPED, Ending.LOST])
def test_what_ends_in_the_engines_queue_never_started(ending: Ending) -> None:
    waits = replace(running(state=JobState.PENDING), seats=())
    seen = {Handle("h"): Observation(RunState.ENDED, ended_at=NOW + timedelta(seconds=5), ending=ending)}
    found = settle_all([waits], seen, now=NOW + timedelta(minutes=1), shards_per_gpu=64)
    assert [(one.started_at, one.ended_at) for one in found.jobs] == [(None, NOW + timedelta(seconds=5))]
    assert found.charges == []


def test_a_new_beginning_that_ended_before_anybody_looked_is_charged_for_each() -> None:
    again_at, end = NOW + timedelta(minutes=5), NOW + timedelta(minutes=7)
    seen = Observation(RunState.ENDED, again_at, end, Ending.EXITED, 1, attempt=2)
    job = running(retries=1)
    found = settle_all([job], {Handle("h"): seen}, now=NOW + timedelta(hours=1), shards_per_gpu=64)
    (after,) = found.jobs
    assert (after.state, after.attempt, after.tries, after.version) == (JobState.QUEUED, 3, 2, job.version + 1)
    assert [(one.attempt, one.state, one.ended_at) for one in found.past] == [
        (1, JobState.LOST, again_at),
        (2, JobState.FAILED, end),
    ]
    assert [(one.run_id, one.started_at, one.ended_at) for one in found.charges] == [
        ("a.1", NOW, again_at),
        ("a.2", again_at, end),
    ]


def test_what_another_system_said_is_a_detail_and_is_written_into_the_text() -> None:
    """The tables have one column for both; only those who see the command are shown the detail."""
    refused = Reason("no_queue", "there is no such queue", " (Slurm: no partition `/home/li`); see `danlu queues`")
    assert refused.full_text == "there is no such queue (Slurm: no partition `/home/li`); see `danlu queues`"
    assert Reason.read(refused.code, refused.full_text) == refused
    plain = Reason("failed", "killed by SIGSEGV (exit code 139)")
    assert Reason.read(plain.code, plain.full_text) == plain


def test_a_detail_is_kept_with_the_run_that_is_over_and_with_the_try_that_follows() -> None:
    refused = Reason("no_queue", "there is no such queue", " (Slurm: no partition)")
    seen = replace(over(Ending.NOT_STARTED), reason=refused)
    again, past = settle(running(retries=1), seen, now=NOW)
    assert past is not None
    assert past.reason_text == refused.full_text
    assert refused.full_text in again.reason.full_text
