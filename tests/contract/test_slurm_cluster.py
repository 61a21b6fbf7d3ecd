"""The cluster that tests of Slurm run on: does it do what a real one does, on good days and bad ones?"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cage import Cage, wait_until
from tests.slurm.cluster import SlurmCluster, shared_cluster, slurm_cluster
from tests.slurm.releases import NEWER, OLDER, slurm_release

pytestmark = pytest.mark.slurm
VERSIONS = (OLDER, NEWER)


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> SlurmCluster:
    return shared_cluster(request.param)


@pytest.fixture(params=VERSIONS)
def impatient(request: pytest.FixtureRequest) -> SlurmCluster:
    return shared_cluster(request.param, impatient=True)


def output(cluster: SlurmCluster, job: str) -> str:
    file = cluster.folder / f"jobs/slurm-{job}.out"
    return file.read_text() if file.exists() else ""


def test_is_the_release_that_was_asked_for(cluster: SlurmCluster) -> None:
    for command in ("sbatch", "srun", "squeue", "sinfo", "scontrol"):
        assert f" {cluster.release.version}." in cluster.ask(command, "--version")
    assert set(cluster.ask("sinfo", "--noheader", "--Node", "--format=%N").splitlines()) == {"gn1", "gn2"}
    assert cluster.ask("sinfo", "--noheader", "--format=%R").split() == ["gpu", "debug", "closed"]


def test_nodes_have_names_and_find_each_other(cluster: SlurmCluster) -> None:
    said = cluster.ask(
        "srun", "--nodes=2", "--label", "sh", "-c", "uname -n; getent hosts gn1 >/dev/null && echo found"
    )
    assert sorted(said.splitlines()) == ["0: found", "0: gn1", "1: found", "1: gn2"]


def test_gives_cards_and_shards(cluster: SlurmCluster) -> None:
    say = "echo cards $CUDA_VISIBLE_DEVICES; sleep 600"
    two = cluster.submit(say, "--nodelist=gn1", "--gres=gpu:rtx3090:2")
    shared = [cluster.submit(say, "--nodelist=gn1", "--gres=shard:24") for _ in range(2)]
    for job in (two, *shared):
        cluster.wait_for(job, "RUNNING")
        wait_until(lambda job=job: "cards" in output(cluster, job), "it says its cards")  # type: ignore[misc]
    assert output(cluster, two) == "cards 0,1\n"
    assert [output(cluster, job) for job in shared] == ["cards 2\n"] * 2, "both fit on one card, and not on the two"
    used = cluster.ask("sinfo", "--noheader", "--nodes=gn1", "--partition=gpu", "--Format=GresUsed:200").strip()
    shards = "shard:rtx3090:1(IDX:2)" if cluster.release.version == OLDER else "shard:rtx3090:48(0/64,0/64,48/64,0/64)"
    assert used == f"gpu:rtx3090:2(IDX:0-1),{shards}"
    refused = cluster.call("sbatch", "--gres=gpu:5", stdin="#!/bin/sh\n")
    assert refused.returncode == 1
    assert "Requested node configuration is not available" in refused.stderr


def test_jobs_of_other_people_are_theirs(cluster: SlurmCluster) -> None:
    job = cluster.submit("id -un", user="games")
    cluster.wait_for(job, "COMPLETED")
    assert output(cluster, job) == "games\n"
    assert (cluster.folder / f"jobs/slurm-{job}.out").owner() == "games"


def test_orphans_in_a_cage_leave_no_zombies(tmp_path: Path) -> None:
    """Thousands of them make every look at the processes of the machine slow."""
    with (tmp_path / "lock").open("w") as lock:
        cage = Cage(Path("/etc/hosts"), tmp_path / "log", lock)
        try:
            cage.run("here", "sh", "-c", "sleep 0.2 &")
            first = str(cage._pid)
            wait_until(
                lambda: subprocess.run(["pgrep", "--parent", first]).returncode == 1, "nothing is left of it", 10
            )
        finally:
            cage.end()


def test_a_node_without_power_and_then_with_it(impatient: SlurmCluster) -> None:
    cluster = impatient
    job = cluster.submit("echo begun; sleep 600", "--nodelist=gn1", "--open-mode=append")
    beside = cluster.submit("sleep 600", "--nodelist=gn2")
    cluster.wait_for(beside, "RUNNING")
    wait_until(lambda: output(cluster, job) == "begun\n", "the job runs")
    cluster.cut_power("gn1")
    wait_until(lambda: "Restarts=1" in cluster.ask("scontrol", "show", "job", job), "the job is queued again", 90)
    assert cluster.node_state("gn1") == "DOWN+NOT_RESPONDING"
    cluster.start_node("gn1")
    wait_until(lambda: output(cluster, job).count("begun") == 2, "the job runs again")
    assert "Restarts=0" in cluster.ask("scontrol", "show", "job", beside)
    assert cluster.state(beside) == "RUNNING"


def test_a_killed_node_daemon_leaves_its_jobs(cluster: SlurmCluster) -> None:
    job = cluster.submit("while sleep 0.1; do echo on; done", "--nodelist=gn2")
    cluster.wait_for(job, "RUNNING")
    cluster.kill_node_daemon("gn2")
    seen = len(output(cluster, job))
    wait_until(lambda: len(output(cluster, job)) > seen, "the job writes on")
    cluster.start_node("gn2")
    cluster.ask("scancel", job)
    cluster.wait_for(job, "CANCELLED")


def test_a_controller_that_hangs_and_one_that_is_killed(impatient: SlurmCluster) -> None:
    cluster = impatient
    job = cluster.submit("sleep 600")
    cluster.wait_for(job, "RUNNING")
    cluster.hang_controller()
    hung = cluster.call("squeue")
    assert hung.returncode == 1
    assert "Socket timed out" in hung.stderr
    cluster.continue_controller()
    assert cluster.state(job) == "RUNNING"
    cluster.stop_controller()
    assert not cluster.answers()
    cluster.start_controller()
    cluster.kill_controller()
    assert not cluster.answers()
    cluster.start_controller()
    assert cluster.state(job) == "RUNNING"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_harmed_cluster_is_not_shared_any_more(version: str) -> None:
    """A killed controller forgets jobs and gives their numbers again, to jobs that then meet what those have left."""
    harmed = shared_cluster(version)
    assert shared_cluster(version) is harmed
    harmed.wait_for(harmed.submit("sleep 600"), "RUNNING")
    harmed.kill_controller()
    fresh = shared_cluster(version)
    assert not harmed.folder.exists()
    assert not mentioning(f"{harmed.folder}/")
    job = fresh.submit("id -un", user="games")
    fresh.wait_for(job, "COMPLETED")
    assert output(fresh, job) == "games\n"


@pytest.fixture(params=VERSIONS)
def bookkeeper(request: pytest.FixtureRequest) -> SlurmCluster:
    return shared_cluster(request.param, accounting=True)


def test_keeps_accounts_and_their_limits(bookkeeper: SlurmCluster) -> None:
    refused = bookkeeper.call("sbatch", stdin="#!/bin/sh\ntrue\n", user="games")
    assert "Invalid account" in refused.stderr
    bookkeeper.ask("sacctmgr", "-i", "add", "account", "vision", "set", "GrpTRES=gres/gpu=1")
    bookkeeper.ask("sacctmgr", "-i", "add", "user", "games", "account=vision")
    wait_until(lambda: "vision" in bookkeeper.ask("scontrol", "show", "assoc_mgr", "flags=assoc"), "slurmctld knows it")
    held = bookkeeper.submit("exit 3", "--gres=gpu:2", user="games")
    reason = ("squeue", "--noheader", f"--jobs={held}", "--format=%r")
    wait_until(lambda: bookkeeper.ask(*reason) == "AssocGrpGRES", "the limit holds the job")
    job = bookkeeper.submit("exit 3", "--gres=gpu:1", user="games")
    past = ("sacct", "--allusers", "--noheader", "--parsable2", "--allocations", f"--jobs={job}")
    wait_until(
        lambda: bookkeeper.ask(*past, "--format=state,exitcode,account") == "FAILED|3:0|vision", "the books have it"
    )


def test_keeps_no_accounts_without(cluster: SlurmCluster) -> None:
    assert "accounting storage is disabled" in cluster.call("sacct").stderr


_OTHER_RUN = """\
import sys
from tests.slurm.cluster import slurm_cluster
cluster = slurm_cluster(sys.argv[1])
job = cluster.submit(f"exec tail -f {cluster.folder}/slurm.conf")
cluster.wait_for(job, "RUNNING")
print(cluster.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=VERSIONS)
def killed_run(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The version and the folder of a cluster of a test run that was killed while a job ran."""
    slurm_release(request.param)  # says what is missing
    running = subprocess.Popen(
        [sys.executable, "-c", _OTHER_RUN, request.param], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout
    folder = Path(running.stdout.readline().strip())
    assert (folder / "slurm.conf").exists()
    running.kill()
    running.communicate()
    return request.param, folder


def test_a_killed_run_leaves_no_process_and_no_trouble(killed_run: tuple[str, Path]) -> None:
    version, folder = killed_run
    wait_until(lambda: not mentioning(f"{folder}/"), "its processes are gone")
    later = slurm_cluster(version)
    assert not folder.exists(), "the next one clears up"
    assert re.fullmatch(r"PENDING|RUNNING|COMPLETING|COMPLETED", later.state(later.submit("true")))
    later.close()
    assert not later.folder.exists()
    assert not mentioning(f"{later.folder}/")


def mentioning(text: str) -> list[str]:
    """Command lines, on the whole machine, that have these words in them."""
    found = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if text in line]
