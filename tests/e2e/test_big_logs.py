"""Logs that are large, or come faster than anybody reads: the server stays small and answers everybody."""

import hashlib
import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import DANLU, Installation, eventually, memory_mib

GIB = 1 << 30
GROWTH_MIB = 60


@pytest.fixture
def size() -> int:
    """A gigabyte, where the disk has room for it."""
    return GIB if shutil.disk_usage("/tmp").free > 3 * GIB else GIB // 5


def checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_log_of_a_gigabyte_arrives_whole_and_leaves_the_server_small(here: Installation, size: int) -> None:
    here.danlu("run", "--", "true")
    server = here.server_pid()
    before = memory_mib(server)
    script = f"yes 'a line of a very long log' | head -c {size}; echo; seq 5"
    here.danlu("run", "--quiet", "--detach", "--", "sh", "-c", script)
    here.danlu("wait", "@")
    job_id = here.show("@")["id"]
    log = here.log_path(job_id)
    assert log.stat().st_size > size

    assert here.danlu("logs", "--tail", "5", job_id).out == b"1\n2\n3\n4\n5\n"
    whole = checksum(log)
    for options in ([], ["-f"]):
        with subprocess.Popen([DANLU, "logs", *options, job_id], stdout=subprocess.PIPE, env=here.environ()) as reading:
            assert isinstance(reading.stdout, io.BufferedReader)
            assert hashlib.file_digest(reading.stdout, "sha256").hexdigest() == whole
        assert reading.returncode == 0

    assert here.server_pid() == server
    assert memory_mib(server, "VmHWM") - before < GROWTH_MIB
    here.danlu("rm", job_id)
    assert not log.exists()


def test_one_endless_line_is_no_trouble_either(here: Installation) -> None:
    here.danlu("run", "--", "true")
    before = memory_mib(here.server_pid())
    here.danlu("run", "--detach", "--", "sh", "-c", f"head -c {GIB // 8} /dev/zero | tr '\\0' x")
    here.danlu("wait", "@")
    assert len(here.danlu("logs", "--tail", "1", "@").out) == GIB // 8
    assert memory_mib(here.server_pid(), "VmHWM") - before < GROWTH_MIB


def test_a_job_that_floods_its_log_and_a_slow_reader_disturb_nobody(
    here: Installation, settings: Settings, size: int
) -> None:
    settings(ENGINE_CPUS=8, ENGINE_GRACE="2s")
    other = here.submit("--", "sleep", "600")
    here.until(other, "RUNNING")
    server = here.server_pid()
    before = memory_mib(server)
    # As fast as it can, but not for ever: the disk is everybody's.
    flood = here.submit("--", "sh", "-c", f"yes 'faster than anybody reads' | head -c {size}; exec sleep 600")
    here.until(flood, "RUNNING")
    log = here.log_path(flood)
    slow = here.begin("logs", "-f", flood)
    assert slow.stdout
    read = b""
    eventually(log.exists, "the flood has begun")
    for _ in range(20):
        read += os.read(slow.stdout.fileno(), 1 << 16)
        states = {job["id"]: job["state"] for job in here.danlu("ps", "--json").json()["items"]}
        assert states == {flood: "RUNNING", other: "RUNNING"}
    assert here.danlu("run", "--", "echo", "in between").out == b"in between\n"
    assert set(read.splitlines()[1:-1]) == {b"faster than anybody reads"}

    eventually(lambda: log.stat().st_size >= size, "all is written")
    assert here.server_pid() == server
    assert memory_mib(server, "VmHWM") - before < GROWTH_MIB
    here.danlu("stop", flood)
    assert here.ended(flood)["state"] == "CANCELLED"
    assert here.state(other) == "RUNNING"
    slow.kill()
    eventually(lambda: here.danlu("ps").code == 0, "a reader that went away is no trouble")
