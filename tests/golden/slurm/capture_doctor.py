"""What only the doctor reads: `python -m tests.golden.slurm.capture_doctor`, as root. The files are as in `capture`."""

import os
import re
import signal

from tests.golden.slurm.capture import Album
from tests.slurm.cluster import SlurmCluster, slurm_cluster
from tests.slurm.confined import ConfinedCluster
from tests.slurm.releases import NEWER, OLDER, slurm_release


def capture(version: str, other: str) -> None:
    os.environ["SLURM_TIME_FORMAT"] = "%s"
    confined = ConfinedCluster(version)
    try:
        Album(confined).keep("scontrol-config-confined", "scontrol", "show", "config")
    finally:
        confined.close()
    cluster = slurm_cluster(version)
    try:
        album = Album(cluster)
        album.keep("sdiag", "sdiag")
        album.keep_all("other-release", _commands_of(cluster, other))
        _kill_munge(cluster)
        album.keep_all("munge-down", [["munge", "-n", f"--socket={cluster.folder}/munge/socket"]])
    finally:
        cluster.close()


def _commands_of(cluster: SlurmCluster, other: str) -> list[list[str]]:
    """Commands of another release, which has plugins of its own."""
    release = slurm_release(other)
    text = re.sub(r"(?m)^PluginDir=.*\n", "", (cluster.folder / "slurm.conf").read_text())
    conf = cluster.folder / "other.conf"
    conf.write_text(text + (f"PluginDir={release.plugins}\n" if release.plugins else ""))
    scontrol = ["env", f"SLURM_CONF={conf}", release.program("scontrol")]
    return [[*scontrol, "ping"], [*scontrol, "show", "config"]]


def _kill_munge(cluster: SlurmCluster) -> None:
    cage = cluster._cage
    cage.signal(signal.SIGKILL, *(pid for pid, command in cage.processes() if command.split()[0].endswith("munged")))


if __name__ == "__main__":
    for one, another in ((OLDER, NEWER), (NEWER, OLDER)):
        capture(one, another)
