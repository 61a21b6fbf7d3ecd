"""Traces as people write them, the good and the bad."""

from datetime import UTC, datetime, timedelta

import pytest

from danlu.domain.queue import Queue
from danlu.domain.resources import Ask
from danlu.errors import Invalid
from danlu.tools.simulate.generate import Place, generate_trace
from danlu.tools.simulate.intake import Intake
from danlu.tools.simulate.people import People
from danlu.tools.simulate.replay import TraceJob
from danlu.tools.simulate.trace import BEGIN, COLUMNS, parse_trace, render_trace
from tests.builders import node


def parse(text: str) -> list[TraceJob]:
    return list(Intake({}, People(), None, "t.csv").accept(parse_trace(text.encode(), "t.csv").rows))


def test_a_full_line() -> None:
    text = (
        "submit,user,team,queue,gpus,gpu_model,shards,cpus,memory,nodes,duration,time,priority,preemptible\n"
        "60,li,nlp,,2,RTX3090,,8,16G,3,2h30m,1d,7,yes\n"
    )
    (job,) = parse(text)
    assert job.ask == Ask(2, "RTX3090", 0, 8, 16384, 3)
    assert (job.key, job.submit_s, job.user, job.team) == ("2", 60, "li", "nlp")
    assert (job.duration_s, job.time_limit) == (9000, timedelta(days=1))
    assert (job.priority, job.is_preemptible) == (7, True)


def test_columns_may_be_left_out_and_stand_in_any_order() -> None:
    (job,) = parse("duration,user,submit\n90,li,0.5\n")
    assert (job.submit_s, job.duration_s, job.ask, job.priority) == (0.5, 90, Ask(), 5)
    assert (job.time_limit, job.is_preemptible, job.team) == (None, False, "")


def test_plain_numbers_are_seconds() -> None:
    (job,) = parse("submit,user,duration,time\n0,li,3600,7200\n")
    assert (job.duration_s, job.time_limit) == (3600, timedelta(hours=2))


def test_times_count_from_the_first() -> None:
    trace = parse_trace(b"submit,user,duration\n2026-03-02T10:00:05+08:00,li,1\n2026-03-02T02:00:00,li,1\n", "t.csv")
    assert trace.begin == datetime(2026, 3, 2, 2, 0, tzinfo=UTC)
    assert [row.submit_s for row in trace.rows] == [5, 0]
    assert parse_trace(b"submit,user,duration\n7,li,1\n", "t.csv").begin == BEGIN


def test_empty_lines_quotes_and_a_mark_of_order_are_fine() -> None:
    jobs = parse('\ufeffsubmit, user ,duration\n\n0,"wang, wei",1\n,,\n1,李,1\n')
    assert [(job.key, job.user) for job in jobs] == [("3", "wang, wei"), ("5", "李")]


BAD = {
    "": ("t.csv is empty", "submit,user"),
    "\n\n": ("t.csv is empty", ""),
    "submit,user,duration\n": ("t.csv names no job", ""),
    "submit,user\n0,li\n": ("t.csv has no column `duration`", ""),
    "submit,user,duration,gpu\n": ("t.csv has an unknown column: `gpu`", "did you mean `gpus`?"),
    "submit,user,duration,user\n": ("t.csv has the column `user` twice", ""),
    "submit,user,duration\n0,li\n": ("t.csv line 2 has 2 columns, the first line names 3", ""),
    "submit,user,duration\n0,li,1,2\n": ("t.csv line 2 has 4 columns", ""),
    "submit,user,duration\n0,li,1\n\n-5,li,1\n": ("t.csv line 4, column `submit`", ""),
    "submit,user,duration\n0,,1\n": ("t.csv line 2, column `user`: is empty", ""),
    "submit,user,duration\n0,li,\n": ("t.csv line 2, column `duration`", ""),
    "submit,user,duration\n0,li,-1\n": ("t.csv line 2, column `duration`", "a plain number is seconds"),
    "submit,user,duration\n0,li,nan\n": ("t.csv line 2, column `duration`", ""),
    "submit,user,duration\n0,li,1e300\n": ("t.csv line 2, column `duration`", ""),
    "submit,user,duration\n0,li,9999999999\n": ("t.csv line 2, column `duration`: must be less than ten years", ""),
    "submit,user,duration\n1700000000000,li,1\n": ("t.csv line 2, column `submit`", ""),
    "submit,user,duration\n1700000000,li,1\n": ("t.csv line 2, column `submit`: is more than ten years", ""),
    "submit,user,duration\n0,li,1\n2026-01-01,li,1\n": ("line 3, column `submit`: mixes times and seconds", ""),
    "submit,user,duration\n1900-01-01,li,1\n2026-01-01,li,1\n": ("t.csv spans more than ten years", ""),
    "submit,user,duration,gpus\n0,li,1,1000000000000\n": ("t.csv line 2, column `gpus`: takes a whole number", ""),
    "submit,user,duration,gpus\n0,li,1,-1\n": ("t.csv line 2, column `gpus`", ""),
    "submit,user,duration,gpus\n0,li,1,1.5\n": ("t.csv line 2, column `gpus`", ""),
    "submit,user,duration,gpus,shards\n0,li,1,1,8\n": ("t.csv line 2, column `shards`", "keep one of them"),
    "submit,user,duration,cpus\n0,li,1,0\n": ("t.csv line 2, column `cpus`: takes a whole number of 1 or more", ""),
    "submit,user,duration,nodes\n0,li,1,0\n": ("t.csv line 2, column `nodes`", ""),
    "submit,user,duration,memory\n0,li,1,lots\n": ("t.csv line 2, column `memory`", "a plain number is MiB"),
    "submit,user,duration,time\n0,li,1,0\n": ("t.csv line 2, column `time`", "leave it empty for no limit"),
    "submit,user,duration,priority\n0,li,1,10\n": ("t.csv line 2, column `priority`: goes from 1 to 9", ""),
    "submit,user,duration,preemptible\n0,li,1,maybe\n": ("t.csv line 2, column `preemptible`", ""),
    "submit,user,duration,queue\n0,li,1,fast\n": ("t.csv line 2, column `queue`: there is no queue `fast`", ""),
    "submit,user,duration\n0,a\x1bb,1\n": ("t.csv line 2, column `user`", ""),
    'submit,user,duration\n0,li,1\n0,"li,1\n': ("t.csv line 3 is not CSV", "is a quote missing?"),
    f"submit,user,duration\n0,{'x' * 200_000},1\n": ("t.csv line 2 is not CSV", ""),
}


