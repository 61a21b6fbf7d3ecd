"""What people read: times, tables, blocks."""

import re
from datetime import datetime

import pytest

from danlu.cli import text
from danlu.cli.commands.run import render_end
from danlu.cli.views.cluster import render_gpus, render_nodes, render_status
from danlu.cli.views.jobs import render_array, render_dry_run, render_job, render_jobs, render_why
from tests.app.fake_server import a_job

NOW = text.epoch("2026-11-15T12:00:00.000000Z")


def plain(text: str, style: str) -> str:
    return text


@pytest.mark.parametrize(
    "written", ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59.5Z", "2026-11-15T10:00:00.000001Z", "2100-03-01T00:00:00Z"]
)
def test_epoch_agrees_with_datetime(written: str) -> None:
    assert text.epoch(written) == pytest.approx(datetime.fromisoformat(written).timestamp(), abs=1e-5)


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (-3, "0.0s", "0s"),
        (0.25, "0.2s", "0s"),
        (42, "42s", "42s"),
        (200, "3m20s", "3m"),
        (7800, "2h10m", "2h"),
        (9e5, "10d", "10d"),
    ],
)
def test_durations_are_short(seconds: float, long: str, short: str) -> None:
    assert (text.render_duration(seconds), text.render_short(seconds)) == (long, short)


def test_control_characters_are_shown_and_not_sent() -> None:
    assert text.visible("a\x1b[31mb\nc\td\x9b\udcff训") == "a\\x1b[31mb\\nc\\td\\x9b\\xff训"


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    assert text.columns("训练abc") == 7
    assert text.columns("e\u0301") == 1
    assert text.cut("训练模型", 5) == "训练…"


def test_a_table_fits_the_terminal() -> None:
    table = text.render_table(["ID", "NAME", "COMMAND"], [["a", "训练", "x" * 100], ["b", "n" * 60, "y"]], 60)
    assert all(text.columns(line) <= 60 for line in table.splitlines())
    assert "…" in table


def test_jobs_are_listed_active_ones_first() -> None:
    jobs = [
        a_job("done", "SUCCEEDED", ended_at="2026-11-15T11:00:00Z"),
        a_job("bad", "FAILED", reason={"code": "exit", "text": "exit code 3"}, name="evil\x1b[2J"),
        a_job("wait", "QUEUED", reason={"code": "gpus", "text": "no free RTX3090"}),
        a_job("go", ask={"gpus": 2, "gpu_model": "RTX3090", "shards": 0, "cpus": 4, "memory_mib": 16384}, gpus=[0, 1]),
    ]
    assert render_jobs(jobs, NOW, None, plain).splitlines() == [
        "ID    NAME         STATE      ASKS                 TIME    WHERE OR WHY     COMMAND",
        "wait               QUEUED                          2h      no free RTX3090  python train.py",
        "go                 RUNNING    RTX3090:2 4 cpu 16G  2h      desk, GPU 0,1    python train.py",
        "done               SUCCEEDED                       1h ago                   python train.py",
        "bad   evil\\x1b[2J  FAILED                          2h ago  exit code 3      python train.py",
    ]


def test_a_job_on_several_nodes_says_so() -> None:
    seats = [{"node": f"n{at}", "gpus": [at], "shared_gpu": None, "shards": 0} for at in range(3)]
    job = a_job("go", ask={"gpus": 1, "nodes": 3}, node="n0", gpus=[0], seats=seats)
    assert "3 nodes × 1 gpu  2h    n0, GPU 0; 2 more nodes" in render_jobs([job], NOW, None, plain)
    shown = render_job(job, NOW, plain)
    assert re.search(r"runs on +n0, GPU 0\n +n1, GPU 1\n +n2, GPU 2\n", shown)
    assert "asks       3 nodes\n" in render_job(a_job("go", ask={"nodes": 3}), NOW, plain)


