"""Actions of a root server in the name of a user: run commands with the user's rights, remove leftovers."""

import contextlib
import logging
import os
import secrets
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache

SETPRIV = "/usr/bin/setpriv"
FEW = 64  # how many files are removed without a separate process
PATIENCE_S = 20.0  # the owner of a folder can stop the process that removes it
AGAIN_AFTER_S = 60.0
log = logging.getLogger(__name__)

# Python ignores some signals, and the next program would ignore them too.
_PROGRAM = """\
import os, sys, _signal
uid, gid, groups, program, *words = sys.argv[1:]
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
os.setgroups([int(group) for group in groups.split(",") if group])
os.setresgid(int(gid), int(gid), int(gid))
os.setresuid(int(uid), int(uid), int(uid))
try:
    os.execv(program, words)
except OSError as error:
    sys.exit(f"{program}: {error.strerror}")
"""


def as_user(uid: int, gid: int, groups: Sequence[int], program: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The program and words that give up all rights and then become the user's command.
    Not `Popen(user=…)`: `Popen` waits without limit for the child, and the user can stop the child before `exec`."""
    listed = ",".join(map(str, groups))
    if words[0] == program and os.path.exists(SETPRIV):  # takes a tenth of the time, but cannot set another `argv[0]`
        who = [f"--reuid={uid}", f"--regid={gid}", f"--groups={listed}" if groups else "--clear-groups"]
        return SETPRIV, [SETPRIV, *who, "--", *words]
    return sys.executable, [sys.executable, "-I", "-S", "-c", _PROGRAM, str(uid), str(gid), listed, program, *words]


def remove(path: str, patience_s: float = PATIENCE_S) -> None:
    """Remove a folder that another user may have filled. Follow no link, and remove nothing inside that the folder's
    owner could not remove: the owner may have moved a folder with another user's files into this folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, stat.S_IRWXU)
        if not _is_plain(fd):
            _remove_within(path, os.fstat(fd), patience_s)
        for name in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(path)


def _is_plain(fd: int) -> bool:
    """Whether the folder holds only a few files, as the server made it."""
    with os.scandir(fd) as found:
        return all(at < FEW and not one.is_dir(follow_symlinks=False) for at, one in enumerate(found))


def _remove_within(path: str, folder: os.stat_result, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    program = "/usr/bin/find"
    everything = [program, ".", "-xdev"]
    # First restore the owner's access to folders that the owner has closed.
    opening = [*everything, "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
    for words in (opening, [*everything, "-mindepth", "1", "-delete"]):
        executable = program
        if os.getuid() == 0:
            executable, words = as_user(folder.st_uid, folder.st_gid, (), program, words)
        nothing = subprocess.DEVNULL
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        with subprocess.Popen(
            words, executable=executable, cwd=path, env=env, stdin=nothing, stdout=nothing, stderr=nothing,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                process.wait(max(0.0, until - time.monotonic()))
            finally:
                # Kill the whole process group: the user can stop a `chmod` as well. KILL also ends a stopped process.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


class Trash:
    """Folders to remove. `take` moves a folder out of the way at once; one thread of its own removes the content, with
    the rights of the folder's owner. A removal that takes too long is killed, and continues in the next round."""

    def __init__(self, folder: str, *, retry_s: float = AGAIN_AFTER_S) -> None:
        self._folder = folder
        self._retry_s = retry_s
        self._is_wanted = threading.Event()
        self._emptying = threading.Lock()

    def open(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self.empty()

    def take(self, path: str) -> None:
        """Move this folder out of its place. A missing folder is fine."""
        target = f"{self._folder}/{secrets.token_hex(8)}"
        try:
            os.rename(path, target)
        except FileNotFoundError:
            if not os.path.isdir(self._folder) and os.path.isdir(path):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                os.rename(path, target)

    def empty(self) -> None:
        """Start the removal without waiting."""
        self._is_wanted.set()
        if self._emptying.acquire(blocking=False):
            threading.Thread(target=self._empty, name="trash", daemon=True).start()

    def _empty(self) -> None:
        while True:
            try:
                while self._is_wanted.is_set():
                    self._is_wanted.clear()
                    if self._remove_all():
                        self._is_wanted.wait(self._retry_s)
                        self._is_wanted.set()
            except OSError as error:
                log.warning("what runs left behind cannot be removed: %s", error)
            finally:
                self._emptying.release()
            if not self._is_wanted.is_set() or not self._emptying.acquire(blocking=False):
                return

    def _remove_all(self) -> bool:
        """One round. True: some removals took too long. The owner of such a folder has no further turn in this round:
        a person who stops removals holds up other people's removals only once."""
        tried: set[str] = set()
        slow: set[int] = set()
        while new := set(os.listdir(self._folder)) - tried:
            tried |= new
            for name in new:
                path = f"{self._folder}/{name}"
                try:
                    owner = os.lstat(path).st_uid
                    if owner in slow:
                        continue
                    remove(path)
                except subprocess.TimeoutExpired:
                    slow.add(owner)
                except (OSError, subprocess.SubprocessError) as error:
                    log.info("what a run left in %s stays for now: %s", path, error)
        if slow:
            log.info("the removal of what runs of the users %s left takes long; it continues later", sorted(slow))
        return bool(slow)


@cache
def trash_in(folder: str) -> Trash:
    """The trash of a folder, on the same file system: folders can be moved there."""
    return Trash(f"{folder}/.trash")
