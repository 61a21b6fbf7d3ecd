"""A private Slurm cluster, its good days and its bad ones."""

import atexit
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from tests.slurm.accounting import Accounting
from tests.slurm.cage import Cage, ClusterTrouble, wait_until
from tests.slurm.layout import CONTROLLER, IMPATIENT, Layout, render_gres_conf, render_hosts, render_slurm_conf
from tests.slurm.places import Place
from tests.slurm.releases import Release, slurm_release

# States that a job does not leave again.
_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
)
_NO_ANSWER = ("Socket timed out", "Unable to contact", "Zero Bytes")
_NOISE = ("pmix", "mpi/", "cgroup", "state file")


class SlurmCluster:
    """Up when made; `close` ends and removes everything. So does the end of this process, even a hard one:
    only a folder stays behind then, which the next cluster removes."""

    def __init__(self, release: Release, layout: Layout) -> None:
        self.release, self.layout = release, layout
        self._place = Place()
        self._ports = self._place.ports
        self.folder = self._folder = self._place.folder
        self.is_harmed = False
        self._heard: dict[Path, int] = {}
        self._write_files()
        self._cage = Cage(self._folder / "hosts", self._folder / "log/cage.log", self._place.lock)
        self._accounting = Accounting(self._cage, release, self._folder, self._ports) if layout.accounting else None
        try:
            self._start_all()
        except BaseException as error:
            error.add_note(self.last_words())
            self.close()
            raise
        atexit.register(self.close)

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What clients need, for `subprocess` or `monkeypatch.setenv`."""
        found = self.release.search_path.split(":")
        path = [*found, *(folder for folder in os.environ.get("PATH", "").split(":") if folder not in found)]
        return {"SLURM_CONF": str(self._folder / "slurm.conf"), "PATH": ":".join(path)}

    def call(
        self, *command: str, stdin: str = "", user: str | None = None, seconds: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """One command of a client, whatever its end."""
        return subprocess.run(
            [self.release.program(command[0]), *command[1:]],
            env={**os.environ, **self.environment},
            input=stdin,
            capture_output=True,
            text=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            cwd=self._folder / "jobs",
            timeout=seconds,
        )

    def ask(self, *command: str, stdin: str = "", user: str | None = None) -> str:
        """What a command printed, without the end of the last line; its failure is ours."""
        done = self.call(*command, stdin=stdin, user=user)
        said = f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"
        if done.returncode and any(word in done.stderr for word in _NO_ANSWER):
            raise ClusterTrouble(said)
        assert done.returncode == 0, said
        return done.stdout.rstrip("\n")

    def submit(self, script: str, *options: str, user: str | None = None) -> str:
        """`submit("sleep 9", "--gres=gpu:1")`: the number of the job."""
        return self.ask("sbatch", "--parsable", *options, stdin=f"#!/bin/sh\n{script}\n", user=user).split(";")[0]

    def state(self, job: str) -> str:
        """Empty when nobody answers in time."""
        return self.call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").stdout.rstrip("\n")

    def wait_for(self, job: str, state: str, seconds: float = 60) -> None:
        def is_so() -> bool:
            seen = self.state(job)
            assert seen == state or seen not in _OVER, f"job {job} is {seen}, and will not be {state}"
            return seen == state

        wait_until(is_so, f"job {job} is {state}", seconds)

    def bind(self, source: Path, target: str) -> None:
        """All of its machines have this file in the place of that one."""
        self._cage.bind(source, target)

    # The controller

    def start_controller(self) -> None:
        self._cage.run(CONTROLLER, self.release.program("slurmctld"), "-f", str(self._folder / "slurm.conf"))
        wait_until(self.answers, "slurmctld answers")

    def answers(self) -> bool:
        return "UP" in self.call("scontrol", "ping").stdout

    def stop_controller(self) -> None:
        """In good order: what it knows is saved."""
        self.is_harmed = True
        self._cage.signal(signal.SIGTERM, *self._controllers())
        wait_until(lambda: not self._controllers(), "slurmctld stops")

    def kill_controller(self) -> None:
        """What it has not saved is forgotten: it gives the number of a job a second time, to another."""
        self.is_harmed = True
        self._cage.signal(signal.SIGKILL, *self._controllers())

    def hang_controller(self) -> None:
        """It accepts connections, but sends no answer."""
        self.is_harmed = True
        self._cage.signal(signal.SIGSTOP, *self._controllers())

    def continue_controller(self) -> None:
        self._cage.signal(signal.SIGCONT, *self._controllers())

    def _controllers(self) -> list[int]:
        program = self.release.program("slurmctld")
        return [pid for pid, command in self._cage.processes() if command.split()[0] == program]

    # The nodes

    def start_node(self, name: str) -> None:
        step = self.release.program("slurmstepd")
        conf = str(self._folder / "slurm.conf")
        self._cage.run(name, self.release.program("slurmd"), "-d", step, "-f", conf, "-N", name)

    def wait_for_node(self, name: str, *states: str, seconds: float = 60) -> None:
        """`states` as scontrol has them: `IDLE`, `MIXED`, `ALLOCATED`, `DOWN+NOT_RESPONDING`, `IDLE+DRAIN`."""
        wait_until(lambda: self.node_state(name) in states, f"node {name} is {' or '.join(states)}", seconds)

    def node_state(self, name: str) -> str:
        """Empty when nobody answers in time."""
        found = re.search(r"State=(\S+)", self.call("scontrol", "show", "node", name).stdout)
        return found[1] if found else ""

    def _is_registered(self, name: str) -> bool:
        """A new node that answers is called IDLE before its version is known; what runs there then loses its output."""
        said = self.call("scontrol", "show", "node", name).stdout
        return "State=IDLE " in said and "Version=" in said

    def kill_node_daemon(self, name: str) -> None:
        """slurmd is gone; the jobs there run on."""
        self.is_harmed = True
        self._cage.signal(signal.SIGKILL, *self._node_daemons(name))

    def stop_node_daemon(self, name: str) -> None:
        self.is_harmed = True
        # It may ignore a polite request for long when it has no controller.
        self._cage.signal(signal.SIGTERM, *self._node_daemons(name))
        wait_until(lambda: not self._node_daemons(name), f"slurmd of {name} stops")

    def cut_power(self, name: str) -> None:
        """Everything on the node is gone at once, jobs too."""
        self.is_harmed = True
        stopped: set[int] = set()
        # Nobody there lives to see another's end, and to tell it.
        while running := {*self._cage.pids_on(name)} - stopped:
            self._cage.signal(signal.SIGSTOP, *running)
            stopped |= running
        self._cage.signal(signal.SIGKILL, *stopped)

    def _node_daemons(self, name: str) -> list[int]:
        program = self.release.program("slurmd")
        return [
            pid
            for pid, command in self._cage.processes()
            if command.split()[0] == program and command.split()[-2:] == ["-N", name]
        ]

    @property
    def accounting(self) -> Accounting:
        """For bad days: nobody knows what is done to it."""
        assert self._accounting, "this cluster has no accounting"
        self.is_harmed = True
        return self._accounting

    @property
    def has_accounts(self) -> bool:
        """Beside those that it begins with."""
        if not self._accounting:
            return False
        names = self.call(
            "sacctmgr", "--noheader", "--parsable2", "show", "assoc", "format=account,user"
        ).stdout.split()
        return {*names} != {"root|", "root|root"}

    def clear(self) -> None:
        """No job waits or runs, and all nodes take new ones."""
        self._heard = {path: path.stat().st_size for path in self._logs()}
        wait_until(self._is_empty, "all jobs are gone")
        for name in self.layout.names:
            # A node may be called MIXED long after its last job: what is taken is counted once a second, and not again
            # before the node changes.
            self.wait_for_node(name, "IDLE", "MIXED", "ALLOCATED")

    def _is_empty(self) -> bool:
        asked = self.call("squeue", "--noheader", "--format=%F")
        jobs = sorted({*asked.stdout.split()})
        if jobs:
            self.call("scancel", *jobs)
            self.call("scancel", "--signal=KILL", "--full", *jobs)
        return asked.returncode == 0 and not jobs

    def close(self) -> None:
        """Twice is fine."""
        atexit.unregister(self.close)
        self._cage.end()
        self._place.close()

    def last_words(self) -> str:
        """What its daemons have said since it was last cleared, for who wants to know why a test failed."""
        said = []
        for path in self._logs():
            with path.open(errors="replace") as file:
                file.seek(self._heard.get(path, 0))
                lines = [line for line in file if not any(word in line for word in _NOISE)]
            said += [f"--- {path}\n", *lines[-200:]]
        return "".join(said)

    def _logs(self) -> list[Path]:
        return sorted((self._folder / "log").glob("*"))  # none once it is closed

    def _start_all(self) -> None:
        munge = self._folder / "munge"
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._cage.run(
            CONTROLLER, "munged", *(f"--{key}={munge / name}" for key, name in options.items()), user="munge"
        )
        if self._accounting:
            self._accounting.start()
        self.start_controller()
        for name in self.layout.names:
            self.start_node(name)
        for name in self.layout.names:
            wait_until(lambda name=name: self._is_registered(name), f"node {name} is registered")  # type: ignore[misc]

    def _write_files(self) -> None:
        folder = self._folder
        owners = {"munge": "munge", "state": "slurm", "run": "slurm", "log": "slurm", "dev": "root", "spool": "root"}
        for name, owner in owners.items():
            (folder / name).mkdir(mode=0o755)
            shutil.chown(folder / name, owner, owner)
        (folder / "jobs").mkdir()
        (folder / "jobs").chmod(0o1777)
        for name in self.layout.names:
            (folder / "spool" / name).mkdir()
        key = folder / "munge/key"
        key.touch(mode=0o400)
        key.write_bytes(secrets.token_bytes(1024))
        shutil.chown(key, "munge", "munge")
        for card in range(self.layout.cards):
            # Slurm wants a device, and looks no further.
            os.mknod(folder / f"dev/nvidia{card}", 0o666 | 0o020000, os.makedev(195, card))
        at = str(folder)
        (folder / "hosts").write_text(render_hosts(self.layout, socket.gethostname()))
        (folder / "slurm.conf").write_text(render_slurm_conf(self.layout, at, self._ports, self.release.plugins))
        (folder / "gres.conf").write_text(render_gres_conf(self.layout, at))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


def slurm_cluster(version: str, layout: Layout | None = None) -> SlurmCluster:
    """A new cluster, or a loud skip; with CI set, what is missing is a failure."""
    return SlurmCluster(slurm_release(version), layout or Layout())


_shared: list[SlurmCluster] = []  # the one that was used last comes last
_MOST_SHARED = 6


def shared_cluster(
    version: str, layout: Layout | None = None, *, accounting: bool = False, impatient: bool = False
) -> SlurmCluster:
    """One of its kind for the whole test process, without jobs; another one after a test that harmed it, that made
    accounts in it, or that failed. `impatient` ones are for lost nodes: see `layout`."""
    layout = layout or Layout(accounting=accounting, settings=IMPATIENT if impatient else {})
    for cluster in [one for one in _shared if one.is_harmed or one.has_accounts]:
        _shared.remove(cluster)
        cluster.close()
    found = next((one for one in _shared if (one.release.version, one.layout) == (version, layout)), None)
    if found:
        _shared.remove(found)
    elif len(_shared) == _MOST_SHARED:
        _shared.pop(0).close()
    _shared.append(found or slurm_cluster(version, layout))
    _shared[-1].clear()
    return _shared[-1]


def last_words() -> dict[str, str]:
    """Of the shared clusters, after a failure. No other test meets them again."""
    for cluster in _shared:
        cluster.is_harmed = True
    return {f"Slurm {cluster.release.version} in {cluster.folder}": cluster.last_words() for cluster in _shared}
