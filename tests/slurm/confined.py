"""A private Slurm cluster that holds its jobs to what they got, with the kernel's cgroups."""

import fcntl
import subprocess
from pathlib import Path

from tests.slurm.cluster import SlurmCluster
from tests.slurm.layout import Layout
from tests.slurm.releases import slurm_release

SETTINGS = {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/affinity,task/cgroup"}
CGROUP_CONF = "CgroupPlugin=autodetect\nConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"
_LOCK = Path("/tmp/danlu-slurm-confined.lock")


class ConfinedCluster(SlurmCluster):
    """One at a time on this machine: the groups are named after nodes and jobs, and clusters have the same names."""

    def __init__(self, version: str, layout: Layout | None = None) -> None:
        layout = layout or Layout(settings=SETTINGS)
        self._alone = _LOCK.open("w")
        fcntl.flock(self._alone, fcntl.LOCK_EX)
        _remove_groups(layout)  # of a test run that was killed
        super().__init__(slurm_release(version), layout)

    def _write_files(self) -> None:
        super()._write_files()
        (self.folder / "cgroup.conf").write_text(CGROUP_CONF)

    def close(self) -> None:
        super().close()
        _remove_groups(self.layout)
        self._alone.close()


def _remove_groups(layout: Layout) -> None:
    for name in layout.names:
        for place in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
            subprocess.run(["find", str(place), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], check=False)