def test_only_the_state_is_coloured_and_columns_stay_aligned() -> None:
    marked = render_jobs([a_job("a", "FAILED")], NOW, None, lambda text, style: f"<{style}:{text}>" if style else text)
    assert "<red:FAILED>" in marked
    assert "<bold:ID>" in marked


def test_a_hidden_command_of_somebody_else_is_left_out() -> None:
    line = render_jobs([a_job(command=None, user="wang")], NOW, None, plain, with_user=True).splitlines()[1]
    assert line.split() == ["k3fz82aw", "wang", "RUNNING", "2h", "desk"]


def test_show_says_everything_that_is_known() -> None:
    job = a_job(
        state="FAILED",
        exit_code=3,
        time_limit_s=3600,
        retries=2,
        attempt=2,
        env={"A": "1", "B": "2"},
        command=["python", "my script.py", "it's"],
        runs=[{"attempt": 1, "state": "FAILED", "exit_code": 1, "reason": {"code": "exit", "text": "it failed"}}],
        notes=["memory is not limited here"],
        engine_id="slurm:17",
    )
    block = render_job(job, NOW, plain)
    assert "state       FAILED" in block
    assert "exit code   3" in block
    assert "slurm job   17\n" in block
    assert "command     python 'my script.py' 'it'\"'\"'s'" in block
    assert "time limit  1h" in block
    assert "retries     attempt 2 of 3" in block
    assert "env         A=1\n            B=2" in block
    assert "earlier     attempt 1: FAILED, exit code 1, it failed" in block
    assert "notes       memory is not limited here" in block
    assert "estimate" not in block


def test_an_array_is_summed_up() -> None:
    array = {
        "id": "arr",
        "array": True,
        "count": 3,
        "states": {"RUNNING": 1, "SUCCEEDED": 2},
        "items": [a_job("arr_1")],
    }
    first, empty, *table = render_array(array, NOW, None, plain).splitlines()
    assert first == "array arr: 1 running, 2 succeeded of 3"
    assert empty == ""
    assert len(table) == 2


def test_why_names_the_reason_the_place_and_the_holders() -> None:
    why = {
        "id": "k3fz82aw",
        "state": "QUEUED",
        "reason": {"code": "gpus", "text": "all 4 RTX3090 are held"},
        "place": 3,
        "estimated_at": "2026-11-15T12:05:00Z",
        "holders": [{"id": "abc", "user": "li", "node": "desk", "gpus": [0, 1], "ends_at": None}],
    }
    block = render_why(why, NOW)
    assert block.startswith("k3fz82aw waits: all 4 RTX3090 are held\n\nplace     3 in the queue\n")
    assert "(in 5m)" in block
    assert "held by   abc (li) on desk, GPU 0,1, no time limit" in block


def test_why_says_what_would_start_instead_and_not_every_holder() -> None:
    holders = [
        {"id": f"h{number}", "user": "wang", "team": "nlp", "node": "desk", "gpus": [0], "shards": 4, "ends_at": None}
        for number in range(12)
    ]
    other = {"command": "danlu clone k3fz82aw --gpus 1", "options": "--gpus 1", "text": "1 card instead of 2"}
    why = {
        "id": "k3fz82aw",
        "state": "QUEUED",
        "reason": {"text": "no card"},
        "holders": holders,
        "alternatives": [other],
    }
    block = render_why(why, NOW)
    assert "h0 (wang of nlp) on desk, GPU 0, 4 shards, no time limit" in block
    assert "h9 (" in block
    assert "h10 (" not in block
    assert "and 2 more" in block
    assert "danlu clone k3fz82aw --gpus 1   1 card instead of 2" in block
    assert block.endswith("danlu stop k3fz82aw")
    dry = {"fits_now": False, "reason": {"text": "no card"}, "alternatives": [other]}
    assert render_dry_run(dry, NOW).endswith("\nwould start now with --gpus 1   1 card instead of 2")


