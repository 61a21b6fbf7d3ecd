"""`danlu doctor` on this machine and on real Slurm clusters, on their good days and their bad ones."""

import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from danlu import __version__
from tests.e2e.installation import Installation
from tests.e2e.terminal import Terminal
from tests.slurm.cage import wait_until
from tests.slurm.cluster import SlurmCluster, shared_cluster
from tests.slurm.confined import ConfinedCluster
from tests.slurm.releases import NEWER, OLDER

Doctor = Callable[..., dict[str, dict[str, Any]]]
SLURM = pytest.mark.slurm


@pytest.fixture
def doctor(here: Installation) -> Doctor:
    """`doctor(cluster, "--deep")`: findings by their codes."""

    def look(cluster: SlurmCluster | None, *options: str, code: int = 0, **more: Any) -> dict[str, dict[str, Any]]:
        env = {**(cluster.environment if cluster else {}), **more.pop("env", {})}
        told = here.danlu("doctor", "--json", *options, code=code, env=env, **more).json()
        assert sum(told["counts"].values()) == len(told["findings"])
        assert (told["counts"]["problem"] > 0) == (code == 1)
        assert told["engine"] == ("slurm" if cluster else "local")
        return {one["code"]: one for one in told["findings"]}

    return look


def troubles(found: dict[str, dict[str, Any]]) -> set[str]:
    """But those of a machine that has much else to do."""
    return {code for code, one in found.items() if one["level"] in ("warning", "problem")} - {"controller.slow"}


# This machine


def test_this_machine(doctor: Doctor, here: Installation) -> None:
    env = {"DANLU_ENGINE_KIND": "local"}
    found = doctor(None, code=0, env=env)
    assert found["system.python"]["level"] == "ok"
    assert str(here.home) in found["state.place"]["found"]
    assert "server.up" not in found
    assert not here.home.exists(), "it looks, and makes nothing"
    here.danlu("up", "--detach")
    found = doctor(None, code=0, env=env)
    assert found["server.up"]["found"].startswith(f"danlu {__version__} at unix:///")
    assert list(here.home.glob(".danlu-doctor*")) == []


def test_a_file_that_cannot_be_used(here: Installation) -> None:
    config = here.work / "danlu.toml"
    assert "cannot read" in here.danlu("doctor", "--config", config, code=2).talk
    config.write_text("[engine]\nkind = 'slrum'\n")
    assert "slurm" in here.danlu("doctor", "--config", config, code=2).talk
    config.write_text("[engine]\nkind = 'kubernetes'\n")
    assert "Kubernetes" in here.danlu("doctor", "--config", config, code=3).talk
    config.write_text("[engine]\nkind = 'local'\nfake_gpus = '2xA100'\n[server]\nstate_dir = '/proc/danlu'\n")
    said = here.danlu("doctor", "--config", config, code=1)
    assert "problem  state" in said.text
    assert "\x1b" not in said.text
    assert "\x1b[31mproblem\x1b[0m" in here.danlu("doctor", "--config", config, "--color", "always", code=1).text


def test_no_slurm_at_all(here: Installation) -> None:
    config = here.work / "danlu.toml"
    config.write_text("[engine]\nkind = 'slurm'\n")
    bare = here.work / "bin"
    bare.mkdir()
    said = here.danlu(
        "doctor", "--config", config, "--deep", code=1, env={"PATH": str(bare), "SLURM_CONF": "/none"}
    ).text
    assert "not on the PATH here: sbatch" in said
    assert "there is no /none" in said
    assert "not checked: nodes, cards" in said


def test_a_terminal_of_eighty_columns(here: Installation) -> None:
    terminal = Terminal(here, "doctor", columns=80)
    code, shown = terminal.end()
    assert code in (0, 1)
    last = shown.replace("\r\n", "\n").rpartition("\r")[2]
    plain = [re.sub(r"\x1b\[[\d;]*[mK]", "", line) for line in last.splitlines()]
    assert any(line.startswith(("ok       system", "ok       commands")) for line in plain), shown
    assert [line for line in plain if len(line) > 80] == []


# Clusters


@SLURM
@pytest.mark.xdist_group("confined")
@pytest.mark.timeout(600)  # others on this machine may have such a cluster: it waits for its turn
@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_a_cluster_that_is_well(doctor: Doctor, here: Installation, version: str) -> None:
    cluster = ConfinedCluster(version)
    try:
        found = doctor(cluster, "--deep")
        assert troubles(found) == set(), found
        assert found["limits.held"]["found"] == "the kernel limits jobs to their cards, memory and cores"
        assert found["deep.devices"]["level"] == "ok"
        assert found["deep.folder"]["level"] == "ok"
        assert found["deep.clock"]["level"] == "ok"
        assert found["deep.ran"]["found"].startswith("a job ran on 2 nodes")
        assert not here.home.exists(), "what was made for the jobs is gone again"
        wait_until(lambda: cluster.ask("squeue", "--noheader") == "", "no job is left")
    finally:
        cluster.close()


# Clusters come first in the lists below: what is started after an installation ends with it.
@pytest.fixture(params=[OLDER, NEWER])
def cluster(request: pytest.FixtureRequest) -> SlurmCluster:
    return shared_cluster(request.param)


@pytest.fixture
def accounting() -> SlurmCluster:
    return shared_cluster(OLDER, accounting=True)


