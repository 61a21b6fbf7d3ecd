"""What is true of a run, from what Slurm lists and what the run wrote down."""

from dataclasses import replace
from datetime import UTC, datetime

from danlu.engines.base import Ending, Observation, RunState
from danlu.engines.slurm.text.options import Begun, Ended
from danlu.engines.slurm.text.parse_jobs import PastJob, QueueLine
from danlu.engines.slurm.verdict import SUSPENDED, Evidence, choose, extras, judge

NOW = datetime(2026, 11, 16, tzinfo=UTC)
LINE = QueueLine(
    "7", 7, "RUNNING", 0, "root", "gpu", 1, "gn1", 1, 0, "", NOW, NOW, None, "None", "danlu:i:a.1", "train"
)
BEGUN = Begun("t", 0, 7, "gn1", NOW)
EXITED = Ended("t", 0, Ending.EXITED, 0, NOW, NOW, "")


def verdict(**known: object) -> Observation:
    seen = judge(Evidence(**known), {})  # type: ignore[arg-type]
    assert seen is not None
    return seen


def state(name: str, **more: object) -> QueueLine:
    return replace(LINE, state=name, **more)  # type: ignore[arg-type]


def test_the_word_of_the_run_counts_before_slurm_has_noticed() -> None:
    assert verdict(lines=[LINE], begun=BEGUN, ended=EXITED).exit_code == 0


def test_a_death_by_signal_is_explained_by_slurm() -> None:
    killed = replace(EXITED, exit_code=137)
    assert judge(Evidence(lines=[LINE], begun=BEGUN, ended=killed), {}) is None
    memory = verdict(lines=[state("OUT_OF_MEMORY")], begun=BEGUN, ended=killed)
    assert (memory.ending, memory.reason and memory.reason.code) == (Ending.EXITED, "out_of_memory")
    late = verdict(lines=[state("TIMEOUT")], begun=BEGUN, ended=replace(EXITED, exit_code=143))
    assert late.ending is Ending.TIMED_OUT


def test_a_run_that_slurm_takes_back_is_not_over() -> None:
    told = replace(EXITED, by_slurm=True)
    assert judge(Evidence(lines=[state("COMPLETING")], begun=BEGUN, ended=told), {}) is None
    waits = verdict(lines=[state("PENDING", reason="BeginTime")], begun=BEGUN, ended=told)
    assert (waits.state, waits.attempt) == (RunState.PENDING, 2)
    again = verdict(lines=[LINE], begun=replace(BEGUN, restart=1), ended=told)
    assert (again.state, again.attempt) == (RunState.RUNNING, 2)


def test_a_run_that_slurm_has_suspended_says_so_while_it_is() -> None:
    suspended = verdict(lines=[state("SUSPENDED")], begun=BEGUN, notes=("a",))
    assert (suspended.state, suspended.notes) == (RunState.RUNNING, ("a", SUSPENDED))
    assert verdict(lines=[LINE], begun=BEGUN, notes=("a",)).notes == ("a",)


def test_a_run_that_ended_by_itself_is_over_even_if_slurm_forgot_that_it_began() -> None:
    waits = state("PENDING", reason="Resources")
    assert verdict(lines=[waits], begun=BEGUN, ended=EXITED).ending is Ending.EXITED
    assert verdict(lines=[waits], begun=BEGUN, ended=replace(EXITED, ending=Ending.STOPPED)).ending is Ending.STOPPED


def test_a_run_that_slurm_ended_and_forgot_is_lost_and_not_failed() -> None:
    """A controller that was killed takes it for an orphan, and ends it."""
    told = replace(EXITED, by_slurm=True, exit_code=143)
    assert judge(Evidence(begun=BEGUN, ended=told), {}) is None, "the next look may list it"
    assert verdict(begun=BEGUN, ended=told, is_settled=True).ending is Ending.LOST
    assert verdict(begun=BEGUN, ended=told, is_settled=True, stop_asked=True).ending is Ending.EXITED
    past = PastJob(7, "TIMEOUT", 0, NOW, NOW, "root")
    assert verdict(begun=BEGUN, ended=told, is_settled=True, past=past).ending is Ending.TIMED_OUT, "the books know"


def test_a_run_that_slurm_cannot_start_says_what_to_look_at() -> None:
    again = verdict(lines=[state("PENDING", reason="BeginTime")])
    assert again.reason is not None
    assert (again.attempt, "have the user" in again.reason.text) == (1, True)


def test_of_two_jobs_for_one_run_the_one_that_began_is_it() -> None:
    second = state("PENDING", number=8, id="8")
    evidence = Evidence(lines=[second, LINE], begun=BEGUN)
    assert choose(evidence) == LINE
    assert extras(evidence) == [second]
    assert choose(Evidence(lines=[state("PENDING", number=9), second])) == second


def test_what_is_gone_without_a_word() -> None:
    assert judge(Evidence(number=7), {}) is None
    assert verdict(number=7, is_settled=True).state is RunState.UNKNOWN
    assert verdict(number=7, is_settled=True, was_unobserved=True).ending is Ending.LOST
    assert verdict(number=7, is_settled=True, begun=BEGUN).ending is Ending.LOST
    assert verdict(number=7, is_settled=True, stop_asked=True).ending is Ending.STOPPED
    past = PastJob(7, "FAILED", 3, NOW, NOW, "root")
    assert verdict(number=7, is_settled=True, begun=BEGUN, past=past).exit_code == 3
    assert verdict(number=7, is_settled=True, past=past).state is RunState.UNKNOWN, "it is another's: ours never began"
    mute = verdict(lines=[state("FAILED")], begun=BEGUN, is_settled=True, exit_code=3)
    assert (mute.ending, mute.exit_code) == (Ending.EXITED, 3)


def test_a_node_that_cannot_start_it() -> None:
    assert judge(Evidence(lines=[state("FAILED")]), {}) is None
    assert verdict(lines=[state("FAILED")], is_settled=True).ending is Ending.NOT_STARTED
    assert verdict(lines=[state("CANCELLED")], stop_asked=True).ending is Ending.STOPPED