def test_a_dry_run_says_where_or_why_not() -> None:
    seat = {"node": "desk", "gpus": [], "shared_gpu": 2, "shards": 16}
    assert render_dry_run({"fits_now": True, "seat": seat}, NOW) == "would start now on desk, 16 shards of GPU 2"
    waits = {"fits_now": False, "seat": None, "reason": {"code": "g", "text": "no card"}, "estimated_at": None}
    assert render_dry_run(waits, NOW) == "would wait: no card"


def test_the_end_of_a_job_is_one_sentence() -> None:
    assert render_end(a_job(state="SUCCEEDED")) == "job k3fz82aw succeeded after 3.5s"
    failed = a_job(state="FAILED", exit_code=3, reason={"code": "exit", "text": "the command failed"})
    assert render_end(failed) == "job k3fz82aw failed with exit code 3 after 3.5s: the command failed"


NODE = {
    "name": "desk",
    "cpus": 8,
    "cpus_free": 6,
    "memory_mib": 65536,
    "memory_free_mib": 0,
    "accepts_jobs": True,
    "state": "",
    "why_closed": "",
    "holders": [{"id": "abc", "user": "li", "shards": 8, "ends_at": "2026-11-15T14:10:00Z"}],
    "gpus": [
        {
            "index": 0,
            "model": "RTX3090",
            "memory_mib": 0,
            "use": "free",
            "shards": 64,
            "shards_free": 64,
            "holders": [],
        },
        {
            "index": 1,
            "model": "RTX3090",
            "memory_mib": 24576,
            "use": "shared",
            "shards": 64,
            "shards_free": 48,
            "holders": [
                {"id": "abc", "user": "li", "shards": 8, "ends_at": "2026-11-15T14:10:00Z"},
                {"id": "def", "user": "wang", "shards": 8, "ends_at": None},
            ],
        },
        {
            "index": 2,
            "model": "A100",
            "memory_mib": 0,
            "use": "exclusive",
            "shards": 4,
            "shards_free": 0,
            "holders": [],
        },
    ],
}


def test_nodes_gpus_and_status() -> None:
    free = ["desk", "6/8", "0/64G", "1/3", "yes", "abc", "(li,", "8", "shards,", "2h10m", "left)"]
    assert render_nodes([NODE], NOW, None).splitlines()[1].split() == free
    assert render_gpus([NODE], NOW, None).splitlines() == [
        "NODE  GPU  MODEL    MEMORY  USE        SHARDS TAKEN  HELD BY",
        "desk  0    RTX3090          free       0/64",
        "desk  1    RTX3090  24G     shared     16/64         "
        "abc (li, 8 shards, 2h10m left), def (wang, 8 shards, no time limit)",
        "desk  2    A100             exclusive  4/4           holder not known yet",
    ]
    status = {
        "version": "1",
        "pid": 7,
        "address": "unix:///x",
        "engine": "local",
        "nodes": [NODE],
        "jobs": {"RUNNING": 2},
    }
    assert "cards    desk: 2 x RTX3090 (1 free), 1 x A100 (0 free)\njobs     2 running" in render_status(status, NOW)


def test_closed_nodes_say_why_and_many_holders_are_counted() -> None:
    closed = {"accepts_jobs": False, "state": "MIXED+DRAIN", "why_closed": "bad fan,\x1b[2J card 2"}
    many = [{"id": f"slurm:{number}", "user": "li", "shards": 0, "ends_at": None} for number in range(9)]
    line = render_nodes([NODE | closed | {"holders": many}], NOW, None).splitlines()[1]
    assert "no: bad fan,\\x1b[2J card 2 (MIXED+DRAIN)  slurm:0 (li, no time limit), slurm:1" in line
    assert line.endswith("slurm:4 (li, no time limit), and 4 more")
    assert (
        render_gpus([NODE | closed], NOW, None)
        .splitlines()[1]
        .endswith("free       0/64          its node accepts no jobs")
    )