@SLURM
def test_what_is_missing_is_told_with_its_price(cluster: SlurmCluster, doctor: Doctor) -> None:
    found = doctor(cluster, "--deep")
    assert troubles(found) == {"limits.processes", "limits.cgroup", "deep.devices"}
    assert str(cluster.folder / "dev/nvidia0") in found["deep.devices"]["found"]
    assert "accounting.off" in found
    assert found["limits.processes"]["lines"] == ["ProctrackType=proctrack/cgroup"]


@SLURM
def test_a_node_that_was_taken_out(cluster: SlurmCluster, doctor: Doctor) -> None:
    cluster.ask("scontrol", "update", "nodename=gn2", "state=drain", "reason=fan is loud")
    try:
        found = doctor(cluster, "--deep")
    finally:
        cluster.ask("scontrol", "update", "nodename=gn2", "state=resume")
    assert found["nodes.drained"]["found"].endswith("because: fan is loud")
    assert found["deep.ran"]["found"].startswith("a job ran on 1 node,")


@SLURM
def test_a_node_without_room_is_not_waited_for(cluster: SlurmCluster, doctor: Doctor) -> None:
    job = cluster.submit("sleep 600", "--exclusive", "--nodelist=gn1")
    cluster.wait_for(job, "RUNNING")
    found = doctor(cluster, "--deep")
    assert found["deep.busy"]["found"].startswith("not checked: gn1: no room")
    wait_until(lambda: cluster.ask("squeue", "--noheader", "--format=%i") == job, "no job of the doctor is left")


@SLURM
def test_ctrl_c_takes_the_jobs_along(cluster: SlurmCluster, here: Installation) -> None:
    job = cluster.submit("sleep 600", "--exclusive", "--nodelist=gn1")
    cluster.wait_for(job, "RUNNING")
    begun = here.begin("doctor", "--deep", env=dict(cluster.environment))
    queue = ("squeue", "--noheader", "--format=%j %T")
    wait_until(lambda: "danlu-doctor PENDING" in cluster.ask(*queue), "a job of the doctor waits")
    begun.send_signal(signal.SIGINT)
    assert begun.wait(60) == 130
    wait_until(lambda: "danlu-doctor" not in cluster.ask(*queue), "no job of the doctor is left")
    assert not here.home.exists()


@SLURM
def test_a_controller_that_is_down_or_hangs(cluster: SlurmCluster, doctor: Doctor) -> None:
    cluster.hang_controller()
    assert "sends no answer" in doctor(cluster, code=1)["controller.hangs"]["found"]
    cluster.kill_controller()
    found = doctor(cluster, "--deep", code=1)
    assert "nothing listens" in found["controller.down"]["found"]
    assert troubles(found) == {"controller.down"}
    assert found["cluster.all"]["found"].startswith("not checked")


@SLURM
def test_a_folder_that_nodes_do_not_see(cluster: SlurmCluster, doctor: Doctor, here: Installation) -> None:
    """A disk of this machine alone, mounted where the nodes have an empty folder."""
    folder = here.root / "shared"
    folder.mkdir(mode=0o755)
    here.root.chmod(0o755)
    config = here.work / "danlu.toml"
    config.write_text(f"[engine]\nkind = 'slurm'\nshared_dir = '{folder}'\n[server]\nstate_dir = '{here.home}'\n")
    script = 'mount -t tmpfs -o mode=755 tmpfs "$0" && exec "$@"'
    alone = ("unshare", "--mount", "sh", "-c", script, str(folder))
    found = doctor(cluster, "--deep", "--config", str(config), code=1, prefix=alone)
    assert found["deep.folder"]["level"] == "problem"
    assert "is not the same folder on gn1, gn2" in found["deep.folder"]["found"]
    assert doctor(cluster, "--deep", "--config", str(config))["deep.folder"]["level"] == "ok"
    assert list(folder.iterdir()) == []


@pytest.fixture
def a_place_for_games() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="danlu-doctor-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.chown(folder, "games", "games")
    yield folder
    shutil.rmtree(folder)


@SLURM
def test_somebody_who_is_not_root(cluster: SlurmCluster, doctor: Doctor, a_place_for_games: Path) -> None:
    # They may read our Python, wherever it is; nothing else is different from any other person.
    reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    become = ("setpriv", "--reuid=games", "--regid=games", "--clear-groups", *reads)
    env = {"DANLU_HOME": str(a_place_for_games / "home"), "HOME": str(a_place_for_games)}
    found = doctor(cluster, "--deep", prefix=become, env=env)
    assert found["rights.one_user"]["found"] == "games here: all jobs run as games"
    assert found["deep.folder"]["level"] == "ok"
    assert "deep.uid" not in found


@SLURM
def test_accounting_that_is_filled_by_the_server_and_then_away(accounting: SlurmCluster, doctor: Doctor) -> None:
    assert doctor(accounting)["accounting.database"]["level"] == "ok"
    made = doctor(accounting, env={"DANLU_ENGINE_SLURM_ACCOUNTS": "make"})["accounting.enforced"]
    assert (made["level"], made["found"].partition("; ")[2]) == ("note", "the server adds those of teams")
    accounting.accounting.kill_daemon()
    found = doctor(accounting)
    assert found["accounting.database"]["level"] == "warning"
    assert "Connection refused" in found["accounting.database"]["found"]
