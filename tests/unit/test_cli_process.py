"""The command line as a process, against a server with canned answers."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.utils import accept_key

from tests.app.fake_server import FakeServer, Request, Talk, a_job, server_at

DANLU = [sys.executable, "-m", "danlu.cli.main"]
Danlu = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    found = server_at(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def danlu(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Danlu:
    monkeypatch.setenv("DANLU_SERVER", server.url)

    def run(*words: str, **options: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*DANLU, *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, env={**os.environ, **options}
        )

    return run


def followed(*frames: tuple[str, object]) -> Callable[[Request, Talk], None]:
    def answer(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        for kind, payload in frames:
            talk.frame(kind, payload)
        talk.end_stream()

    return answer


def accepted(_: Request, talk: Talk) -> None:
    talk.answer({"id": "k3fz82aw", "jobs": [a_job(state="QUEUED")], "count": 1}, 201)


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_run_shows_the_log_as_it_is_and_ends_with_the_jobs_code(server: FakeServer, danlu: Danlu) -> None:
    ended = a_job(state="FAILED", exit_code=137)
    server.on("POST /jobs", followed(("J", a_job()), ("L", b"\xff\x1b[1mraw"), ("L", b"\0"), ("E", ended)))
    done = danlu("run", "--gpus", "1", "--env", "A=1", "--", "python", "train.py", "--gpus", "9")
    assert (done.returncode, done.stdout) == (137, b"\xff\x1b[1mraw\0")
    assert done.stderr.decode().splitlines() == ["job k3fz82aw", "job k3fz82aw failed with exit code 137 after 3.5s"]
    request = server.requests[0]
    assert request.query == [("follow", "true")]
    assert request.json["command"] == ["python", "train.py", "--gpus", "9"]
    assert (request.json["gpus"], request.json["env"]) == ("1", {"A": "1"})


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (a_job(state="SUCCEEDED"), 0),
        (a_job(state="CANCELLED"), 1),
        (a_job(state="CANCELLED", exit_code=0), 1),
        (a_job(state="TIMED_OUT", exit_code=143), 143),
        (a_job(state="LOST"), 1),
    ],
)
def test_the_exit_code_of_every_end(server: FakeServer, danlu: Danlu, ended: dict[str, object], code: int) -> None:
    server.on("POST /jobs", followed(("E", ended)))
    done = danlu("run", "-q", "--", "x")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_run_with_json_prints_the_job_and_shows_the_log_beside_it(server: FakeServer, danlu: Danlu) -> None:
    server.on("POST /jobs", followed(("L", b"log"), ("E", a_job(state="SUCCEEDED"))))
    done = danlu("run", "--json", "-q", "--", "x")
    assert json.loads(done.stdout)["state"] == "SUCCEEDED"
    assert done.stderr == b"log"


def test_a_run_whose_server_dies_goes_on_with_the_same_job(server: FakeServer, danlu: Danlu) -> None:
    def submitted(request: Request, talk: Talk) -> None:
        if len(server.asked("POST /jobs")) == 1:
            talk.die()
        talk.begin_stream()
        talk.frame("J", a_job())
        talk.frame("L", b"one ")
        talk.die()

    server.on("POST /jobs", submitted)
    server.on("GET /jobs/k3fz82aw/follow", followed(("J", a_job()), ("L", b"two"), ("E", a_job(state="SUCCEEDED"))))
    done = danlu("run", "-q", "--", "x")
    assert (done.returncode, done.stdout) == (0, b"one two")
    keys = {request.headers["idempotency-key"] for request in server.asked("POST /jobs")}
    assert len(keys) == 1
    assert server.requests[-1].query == [("offset", "4")]


def test_a_waiting_run_says_what_for(server: FakeServer, danlu: Danlu) -> None:
    def waits(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        talk.frame("J", a_job(state="QUEUED", reason={"code": "gpus", "text": "no free\x1b card"}))
        time.sleep(4)
        talk.frame("J", a_job())
        talk.frame("E", a_job(state="SUCCEEDED"))

    server.on("POST /jobs", waits)
    assert danlu("run", "--", "x").stderr.decode().splitlines()[1:3] == [
        "waiting: no free\\x1b card",
        "running on desk",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_terminal_a_signal_stops_the_job_and_waits_for_its_end(
    server: FakeServer, danlu: Danlu, number: signal.Signals
) -> None:
    stopped = threading.Event()

    def endless(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        talk.frame("J", a_job())
        stopped.wait(20)
        talk.frame("E", a_job(state="CANCELLED", exit_code=143))

    def stop(_: Request, talk: Talk) -> None:
        talk.answer({"items": [a_job()], "count": 1})
        stopped.set()

    server.on("POST /jobs", endless)
    server.on("POST /jobs/k3fz82aw/stop", stop)
    process = subprocess.Popen([*DANLU, "run", "--", "x"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline() == b"job k3fz82aw\n"
    process.send_signal(number)
    assert process.wait(20) == 143
    assert b"stopping job k3fz82aw" in process.stderr.read()
    process.stderr.close()


def test_a_signal_before_the_job_has_an_id_is_not_forgotten(server: FakeServer, danlu: Danlu) -> None:
    asked, stopped = threading.Event(), threading.Event()

    def slow(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        asked.set()
        time.sleep(0.5)
        talk.frame("J", a_job())
        stopped.wait(20)
        talk.frame("E", a_job(state="CANCELLED"))

    def stop(_: Request, talk: Talk) -> None:
        talk.answer({"items": [a_job()], "count": 1})
        stopped.set()

    server.on("POST /jobs", slow)
    server.on("POST /jobs/k3fz82aw/stop", stop)
    process = subprocess.Popen([*DANLU, "run", "-q", "--", "x"], stdin=subprocess.DEVNULL)
    assert asked.wait(20)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 1
    assert stopped.is_set()


@pytest.mark.parametrize(
    ("answer", "is_stopped", "code"), [(b"s\n", True, 143), (b"d\n", False, 130), (b"\x03", False, 130)]
)
def test_ctrl_c_on_a_terminal_asks(
    server: FakeServer, danlu: Danlu, answer: bytes, is_stopped: bool, code: int
) -> None:
    stopped = threading.Event()

    def endless(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        talk.frame("J", a_job())
        stopped.wait(20)
        talk.frame("E", a_job(state="CANCELLED", exit_code=143))

    def stop(_: Request, talk: Talk) -> None:
        talk.answer({"items": [a_job()], "count": 1})
        stopped.set()

    server.on("POST /jobs", endless)
    server.on("POST /jobs/k3fz82aw/stop", stop)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*DANLU, "run", "--", "x"])
    try:
        read_until(terminal, b"job k3fz82aw")
        os.write(terminal, b"\x03")
        read_until(terminal, b"[s/d]")
        os.write(terminal, answer)
        read_until(terminal, b"was stopped" if is_stopped else b"goes on")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    finally:
        stopped.set()
        os.close(terminal)
    assert bool(server.asked("POST /jobs/k3fz82aw/stop")) is is_stopped


def read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    until = time.monotonic() + 20
    while text not in seen:
        assert select.select([terminal], [], [], max(until - time.monotonic(), 0))[0], seen
        seen += os.read(terminal, 4096)
    return seen


def test_an_array_is_run_to_its_end(server: FakeServer, danlu: Danlu) -> None:
    server.on("POST /jobs", {"id": "arr", "jobs": [a_job("arr_1"), a_job("arr_2")], "count": 2})
    tasks = [a_job("arr_2", "FAILED", exit_code=3), a_job("arr_1", "SUCCEEDED")]
    waited = {"done": True, "items": tasks, "count": 2, "states": {"SUCCEEDED": 1, "FAILED": 1}}
    server.on("GET /jobs/arr/wait", waited)
    done = danlu("run", "--array", "1-2", "--", "x")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "array arr",
        "array arr: 1 succeeded, 1 failed of 2",
        "  arr_2 failed with exit code 3; `danlu logs arr_2`",
    ]


def test_submit_prints_the_id_alone(server: FakeServer, danlu: Danlu, tmp_path: Path) -> None:
    server.on("POST /jobs", accepted)
    done = danlu(
        "submit", "--priority", "9", "--after", "abc", "--label", "exp=a", "--workdir", str(tmp_path), "--", "true"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"k3fz82aw\n", b"")
    body = server.requests[0].json
    body.pop("environ")
    body.pop("umask")
    assert body == {
        "command": ["true"],
        "priority": 9,
        "after": ["abc"],
        "label": {"exp": "a"},
        "workdir": str(tmp_path),
    }


def test_options_win_over_the_job_file(server: FakeServer, danlu: Danlu, tmp_path: Path) -> None:
    server.on("POST /jobs", accepted)
    file = tmp_path / "job.yaml"
    file.write_text("command: echo hi\ngpus: 2\nenv: {A: 1, B: 2}\n")
    assert danlu("submit", str(file), "--gpus", "4", "--env", "B=3", "--env", "HOME").returncode == 0
    body = server.requests[0].json
    assert body["command"] == ["/bin/sh", "-c", "echo hi"]
    assert body["gpus"] == "4"
    assert body["env"] == {"A": "1", "B": "3", "HOME": os.environ["HOME"]}


def test_a_dry_run_submits_nothing(server: FakeServer, danlu: Danlu) -> None:
    seat = {"node": "desk", "gpus": [1], "shared_gpu": None, "shards": 0}
    server.on("POST /jobs", {"fits_now": True, "seat": seat, "reason": None, "estimated_at": None})
    assert danlu("run", "--dry-run", "--gpus", "1", "--", "x").stdout == b"would start now on desk, GPU 1\n"
    assert server.requests[0].query == [("dry_run", "true")]


def test_refusals_have_their_exit_codes(server: FakeServer, danlu: Danlu) -> None:
    hint = "ask for `--gpus 2`"
    server.on("POST /jobs", lambda _, talk: talk.problem(409, "too_big", "no machine has 99 GPUs", hint))
    done = danlu("submit", "--gpus", "99", "--", "x")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == f"error: no machine has 99 GPUs\n\nhint: {hint}\n"
    assert danlu("submit", "--nothing", "--", "x").returncode == 2
    assert danlu("show", "x", DANLU_SERVER="unix:///nowhere/x.sock").returncode == 4


def test_ps_shows_an_array_in_one_line(server: FakeServer, danlu: Danlu) -> None:
    tasks = {"SUCCEEDED": 3, "RUNNING": 1, "QUEUED": 496}
    task = a_job("k3fz_500", "QUEUED") | {"array_id": "k3fz", "tasks": tasks}
    server.on("GET /jobs", {"items": [task], "next": None})
    line = danlu("ps").stdout.decode().splitlines()[1]
    assert line.startswith("k3fz ")
    assert "RUNNING" in line
    assert "1 running, 496 queued, 3 succeeded" in line
    danlu("ps", "--tasks")
    assert "collapse" not in dict(server.requests[-1].query)


def test_ps_shows_every_active_job_and_fills_up_with_ended_ones(server: FakeServer, danlu: Danlu) -> None:
    def listed(request: Request, talk: Talk) -> None:
        active = [a_job("old", "RUNNING", seq=1)]
        newest = [a_job(f"end{n}", "SUCCEEDED", seq=n) for n in range(9, 5, -1)]
        is_active = ("state", "active") in request.query
        talk.answer({"items": active if is_active else newest, "next": None if is_active else 6})

    server.on("GET /jobs", listed)
    done = danlu("ps", "-n", "3", "--json")
    page = json.loads(done.stdout)
    assert [job["id"] for job in page["items"]] == ["old", "end9", "end8"]
    assert page["next"] == 8
    assert dict(server.requests[0].query) == {"state": "active", "limit": "3", "user": "me", "collapse": "true"}
    lines = danlu("ps", "--user", "all").stdout.decode().splitlines()
    assert lines[0].split()[:3] == ["ID", "USER", "NAME"]
    assert lines[1].split()[:3] == ["old", "li", "RUNNING"]
    assert "user" not in dict(server.requests[-1].query)


def test_ps_goes_through_pages_when_all_are_asked_for(server: FakeServer, danlu: Danlu) -> None:
    def listed(request: Request, talk: Talk) -> None:
        before = int(dict(request.query).get("before", "4"))
        talk.answer({"items": [a_job(f"j{before - 1}", "FAILED")], "next": before - 1 if before > 2 else None})

    server.on("GET /jobs", listed)
    page = json.loads(danlu("ps", "-a", "--state", "FAILED", "--json").stdout)
    assert ([job["id"] for job in page["items"]], page["next"]) == (["j3", "j2", "j1"], None)


def test_a_closed_pipe_is_quiet(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /jobs/a/logs", lambda _, talk: talk.answer(b"x" * 5_000_000, 200, "text/plain"))
    process = subprocess.Popen([*DANLU, "logs", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (141, b"")


def test_a_reader_that_is_slow_and_non_blocking_gets_every_byte(server: FakeServer, danlu: Danlu) -> None:
    data = os.urandom(3_000_000)
    server.on("GET /jobs/a/logs", lambda _, talk: talk.answer(data, 200, "text/plain"))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = subprocess.Popen([*DANLU, "logs", "a"], stdout=writer)
    os.close(writer)
    time.sleep(0.2)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == data
    assert process.wait(20) == 0


def test_what_nobody_expected_is_a_sentence_and_not_a_traceback(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /jobs", {"nonsense": 1})
    done = danlu("ps")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: KeyError: 'items'\n\nhint: ")
    assert b"DANLU_DEBUG=1" in done.stderr
    assert b"Traceback" in danlu("ps", DANLU_DEBUG="1").stderr


def test_stop_goes_on_after_a_wrong_id(server: FakeServer, danlu: Danlu) -> None:
    server.on("POST /jobs/b/stop", {"items": [a_job("b", stop_requested_at="2026-11-15T10:00:00Z")], "count": 1})
    server.on("POST /jobs/c/stop", {"items": [a_job("c", "CANCELLED")], "count": 1})
    done = danlu("stop", "a", "b", "c", "--now")
    assert (done.returncode, done.stdout) == (2, b"b  stopping\nc  CANCELLED\n")
    assert server.asked("POST /jobs/b/stop")[0].json == {"now": True, "kill": False}


def test_wait_tells_how_it_ended(server: FakeServer, danlu: Danlu) -> None:
    def waited(job: dict[str, object], done: bool = True) -> dict[str, object]:
        return {"done": done, "items": [job], "count": 1, "states": {job["state"]: 1}}

    server.on("GET /jobs/a/wait", waited(a_job("a", "SUCCEEDED")))
    server.on("GET /jobs/b/wait", waited(a_job("b", "FAILED", exit_code=3)))
    server.on("GET /jobs/c/wait", waited(a_job("c"), done=False))
    assert danlu("wait", "a").returncode == 0
    done = danlu("wait", "a", "b")
    assert (done.returncode, done.stdout) == (1, b"a  SUCCEEDED  exit code 0\nb  FAILED  exit code 3\n")
    assert danlu("wait", "c", "--timeout", "0").returncode == 124


def test_rm_asks_before_it_forgets_everything(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /jobs", {"items": [a_job("a", "SUCCEEDED")], "next": None})
    server.on("DELETE /jobs/a", {"removed": 1})
    refused = danlu("rm", "--ended")
    assert (refused.returncode, server.asked("DELETE /jobs/a")) == (2, [])
    assert danlu("rm", "--ended", "-y").stdout == b"forgot 1 job\n"
    assert danlu("rm").returncode == 2


def test_show_why_nodes_and_gpus(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /jobs/@~1", a_job(state="QUEUED"))
    assert danlu("show", "@~1").stdout.startswith(b"job        k3fz82aw\nnumber     17\nstate      QUEUED\n")
    server.on(
        "GET /jobs/@/why", {"id": "a", "state": "QUEUED", "reason": {"code": "x", "text": "no card"}, "holders": []}
    )
    assert danlu("why", "@").stdout == b"a waits: no card\n"
    server.on("GET /nodes", {"items": []})
    assert json.loads(danlu("nodes", "--json").stdout) == {"items": []}
    assert json.loads(danlu("gpus", "--json").stdout) == {"items": []}


def test_status_and_down_without_a_server(danlu: Danlu, monkeypatch: pytest.MonkeyPatch) -> None:
    done = danlu("status", DANLU_SERVER="")
    assert done.returncode == 4
    assert b"your server is not running" in done.stderr
    done = danlu("down", DANLU_SERVER="")
    assert (done.returncode, done.stdout) == (0, b"the server is not running\n")


def test_down_waits_until_nothing_answers_and_the_process_is_gone(server: FakeServer, danlu: Danlu) -> None:
    process = subprocess.Popen(["sleep", "1"])

    def stop(_: Request, talk: Talk) -> None:
        talk.answer({"stopping": True})
        threading.Timer(0.2, server.stop).start()

    server.on("GET /status", {"pid": process.pid})
    server.on("POST /server/stop", stop)
    done = danlu("down")
    assert process.poll() == 0
    assert (done.returncode, done.stdout) == (0, b"the server is stopped; jobs go on\n")


def test_exec_carries_bytes_both_ways_and_the_exit_code(server: FakeServer, danlu: Danlu) -> None:
    said: list[bytes] = []

    def shell(request: Request, talk: Talk) -> None:
        talk.send(upgraded(request))
        said.append(receive(talk))
        while (message := receive(talk)) != b'{"eof": true}':
            said.append(message)
        talk.send(b"\x89\x02hi")  # a ping
        talk.send(b"\x02\x03\x01ou\x80\x01t")  # one message in two fragments
        talk.send(b"\x82\x04\x02err" + b"\x82\x7e\x03\x21\x01" + b"x" * 800)
        talk.send(b'\x81\x0b{"exit": 7}')

    server.on("GET /jobs/@/exec", shell)
    done = subprocess.run([*DANLU, "exec", "@", "--", "cat", "-n"], input=b"in" * 100, capture_output=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out" + b"x" * 800, b"err")
    assert json.loads(said[0])["command"] == ["cat", "-n"]
    assert said[1:] == [b"\0" + b"in" * 100]


def upgraded(request: Request) -> bytes:
    """The answer that makes a request a WebSocket."""
    accept = accept_key(request.headers["sec-websocket-key"])
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


def receive(talk: Talk) -> bytes:
    head = talk.file.read(2)
    size = head[1] & 0x7F
    if size == 126:
        size = int.from_bytes(talk.file.read(2), "big")
    mask = talk.file.read(4)
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(talk.file.read(size)))


def test_exec_says_why_not(server: FakeServer, danlu: Danlu) -> None:
    problem = json.dumps(
        {"problem": {"status": 409, "code": "refused", "detail": "job a has ended", "hint": ""}}
    ).encode()

    def shell(request: Request, talk: Talk) -> None:
        talk.send(upgraded(request) + b"\x81" + bytes([len(problem)]) + problem)
        receive(talk)

    server.on("GET /jobs/a/exec", shell)
    done = danlu("exec", "a", "--", "x")
    assert (done.returncode, done.stderr) == (3, b"error: job a has ended\n")
    assert danlu("exec", "a").returncode == 2
    assert danlu("exec", "-t", "a").returncode == 2


def test_colour_is_for_terminals_unless_wanted(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /jobs", {"items": [a_job()], "next": None})
    assert b"\x1b[" not in danlu("ps").stdout
    assert b"\x1b[36mRUNNING" in danlu("ps", "--color", "always").stdout
    assert b"\x1b[" not in danlu("ps", "--color=never").stdout


@pytest.mark.parametrize(("word", "sent"), [("--no-preemptible", False), ("--preemptible", True)])
def test_a_switch_of_a_cloned_job_goes_both_ways(server: FakeServer, danlu: Danlu, word: str, sent: bool) -> None:
    server.on("POST /jobs/a/clone", accepted)
    assert danlu("clone", "a", word).returncode == 0
    asked = json.loads(server.requests[-1].body)
    assert (asked["preemptible"], "interactive" in asked) == (sent, False)
    assert b"not both" in danlu("clone", "a", "--interactive", "--no-interactive").stderr


def test_completion_offers_commands_options_and_jobs(server: FakeServer, danlu: Danlu, tmp_path: Path) -> None:
    server.on("GET /jobs", {"items": [a_job("k3fz82aw"), a_job("m2xw")], "next": None})

    def offered(line: str) -> list[str]:
        found = tmp_path / "found"
        asked = {
            "_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(found), "COMP_LINE": line,
            "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_IFS": "\n",
        }  # fmt: skip
        danlu(**asked)
        return [text.strip() for text in found.read_text().splitlines()]

    assert offered("danlu su") == ["submit"]
    assert offered("danlu run --gp") == ["--gpus"]
    assert offered("danlu stop k") == ["k3fz82aw"]
    assert offered("danlu ps --state R") == ["RUNNING"]
    assert offered("danlu token c") == ["create"]
    for path, names in (("users", ["li", "lin", "wang"]), ("teams", ["nlp", "cv"]), ("queues", ["train"])):
        server.on(f"GET /{path}", {"items": [{"name": name} for name in names]})
    assert offered("danlu user show l") == ["li", "lin"]
    assert offered("danlu team add n") == ["nlp"]
    assert offered("danlu team add nlp w") == ["wang"]
    assert offered("danlu ps --queue t") == ["train"]
    assert offered("danlu submit --team c") == ["cv"]
    assert offered("danlu quota set user:w") == ["user:wang"]
    server.stop()
    assert offered("danlu stop k") == []
    assert offered("danlu user show l") == []
    for shell in ("bash", "zsh", "fish"):
        assert b"danlu" in danlu("completion", shell).stdout
    assert danlu("completion", "csh").returncode == 2


# Modules beyond those of a bare interpreter; `re` and what it needs come with every pip-made script and with json.
# Without packages of danlu: they hold a docstring and no code.
BUDGET = {"--help": 11, "ps": 44, "submit": 41, "run": 44}
HEAVY = {
    "argparse", "typing", "dataclasses", "asyncio", "http.client", "urllib", "ssl", "socket", "subprocess", "yaml",
    "argcomplete", "datetime", "signal", "contextlib", "unicodedata", "difflib", "traceback", "shutil", "threading",
}  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [("--help",), ("ps",), ("submit", "--", "true"), ("run", "--", "echo", "hi")],
    ids=lambda words: str(words[0]),
)
def test_hot_commands_import_next_to_nothing(server: FakeServer, danlu: Danlu, words: tuple[str, ...]) -> None:
    server.on("GET /jobs", {"items": [a_job(), a_job("b", "QUEUED")], "next": None})

    def jobs(request: Request, talk: Talk) -> None:
        frames = followed(("J", a_job()), ("L", b"hi\n"), ("E", a_job(state="SUCCEEDED")))
        frames(request, talk) if request.query else accepted(request, talk)

    server.on("POST /jobs", jobs)
    code = (
        "import sys; before = set(sys.modules)\n"
        "from danlu.cli.main import main\n"
        f"code = main({list(words)!r})\n"
        "new = sorted(set(sys.modules) - before)\n"
        "new = [n for n in new if not (n.startswith('danlu') and hasattr(sys.modules[n], '__path__'))]\n"
        "open(sys.argv[1], 'w').write(' '.join(new)); sys.exit(code)"
    )
    told = server.path.with_name("told")
    subprocess.run([sys.executable, "-c", code, str(told)], check=True, capture_output=True, timeout=20)
    loaded = told.read_text().split()
    assert not HEAVY & set(loaded)
    assert len(loaded) <= BUDGET[words[0]], loaded
