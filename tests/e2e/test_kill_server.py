"""The server is killed again and again while a thousand jobs come, start, end and are stopped."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from danlu.client import Client
from danlu.client.session import new_key
from danlu.errors import DanluError, Unreachable
from tests.e2e.conftest import Settings
from tests.e2e.installation import Installation, eventually

THREADS, EACH, TASKS = 4, 225, 100
SLOTS = 2
FEWEST_KILLS, MOST_KILLS = 10, 40  # on a machine that is busy otherwise, little is done between two of them
LONG_EVERY = 30
STOP_EVERY = 9
# Each appends its id once, in one write: a second run of a job would leave a second line.
SHORT = "echo $DANLU_JOB_ID >> ran; exit $CODE"
LONG = "echo $DANLU_JOB_ID >> ran; exec sleep 600"


class Crowd:
    """Clients that go on as people do: who got no answer asks again, under the same key."""

    def __init__(self, workdir: str) -> None:
        self.workdir = workdir
        self.accepted: dict[str, int] = {}  # id: the exit code that it will have
        self.long: set[str] = set()
        self.stopped: set[str] = set()
        self.problems: list[str] = []
        self.kills = 0
        self.is_over = threading.Event()

    def submits(self, thread: int) -> None:
        client = Client(start=True)
        for n in range(EACH):
            self.keeps_pace(n)
            is_long, code = n % LONG_EVERY == LONG_EVERY - 1, n % 3
            body = self.body(LONG if is_long else SHORT, code, name="long" if is_long else f"thread{thread}")
            job_id = self.insist(client, "POST", "/jobs", body, key=new_key())["id"]
            self.accepted[job_id] = code
            if is_long:
                self.long.add(job_id)
            elif n % STOP_EVERY == 0:
                self.stops(client, job_id)

    def keeps_pace(self, n: int) -> None:
        """The last jobs come after the tenth kill: on a busy machine all might be over before."""
        eventually(lambda: self.kills * EACH >= FEWEST_KILLS * n, "the server is killed once more")

    def submits_array(self) -> None:
        body = self.body(SHORT, 0, name="array") | {"array": f"1-{TASKS}"}
        answer = self.insist(Client(start=True), "POST", "/jobs", body, key=new_key())
        assert answer["count"] == TASKS
        self.accepted |= {f"{answer['id']}_{index}": 0 for index in range(1, TASKS + 1)}

    def stops_long_ones(self) -> None:
        client = Client(start=True)
        while not self.is_over.wait(0.05):
            with contextlib.suppress(DanluError):
                for job in client.jobs(state="RUNNING", name="long"):
                    self.stops(client, job.id)

    def stops(self, client: Client, job_id: str) -> None:
        self.stopped.add(job_id)
        self.insist(client, "POST", f"/jobs/{job_id}/stop", {"kill": True}, again=True)

    def body(self, script: str, code: int, name: str) -> dict[str, Any]:
        return {"command": ["sh", "-c", script], "workdir": self.workdir, "name": name, "env": {"CODE": str(code)}}

    def insist(self, client: Client, *ask: Any, **how: Any) -> dict[str, Any]:
        until = time.monotonic() + 120
        while True:
            try:
                return client.ask(*ask, **how)
            except Unreachable as error:  # the server was killed while it started, or never came back in time
                if time.monotonic() > until:
                    self.problems.append(f"{ask[:2]}: {error.text}")
                    raise

    def threads(self) -> list[threading.Thread]:
        submitting = [threading.Thread(target=self.submits, args=(n,)) for n in range(THREADS)]
        return [*submitting, threading.Thread(target=self.submits_array)]


@pytest.mark.timeout(600)
def test_nothing_is_lost_nothing_runs_twice_and_the_order_is_kept(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=SLOTS)
    here.danlu("up", "--detach")
    crowd = Crowd(str(here.work))
    threads = crowd.threads()
    stopper = threading.Thread(target=crowd.stops_long_ones)
    for thread in [*threads, stopper]:
        thread.start()
    try:
        kill_again_and_again(here, crowd, lambda: any(thread.is_alive() for thread in threads))
        for thread in threads:
            thread.join()
        assert not crowd.problems
        kill_again_and_again(here, crowd, lambda: ran(here).total() < len(crowd.accepted) * 0.7)
        eventually(lambda: is_quiet(here), "all have ended", within=150)
    finally:
        crowd.is_over.set()
        stopper.join()

    assert crowd.kills >= FEWEST_KILLS
    assert len(here.keeper_pids()) == 1
    jobs = {job.id: job.data for job in here.client(start=True).jobs(user="all")}
    assert len(crowd.accepted) == THREADS * EACH + TASKS
    assert set(jobs) == set(crowd.accepted), "what was accepted is there, once, and nothing else is"
    lines = ran(here)
    assert set(lines) <= set(jobs)
    for job_id, job in jobs.items():
        told = f"{job_id} {job['state']} {job['reason']}, ran {lines[job_id]} times"
        assert job["attempt"] == 1, told
        assert lines[job_id] <= 1, told
        assert (lines[job_id] == 1) or job_id in crowd.stopped, told
        if job["state"] == "CANCELLED":
            assert job_id in crowd.stopped, told
        else:  # a stop that came too late changes nothing
            code = crowd.accepted[job_id]
            assert (job["state"], job["exit_code"]) == ("FAILED" if code else "SUCCEEDED", code), told
            assert job_id not in crowd.long, told
    assert_in_order(list(jobs.values()))
    assert here.danlu("run", "--", "echo", "well").out == b"well\n"


def kill_again_and_again(here: Installation, crowd: Crowd, goes_on: Callable[[], bool]) -> None:
    """Kill the server after some more work was done, and now and then as it comes up."""
    chance, most = random.Random(17), crowd.kills + MOST_KILLS
    while goes_on() and crowd.kills < most:
        if chance.random() < 0.75:
            with contextlib.suppress(DanluError):
                Client(start=True).status()  # it is up
            enough = progress(here, crowd) + chance.randrange(100)
            late = time.monotonic() + 2
            while goes_on() and progress(here, crowd) < enough and time.monotonic() < late:
                time.sleep(0.002)
        else:
            time.sleep(chance.random())
        if here.server_pid():
            here.kill_server()
            crowd.kills += 1


def progress(here: Installation, crowd: Crowd) -> int:
    return len(crowd.accepted) + ran(here).total()


def is_quiet(here: Installation) -> bool:
    try:
        return not here.client(start=True).status()["jobs"]
    except DanluError:
        return False


def ran(here: Installation) -> Counter[str]:
    path = here.work / "ran"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def assert_in_order(jobs: list[dict[str, Any]]) -> None:
    """Who came first begins first; two who begin together may change places."""
    started = [job["started_at"] for job in sorted(jobs, key=lambda job: job["seq"]) if job["started_at"]]
    latest = ""
    for place, moment in enumerate(started):
        if place >= SLOTS:
            latest = max(latest, started[place - SLOTS])
        assert moment >= latest, f"place {place} began before one of an earlier place"
