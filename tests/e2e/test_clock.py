"""A clock that jumps by a day, backwards and forwards, while jobs run and wait."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import PATIENCE_S, Installation, eventually, is_gone

LIMIT_S = 10


def libfaketime() -> Path:
    """The library, or a loud skip; with CI set a missing one is a failure."""
    found = sorted(Path("/usr/lib").glob("**/faketime/libfaketime.so.1"))
    if not found:
        missing = "libfaketime is not installed, so NO CLOCK JUMPED: `apt install faketime`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found[0]


class Clock:
    """The wall clock of processes that have its variables."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.variables = {
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.set("+0d")

    def set(self, offset: str) -> None:
        """In one step: a half-written offset would be another jump."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(f"{offset}\n")
        fresh.rename(self._path)


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """What libfaketime leaves in memory of processes that were killed: a new one of the same number would fail."""
    yield
    for path in Path("/dev/shm").glob("*faketime_*_*"):
        if is_gone(int(path.name.rpartition("_")[2])):
            path.unlink(missing_ok=True)


@pytest.fixture
def clock(here: Installation, settings: Settings) -> Clock:
    """A server and a keeper whose clock the test sets."""
    settings(ENGINE_CPUS=3, ENGINE_GRACE="1s")
    clock = Clock(here.root / "clock")
    (here.home / "run").mkdir(mode=0o700, parents=True)
    # A server gives its keeper no variable that it need not have, so this one is started by hand. It waits for a server
    # as long as the test does: by itself it leaves after seconds, and the server would start one with another clock.
    socket, journal = here.home / "run" / "keeper.sock", here.home / "keeper.journal"
    words = [
        sys.executable,
        "-m",
        "danlu.engines.local.keeper.main",
        "--socket",
        str(socket),
        "--journal",
        str(journal),
    ]
    words += ["--linger", str(PATIENCE_S)]
    here.own(subprocess.Popen(words, env={**here.environ(), **clock.variables}, start_new_session=True))
    eventually(socket.exists, "the keeper listens")
    here.danlu("up", "--detach", env=clock.variables)
    assert len(here.keeper_pids()) == 1
    for pid in (here.server_pid(), here.keeper_pid()):
        assert b"libfaketime" in Path(f"/proc/{pid}/maps").read_bytes()
    return clock


def test_limits_and_order_hold_when_the_clock_jumps(here: Installation, clock: Clock) -> None:
    patient = here.submit("--time", "1h", "--", "sleep", "600")
    unlimited = here.submit("--", "sleep", "600")
    began = time.monotonic()
    limited = here.submit("--time", f"{LIMIT_S}s", "--", "sleep", "600")
    for one in (limited, patient, unlimited):
        here.until(one, "RUNNING")
    queued = [here.submit("--name", "queued", "--", "sh", "-c", "echo $DANLU_JOB_ID >> ran")]
    for offset in ("-1d", "+1d", "-2d", "+0d", "+1d"):
        clock.set(offset)
        queued.append(here.submit("--name", "queued", "--", "sh", "-c", "echo $DANLU_JOB_ID >> ran"))
        states = {job["id"]: job["state"] for job in here.danlu("ps", "--json").json()["items"]}
        assert (states[patient], states[unlimited]) == ("RUNNING", "RUNNING")
        here.danlu("why", queued[-1])
    assert seen_by(here) > time.time() + 80_000, "the server sees the jumps"

    assert here.ended(limited)["state"] == "TIMED_OUT"
    assert time.monotonic() - began >= LIMIT_S
    assert [here.ended(one)["state"] for one in queued] == ["SUCCEEDED"] * len(queued)
    assert (here.work / "ran").read_text().split() == queued, "who came first ran first, whatever the clock said"
    assert (here.state(patient), here.state(unlimited)) == ("RUNNING", "RUNNING")

    clock.set("-3d")
    here.danlu("stop", patient, unlimited)
    assert {here.ended(one)["state"] for one in (patient, unlimited)} == {"CANCELLED"}
    for job in here.danlu("ps", "--all", "--json").json()["items"]:
        assert job["started_at"] <= job["ended_at"], job


def test_a_server_that_comes_back_in_the_past_finds_its_jobs(here: Installation, clock: Clock) -> None:
    job_id = here.submit("--time", "1h", "--", "sh", "-c", "while [ ! -e door ]; do sleep 0.05; done; exit 3")
    here.until(job_id, "RUNNING")
    here.kill_server()
    clock.set("-30d")
    here.danlu("up", "--detach", env=clock.variables)
    assert here.state(job_id) == "RUNNING"
    (here.work / "door").touch()
    ended = here.ended(job_id)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 3)
    assert ended["started_at"] <= ended["ended_at"]
    assert here.danlu("run", "--", "echo", "on").out == b"on\n"
    assert here.show("@")["seq"] > ended["seq"]
    assert here.danlu("ps", "--json").json()["items"][0]["id"] == here.show("@")["id"]


def seen_by(here: Installation) -> float:
    """The server's clock, by the moment at which it accepts a job."""
    submitted = here.show("@")["submitted_at"]
    return datetime.fromisoformat(submitted).timestamp()
