"""What a person at a terminal meets: Ctrl-C in a run, and a shell inside a job."""

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import Installation, eventually
from tests.e2e.terminal import CTRL_C, Terminal


@pytest.fixture(autouse=True)
def short_grace(settings: Settings) -> None:
    settings(ENGINE_GRACE="1s")


def followed(here: Installation) -> tuple[Terminal, str]:
    """A terminal that shows a running job."""
    terminal = Terminal(here, "run", "--", "sh", "-c", "echo begun; exec sleep 600")
    terminal.see("begun")
    return terminal, here.show("@")["id"]


def test_ctrl_c_asks_and_s_stops(here: Installation) -> None:
    terminal, job_id = followed(here)
    here.until(job_id, "RUNNING")
    terminal.type(CTRL_C)
    terminal.see("stop the job, or detach and let it run? [s/d] ")
    assert here.state(job_id) == "RUNNING", "asking changes nothing"
    terminal.type(b"what?\n")
    terminal.see("[s/d] ")
    terminal.type(b"s\n")
    terminal.see(f"stopping job {job_id}")
    code, shown = terminal.end()
    assert code != 0
    assert f"job {job_id} was stopped" in shown
    assert here.ended(job_id)["state"] == "CANCELLED"


def test_ctrl_c_asks_and_d_detaches(here: Installation) -> None:
    terminal, job_id = followed(here)
    terminal.type(CTRL_C)
    terminal.see("[s/d] ")
    terminal.type(b"d\n")
    terminal.see(f"job {job_id} goes on")
    code, shown = terminal.end()
    assert code == 130
    assert f"danlu logs -f {job_id}" in shown
    assert here.until(job_id, "RUNNING")["stop_requested_at"] is None


def test_ctrl_c_twice_detaches(here: Installation) -> None:
    terminal, job_id = followed(here)
    terminal.type(CTRL_C)
    terminal.see("[s/d] ")
    terminal.type(CTRL_C)
    assert terminal.end()[0] == 130
    assert here.until(job_id, "RUNNING")["stop_requested_at"] is None


def test_a_run_says_what_it_waits_for(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=1)
    first = here.submit("--", "sh", "-c", "while [ ! -e door ]; do sleep 0.05; done")
    here.until(first, "RUNNING")
    terminal = Terminal(here, "run", "--", "echo", "my turn")
    terminal.see("waiting: ")
    (here.work / "door").touch()
    terminal.see("my turn")
    assert terminal.end()[0] == 0


def test_exec_gives_a_shell_with_a_terminal_inside_the_job(here: Installation) -> None:
    job_id = here.submit("--env", "COLOUR=blue", "--", "sleep", "600")
    here.until(job_id, "RUNNING")
    terminal = Terminal(here, "exec", "-t", job_id, "--", "sh", rows=33, columns=101)
    terminal.type(b'echo "<$COLOUR|$DANLU_JOB_ID|$(stty size)|$TERM|$(pwd)>"\n')
    terminal.see(f"<blue|{job_id}|33 101|xterm-256color|{here.work}>")
    terminal.type(b"sleep 601 && echo not reached\n")
    sleeping = ["sleep", "601"]
    eventually(lambda: commands(here).count(sleeping), "a program in the shell runs")
    terminal.type(CTRL_C)
    eventually(lambda: not commands(here).count(sleeping), "Ctrl-C reaches it and not us")
    terminal.type(b"exit 7\n")
    code, _ = terminal.end()
    assert code == 7
    assert here.state(job_id) == "RUNNING"


def test_a_terminal_that_is_closed_hangs_up_the_shell(here: Installation) -> None:
    job_id = here.submit("--", "sleep", "600")
    here.until(job_id, "RUNNING")
    terminal = Terminal(here, "exec", "-t", job_id, "--", "sh", "-c", "echo in; exec sleep 602")
    terminal.see("in")
    eventually(lambda: commands(here).count(["sleep", "602"]), "it is in")
    terminal.process.kill()
    eventually(lambda: not commands(here).count(["sleep", "602"]), "what nobody talks to any more is hung up")
    assert here.state(job_id) == "RUNNING"


def commands(here: Installation) -> list[list[str]]:
    return [here.command_of(pid) for pid in here.processes()]
