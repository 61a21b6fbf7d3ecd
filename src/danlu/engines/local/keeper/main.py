"""The keeper: one small process per installation that supervises all its local runs and outlives the server.

    python -m danlu.engines.local.keeper.main --socket PATH --journal PATH
                                              [--linger SECONDS] [--cgroups auto|on|off] [--boot ID]

The keeper imports next to nothing, and ends by itself when no server is connected and no run is alive."""

import fcntl
import os
import signal
import socket
import sys

from danlu.engines.local.keeper.cgroups import Groups
from danlu.engines.local.keeper.journal import Journal, read_journal
from danlu.engines.local.keeper.loop import Keeper
from danlu.engines.local.keeper.recovery import adopt
from danlu.engines.local.keeper.supervisor import Supervisor
from danlu.engines.local.protocol import boot_id

ANOTHER_KEEPER_RUNS = 3


def become_subreaper() -> None:
    """Orphaned processes of a run become children of this process, and not of init."""
    import _ctypes  # a tenth of the cost of ctypes

    prctl = _ctypes.dlsym(_ctypes.dlopen("", 0), "prctl")
    _ctypes.call_function(prctl, (36, 1, 0, 0, 0))  # PR_SET_CHILD_SUBREAPER
    _ctypes.call_function(prctl, (15, b"danlu-keeper", 0, 0, 0))  # PR_SET_NAME


def take_lock(path: str) -> int | None:
    """Lock until this process ends: two keepers must never share a journal."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def main() -> int:
    arguments = sys.argv[1:]
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # files that the server held open are not for runs
    options = {"linger": "2", "cgroups": "auto", "boot": "", "socket": "", "journal": ""}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if name.removeprefix("--") not in options:
            raise SystemExit(f"unknown option {name}")
        options[name.removeprefix("--")] = value
    if take_lock(f"{options['journal']}.lock") is None:
        return ANOTHER_KEEPER_RUNS
    become_subreaper()
    os.chdir("/")
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)

    mark = f"{_digest(os.path.abspath(options['journal'])):012x}"
    supervisor = Supervisor(Journal(options["journal"]), Groups(mark, options["cgroups"]), mark)
    listener = _listen(options["socket"])
    _close_stdout()
    keeper = Keeper(listener, supervisor, options["boot"] or boot_id(), float(options["linger"]))
    keeper.watch_signals()
    for run in adopt(supervisor, read_journal(options["journal"]), options["boot"] or boot_id()):
        keeper.watch_main(run)
    supervisor.compact()
    supervisor.groups.clear_leftovers()
    keeper.run()
    os.unlink(options["socket"])
    supervisor.groups.close()
    return 0


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.exists(path):
        os.unlink(path)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(16)
    return listener


def _close_stdout() -> None:
    """The end of stdout tells the waiting server that this keeper accepts connections."""
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _digest(text: str) -> int:
    digest = 0
    for byte in os.fsencode(text):
        digest = (digest * 1000003 ^ byte) & 0xFFFFFFFFFFFF
    return digest


if __name__ == "__main__":
    sys.exit(main())
