"""`squeue`, `sinfo`, `scancel`, `ilaunch` and `zlaunch`: widths and headings are those of real Slurm 24.11."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danlu.compat import launchers, scancel, sinfo, squeue
from danlu.compat.columns import host_list, span
from danlu.errors import Invalid

NOW = 1000.0


def a_job(number: str, **more: Any) -> dict[str, Any]:
    array, _, index = number.partition("_")
    ask = {"gpus": 1, "gpu_model": None, "shards": 0, "cpus": 2, "memory_mib": 1000, "nodes": 1}
    return {
        "number": number, "seq": int(array) + int(index or 0), "queue": "gpu", "name": "longer-name", "user": "root",
        "state": "RUNNING", "reason": {"code": "started"}, "ask": ask, "array": "", "priority": 5, "team": "",
        "array_index": int(index) if index else None, "started_at": "940", "ended_at": None, "estimated_at": None,
        "submitted_at": "900", "time_limit_s": 3600, "seats": [{"node": "gn1"}], "node": "gn1", "workdir": "/w",
        "after": [], **more,
    }  # fmt: skip


def waiting(number: str, code: str, **more: Any) -> dict[str, Any]:
    return a_job(number, state="QUEUED", reason={"code": code}, started_at=None, seats=[], node=None, **more)


JOBS = [
    a_job("1"), a_job("2_1", array="1-3%1"), waiting("2_2", "array_limit", array="1-3%1"),
    waiting("2_3", "array_limit", array="1-3%1"), waiting("9", "waiting_for", after=["k3fz:ok", "m2xw:any"]),
]  # fmt: skip


def squeue_of(*words: str) -> list[str]:
    asked, _ = squeue.read_words(words)
    jobs = [job for job in JOBS if squeue.is_selected(asked, job)]
    numbers = {"k3fz": "1", "m2xw": "2"}
    return squeue.render_rows(squeue.rows_of(jobs, asked, numbers, NOW, float, lambda text: f"at {text}"), asked)


def test_squeue_looks_like_squeue() -> None:
    assert squeue_of() == [
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
        "         2_[2-3%1]       gpu longer-n     root PD       0:00      1 (JobArrayTaskLimit)",
        "                 9       gpu longer-n     root PD       0:00      1 (Dependency)",
        "                 1       gpu longer-n     root  R       1:00      1 gn1",
        "               2_1       gpu longer-n     root  R       1:00      1 gn1",
    ]
    assert [line.split()[0] for line in squeue_of("-h", "-r")] == ["2_2", "2_3", "9", "1", "2_1"]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-h", "-t", "R", "-o", "%i"], ["1", "2_1"]),
        (["-h", "--states=pending", "-o", "%A|%K"], ["2|2-3%1", "9|N/A"]),
        (["-o", "%.6i %5u|%L", "-t", "r"], [" JOBID USER |TIME_LEFT", "     1 root |59:00", "   2_1 root |59:00"]),
        (["-h", "-t", "PD", "-o", "%E"], ["(null)", "afterok:1(unfulfilled),afterany:2(unfulfilled)"]),
        (["-h", "-u", "nobody"], []),
        (["-h", "-n", "x"], []),
        (["-h", "-tR", "-O", "jobid:3,name:4,timeleft:.6"], ["1  long 59:00", "3  long 59:00"]),
    ],
)  # fmt: skip
def test_squeue_formats_and_filters(words: list[str], lines: list[str]) -> None:
    assert squeue_of(*words) == lines


def test_a_job_list_may_stand_apart() -> None:
    assert squeue.read_words(["-h", "-j", "7,8"])[0].jobs == ["7", "8"]
    assert squeue.read_words(["--jobs=7"])[0].jobs == ["7"]


def a_card(index: int, use: str = "free", free: int = 64) -> dict[str, Any]:
    return {"index": index, "model": "Quadro RTX 4000", "use": use, "shards": 64, "shards_free": free}


def a_node(name: str, *cards: dict[str, Any], free: int = 32, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "cpus": 32, "cpus_free": free, "memory_mib": 64000, "memory_free_mib": 64000, "holders": [],
        "accepts_jobs": True, "why_closed": "", "gpus": list(cards), **more,
    }  # fmt: skip


NODES = [a_node("gn1", a_card(0, "exclusive", 0), a_card(1, "shared", 32), free=29), a_node("gn2", a_card(0))]
QUEUES = [
    {"name": "makkapakka", "default": True, "nodes": ["gn1", "gn2"], "max_time_s": None, "closed": ""},
    {"name": "debug", "default": False, "nodes": ["gn1"], "max_time_s": 1800, "closed": "for repair"},
]


def sinfo_of(*words: str) -> list[str]:
    return sinfo.render_sinfo(sinfo.read_words(words)[0], NODES, QUEUES)


def test_sinfo_looks_like_sinfo() -> None:
    assert sinfo_of() == [
        "PARTITION   AVAIL  TIMELIMIT  NODES  STATE NODELIST",
        "makkapakka*    up   infinite      1    mix gn1",
        "makkapakka*    up   infinite      1   idle gn2",
        "debug        down      30:00      1    mix gn1",
    ]
    assert sinfo_of("-s")[:2] == [
        "PARTITION   AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST",
        "makkapakka*    up   infinite          1/1/0/2 gn[1-2]",
    ]
    assert sinfo_of("-N", "-p", "debug") == ["NODELIST   NODES PARTITION STATE ", "gn1            1     debug mix   "]
    assert sinfo_of("-h", "-o", "%5P|%C|%D") == ["makk*|3/61/0/64|2", "debug|3/29/0/32|1"]
    assert sinfo_of("-N", "-l")[0] == (
        "NODELIST   NODES   PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              "
    )


def test_the_fill_of_shards_is_shown_as_in_the_guide() -> None:
    lines = sinfo_of("--all", "--Node", "--Format=NodeList,Gres:60,GresUsed:100", "-p", "debug")
    assert [line.rstrip() for line in lines] == [
        "NODELIST            GRES                                                        GRES_USED",
        "gn1                 gpu:Quadro_RTX_4000:2,shard:Quadro_RTX_4000:128             "
        "gpu:Quadro_RTX_4000:1(IDX:0),shard:Quadro_RTX_4000:32(0/64,32/64)",
    ]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"), (["gn1"], "gn1"), (["gn1", "gn2", "gn4"], "gn[1-2,4]"), (["m01", "m02"], "m[01-02]"),
        (["n8", "n9", "n10"], "n[8-10]"), (["x1", "y1"], "x1,y1"), (["m09", "m10"], "m[09-10]"),
    ],
)  # fmt: skip
def test_host_lists(names: list[str], text: str) -> None:
    assert host_list(names) == text


def test_spans_of_time() -> None:
    assert [span(s) for s in (3, 3597, 3600, 216_000)] == ["0:03", "59:57", "1:00:00", "2-12:00:00"]


def test_scancel_reads_jobs_and_filters() -> None:
    assert scancel.read_words(["7", "8_3,9", "7_[1-2,5]"])[0].refs == ["7", "8_3", "9", "7_1", "7_2", "7_5"]
    asked = scancel.read_words(["-u", "li", "-n", "a,b", "--state=pending"])[0]
    assert (asked.users, asked.names, asked.states) == (["li"], ["a,b"], ["QUEUED", "PENDING"])
    assert scancel.read_words(["--signal=KILL", "-f", "7"])[0].kills
    for words in (["abc"], [], ["7_x"], ["-s", "USR1", "7"], ["-i", "7"]):
        with pytest.raises(Invalid):
            scancel.read_words(words)


def test_ilaunch_of_the_guide() -> None:
    found = launchers.read_ilaunch(["q", "makkapakka", "gpu", "0,1,2,3", "python", "main.py"])
    assert (found.queue, found.options, found.command) == ("makkapakka", {"gpus": 4}, ["python", "main.py"])
    assert launchers.read_ilaunch(["list"]).wants == "list"
    loaded = launchers.read_ilaunch(["load", "cuda", "load", "gcc", "nvcc", "x.cu"]).command
    assert loaded[:2] == ["/bin/bash", "-lc"]
    assert loaded[3:] == ["danlu", "cuda", "gcc", "nvcc", "x.cu"]
    for words in (["q"], ["gpu", "a", "x"], ["q", "m"]):
        with pytest.raises(Invalid):
            launchers.read_ilaunch(words)


def test_zlaunch_of_the_guide() -> None:
    found = launchers.read_zlaunch(["-q", "m", "--gpu=5", "--", "python", "main.py"])
    assert (found.queue, found.options, found.command) == ("m", {"gpus": 5, "cpus": 10}, ["python", "main.py"])
    found = launchers.read_zlaunch(["--cpu", "2", "--env", "A=1,B=2", "python main.py"])
    assert found.options == {"cpus": 2, "env": {"A": "1", "B": "2"}}
    assert found.command == ["/bin/sh", "-c", "python main.py"]
    assert not launchers.read_zlaunch([]).command


def test_queues_are_named_by_a_beginning() -> None:
    names = ["hopfield", "boltzmann", "makkapakka"]
    assert launchers.chosen_queue("m", names) == "makkapakka"
    assert launchers.chosen_queue("m", []) == ""
    with pytest.raises(Invalid, match="there is no queue `x`"):
        launchers.chosen_queue("x", names)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("-=ojtnhlrNsOu%.1i,:_[]q gpuload", max_size=8), max_size=4))
def test_any_words_are_understood_or_refused(words: list[str]) -> None:
    for read in (
        squeue.read_words,
        sinfo.read_words,
        scancel.read_words,
        launchers.read_ilaunch,
        launchers.read_zlaunch,
    ):
        try:
            read(words)
        except Invalid:
            continue
