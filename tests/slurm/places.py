"""Places on this machine for clusters of tests: each has a folder and ports that no other test run uses."""

import fcntl
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.slurm.layout import Ports

_BASE = Path("/tmp/danlu-slurm")
_COUNT = 200
_PORTS_EACH = 20
# Below those that the kernel gives to outgoing connections, and beside those that runs on several nodes meet on.
_FIRST_PORT = 12000


class Place:
    """`lock` holds it, for this process and for those that were given it; then the next who comes clears it away."""

    def __init__(self) -> None:
        _BASE.mkdir(mode=0o755, exist_ok=True)
        assert _BASE.stat().st_uid == os.getuid(), f"{_BASE} belongs to somebody else"
        _clear_left()
        self.number, self.lock = _take()
        self.ports = Ports(_first_port(self.number), _PORTS_EACH)
        # A name that was never used before: nobody takes it for that of a cluster which is gone.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.number}-", dir=_BASE))
        self.folder.chmod(0o755)

    def close(self) -> None:
        """Twice is fine."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def _take() -> tuple[int, IO[str]]:
    for number in range(_COUNT):
        lock = _try_lock(number)
        if lock is None:
            continue
        if all(_is_free(_first_port(number) + offset) for offset in range(_PORTS_EACH)):
            return number, lock
        lock.close()
    raise AssertionError(f"{_COUNT} clusters run in {_BASE}")


def _try_lock(number: int) -> IO[str] | None:
    lock = (_BASE / f"{number}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _clear_left() -> None:
    """Folders of test runs that were killed."""
    for folder in _BASE.glob("*-*"):
        with suppress(ValueError):
            lock = _try_lock(int(folder.name.partition("-")[0]))
            if lock:
                shutil.rmtree(folder, ignore_errors=True)
                lock.close()


def _first_port(number: int) -> int:
    return _FIRST_PORT + _PORTS_EACH * number


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True
