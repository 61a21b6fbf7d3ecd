"""Run external commands: argument lists, a clean environment, a time limit."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from danlu.tools.doctor.facts import Said

Seen = TypeVar("Seen")

USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PATIENCE_S = 4.0
_GOODBYE_S = 2.0
_asked: set["subprocess.Popen[bytes]"] = set()


def ask(argv: Sequence[str], *, extra: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S) -> Said:
    """Run a command. All errors are in the result; a command that cannot be executed ends with 127."""
    began = time.monotonic()
    env = {"PATH": os.environ.get("PATH", USUAL_PATH), "LC_ALL": "C.UTF-8", **(extra or {})}
    try:
        child = subprocess.Popen(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # a timeout ends the command with all its children
        )
    except OSError as error:
        return Said(127, "", f"{argv[0]}: {error.strerror}", time.monotonic() - began)
    _asked.add(child)
    try:
        out, err = child.communicate(timeout=patience_s)
        return Said(child.returncode, _text(out), _text(err), time.monotonic() - began)
    except subprocess.TimeoutExpired:
        out, err = _ended(child)
        return Said(-1, _text(out), _text(err), time.monotonic() - began, is_late=True)
    finally:
        _asked.discard(child)


@contextlib.contextmanager
def together(most: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for several commands at once. An interrupt leaves no command, and no job of a command, behind."""
    with ThreadPoolExecutor(most) as threads:
        try:
            yield threads
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            for child in list(_asked):
                _signal(child, signal.SIGTERM)
            raise


def in_time(look: Callable[[], Seen], too_late: Seen, patience_s: float = PATIENCE_S) -> Seen:
    """The result of a look, or `too_late` if the call hangs, as on a mount whose server is gone."""
    found: list[Seen] = []
    thread = threading.Thread(target=lambda: found.append(look()), daemon=True)
    thread.start()
    thread.join(patience_s)
    return found[0] if found else too_late


def _ended(child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    # `srun` cancels its job on SIGTERM, but cannot on SIGKILL.
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.communicate(timeout=_GOODBYE_S)
    return b"", b""


def _signal(child: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
