"""A person at a terminal: types, and reads what the screen shows."""

import contextlib
import os
import pty
import select
import subprocess
import time

from tests.e2e.installation import DANLU, PATIENCE_S, Installation

CTRL_C = b"\x03"


class Terminal:
    """One command with a terminal of its own, `rows` by `columns`."""

    def __init__(self, here: Installation, *words: str, rows: int = 40, columns: int = 132) -> None:
        self._fd, slave = pty.openpty()
        # Ctrl-C reaches a command only through its controlling terminal, which `setsid -c` makes of this one.
        size = f'stty rows {rows} cols {columns}; exec "$@"'
        self.process = here.own(
            subprocess.Popen(
                ["setsid", "-c", "sh", "-c", size, "sh", DANLU, *words],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=here.work,
                env={**here.environ(), "TERM": "xterm-256color"},
            )
        )
        os.close(slave)
        self.shown = b""

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def see(self, text: str) -> str:
        """Wait until the screen shows this, and give all before it; what comes later is still to be seen."""
        until, wanted = time.monotonic() + PATIENCE_S, text.encode()
        while wanted not in self.shown:
            assert self._read(until), f"`{text}` was not shown but {self.shown!r}"
        before, _, self.shown = self.shown.partition(wanted)
        return before.decode("utf-8", "replace")

    def end(self) -> tuple[int, str]:
        """The exit code, and what was shown last."""
        until = time.monotonic() + PATIENCE_S
        while self._read(until):
            pass
        code = self.process.wait(max(until - time.monotonic(), 1))
        os.close(self._fd)
        return code, self.shown.decode("utf-8", "replace")

    def _read(self, until: float) -> bool:
        """More of the screen; False when there is no more, or not in time."""
        ready, _, _ = select.select([self._fd], [], [], max(until - time.monotonic(), 0))
        piece = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end open
            piece = os.read(self._fd, 1 << 16) if ready else b""
        self.shown += piece
        return bool(piece)
