"""Processes from /proc: their descent, their environment marks, the signals they catch."""

import fcntl
import os
import signal
import struct

# From linux/pidfd.h: the exit status of any reaped process, since Linux 6.15.
_PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Process:
    __slots__ = ("parent", "pid", "session", "start_ticks", "state")

    def __init__(self, pid: int, state: str, parent: int, session: int, start_ticks: int) -> None:
        self.pid = pid
        self.state = state
        self.parent = parent
        self.session = session
        self.start_ticks = start_ticks  # since boot: pid and start time together identify a process

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZXx"


def read_file(path: str) -> bytes:
    """The whole file, or nothing if unreadable: processes vanish during a read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def parse_stat(text: bytes) -> Process | None:
    """/proc/PID/stat. A process may be named `x) R 1 (`: the last parenthesis counts."""
    closing = text.rfind(b")")
    fields = text[closing + 2 :].split()
    if closing < 0 or len(fields) < 20:
        return None
    return Process(
        pid=int(text[: text.index(b" ")]),
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def look_at(pid: int) -> Process | None:
    return parse_stat(read_file(f"/proc/{pid}/stat"))


def look_at_all() -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := look_at(int(name))):
            found[process.pid] = process
    return found


def descendants(table: dict[int, Process], roots: set[int]) -> list[Process]:
    """The roots and all their descendants, parents first."""
    below: dict[int, list[Process]] = {}
    for process in table.values():
        below.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    queue = [table[pid] for pid in sorted(roots) if pid in table]
    while queue:
        process = queue.pop(0)
        if process.pid not in found:
            found[process.pid] = process
            queue += below.get(process.pid, [])
    return list(found.values())


class OwnChildren:
    """The direct children of this process, in a single small read where the kernel offers such a list."""

    def __init__(self) -> None:
        self._fd = -1
        pid = os.getpid()
        try:
            self._fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            return

    def pids(self) -> list[int]:
        if self._fd < 0:
            own = os.getpid()
            return [process.pid for process in look_at_all().values() if process.parent == own]
        text = os.pread(self._fd, 65536, 0)
        if len(text) > 4000:  # the kernel fills one page at a time
            while more := os.pread(self._fd, 65536, len(text)):
                text += more
        return [int(word) for word in text.split()]


def environment_of(pid: int) -> dict[str, str]:
    """The environment at the start of the process; empty if unreadable, or if the process wrote over the memory."""
    pairs = (entry.partition(b"=") for entry in read_file(f"/proc/{pid}/environ").split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals and name}


def outputs_of(pid: int) -> set[str]:
    """The files that standard output and standard error lead to."""
    found = set()
    for fd in (1, 2):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    return found


def catches(pid: int, signum: int) -> bool:
    """Has the process a handler of its own for this signal?"""
    for line in read_file(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def catchers(table: dict[int, Process], root: int, signum: int) -> list[Process]:
    """From the root down, the processes that catch the signal; below a catcher the search stops."""
    below: dict[int, list[Process]] = {}
    for process in table.values():
        below.setdefault(process.parent, []).append(process)
    found, queue = [], [table[root]] if root in table else []
    while queue:
        process = queue.pop(0)
        if process.is_alive and catches(process.pid, signum):
            found.append(process)
        else:
            queue += below.get(process.pid, [])
    return found


def send(process: Process, signum: int) -> bool:
    """Signal exactly this process, not a later process with the same pid. False: not permitted."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return True
    try:
        now = look_at(process.pid)
        if now and now.start_ticks == process.start_ticks:
            signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    finally:
        os.close(pidfd)
    return True


def exit_status_of(pidfd: int) -> int | None:
    """The wait status of a process that is not a child of the keeper, or None: not reaped yet.
    OSError: this kernel does not offer the status."""
    info = bytearray(64)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info, True)
    (mask,) = struct.unpack_from("=Q", info, 0)
    return int(struct.unpack_from("=i", info, 60)[0]) if mask & _PIDFD_INFO_EXIT else None
