"""The controller, the nodes' daemons and the server are killed in turn while jobs come, wait, run and end: compared
before and after, each has run once and ended once, as it should."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from danlu.client import Client
from danlu.client.session import new_key
from danlu.errors import DanluError, Unreachable
from tests.e2e.installation import eventually
from tests.e2e.slurm_site import Site, cluster_of, site_on
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-kills")]
LAB = Layout(nodes=2, cards=1, cpus=8)
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "LOST")
SCRIPT = 'echo $DANLU_JOB_ID >> "$TRACE"; sleep "$LASTS"; exit "$CODE"'


class Crowd:
    """Jobs with the codes that they will end with, submitted by somebody who asks again if nobody answers."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.codes: dict[str, int] = {}
        self._chance = random.Random(7)

    def submits(self, count: int = 1, *, most_s: float = 4.0) -> None:
        client = Client(start=True)
        for _ in range(count):
            code = self._chance.randrange(4)
            env = {
                "CODE": str(code),
                "LASTS": f"{self._chance.random() * most_s:.2f}",
                "TRACE": str(self.site.trace),
            }
            body = {"command": ["sh", "-c", SCRIPT], "workdir": str(self.site.work), "env": env}
            answer = insist(lambda body=body: client.ask("POST", "/jobs", body, key=new_key()))  # type: ignore[misc]
            self.codes[answer["id"]] = code

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {job.id: job.data for job in insist(lambda: list(Client(start=True).jobs(user="all")))}

    def until_none_waits(self) -> None:
        """All that were accepted have begun, or ended."""

        def begun() -> bool:
            times = self.site.times()
            return all(times[job] for job in self.codes)

        eventually(begun, "every job has begun")

    def check(self) -> None:
        """Everything has ended once, and as it should."""
        eventually(lambda: all(job["state"] in ENDED for job in self.jobs().values()), "all have ended", within=120)
        jobs, times = self.jobs(), self.site.times()
        assert set(jobs) == set(self.codes), "what was accepted is there, and nothing else is"
        for job_id, code in self.codes.items():
            job = jobs[job_id]
            told = f"{job_id}: {job['state']} {job['reason']}, began {times[job_id]} times"
            assert (job["state"], job["exit_code"]) == ("FAILED" if code else "SUCCEEDED", code), told
            assert (job["attempt"], times[job_id]) == (1, 1), told


class Waiter:
    """A job that waits in Slurm's queue for a card, as long as those run who hold them all."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd, self._site = crowd, crowd.site
        until_told = self._site.waits_for("told")
        for _ in self._site.cluster.layout.names:
            holder = self._site.submit_traced("--gpus", "1", then=until_told, code=5)
            self._site.until(holder, "RUNNING")
            crowd.codes[holder] = 5
        # Behind all others: while the first in its queue waits, Slurm is slow to begin anybody else.
        self.job_id = self._site.submit_traced("--gpus", "1", "--priority", "1", code=6)
        self._site.until(self.job_id, "PENDING")
        self._numbers = self.numbers()

    def numbers(self) -> list[str]:
        """Of the jobs of Slurm that wait to be this run."""
        said = self._site.cluster.ask("squeue", "--noheader", "--states=PENDING", "--format=%i %k").splitlines()
        return [line.split()[0] for line in said if line.endswith(f":{self.job_id}.1")]

    def check(self) -> None:
        """It waits as it did: the same run, which Slurm has once and under the same number."""
        job = self._crowd.jobs()[self.job_id]
        assert (job["state"], job["attempt"]) == ("PENDING", 1), job["reason"]
        assert len(self._numbers) == 1
        assert self.numbers() == self._numbers
        assert self._site.times()[self.job_id] == 0

    def gets_its_card(self) -> None:
        """From now on it is one of the crowd."""
        self._crowd.codes[self.job_id] = 6
        self._site.open("told")


def insist(ask: Callable[[], Any]) -> Any:
    until = time.monotonic() + 120
    while True:
        try:
            return ask()
        except Unreachable:  # the server was killed as it came up
            assert time.monotonic() < until


@pytest.fixture(params=[OLDER, NEWER])
def site(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(request.param, LAB), monkeypatch) as made:
        yield made


def test_each_is_killed_in_turn_and_nobody_notices_in_the_end(site: Site) -> None:
    crowd, cluster = Crowd(site), site.cluster
    waiter = Waiter(crowd)
    crowd.submits(8)

    def server() -> None:
        site.kill_server()

    def controller() -> None:
        # One that is killed before it saved what it did has forgotten it: that is another test.
        crowd.until_none_waits()
        site.until_saved()
        cluster.kill_controller()
        site.until_down()
        crowd.submits(2)
        cluster.start_controller()

    def both() -> None:
        crowd.until_none_waits()
        site.until_saved()
        cluster.kill_controller()
        site.kill_server()
        crowd.submits(2)
        cluster.start_controller()

    def daemons() -> None:
        for name in cluster.layout.names:
            cluster.kill_node_daemon(name)
        crowd.submits(2)
        for name in cluster.layout.names:
            cluster.start_node(name)

    for harm in (server, controller, daemons, server, both):
        before = {job_id: job for job_id, job in crowd.jobs().items() if job["state"] in ENDED}
        harm()
        crowd.submits(3)
        after = crowd.jobs()
        assert {job_id: after[job_id] for job_id in before} == before, f"{harm.__name__}: what is over stays as it was"
        waiter.check()
    waiter.gets_its_card()
    crowd.check()


@pytest.mark.parametrize("site", [OLDER], indirect=True)
def test_a_server_that_is_killed_again_and_again(site: Site) -> None:
    crowd = Crowd(site)
    crowd.submits(1)
    threads = [threading.Thread(target=crowd.submits, args=(12,), kwargs={"most_s": 0.5}) for _ in range(2)]
    for thread in threads:
        thread.start()
    kills, chance = 0, random.Random(3)
    while kills < 8 or any(thread.is_alive() for thread in threads):
        time.sleep(chance.random() * 1.5)
        with contextlib.suppress(DanluError):
            Client(start=True).status()
        if site.server_pid():
            site.kill_server()
            kills += 1
    for thread in threads:
        thread.join()
    crowd.check()
