"""A Danlu on a private Slurm cluster: the installation is one test's own, clusters are shared between tests."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import Installation, eventually
from tests.slurm.cluster import SlurmCluster, shared_cluster
from tests.slurm.layout import Layout

Settings = Callable[..., None]
# As the tests of the local engine have it: one machine with four cores and no cards.
SMALL = Layout(nodes=1, cards=0, cpus=4)
FIRST_UID = 29_000
cluster_of = shared_cluster


class Site(Installation):
    """An installation whose jobs run on a cluster."""

    def __init__(self, cluster: SlurmCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self._among_them: tuple[str, ...] = ()

    def has_people(self, *names: str) -> None:
        """Unix users of these names, whom only the cluster knows and the server that starts next."""
        files = {"/etc/passwd": "{name}:x:{uid}:{uid}::/tmp:/bin/sh\n", "/etc/group": "{name}:x:{uid}:\n"}
        binds = []
        for path, line in files.items():
            ours = self.cluster.folder / Path(path).name
            added = "".join(line.format(name=name, uid=FIRST_UID + at) for at, name in enumerate(names))
            ours.write_text(Path(path).read_text() + added)
            self.cluster.bind(ours, path)
            binds.append(f"mount --bind {ours} {path}")
        self._among_them = ("unshare", "--mount", "sh", "-c", f'{" && ".join(binds)} && exec "$@"', "sh")

    def begin(self, *words: str | bytes | Path, prefix: tuple[str, ...] = (), **how: Any) -> "subprocess.Popen[bytes]":
        among = self._among_them if words[0] == "serve" else ()
        return super().begin(*words, **how, prefix=(*among, *prefix))

    def leave_free(self, cpus: int) -> None:
        """Somebody else takes all cores of each node but these."""
        layout = self.cluster.layout
        for node in layout.names:
            taken = f"--cpus-per-task={layout.cpus - cpus}"
            number = self.cluster.submit("exec sleep 1000", taken, f"--nodelist={node}", "--output=/dev/null")
            self.cluster.wait_for(number, "RUNNING")

    # Jobs that leave a trace

    def submit_traced(self, *options: str, then: str = "true", code: int = 0) -> str:
        """A job that writes one line each time it begins, then does something, and ends with this code."""
        return self.submit(*options, "--", *self._traced(then, code))

    def submit_at_once(self, *, code: int = 0) -> str:
        """The same, and as fast as can be: before the server notices what was just done to its cluster."""
        return str(self.client().submit(self._traced("true", code), workdir=str(self.work)).id)

    def _traced(self, then: str, code: int) -> list[str]:
        return ["sh", "-c", f"echo $DANLU_JOB_ID >> {self.trace}; {then}; exit {code}"]

    @property
    def trace(self) -> Path:
        return self.work / "trace"

    def times(self) -> Counter[str]:
        """How often each of those has begun."""
        return Counter(self.trace.read_text().split()) if self.trace.exists() else Counter()

    def waits_for(self, door: str) -> str:
        return f"while [ ! -e {self.work}/{door} ]; do sleep 0.05; done"

    def open(self, door: str) -> None:
        (self.work / door).touch()

    # The cluster

    def until_in_line(self, ref: str) -> None:
        self.until(ref, "PENDING")

    def until_first(self, ref: str) -> None:
        words = ("squeue", "--noheader", "--states=PENDING", "--sort=-p", "--format=%k")
        eventually(lambda: f":{ref}." in self.cluster.ask(*words).split("\n")[0], f"{ref} is the next in Slurm's queue")

    def until_saved(self) -> None:
        """The controller has written down all that it knows, and would not forget it if it were killed."""
        saved = self.cluster.folder / "state" / "job_state"
        number = self.cluster.submit("true", "--hold", "--output=/dev/null")
        came = time.time()
        eventually(lambda: saved.exists() and saved.stat().st_mtime > came, "the controller has saved its state")
        self.cluster.call("scancel", number)

    def trouble(self) -> str | None:
        """What `danlu status` says of the engine."""
        status = self.danlu("status", "--json", code=None)
        told: str | None = status.json()["trouble"] if status.code == 0 else None
        return told

    def until_down(self) -> str:
        found: str = eventually(self.trouble, "the server has noticed that Slurm does not answer")
        return found

    def until_up(self) -> None:
        eventually(lambda: self.trouble() is None, "the server has noticed that Slurm answers again")

    def remove(self) -> None:
        if self.cluster.is_harmed:
            self.cluster.close()  # nobody else meets it
        else:
            self.cluster.clear()
        super().remove()


@contextmanager
def site_on(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Commands, clients and servers of this test mean this installation."""
    made = Site(cluster)
    try:
        monkeypatch.setenv("DANLU_HOME", str(made.home))
        monkeypatch.setenv("DANLU_ENGINE_KIND", "slurm")
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("PYTHONDONTWRITEBYTECODE", "PWD", "OLDPWD"):
            monkeypatch.delenv(name, raising=False)
        yield made
    finally:
        made.remove()


def settings_of(site: Site, settings: Settings) -> Settings:
    """As for a machine of one's own, where fewer cores are a setting."""

    def put(*, ENGINE_CPUS: int = 0, **values: object) -> None:
        if 0 < ENGINE_CPUS < site.cluster.layout.cpus:
            site.leave_free(ENGINE_CPUS)
        settings(**values)

    return put
