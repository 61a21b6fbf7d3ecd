"""The whole tree of a job goes with it, and a checkpoint notice comes first."""

import os
import re
import sys

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import Installation, eventually

# A forest that a plain kill of the job's process, group or session would leave standing.
FOREST = """
import os, signal, subprocess, sys
mark, how = sys.argv[1:]
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
sleep = ["sleep", mark]
subprocess.Popen(sleep)                                            # ignores TERM
subprocess.Popen(sleep, start_new_session=True)                    # in a session of its own
subprocess.Popen(["setsid", "--fork", *sleep])                     # an orphan in a session of its own
subprocess.Popen(["setsid", "--fork", "setsid", "--fork", *sleep]) # twice
subprocess.Popen(["setsid", "--fork", *sleep], env={})             # without any mark in its environment
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:                                             # keeps on having children
        open("daemon", "w").close()
        while True:
            subprocess.run(["sleep", "0.02"])
    os._exit(0)
open("begun", "w").close()
while how == "stays":
    signal.pause()
"""
KINDS = 6


@pytest.fixture
def forest(here: Installation, settings: Settings) -> tuple[str, str]:
    """A word that only this test's processes have, and where the script is."""
    settings(ENGINE_CPUS=8, ENGINE_GRACE="1s")
    script = here.work / "forest.py"
    script.write_text(FOREST)
    return f"7{int.from_bytes(os.urandom(3), 'big')}.5", str(script)


def begun(here: Installation, mark: str, script: str, how: str, *options: str) -> str:
    words = (sys.executable, script, mark, how)
    job_id = here.submit("--env", f"MARK={mark}", *options, "--", *words)
    eventually(lambda: len(sleepers(here, mark)) >= KINDS - 1 and (here.work / "daemon").exists(), "the forest stands")
    here.until(job_id, "RUNNING")
    return job_id


def sleepers(here: Installation, mark: str) -> list[int]:
    """Those that only sleep, whatever their environment."""
    return [pid for pid in here.processes() if here.command_of(pid) == ["sleep", mark]]


@pytest.mark.parametrize("how", [(), ("--now",), ("--kill",)])
def test_a_stopped_job_leaves_no_process(here: Installation, forest: tuple[str, str], how: tuple[str, ...]) -> None:
    mark, script = forest
    other = here.submit("--", "sh", "-c", "setsid sleep 600 & exec sleep 600")
    job_id = begun(here, mark, script, "stays")
    here.danlu("stop", *how, job_id)
    assert here.ended(job_id)["state"] == "CANCELLED"
    assert here.marked(mark) == [], "all of it is gone when the job has ended"
    assert sleepers(here, mark) == []
    assert here.state(other) == "RUNNING"
    assert len(here.marked(f"DANLU_RUN_ID={other}.1")) == 2, "nobody else is touched"


def test_a_job_that_ends_by_itself_leaves_no_process(here: Installation, forest: tuple[str, str]) -> None:
    mark, script = forest
    other = here.submit("--", "sleep", "600")
    done = here.danlu("run", "--env", f"MARK={mark}", "--", sys.executable, script, mark, "ends")
    assert done.code == 0
    assert (here.work / "begun").exists()
    assert here.marked(mark) == []
    assert sleepers(here, mark) == []
    assert here.state(other) == "RUNNING"


def test_a_job_out_of_time_leaves_no_process(here: Installation, forest: tuple[str, str]) -> None:
    mark, script = forest
    job_id = begun(here, mark, script, "stays", "--time", "20s")
    ended = here.ended(job_id)
    assert ended["state"] == "TIMED_OUT"
    assert "its time limit" in ended["reason"]["text"]
    assert here.marked(mark) == []
    assert sleepers(here, mark) == []


def test_exec_ends_with_its_job(here: Installation, settings: Settings) -> None:
    settings(ENGINE_GRACE="1s")
    job_id = here.submit("--", "sleep", "600")
    here.until(job_id, "RUNNING")
    beside = here.begin("exec", job_id, "--", "sh", "-c", "echo in; exec setsid --wait sleep 601")
    eventually(lambda: [pid for pid in here.processes() if here.command_of(pid) == ["sleep", "601"]], "it is in")
    here.danlu("stop", job_id)
    assert here.ended(job_id)["state"] == "CANCELLED"
    assert [pid for pid in here.processes() if here.command_of(pid)[:1] == ["sleep"]] == []
    out, told = beside.communicate(timeout=60)
    assert out == b"in\n", told


CHECKPOINTS = "trap 'echo saved > checkpoint' USR1; touch ready; while :; do sleep 0.05; done"


def test_the_notice_before_the_time_limit_lets_a_job_save_itself(here: Installation, settings: Settings) -> None:
    settings(ENGINE_GRACE="1s")
    done = here.danlu("run", "--time", "9s", "--signal", "USR1@5", "--", "sh", "-c", CHECKPOINTS, code=None)
    assert done.code not in (0, None)
    assert "ran out of time" in done.talk
    assert (here.work / "checkpoint").read_text() == "saved\n"
    shown = here.show("@")
    assert (shown["state"], shown["signal"]) == ("TIMED_OUT", "USR1@5")


def test_a_stop_gives_the_notice_first_unless_it_is_in_a_hurry(here: Installation, settings: Settings) -> None:
    settings(ENGINE_GRACE="1s")
    ends = CHECKPOINTS.replace("checkpoint'", "checkpoint; exit 0'")
    for how, is_saved in (([], True), (["--now"], False), (["--kill"], False)):
        job_id = here.submit("--signal", "USR1@30", "--", "sh", "-c", ends)
        here.until(job_id, "RUNNING")
        eventually((here.work / "ready").exists, "its trap is set")
        here.danlu("stop", *how, job_id)
        assert here.ended(job_id)["state"] == "CANCELLED"
        assert (here.work / "checkpoint").exists() is is_saved
        for name in ("ready", "checkpoint"):
            (here.work / name).unlink(missing_ok=True)


def test_too_much_memory_ends_the_job_where_that_can_be_enforced(here: Installation) -> None:
    modest = here.submit("--mem", "100M", "--", "sleep", "600")
    here.until(modest, "RUNNING")
    is_enforced = "memory limit not enforced: " not in here.danlu("show", modest).text
    eats = "import mmap; m = mmap.mmap(-1, 400 << 20); [m.__setitem__(at, 1) for at in range(0, 400 << 20, 4096)]"
    done = here.danlu("run", "--mem", "100M", "--", sys.executable, "-c", eats, code=137 if is_enforced else 0)
    assert not is_enforced or re.search(r"used more (than its 100 MiB of )?memory", done.talk)
    assert here.state(modest) == "RUNNING"