@pytest.mark.parametrize("text", BAD, ids=[problem[:50] for problem, _ in BAD.values()])
def test_nonsense_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(text)
    problem, hint = BAD[text]
    assert problem in refused.value.text
    assert hint in refused.value.hint


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(Invalid, match=r"t\.csv line 3 is not UTF-8"):
        parse_trace(b"submit,user,duration\n0,li,1\n0,\xff,1\n", "t.csv")


# What the rules make of it.

LIST = {
    "old": Queue("old", max_time=timedelta(hours=1), default_priority=3, is_default=True),
    "new": Queue("new", teams=frozenset({"nlp"}), max_gpus=2),
}


def accepted(line: str, people: People | None = None) -> TraceJob:
    text = f"submit,user,duration,team,queue,gpus,time\n{line}\n"
    return next(Intake(LIST, people or People(), None, "t.csv").accept(parse_trace(text.encode(), "t.csv").rows))


def test_a_job_that_names_no_queue_gets_the_default_with_its_defaults() -> None:
    job = accepted("0,li,1,nlp,,1,")
    assert (job.queue, job.priority, job.time_limit) == ("old", 3, timedelta(hours=1))


def test_what_a_queue_refuses_is_kept_with_the_reason() -> None:
    assert accepted("0,li,1,nlp,new,2,").refused is None
    for line, code in (
        ("0,li,1,nlp,new,3,", "queue_limit"),
        ("0,li,1,,old,1,2h", "queue_limit"),
        ("0,li,1,cv,new,1,", "forbidden"),
    ):
        refused = accepted(line).refused
        assert refused is not None, line
        assert refused.code == code


def test_the_file_of_people_says_for_whom_a_job_counts() -> None:
    people = People(teams={"nlp": ("li",), "cv": ("li", "wang")})
    assert accepted("0,wang,1,,old,1,", people).team == "cv"
    assert accepted("0,zhao,1,hci,old,1,", people).team == "hci"
    with pytest.raises(Invalid, match=r"line 2, column `team`: li is in several teams"):
        accepted("0,li,1,,old,1,", people)


# Invented traces.


def test_an_invented_trace_can_be_read_and_depends_on_the_seed_alone() -> None:
    place = Place()
    text = "".join(render_trace(generate_trace(300, 7, place)))
    assert text == "".join(render_trace(generate_trace(300, 7, place)))
    assert text != "".join(render_trace(generate_trace(300, 8, place)))
    jobs = parse(text)
    assert len(jobs) == 300
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    assert jobs == list(generate_trace(300, 7, place))
    assert text.splitlines()[0] == ",".join(COLUMNS)


def test_an_invented_trace_is_as_busy_as_asked_and_sleeps_at_night() -> None:
    place = Place(tuple(node(f"n{number}", gpus=4) for number in range(4)))
    jobs = list(generate_trace(3000, 1, place, 0.5))
    used_s = sum(job.duration_s * (job.ask.gpus + job.ask.shards / 64) * job.ask.nodes for job in jobs)
    assert used_s / (16 * jobs[-1].submit_s) == pytest.approx(0.5, rel=0.05)
    hours = [int(job.submit_s // 3600 % 24) for job in jobs]
    assert sum(9 <= hour < 18 for hour in hours) > 3 * sum(hour < 7 for hour in hours)
    assert max(job.ask.gpus for job in jobs) == 4
    assert any(job.ask.nodes > 1 for job in jobs)


def test_invented_jobs_are_taken_by_their_queues() -> None:
    nodes = (node("old", gpus=2), node("new", gpus=4))
    queues = {
        "old": Queue("old", frozenset({"old"}), max_time=timedelta(hours=4), max_priority=5, default_priority=3),
        "new": Queue("new", frozenset({"new"}), teams=frozenset({"nlp"}), max_gpus=4),
        "cpu": Queue("cpu", max_gpus=0, max_shards=0),
    }
    people = People(teams={"nlp": ("li", "wang"), "cv": ("zhao",)})
    text = "".join(render_trace(generate_trace(200, 1, Place(nodes, queues, people.teams)))).encode()
    jobs = list(Intake(queues, people, None, "t.csv").accept(parse_trace(text, "t.csv").rows))
    assert not [job.refused for job in jobs if job.refused]
    assert {(job.team, job.queue) for job in jobs} == {("nlp", "old"), ("nlp", "new"), ("cv", "old")}
    assert max(job.ask.gpus for job in jobs if job.queue == "old") == 2
