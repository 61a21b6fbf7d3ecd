"""A real installation for one test: its own folders, its own server, the real command line; nothing is left of it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danlu import paths
from danlu.client import Client
from danlu.errors import DanluError
from tests.warden import short_folder

DANLU = Path(sys.executable).with_name("danlu")
PATIENCE_S = 60.0
WAITING = ("QUEUED", "PENDING")  # at Danlu, or in the queue of the cluster below it


def eventually(is_so: Callable[[], object], what: str, *, within: float = PATIENCE_S) -> Any:
    """Poll until it is so, and give what was found."""
    until = time.monotonic() + within
    pause = 0.005
    while not (found := is_so()):
        assert time.monotonic() < until, f"not within {within:.0f} seconds: {what}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return found


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode().strip()

    @property
    def talk(self) -> str:
        return self.err.decode("utf-8", "replace").strip()

    def json(self) -> Any:
        return json.loads(self.out)


class Installation:
    def __init__(self) -> None:
        self.root = short_folder("dl-")
        self.home = self.root / "home"
        self.work = self.root / "work"
        self.work.mkdir()
        self.mounts: list[Path] = []
        self.may_log_traces = False
        self._popens: list[subprocess.Popen[bytes]] = []

    # Commands

    def danlu(
        self,
        *words: str | bytes | Path,
        code: int | None = 0,
        stdin: bytes | None = None,
        cwd: str | bytes | Path | None = None,
        env: dict[str, str] | None = None,
        within: float = PATIENCE_S,
        prefix: tuple[str, ...] = (),
    ) -> Done:
        """Run the real command; it must end with `code` (None: with any), and never with a traceback."""
        ended = subprocess.run(
            [*prefix, DANLU, *words],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            cwd=cwd or self.work,
            env={**self.environ(), **(env or {})},
            timeout=within,
        )
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        said = f"danlu {words!r} ended with {done.code}\nstdout: {done.out[-3000:]!r}\nstderr: {done.err[-3000:]!r}"
        assert code is None or done.code == code, said
        assert b"Traceback" not in done.err, said
        return done

    def begin(
        self,
        *words: str | bytes | Path,
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> subprocess.Popen[bytes]:
        """A command that goes on while the test does."""
        begun = subprocess.Popen(
            [*prefix, DANLU, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.work,
            env={**self.environ(), **(env or {})},
        )
        return self.own(begun)

    def own(self, begun: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Take a process down with the rest."""
        self._popens.append(begun)
        return begun

    def environ(self) -> dict[str, str]:
        """As a person's shell would have it, without what a test run adds."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def submit(self, *words: str | bytes | Path, cwd: str | bytes | Path | None = None) -> str:
        """`submit("--name", "a", "--", "true")`: the id."""
        return self.danlu("submit", *words, cwd=cwd).text

    def show(self, ref: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.danlu("show", ref, "--json").json()
        return shown

    def state(self, ref: str) -> str:
        return str(self.show(ref)["state"])

    def log_path(self, ref: str) -> Path:
        return Path(self.client().job(ref).data["log_path"])

    def until(self, ref: str, *states: str, within: float = PATIENCE_S) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        client, last = self.client(), ""

        def reached() -> dict[str, Any] | None:
            nonlocal last
            try:
                data = client.job(ref).data
            except DanluError as error:
                last = error.text
                return None
            last = f"{data['state']}: {data['reason']['text']}"
            return data if data["state"] in states else None

        try:
            found: dict[str, Any] = eventually(reached, f"{ref} is {' or '.join(states)}", within=within)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {last}\n{self.server_log()[-3000:]}") from None
        return found

    def ended(self, ref: str, *, within: float = PATIENCE_S) -> dict[str, Any]:
        return self.until(ref, "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "LOST", within=within)

    def until_in_line(self, ref: str) -> None:
        """It has its place among those that wait."""
        self.until(ref, "QUEUED")

    def until_first(self, ref: str) -> None:
        """It is the next of those that wait."""
        eventually(lambda: self.danlu("why", ref, "--json").json()["place"] == 1, f"{ref} is the next")

    def client(self, *, start: bool = False) -> Client:
        return Client(start=start)

    # Processes

    def server_pid(self) -> int:
        """The process that holds the server's lock; 0 if none does."""
        try:
            pid = int((self.home / "server.lock").read_text() or "0")
        except (OSError, ValueError):
            return 0
        return pid if pid and b"danlu.app" in read_bytes(f"/proc/{pid}/cmdline") else 0

    def keeper_pids(self) -> list[int]:
        return [
            pid for pid in self.processes() if b"danlu.engines.local.keeper.main" in read_bytes(f"/proc/{pid}/cmdline")
        ]

    def keeper_pid(self) -> int:
        (pid,) = self.keeper_pids()
        return pid

    def kill_server(self) -> int:
        """SIGKILL, as the kernel would do it; the pid that was."""
        pid = self.server_pid()
        assert pid, "no server to kill"
        kill_9(pid)
        return pid

    def processes(self) -> list[int]:
        """Everything alive that belongs here: by environment, by command line, by working folder."""
        mark = os.fsencode(self.root)
        own = ancestors()
        found = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid in own:
                continue
            folder = b""
            with contextlib.suppress(OSError):
                folder = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
            if mark in read_bytes(f"/proc/{pid}/environ") + read_bytes(f"/proc/{pid}/cmdline") + folder:
                found.append(pid)
        return found

    def marked(self, mark: str) -> list[int]:
        """Live processes with this variable or word; the mark of a test for a job's descendants."""
        wanted = mark.encode()
        return [
            pid
            for pid in self.processes()
            if wanted in read_bytes(f"/proc/{pid}/environ") or wanted in read_bytes(f"/proc/{pid}/cmdline")
        ]

    def command_of(self, pid: int) -> list[str]:
        words = read_bytes(f"/proc/{pid}/cmdline").decode("utf-8", "replace")
        return words.split("\0")[:-1]

    def main_of(self, run_id: str) -> int:
        """The first process of a run, which leads its session."""
        leaders = [pid for pid in self.marked(f"DANLU_RUN_ID={run_id}") if session_of(pid) == pid]
        assert len(leaders) == 1, f"{run_id} has {len(leaders)} first processes"
        return leaders[0]

    def server_log(self) -> str:
        return read_bytes(str(self.home / "server.log")).decode("utf-8", "replace")

    # Mounts

    def mount_small(self, folder: Path, size: str) -> None:
        """A disk of its own, small enough to be filled."""
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "danlu-test", folder], check=True)
        self.mounts.append(folder)

    # The end

    def remove(self) -> None:
        """Stop everything, and see to it that nothing is left."""
        traces = [name for name in ("server.log", "keeper.log") if b"Traceback" in self._log(name)]
        told = "\n".join(self._log(name).decode("utf-8", "replace")[-4000:] for name in traces)
        if pid := self.server_pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                eventually(lambda: is_gone(pid), "the server is stopped", within=10)
        try:
            eventually(self._killed, "no process is left", within=30)
        finally:
            for begun in self._popens:
                begun.wait(10)
                for pipe in (begun.stdout, begun.stderr):
                    if pipe:
                        pipe.close()
            for folder in self.mounts:
                subprocess.run(["umount", "-l", folder], check=True)
            shutil.rmtree(self.root, ignore_errors=True)
            shutil.rmtree(paths.runtime_dir(str(self.home)), ignore_errors=True)
        assert not self.processes()
        assert self.may_log_traces or not traces, f"a traceback in {traces}:\n{told}"

    def _killed(self) -> bool:
        """Kill what is left; True once that was nothing."""
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            reap(pid)
        return not left

    def _log(self, name: str) -> bytes:
        return read_bytes(str(self.home / name))


def kill_9(pid: int) -> None:
    """SIGKILL, and wait until it has worked."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: is_gone(pid), f"process {pid} is gone")


def is_gone(pid: int) -> bool:
    """Gone, or dead and waiting for nobody but init."""
    reap(pid)
    state = read_bytes(f"/proc/{pid}/stat").rpartition(b") ")[2][:1]
    return state in (b"", b"Z", b"X")


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def reap(pid: int) -> None:
    # A server that this process started through the client is a child of it.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def ancestors() -> set[int]:
    """This process and all above it, whose command lines may name anything."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        stat = read_bytes(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        pid = int(stat[1]) if len(stat) > 1 else 0
    return found


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """What the process holds (`VmRSS`) or held at most (`VmHWM`)."""
    for line in read_bytes(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} is gone")


@contextlib.contextmanager
def made_and_removed() -> Iterator[Installation]:
    made = Installation()
    try:
        yield made
    finally:
        made.remove()
