"""When the keeper acts on a run: notice, TERM, KILL, as asked by the clock and by people."""

import signal
from typing import Any

import pytest

from danlu.engines.local.keeper.run import Run

USR1 = signal.SIGUSR1.value


def run(**particulars: Any) -> Run:
    return Run({"handle": "local:boot:a.1", "workdir": "/", "log": "/log", "mono": 100.0, **particulars})


def test_a_limit_plans_its_notice_and_its_end() -> None:
    one = run(limit=60.0, notice=(USR1, 20.0))
    one.plan_limit()
    assert (one.notice_at, one.term_at, one.next_due()) == (140.0, 160.0, 140.0)


def test_no_limit_plans_nothing() -> None:
    one = run()
    one.plan_limit()
    assert one.next_due() is None


def test_a_stop_replaces_the_plan_of_the_limit() -> None:
    one = run(limit=60.0, notice=(USR1, 20.0))
    one.plan_limit()
    one.plan_stop(110.0, 5.0, None)
    assert (one.why, one.notice_at, one.term_at, one.grace) == ("stopped", None, 110.0, 5.0)


def test_a_later_stop_only_hastens() -> None:
    one = run()
    one.plan_stop(110.0, 30.0, (USR1, 60.0))
    assert (one.notice_at, one.term_at) == (110.0, 170.0)
    one.plan_stop(111.0, 60.0, (USR1, 100.0))
    assert (one.term_at, one.grace) == (170.0, 30.0)
    one.plan_stop(112.0, 10.0, None)
    assert (one.notice_at, one.term_at, one.grace) == (None, 112.0, 10.0)
    one.term_at, one.kill_at = None, 122.0
    one.plan_stop(113.0, 30.0, None)
    assert one.kill_at == 122.0
    one.plan_stop(114.0, 0.0, None)
    assert one.kill_at == 114.0


def test_a_stop_during_the_end_of_a_limit_leaves_its_reason() -> None:
    one = run(limit=60.0, why="timed_out")
    one.kill_at = 190.0
    one.plan_stop(161.0, 2.0, None)
    assert (one.why, one.kill_at) == ("timed_out", 163.0)


@pytest.mark.parametrize(
    ("status", "why", "oom_kills", "ending", "code", "text"),
    [
        (0, "", 0, "exited", 0, "ended with exit code 0"),
        (3 << 8, "", 0, "exited", 3, "ended with exit code 3"),
        (11, "", 0, "exited", 139, "killed by signal 11 (SEGV)"),
        (200 << 8, "", 0, "exited", 200, "ended with exit code 200"),
        (9, "", 1, "exited", 137, "killed: used more than its 512 MiB of memory"),
        (9, "stopped", 1, "stopped", 137, "stopped on request"),
        (15, "timed_out", 0, "timed_out", 143, "reached its time limit of 1m"),
        (None, "", 0, "lost", None, "its keeper was killed while it ran, and how it ended could not be learnt"),
        (None, "stopped", 0, "stopped", None, "stopped on request"),
    ],
)
def test_how_an_end_is_told(
    status: int | None, why: str, oom_kills: int, ending: str, code: int | None, text: str
) -> None:
    one = run(limit=60.0, memory_mib=512, why=why)
    one.status = status
    end = one.ended(at=2.0, oom_kills=oom_kills)
    assert (end["ending"], end["exit_code"], end["reason"][1]) == (ending, code, text)


def test_a_child_killed_for_memory_is_noted_if_the_run_went_well() -> None:
    one = run(memory_mib=64)
    one.status = 0
    assert one.ended(at=2.0, oom_kills=1)["exit_code"] == 0
    assert one.notes == ["one of its processes was killed: used more than its 64 MiB of memory"]
