"""What forgotten runs leave behind. Their users may have put anything there, as deep and as much as they like: it is
out of the way at once, and goes in the background, with no more rights than its owner has."""

import contextlib
import logging
import os
import secrets
import stat
import subprocess
import threading
from typing import Any

log = logging.getLogger(__name__)

FEW = 64  # files that are removed without a process for it
PATIENCE_S = 3600.0


class Trash:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._emptying = threading.Lock()

    def open(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self.empty()

    def take(self, path: str) -> None:
        """The folder is gone from its place. One that is not there is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, f"{self._folder}/{secrets.token_hex(8)}")

    def empty(self) -> None:
        """Nobody waits for it. What cannot be removed now is tried again with the next one."""
        if self._emptying.acquire(blocking=False):
            threading.Thread(target=self._empty, name="slurm-trash", daemon=True).start()

    def _empty(self) -> None:
        try:
            tried: set[str] = set()
            while new := set(os.listdir(self._folder)) - tried:
                tried |= new
                for name in new:
                    try:
                        remove(f"{self._folder}/{name}")
                    except (OSError, subprocess.SubprocessError) as error:
                        log.info("what a run left in %s/%s stays for now: %s", self._folder, name, error)
        except OSError as error:
            log.warning("what runs left behind cannot be removed: %s", error)
        finally:
            self._emptying.release()


def remove(path: str) -> None:
    """A folder that somebody else may have filled. No link is followed, and nothing is removed in there that its
    owner could not remove: they may have moved a folder into it that holds what is another's."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, stat.S_IRWXU)
        if not _is_plain(fd):
            _remove_within(path, os.fstat(fd))
        for name in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(path)


def _is_plain(fd: int) -> bool:
    """A few files and nothing else, as we made it."""
    with os.scandir(fd) as found:
        return all(at < FEW and not one.is_dir(follow_symlinks=False) for at, one in enumerate(found))


def _remove_within(path: str, folder: os.stat_result) -> None:
    who: dict[str, Any] = {}
    if os.getuid() == 0:
        who = {"user": folder.st_uid, "group": folder.st_gid, "extra_groups": []}
    everything = ["find", ".", "-xdev"]
    # Folders that their owner closed to themselves are opened first.
    opening = [*everything, "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
    for words in (opening, [*everything, "-mindepth", "1", "-delete"]):
        nothing = subprocess.DEVNULL
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        subprocess.run(
            words, cwd=path, env=env, stdin=nothing, stdout=nothing, stderr=nothing, timeout=PATIENCE_S, **who
        )
