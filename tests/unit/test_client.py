"""The client against a server that can die at a chosen moment."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from danlu.client import Client, job_body, own_server
from danlu.client.follow import Follow
from danlu.client.http import Address, Lost, query_of, quoted
from danlu.errors import DanluError, Forbidden, Invalid, NotFound, Refused, ServerDown, Unreachable
from tests.app.fake_server import FakeServer, Request, Talk, a_job, server_at


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    found = server_at(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def client(server: FakeServer) -> Client:
    return Client(server.url)


def accepted(request: Request, talk: Talk) -> None:
    talk.answer({"id": "k3fz82aw", "jobs": [a_job(state="QUEUED")], "count": 1}, 201)


def test_submit_sends_what_was_asked(server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_TTY", "/dev/pts/1")
    monkeypatch.setenv("RANK", "1")  # of the job that this one is submitted from
    monkeypatch.setenv("MY_DATA", "/data\udcff")
    server.on("POST /jobs", accepted)
    job = client.submit(["python", "train.py"], gpus=1, time=timedelta(hours=2), env={"SEED": "1"}, after="abc:any")
    body = server.requests[0].json
    environ = body.pop("environ")
    assert environ["MY_DATA"] == "/data\udcff"
    assert not {"SSH_TTY", "RANK"} & environ.keys()
    umask = os.umask(0o077)
    os.umask(umask)
    assert int(body.pop("umask"), 8) == umask
    assert body == {
        "command": ["python", "train.py"],
        "gpus": 1,
        "time": "7200s",
        "env": {"SEED": "1"},
        "after": ["abc:any"],
        "workdir": job_body.working_folder(),
    }
    assert (job.id, job.state, job.exit_code, job.is_ended) == ("k3fz82aw", "QUEUED", None, False)


def test_a_job_can_start_with_a_clean_environment(server: FakeServer, client: Client) -> None:
    server.on("POST /jobs", accepted)
    client.run(["true"], inherit_env=False)
    assert "environ" not in server.requests[0].json


def test_an_unknown_option_is_refused_by_name(client: Client) -> None:
    with pytest.raises(Invalid, match="no option `gpu`"):
        client.submit(["true"], gpu=1)  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="a list of words"):
        client.submit("python train.py")


@pytest.mark.parametrize("moment", ["before an answer", "in the head", "in the body"])
def test_a_submit_whose_connection_is_lost_is_repeated_under_the_same_key(
    server: FakeServer, client: Client, moment: str
) -> None:
    def first_dies(request: Request, talk: Talk) -> None:
        if len(server.requests) == 1:
            talk.send({"before an answer": b"", "in the head": b"HTTP/1.1 20"}.get(moment, HALF))
            talk.die()
        accepted(request, talk)

    server.on("POST /jobs", first_dies)
    assert client.submit(["true"]).id == "k3fz82aw"
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert client.submit(["true"]).id == "k3fz82aw"
    assert server.requests[2].headers["idempotency-key"] != keys[0]


HALF = b'HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n{"id": '


def test_what_may_not_be_repeated_is_not(server: FakeServer, client: Client) -> None:
    server.on("POST /tokens", lambda _, talk: talk.die())
    with pytest.raises(Lost):
        client.ask("POST", "/tokens", {"user": "li"})
    assert len(server.requests) == 1


def test_connections_are_kept_and_a_stale_one_is_replaced(server: FakeServer, client: Client) -> None:
    server.on("GET /status", {"pid": 1})
    assert client.status() == {"pid": 1}
    assert client.status() == {"pid": 1}
    server.stop()
    server.start()
    for connection in client._idle:
        connection._sock.shutdown(2)
    assert client.status() == {"pid": 1}


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (404, "not_found", NotFound, 2),
        (403, "forbidden", Forbidden, 3),
        (422, "unknown_option", Invalid, 2),
        (503, "engine_down", Unreachable, 4),
    ],
)
def test_problems_become_errors(
    server: FakeServer, client: Client, status: int, code: str, kind: type[Exception], exit_code: int
) -> None:
    server.on("GET /jobs/x", lambda _, talk: talk.problem(status, code, "no job `x`", "see `danlu ps`"))
    with pytest.raises(kind) as raised:
        client.job("x")
    assert isinstance(raised.value, Invalid | NotFound | Forbidden | Unreachable)
    assert (raised.value.text, raised.value.hint) == ("no job `x`", "see `danlu ps`")
    assert (raised.value.code, raised.value.exit_code) == (code, exit_code)


def test_an_answer_that_is_no_problem_document_is_a_sentence_too(server: FakeServer, client: Client) -> None:
    server.on("GET /status", lambda _, talk: talk.answer(b"<html>", 502))
    with pytest.raises(ServerDown, match="HTTP status 502"):
        client.status()
    server.on("GET /status", lambda _, talk: talk.send(b"SSH-2.0-x\r\n\r\n"))
    with pytest.raises(ServerDown, match="does not speak HTTP"):
        client.status()


def test_no_server_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ServerDown, match="no server answers at unix:///"):
        Client(f"unix://{tmp_path}/none.sock").status()
    with pytest.raises(ServerDown, match="your server is not running"):
        Client().status()


def test_jobs_go_through_all_pages(server: FakeServer, client: Client) -> None:
    def pages(request: Request, talk: Talk) -> None:
        before = int(dict(request.query).get("before", "7"))
        ids = list(range(before - 1, max(before - 4, 0), -1))
        talk.answer({"items": [a_job(f"j{n}") for n in ids], "next": ids[-1] if ids[-1] > 1 else None})

    server.on("GET /jobs", pages)
    assert [job.id for job in client.jobs(state=["active", "LOST"], label="exp=a b")] == [
        "j6",
        "j5",
        "j4",
        "j3",
        "j2",
        "j1",
    ]
    assert server.requests[0].query[:2] == [("state", "active"), ("state", "LOST")]
    assert dict(server.requests[0].query)["label"] == "exp=a b"
    assert [job.id for job in client.jobs(limit=2)] == ["j6", "j5"]


def test_the_log_of_a_run_is_followed_to_its_end(server: FakeServer, client: Client) -> None:
    server.on("POST /jobs", accepted)

    def follow(request: Request, talk: Talk) -> None:
        talk.begin_stream()
        talk.frame("J", a_job())
        talk.frame("L", b"step 1\nst")
        talk.frame("B")
        talk.frame("L", b"ep 2\n")
        talk.frame("E", a_job(state="SUCCEEDED"))
        talk.end_stream()

    server.on("GET /jobs/k3fz82aw/follow", follow)
    job = client.run(["python", "train.py"])
    assert job.logs().text() == "step 1\nstep 2\n"
    assert list(job.logs().lines()) == ["step 1", "step 2"]
    assert str(job.logs()) == "step 1\nstep 2\n"


def test_following_goes_on_at_the_same_byte_after_a_lost_connection(server: FakeServer, client: Client) -> None:
    log = b"0123456789" * 10

    def follow(request: Request, talk: Talk) -> None:
        offset = int(dict(request.query)["offset"])
        talk.begin_stream()
        talk.frame("J", a_job(log_offset=offset))
        if offset < 30:
            # A frame that promises 100 bytes, of which 30 arrive.
            talk.chunk(b"L" + (100).to_bytes(4, "big") + log[offset : offset + 30])
            talk.die()
        talk.frame("L", log[offset:])
        talk.frame("E", a_job(state="SUCCEEDED", log_offset=100))

    server.on("GET /jobs/k3fz82aw/follow", follow)
    assert client.logs("k3fz82aw").bytes() == log
    assert [dict(request.query)["offset"] for request in server.requests] == ["0", "30"]


def test_after_a_tail_the_server_says_at_which_byte_one_is(server: FakeServer, client: Client) -> None:
    def follow(request: Request, talk: Talk) -> None:
        talk.begin_stream()
        if "tail" in dict(request.query):
            talk.frame("J", a_job(log_offset=500))
            talk.frame("L", b"abc")
            talk.die()
        talk.frame("J", a_job(log_offset=int(dict(request.query)["offset"])))
        talk.frame("L", b"def")
        talk.frame("E", a_job(state="FAILED", exit_code=3))

    server.on("GET /jobs/k3fz82aw/follow", follow)
    assert client.logs("k3fz82aw", tail=1).bytes() == b"abcdef"
    assert server.requests[1].query == [("offset", "503")]


def test_following_survives_a_restart_but_not_for_ever(server: FakeServer, client: Client) -> None:
    def follow(request: Request, talk: Talk) -> None:
        talk.begin_stream()
        talk.frame("J", a_job())
        talk.frame("L", b"abc")
        server.stop()
        talk.die()

    server.on("GET /jobs/k3fz82aw/follow", follow)
    with pytest.raises(ServerDown, match="no server has answered") as raised:
        list(Follow(client, None, "k3fz82aw", reconnect_within_s=0.2))
    assert "the job keeps running" in raised.value.hint


def test_frames_may_arrive_in_any_pieces(server: FakeServer, client: Client) -> None:
    frames = b"".join(
        kind + len(data).to_bytes(4, "big") + data
        for kind, data in [
            (b"J", b'{"id": "a", "state": "RUNNING"}'),
            (b"L", b"xyz"),
            (b"B", b""),
            (b"L", b""),
            (b"L", b"!"),
        ]
    )
    end = b'{"id": "a", "state": "SUCCEEDED"}'

    def follow(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        for byte in frames + b"E" + len(end).to_bytes(4, "big") + end:
            talk.chunk(bytes([byte]))
        talk.end_stream()

    server.on("GET /jobs/a/follow", follow)
    stream = client.follow("a")
    assert b"".join(event for event in stream if isinstance(event, bytes)) == b"xyz!"
    assert stream.job is not None
    assert stream.job.succeeded


def test_logs_that_are_there_now_are_raw_bytes(server: FakeServer, client: Client) -> None:
    server.on("GET /jobs/a/logs", lambda request, talk: talk.answer(b"\xff\x00raw", 200, "text/plain"))
    assert client.logs("a", follow=False, tail=5).bytes() == b"\xff\x00raw"
    assert server.requests[0].query == [("tail", "5")]


def test_a_log_that_is_cut_short_is_not_taken_for_the_whole(server: FakeServer, client: Client) -> None:
    def cut(_: Request, talk: Talk) -> None:
        talk.begin_stream()
        talk.chunk(b"half")
        talk.die()

    server.on("GET /jobs/a/logs", cut)
    with pytest.raises(Lost) as lost:
        client.logs("a", follow=False).bytes()
    assert "the rest of the log is missing" in lost.value.hint


def test_wait_asks_again_until_it_is_done(server: FakeServer, client: Client) -> None:
    def wait(_: Request, talk: Talk) -> None:
        done = len(server.asked("GET /jobs/a/wait")) > 1
        talk.answer({"done": done, "items": [], "count": 1, "states": {}})

    server.on("GET /jobs/a/wait", wait)
    server.on("GET /jobs/a", a_job("a", "FAILED", exit_code=3))
    assert client.wait("a").exit_code == 3
    server.on("GET /jobs/a/wait", {"done": False, "items": [], "count": 1, "states": {}})
    with pytest.raises(TimeoutError):
        client.wait("a", timeout=0.01)


def test_an_array_is_one_job_with_many_tasks(server: FakeServer, client: Client) -> None:
    server.on("POST /jobs", {"id": "arr", "jobs": [a_job("arr_1"), a_job("arr_2")], "count": 2})
    array = client.submit(["true"], array="1-2")
    assert (array.is_array, array.state, array.is_ended) == (True, "QUEUED", False)
    server.on(
        "GET /jobs/arr", {"id": "arr", "array": True, "count": 2, "states": {"SUCCEEDED": 1, "FAILED": 1}, "items": []}
    )
    assert (array.refresh().state, array.is_ended) == ("FAILED", True)


@pytest.mark.parametrize(
    "text", ["ftp://x", "host:1", "http://", "http://a:b", "unix:x", "http://a b:1", "http://h:999999"]
)
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not a server's address"):
        Address(text)


def test_addresses() -> None:
    assert Address("unix:///a/b").path == "/a/b"
    assert (Address("http://h:80/").host, Address("https://h").port) == ("h", 443)
    assert (Address("http://[::1]:70").host, Address("http://[::1]").port) == ("[::1]", 80)


def test_text_in_a_path_cannot_leave_it() -> None:
    assert quoted("../a?b#c\r\nd\udcff 训") == "..%2Fa%3Fb%23c%0D%0Ad%FF%20%E8%AE%AD"
    assert query_of([("a", None), ("b", ""), ("c", 0)]) == "?c=0"


def test_a_token_cannot_carry_a_second_header() -> None:
    with pytest.raises(Invalid, match="token"):
        Client("http://h:1", token="a\r\nX: y")


def test_tcp_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    from tests.app.fake_server import read_request

    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[Request] = []

    def serve() -> None:
        sock, _ = listener.accept()
        talk = Talk(sock)
        request = read_request(talk)
        assert request is not None
        seen.append(request)
        talk.answer({"pid": 2})

    threading.Thread(target=serve, daemon=True).start()
    monkeypatch.setenv("DANLU_SERVER", f"http://127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setenv("DANLU_TOKEN", "secret")
    assert Client(start=True).status() == {"pid": 2}
    assert seen[0].headers["authorization"] == "Bearer secret"


def fake_program(tmp_path: Path, code: str) -> list[str]:
    path = tmp_path / "app.py"
    path.write_text("import os, sys\nfd = int(sys.argv[sys.argv.index('--ready-fd') + 1])\n" + code)
    return [sys.executable, str(path)]


def test_a_server_that_is_ready_says_so_and_runs_in_its_own_session(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f"open({str(told)!r}, 'w').write(f'{{os.getsid(0) == os.getpid()}} {{sys.argv[3:]}}')\n"
    code += r"os.write(fd, b'ready\n')"
    own_server.start(["--config", "x"], program=fake_program(tmp_path, code))
    assert told.read_text() == "True ['--config', 'x']"


@pytest.mark.parametrize("kind", [Invalid, Refused, ServerDown])
def test_a_server_that_cannot_start_says_why(tmp_path: Path, kind: type[DanluError]) -> None:
    problem = f"{kind.__name__}('it is full', 'make room')"
    code = f"from danlu import errors\nfrom danlu.startup import process\nprocess.Ready(fd).failed(errors.{problem})"
    with pytest.raises(kind) as raised:
        own_server.start(program=fake_program(tmp_path, code))
    assert (type(raised.value), raised.value.text, raised.value.hint) == (kind, "it is full", "make room")


def test_the_log_of_a_server_that_died_is_shown(tmp_path: Path, own_home: Path) -> None:
    code = (
        f"os.makedirs({str(own_home / 'danlu')!r})\nopen({str(own_home / 'danlu/server.log')!r}, 'w').write('it broke')"
    )
    with pytest.raises(ServerDown, match="ended before it was ready") as raised:
        own_server.start(program=fake_program(tmp_path, code))
    assert "it broke" in raised.value.hint


def test_a_script_that_buries_its_children_itself_is_told_why(tmp_path: Path) -> None:
    """With SIGCHLD ignored the kernel buries them. A child of the server holds the pipe until the server is gone."""
    code = "import time\nown = os.getpid()\nif not os.fork():\n    while os.getppid() == own: time.sleep(0.01)"
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(ServerDown, match="ended before it was ready"):
            own_server.start(program=fake_program(tmp_path, code))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_importing_the_client_is_light() -> None:
    code = "import sys; import danlu.client; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"typing", "dataclasses", "asyncio", "http.client", "urllib", "urllib.parse", "ssl", "socket", "subprocess"}
    assert not heavy & set(loaded)
