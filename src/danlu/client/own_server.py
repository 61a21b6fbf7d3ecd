"""Start the personal server: a detached process that reports through a pipe when it listens."""

from __future__ import annotations

import os
import sys

from danlu import paths
from danlu.errors import Invalid, Refused, ServerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

READY_WITHIN_S = 60.0
TAIL_LINES = 12
# First words of a server that cannot start, by its exit code.
_FAILURES = {"error 2": Invalid, "error 3": Refused, "error 4": ServerDown}


def start(options: Sequence[str] = (), *, program: Sequence[str] = ()) -> None:
    """Start the personal server and return when the server listens. An already running server is fine."""
    argv = list(program) or [sys.executable, "-m", "danlu.app", "up"]
    reader, writer = os.pipe()
    try:
        os.set_inheritable(writer, True)
        argv += ["--ready-fd", str(writer), *options]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=_file_actions(writer), setsid=True)
    except OSError as error:
        os.close(reader)
        raise ServerDown(
            f"the server cannot be started: {error.strerror or error}", f"tried `{' '.join(argv)}`"
        ) from None
    finally:
        os.close(writer)
    try:
        said = _heard(reader)
    finally:
        os.close(reader)
    if said.startswith("ready"):
        return
    _bury(pid)
    kind, colon, said = said.partition(": ")
    if colon and kind in _FAILURES:
        text, _, hint = said.partition("\n\nhint: ")
        raise _FAILURES[kind](text.strip(), hint.strip())
    raise ServerDown("the server ended before it was ready", _log_tail())


def _bury(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # the script that uses this client buries its children itself
        return


def _file_actions(kept: int) -> list[tuple[int, int] | tuple[int, int, str, int, int] | tuple[int, int, int]]:
    actions: list[tuple[int, int] | tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]
    # An inherited pipe or lock of the caller's script would stay open as long as the server runs.
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and int(name) != kept and os.get_inheritable(int(name)):
                actions.append((os.POSIX_SPAWN_CLOSE, int(name)))
        except OSError:
            continue
    return actions


def _heard(reader: int) -> str:
    """The child's message: up to `ready`, or everything until the pipe is closed."""
    import select
    from time import monotonic

    poll = select.poll()
    poll.register(reader, select.POLLIN)
    said, until = b"", monotonic() + READY_WITHIN_S
    while not said.startswith(b"ready\n"):
        left = until - monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise ServerDown(f"the server is not ready after {READY_WITHIN_S:.0f} seconds", _log_tail())
        piece = os.read(reader, 4096)
        if not piece:
            break
        said += piece
    return said.decode("utf-8", "replace")


def _log_tail() -> str:
    path = os.path.join(paths.state_dir(), "server.log")
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - 8192, 0))
            lines = file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return "`danlu up` in the foreground shows the cause"
    return "\n".join([f"the end of {path}:", *(f"  {line}" for line in lines)])
