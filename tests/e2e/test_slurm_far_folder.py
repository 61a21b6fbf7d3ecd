"""The shared folder as a server sees it that is not where the runs are: through a file system that says nothing of what
others write, and that hangs. The nodes have the same folder itself."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import SMALL, Site, cluster_of, site_on
from tests.slurm.releases import OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]
CACHES_NOTHING = "attr_timeout=0,entry_timeout=0,negative_timeout=0"


@dataclass
class FarSite:
    site: Site
    daemon: "subprocess.Popen[bytes]"

    def hang(self) -> None:
        self.daemon.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.daemon.send_signal(signal.SIGCONT)


@pytest.fixture
def far(own_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarSite]:
    if not shutil.which("bindfs"):
        text = "bindfs is not installed; so folders that others write to were NOT TESTED"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    with site_on(cluster_of(OLDER, SMALL), monkeypatch) as site:
        itself, seen = (Path(site.work) / name for name in ("itself", "seen"))
        for folder in (itself, seen):
            folder.mkdir()
        site.cluster.is_harmed = True
        site.cluster.bind(itself, str(seen))
        with subprocess.Popen(("bindfs", "-f", "-o", CACHES_NOTHING, itself, seen)) as daemon:
            made = FarSite(site, daemon)
            try:
                eventually(lambda: os.path.ismount(seen) or daemon.poll() is not None, "it is mounted")
                if daemon.poll() is not None:
                    pytest.skip("no FUSE on this machine: so folders that others write to were NOT TESTED")
                monkeypatch.setenv("DANLU_ENGINE_SHARED_DIR", str(seen))
                yield made
            finally:
                made.go_on()
                if site.server_pid():
                    site.kill_server()
                subprocess.run(("umount", "--lazy", seen), check=False)
                daemon.terminate()


def test_what_nodes_write_is_followed_and_read_to_its_end(far: FarSite) -> None:
    site = far.site
    rounds = 12  # who only looked now and then would take minutes
    waits = "until [ -e door$round ]; do sleep 0.05; done"
    script = f"for round in $(seq {rounds}); do echo round $round; {waits}; done; echo bye"
    with site.begin("run", "--", "sh", "-c", script) as follower:
        assert follower.stdout
        for number in range(1, rounds + 1):
            assert follower.stdout.readline() == b"round %d\n" % number
            site.open(f"door{number}")
        assert follower.stdout.read() == b"bye\n"
    assert follower.returncode == 0
    assert site.danlu("logs", "@", "--tail", "2").text == "round 12\nbye"
    ended = site.submit("--time", "1s", "--", "sleep", "600")
    assert site.ended(ended)["state"] == "TIMED_OUT"


def test_a_folder_that_hangs_is_said_and_everything_goes_on_after_it(far: FarSite) -> None:
    site = far.site
    runs = site.submit_traced(then=f"echo on; {site.waits_for('ends')}; echo off", code=7)
    site.until(runs, "RUNNING")
    follower = site.begin("logs", "-f", runs)
    assert follower.stdout
    assert follower.stdout.readline() == b"on\n"
    far.hang()
    site.open("ends")
    during = site.submit_at_once(code=3)
    told = eventually(site.trouble, "the server says so", within=200)
    assert f"the shared folder {site.work}/seen/slurm does not answer (since 20" in told
    known = {site.state(job) for job in (runs, during)}
    assert known <= {"RUNNING", "QUEUED", "STARTING", "PENDING"}, "nothing is concluded"
    far.go_on()
    site.until_up()
    assert [site.ended(job)["exit_code"] for job in (runs, during)] == [7, 3]
    assert follower.communicate(timeout=120)[0] == b"off\n"
    assert site.times() == dict.fromkeys((runs, during), 1)
