"""Interactive processes inside a run: on a terminal or on pipes, whose other ends go to the server."""

import fcntl
import os
import struct
import termios
from typing import Any

from danlu.engines.local.keeper import process_tree
from danlu.engines.local.keeper.run import Run
from danlu.engines.local.keeper.spawn import CannotStart
from danlu.engines.local.keeper.spawn_as import account_of
from danlu.engines.local.keeper.supervisor import Supervisor


def open_shell(supervisor: Supervisor, run: Run, asked: dict[str, Any]) -> tuple[int, list[int]]:
    """Start a process in the run. Return its pid, and the keeper's ends: [terminal], or [stdin, stdout, stderr]."""
    env = dict(run.env if run.env is not None else process_tree.environment_of(run.pid))
    if asked.get("tty") and asked.get("term"):
        env["TERM"] = asked["term"]
    theirs: list[int] = []
    ours: list[int] = []
    try:
        actions = _terminal(run, asked, theirs, ours) if asked.get("tty") else _pipes(theirs, ours)
        pid, told = supervisor.spawn_in(run, asked["argv"], env, actions)
        if told >= 0:
            os.close(told)
    except OSError as error:
        close_all(ours)
        raise CannotStart(f"no terminal or pipe could be made ({error.strerror})", 126) from None
    except BaseException:
        close_all(ours)
        raise
    finally:
        close_all(theirs)
    supervisor.ownership.add_shell(run, pid)
    return pid, ours


def _terminal(run: Run, asked: dict[str, Any], theirs: list[int], ours: list[int]) -> list[Any]:
    master, slave = os.openpty()
    ours.append(master)
    theirs.append(slave)
    if asked.get("rows") and asked.get("columns"):
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", asked["rows"], asked["columns"], 0, 0))
    if run.user:
        os.fchown(slave, account_of(run.user).pw_uid, -1)
    # The leader of a new session opens the terminal, which thereby becomes the controlling terminal.
    opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0)
    return [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]


def _pipes(theirs: list[int], ours: list[int]) -> list[Any]:
    for fd in (0, 1, 2):
        read_end, write_end = os.pipe()
        theirs.append(read_end if fd == 0 else write_end)
        ours.append(write_end if fd == 0 else read_end)
    return [(os.POSIX_SPAWN_DUP2, theirs[fd], fd) for fd in (0, 1, 2)]


def close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
