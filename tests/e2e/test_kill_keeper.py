"""What supervises the jobs is killed, or the whole machine goes down."""

import os
import subprocess
from collections import Counter

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import DANLU, Installation, eventually, is_gone, kill_9

WAITS = "echo $DANLU_RUN_ID >> ran; while [ ! -e door ]; do sleep 0.05; done; exit 5"
STAYS = "echo $DANLU_RUN_ID >> ran; while :; do sleep 0.05; done"
# Newer kernels tell the exit code even of somebody else's child.
HONEST = [
    ("FAILED", 5, "ended with exit code 5"),
    ("LOST", None, "its keeper was killed while it ran, and how it ended could not be learnt"),
]


def ran(here: Installation) -> Counter[str]:
    path = here.work / "ran"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def begun(here: Installation, script: str, *options: str) -> str:
    """A job that has begun, and said so."""
    job_id = here.submit(*options, "--", "sh", "-c", script)
    eventually(lambda: ran(here)[f"{job_id}.1"], f"{job_id} has begun")
    here.until(job_id, "RUNNING")
    return job_id


@pytest.mark.parametrize("with_server", [False, True])
def test_a_killed_keeper_takes_no_job_with_it(here: Installation, settings: Settings, with_server: bool) -> None:
    settings(ENGINE_CPUS=8, ENGINE_GRACE="2s")
    waits, stays = begun(here, WAITS), begun(here, STAYS)
    pids = here.main_of(f"{waits}.1"), here.main_of(f"{stays}.1")
    killed = here.keeper_pid()
    if with_server:
        here.kill_server()
    kill_9(killed)

    assert here.danlu("run", "--", "echo", "new").out == b"new\n"
    assert here.keeper_pid() != killed
    assert not any(is_gone(pid) for pid in pids)
    states = {job["id"]: job["state"] for job in here.danlu("ps", "--json").json()["items"]}
    assert (states[waits], states[stays]) == ("RUNNING", "RUNNING")

    here.danlu("stop", stays)
    assert here.ended(stays)["state"] == "CANCELLED"
    assert here.marked(f"{stays}.1") == []
    assert here.state(waits) == "RUNNING"
    (here.work / "door").touch()
    ended = here.ended(waits)
    assert (ended["state"], ended["exit_code"], ended["reason"]["text"]) in HONEST
    assert ran(here) == {f"{waits}.1": 1, f"{stays}.1": 1}
    assert here.danlu("run", "--", "sh", "-c", "exit 3", code=3).code == 3


def test_a_time_limit_outlives_its_keeper(here: Installation) -> None:
    limited = begun(here, STAYS, "--time", "20s")
    kill_9(here.keeper_pid())
    ended = here.ended(limited)
    assert ended["state"] == "TIMED_OUT"
    assert here.marked(f"{limited}.1") == []


def test_a_job_that_ends_while_nobody_looks_ends_with_a_true_sentence(here: Installation) -> None:
    waits = begun(here, WAITS)
    pid = here.main_of(f"{waits}.1")
    here.kill_server()
    kill_9(here.keeper_pid())
    (here.work / "door").touch()
    eventually(lambda: is_gone(pid), "the job ends by itself")
    assert here.danlu("wait", waits, code=1).text.startswith(waits)
    ended = here.show(waits)
    assert (ended["state"], ended["exit_code"], ended["reason"]["text"]) in HONEST
    assert ended["reason"]["text"] in here.danlu("show", waits).text
    assert ran(here) == {f"{waits}.1": 1}
    assert here.danlu("run", "--", "echo", "on").out == b"on\n"


@pytest.mark.usefixtures("as_root")
def test_after_a_reboot_only_what_asked_for_it_runs_again(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=3)
    here.danlu("run", "--", "sh", "-c", "exit 3", code=3)
    before = here.show("@")
    lost, retried = (
        begun(here, STAYS),
        begun(here, STAYS.replace("while", "[ $DANLU_ATTEMPT = 2 ] || while"), "--retries", "1"),
    )
    known = begun(here, WAITS)
    queued = [here.submit("--", "sh", "-c", "echo $DANLU_RUN_ID >> ran") for _ in range(3)]
    after = here.submit("--after", f"{lost}:any", "--", "sh", "-c", "echo $DANLU_RUN_ID >> ran")
    never = here.submit("--after", lost, "--", "true")
    assert [here.state(one) for one in [*queued, after]] == ["QUEUED"] * 4

    here.kill_server()
    (here.work / "door").touch()
    eventually(lambda: not here.marked(f"{known}.1"), "one ends while the keeper is there to see it")
    keeper = here.keeper_pid()
    eventually(lambda: b'"exit_code":5' in (here.home / "keeper.journal").read_bytes(), "it is written down")
    kill_9(keeper)
    for pid in here.processes():
        kill_9(pid)
    restart_elsewhere(here)

    ended = here.ended(lost)
    assert (ended["state"], ended["exit_code"]) == ("LOST", None)
    assert ended["reason"]["text"] == "the machine restarted while it ran"
    assert [here.ended(one)["state"] for one in [*queued, after, retried]] == ["SUCCEEDED"] * 5
    assert here.ended(never)["state"] == "CANCELLED"
    ended = here.ended(known)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 5), "its end was written down before the machine went"
    shown = here.show(retried)
    assert shown["attempt"] == 2
    assert [(run["attempt"], run["state"]) for run in shown["runs"]] == [(1, "LOST")]
    once = [f"{one}.1" for one in [lost, retried, known, *queued, after]]
    assert ran(here) == dict.fromkeys([*once, f"{retried}.2"], 1)
    assert here.show(before["id"]) | {"notes": []} == before | {"notes": []}
    here.danlu("ps")


def restart_elsewhere(here: Installation) -> None:
    """Start a server that sees another boot of this machine."""
    boot = here.root / "boot_id"
    boot.write_text("0fe5d5a4-1111-4222-8333-444455556666\n")
    script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
    subprocess.run(
        ["unshare", "-m", "sh", "-c", script, boot, DANLU, "up", "--detach"],
        check=True,
        timeout=60,
        env=here.environ(),
        stdout=subprocess.DEVNULL,
    )
    assert os.path.exists("/proc/sys/kernel/random/boot_id")
