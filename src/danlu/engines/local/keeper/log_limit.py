"""The limit of a run's log: the keeper cuts off the excess and says so in the last line. The run itself goes on.

A run writes into its log directly, which costs nothing and needs no keeper. The keeper checks the sizes instead, more
often when a log comes near its limit."""

import os
import stat
import time
from collections.abc import Iterable

from danlu.engines.local.keeper.run import Run

LOOK_SECONDS = 5.0
LOOK_SOON_SECONDS = 0.5


class LogLimits:
    def __init__(self) -> None:
        self._look_at = 0.0  # on the monotonic clock

    def seconds_to_next(self) -> float:
        return max(0.0, self._look_at - time.monotonic())

    def look(self, runs: Iterable[Run]) -> None:
        """Cut all logs that are too long, if the next check is due."""
        now = time.monotonic()
        if now >= self._look_at:
            near = [run for run in runs if run.log_limit and cut(run.log, run.log_limit)]
            self._look_at = now + (LOOK_SOON_SECONDS if near else LOOK_SECONDS)


def cut(path: str, limit: int) -> bool:
    """Cut a log that is longer than its limit. True: the log is near its limit, or beyond."""
    last_line = f"\ndanlu: the log has reached its limit of {_shown(limit)}; what came after is not kept\n".encode()
    try:
        size = os.stat(path).st_size
        if size <= limit + len(last_line):
            return size > limit // 2
        # Not blocking: the owner of the file may hold a lease.
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.ftruncate(fd, limit)
                os.write(fd, last_line)
        finally:
            os.close(fd)
    except (OSError, ValueError):  # the log was removed, or cannot be written now: the next check tries again
        return False
    return True


def _shown(size: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"
