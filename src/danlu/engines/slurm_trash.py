"""What forgotten runs leave behind. Their users may have put anything there, as deep and as much as they like: it is
out of the way at once, and goes in the background, with no more rights than its owner has."""

import contextlib
import logging
import os
import secrets
import subprocess
import threading

from danlu.theirs import remove

log = logging.getLogger(__name__)


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
