"""The versions of Slurm on this machine: the distribution's own, and a newer one beside it."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

CACHE = Path("/var/cache/danlu-tests")
OLDER, NEWER = "22.05", "24.11"
_NEEDED = ("slurmctld", "slurmd", "munged", "squeue", "unshare", "nsenter")


@dataclass(frozen=True)
class Release:
    """`folder` is where it is unpacked, None for the distribution's own."""

    version: str
    folder: Path | None = None

    @property
    def search_path(self) -> str:
        usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return f"{self.folder}/usr/sbin:{self.folder}/usr/bin:{usual}" if self.folder else usual

    @property
    def plugins(self) -> str | None:
        return (self.folder / "plugins").read_text().strip() if self.folder else None

    def program(self, name: str) -> str:
        found = shutil.which(name, path=self.search_path)
        assert found, f"{name} is not installed"
        return found


@cache
def _installed() -> dict[str, Release]:
    found = {}
    for release in (Release("", CACHE / "slurm-newer"), Release("")):
        if all(shutil.which(name, path=release.search_path) for name in _NEEDED):
            said = subprocess.run([release.program("slurmctld"), "-V"], capture_output=True, text=True).stdout
            version = ".".join(said.split()[-1].split(".")[:2])
            found[version] = Release(version, release.folder)
    return found


def why_missing(version: str) -> str:
    """Empty, or why this machine cannot run a cluster of this release."""
    if os.getuid() != 0:
        return "a Slurm cluster takes root"
    return "" if version in _installed() else f"Slurm {version} is not installed: `sh tests/install-components.sh`"


def slurm_release(version: str) -> Release:
    """The release, or a loud skip; with CI set a missing one is a failure."""
    if missing := why_missing(version):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{missing}; so this was NOT TESTED")
    return _installed()[version]
