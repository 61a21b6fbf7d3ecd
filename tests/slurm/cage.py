"""A cage for processes: whatever starts in it ends with it, and it ends with us, however we end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

# The kernel's promise: when the first process of a process namespace ends, all others are killed. That first one reads
# a pipe whose other end is ours alone; it ignores SIGCHLD (`trap '' CHLD` of dash does not), so that those it inherits
# leave no zombies.
_FIRST = """\
read -r pid rest </proc/self/stat
mount -t proc proc /proc && mount --bind "$0" /etc/hosts && echo "$pid" || exit 1
exec env --ignore-signal=CHLD cat >/dev/null
"""
_NAMED = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class ClusterTrouble(AssertionError):
    """Slurm's own daemons did not do in time what they do by themselves."""


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > limit:
            raise ClusterTrouble(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


class Cage:
    """Processes on machines of different names, which `hosts` resolves. `log` gets what they say before they are up.
    `lock` stays locked as long as one of them is alive, even if we are not."""

    def __init__(self, hosts: Path, log: Path, lock: IO[str]) -> None:
        self._log = log
        self._children: list[subprocess.Popen[bytes]] = []
        spaces = ["--pid", "--fork", "--kill-child", "--mount", "--propagation", "slave"]
        self._first = subprocess.Popen(
            ["unshare", *spaces, "sh", "-c", _FIRST, str(hosts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # `unshare` itself lives until all processes inside have been buried.
            pass_fds=(lock.fileno(),),
        )
        assert self._first.stdout
        said = self._first.stdout.readline()
        assert said, "this machine lets nobody make a process namespace"
        self._pid = int(said)
        self._namespace = os.readlink(f"/proc/{self._pid}/ns/pid")

    def run(
        self,
        machine: str,
        *command: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
        seconds: float = 60,
    ) -> None:
        """Start a daemon on the machine of that name. With `wait`, until it went to the background by itself."""
        enter = ["nsenter", f"--target={self._pid}", "--pid", "--mount"]
        named = ["unshare", "--uts", "sh", "-c", _NAMED, machine]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        with self._log.open("ab") as out:
            started = subprocess.Popen(
                [*enter, *named, *become, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env={"PATH": _PATH, **(env or {})},
            )
        self._children.append(started)
        if wait:
            code = started.wait(timeout=seconds)
            assert code == 0, f"{' '.join(command)} ended with {code}: {self._log.read_text()[-2000:]}"

    def bind(self, source: Path, target: str) -> None:
        """All inside see this file in the place of that one."""
        enter = ["nsenter", f"--target={self._pid}", "--mount"]
        subprocess.run([*enter, "mount", "--bind", str(source), target], check=True)

    def processes(self) -> Iterator[tuple[int, str]]:
        """Number, as the whole machine counts, and command line of all inside, zombies and the first one apart."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self._pid:
                continue
            with suppress(OSError):
                if os.readlink(entry / "ns/pid") == self._namespace:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    if command:
                        yield int(entry.name), command

    def signal(self, number: signal.Signals, *pids: int) -> None:
        """With SIGKILL, until they are gone."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            wait_until(lambda: not {pid for pid, _ in self.processes()} & {*pids}, f"processes {pids} are gone")

    def pids_on(self, machine: str) -> list[int]:
        """Everything that runs on the machine of that name: its daemon, and the jobs too."""
        # The numbers of namespaces are used again later, so names are kept for this one question only.
        names: dict[str, str] = {}
        found = []
        for pid, _ in self.processes():
            with suppress(OSError):
                space = os.readlink(f"/proc/{pid}/ns/uts")
                if space not in names:
                    ask = ["nsenter", f"--target={pid}", "--uts", "cat", "/proc/sys/kernel/hostname"]
                    names[space] = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
                if names[space] == machine:
                    found.append(pid)
        return found

    def end(self) -> None:
        """All processes are killed. Twice is fine."""
        assert self._first.stdin
        assert self._first.stdout
        self._first.stdin.close()
        self._first.wait(timeout=60)
        self._first.stdout.close()
        for child in self._children:
            child.wait(timeout=60)
