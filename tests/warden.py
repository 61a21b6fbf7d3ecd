"""Clears up behind a test process that was killed: what it started is found by a mark in its environment.

Clusters of `tests.slurm` need nobody: theirs is a process namespace that ends with us.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_MARK = "TESTS_OF_DANLU"
_warden: "subprocess.Popen[str] | None" = None


def appoint() -> None:
    """From now on a process waits for our end, however it comes."""
    global _warden
    own = {name: value for name, value in os.environ.items() if name != _MARK}
    os.environ[_MARK] = secrets.token_hex(8)
    command = [os.path.abspath(sys.executable), "-I", "-S", __file__, f"{_MARK}={os.environ[_MARK]}"]
    _warden = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, env=own, cwd="/")


def short_folder(prefix: str) -> Path:
    """In /tmp itself: a socket's path has at most 107 bytes. If nobody else does, the warden removes it."""
    made = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    if _warden and _warden.stdin:
        _warden.stdin.write(f"{made}\n")
        _warden.stdin.flush()
    return made


def _watch(mark: bytes) -> None:
    folders = [line.rstrip("\n") for line in sys.stdin]  # until nobody holds the other end any more
    limit = time.monotonic() + 10
    while (found := list(_marked(mark))) and time.monotonic() < limit:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for folder in filter(os.path.exists, folders):
        for place in sorted(_mounts_below(folder), reverse=True):
            subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _marked(mark: bytes) -> Iterator[int]:
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                yield int(name)


def _mounts_below(folder: str) -> list[str]:
    with open("/proc/self/mounts") as file:
        places = [line.split()[1] for line in file]
    return [place for place in places if place.startswith(f"{folder}/")]


if __name__ == "__main__":
    _watch(os.fsencode(sys.argv[1]))
