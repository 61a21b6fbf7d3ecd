"""A real server and strangers without a token: they keep nobody out, and cost little."""

import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest

from danlu import paths
from danlu.client.shell import Shell
from danlu.errors import Invalid
from tests.e2e.installation import Installation, memory_mib
from tests.e2e.test_shared_server import Shared, own_certificate

IDLE = 1500
FEW = ("prlimit", "--nofile=256:1024")  # as many descriptors as a server gets on an old system


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def idle_connections(shared: Shared) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            # A server that ends some of them meanwhile is right.
            stack.enter_context(socket.create_connection(("127.0.0.1", shared.port), timeout=30))
        yield


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("tls", [False, True])
def test_idle_connections_keep_nobody_out(here: Installation, tls: bool) -> None:
    cert, lines = own_certificate(here) if tls else ("", "")
    shared = Shared(here, prefix=FEW, server=lines)
    trusting = {"DANLU_CA_FILE": str(cert)} if tls else {}
    token = shared.token("li")
    with idle_connections(shared):
        assert here.danlu("ps").code == 0
        job_id = here.submit("--", "sh", "-c", "ulimit -Sn; ulimit -Hn")
        assert here.ended(job_id)["state"] == "SUCCEEDED"
        assert here.danlu("logs", job_id).text.split() == ["256", "1024"], "jobs have the limits of before"
        assert shared.danlu(token, "run", "--", "echo", "well", env=trusting).out == b"well\n"
        assert shared.danlu(token, "ps", env=trusting).code == 0
    shared.process.terminate()
    _, said = shared.process.communicate(timeout=30)
    assert said.count(b"too many connections") == 1, said.decode()[-3000:]
    assert b"Traceback" not in said


def test_long_headers_cost_no_memory(here: Installation) -> None:
    shared = Shared(here)
    pid = here.server_pid()
    before = memory_mib(pid, "VmHWM")
    for _ in range(5):
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", shared.port)),
            (socket.AF_UNIX, paths.server_socket(str(here.home))),
        ):
            with socket.socket(family) as stranger:
                stranger.settimeout(30)
                stranger.connect(address)
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * (8 << 20))
                assert stranger.recv(4096).startswith(b"HTTP/1.1 431 ")
    assert memory_mib(pid, "VmHWM") < before + 16
    assert shared.is_up()


def test_much_input_reaches_a_job_in_messages_of_the_allowed_length(here: Installation) -> None:
    job_id = here.submit("--", "sleep", "600")
    here.until(job_id, "RUNNING")
    shell = Shell(here.client(), job_id, ["wc", "-c"])
    shell.write(b"x" * 300_000)
    shell.write(b"")
    said = b""
    while not shell.is_over:
        said += b"".join(data for _, data in shell.pump())
    shell.close()
    assert said.strip() == b"300000"
    with pytest.raises(Invalid, match="the command has 68 KiB, and at most 64 KiB"):
        Shell(here.client(), job_id, ["sh", "-c", "x" * 70_000])
