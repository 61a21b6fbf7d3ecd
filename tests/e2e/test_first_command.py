"""The first command on a fresh machine, and a server that comes and goes while jobs stay."""

import os
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.conftest import Settings
from tests.e2e.installation import DANLU, Installation, eventually, is_gone


def test_the_first_command_starts_the_server_and_ends_with_the_jobs_code(here: Installation) -> None:
    done = here.danlu("run", "--", "sh", "-c", "echo to stdout; echo to stderr >&2; exit 7", code=7)
    assert done.out == b"to stdout\nto stderr\n"
    first, last = done.talk.splitlines()
    job_id = first.removeprefix("job ")
    assert last.startswith(f"job {job_id} failed with exit code 7 after ")
    assert here.danlu("status", "--json").json()["pid"] == here.server_pid()
    again = here.danlu("run", "--", "true")
    assert again.out == b""
    assert "succeeded" in again.talk
    assert here.danlu("ps", "--json").json()["items"][1]["id"] == job_id


def test_nobody_else_can_read_anything_of_it(here: Installation) -> None:
    code = here.work / "main.py"
    code.write_text("print('secret')")
    here.danlu("run", "--snapshot", "--", "cat", "main.py")
    found = [here.home, *here.home.rglob("*")]
    assert len(found) > 10
    for path in found:
        mode = path.lstat().st_mode
        kept = 0o711 if path == here.home / "work" else 0o700
        inside = (here.home / "work") in path.parents
        if not inside:  # the files of a run's own folder are as the project had them, below a closed door
            wanted = kept if stat.S_ISDIR(mode) else 0o600
            assert stat.S_IMODE(mode) == wanted, f"{path} is {stat.filemode(mode)}"
    for name in ("server.sock", "keeper.sock"):
        assert stat.S_ISSOCK((here.home / "run" / name).stat().st_mode)


def test_an_open_umask_opens_nothing(here: Installation) -> None:
    before = os.umask(0)
    try:
        here.danlu("run", "--", "true")
    finally:
        os.umask(before)
    for path in [here.home, *here.home.rglob("*")]:
        if path != here.home / "work":
            assert not path.lstat().st_mode & 0o077, f"{path} is {stat.filemode(path.lstat().st_mode)}"


def test_down_leaves_jobs_alone_and_the_next_command_finds_them(here: Installation) -> None:
    door = here.work / "door"
    waits = here.submit("--", "sh", "-c", "echo begun; while [ ! -e door ]; do sleep 0.05; done; echo over; exit 9")
    here.until(waits, "RUNNING")
    job_pid = here.main_of(f"{waits}.1")
    server, keeper = here.server_pid(), here.keeper_pid()
    assert "jobs go on" in here.danlu("down").text
    eventually(lambda: is_gone(server), "the server has gone")
    assert not is_gone(job_pid)
    assert here.danlu("down").text == "the server is not running"
    assert "your server is not running" in here.danlu("status", code=4).talk
    assert here.server_pid() == 0, "asking for the status starts nothing"

    found = here.show(waits)
    assert found["state"] == "RUNNING"
    assert here.server_pid() not in (0, server)
    assert here.keeper_pid() == keeper

    here.danlu("down")
    door.touch()
    eventually(lambda: is_gone(job_pid), "the job ends with no server about")
    here.danlu("wait", waits, code=1)
    found = here.show(waits)
    assert (found["state"], found["exit_code"]) == ("FAILED", 9)
    assert here.danlu("logs", waits).out == b"begun\nover\n"


def test_a_server_that_stops_takes_nobody_who_follows_for_a_fault(here: Installation) -> None:
    running = here.begin("run", "--", "sh", "-c", "echo begun; while [ ! -e door ]; do sleep 0.05; done; echo over")
    read_line(running, b"begun\n")
    followed, waited = here.begin("logs", "-f", "@"), here.begin("wait", "@")
    inside = here.begin("exec", "@", "--", "sh", "-c", "echo inside; sleep 600")
    read_line(followed, b"begun\n")
    read_line(inside, b"inside\n")
    server = here.server_pid()
    here.danlu("down")
    eventually(lambda: is_gone(server), "the server has gone")
    told = here.server_log()
    assert "stopping; jobs go on" in told
    assert not any(word in told for word in ("ERROR", "Traceback")), told

    (here.work / "door").touch()
    here.danlu("up", "--detach")
    assert [begun.communicate(timeout=60)[0] for begun in (running, followed)] == [b"over\n"] * 2
    assert b"SUCCEEDED" in waited.communicate(timeout=60)[0]


def read_line(begun: subprocess.Popen[bytes], line: bytes) -> None:
    assert begun.stdout
    assert begun.stdout.readline() == line


def test_the_keeper_goes_when_nobody_needs_it(here: Installation) -> None:
    here.danlu("run", "--", "true")
    keeper = here.keeper_pid()
    here.danlu("down")
    eventually(lambda: is_gone(keeper), "an idle keeper ends by itself")
    assert here.processes() == []
    assert here.danlu("run", "--", "echo", "again").out == b"again\n"


def test_ten_first_commands_at_once_share_one_server(here: Installation) -> None:
    with ThreadPoolExecutor(10) as pool:
        numbers = range(10)
        done = list(pool.map(lambda n: here.danlu("run", "--", "echo", f"number {n}"), numbers))
    assert [one.out.decode() for one in done] == [f"number {n}\n" for n in numbers]
    servers = eventually(lambda: one_server(here), "the servers that came too late have left")
    assert servers == [here.server_pid()]
    assert len(here.keeper_pids()) == 1
    jobs = here.danlu("ps", "--all", "--json").json()["items"]
    assert [job["state"] for job in jobs] == ["SUCCEEDED"] * 10


def one_server(here: Installation) -> list[int]:
    found = here.marked("danlu.app")
    return found if len(found) == 1 else []


def test_a_second_server_in_the_foreground_says_that_one_is_up(here: Installation) -> None:
    first = here.begin("up")
    eventually(here.server_pid, "the server in the foreground listens")
    assert first.pid == here.server_pid()
    eventually(lambda: here.danlu("status", code=None).code == 0, "it answers")
    second = here.danlu("up", code=3)
    assert f"danlu is up already (pid {first.pid})" in second.talk
    here.danlu("up", "--detach")  # what was asked for is so
    assert first.pid == here.server_pid()
    assert here.danlu("run", "--", "echo", "still well").out == b"still well\n"

    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=30)
    assert first.returncode == 0
    assert b"danlu is up: unix://" in told
    assert b"Traceback" not in told


def test_a_server_that_cannot_start_says_why(here: Installation) -> None:
    here.home.write_text("in the way")
    done = here.danlu("run", "--", "true", code=4)
    assert "the server could not start" in done.talk
    assert str(here.home) in done.talk


def test_a_server_keeps_nothing_of_the_script_that_started_it(here: Installation) -> None:
    # A pipe that the server kept open would hang `$(danlu submit …)` in every script.
    ended = subprocess.run(
        ["sh", "-c", f'id=$({DANLU} submit -- true) && echo "$id" | wc -l'],
        capture_output=True,
        timeout=60,
        cwd=here.work,
        env=here.environ(),
    )
    assert ended.stdout.strip() == b"1"
    assert ended.stderr == b""


def test_no_timer_decides_when_a_job_is_seen_to_run(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=100)
    for _ in range(40):
        job_id = here.submit("--", "sleep", "600")
        here.until(job_id, "RUNNING", within=15)
    here.danlu("stop", "--kill", *(job["id"] for job in here.danlu("ps", "-n", "40", "--json").json()["items"]))
