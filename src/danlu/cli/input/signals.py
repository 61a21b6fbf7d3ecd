"""Ctrl-C and other signals as a descriptor to poll, so that no signal interrupts a write or a read."""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
    from typing import Any, Protocol, Self

    class Readable(Protocol):
        def fileno(self) -> int: ...
        def has_arrived(self) -> bool: ...
else:
    import _signal  # `signal` wraps this module in enums, which costs three milliseconds


SIGINT, SIGTERM, SIGWINCH = 2, 15, 28
PATIENCE = 3


class Signals:
    """Inside the `with` block, signals wake `wait`, and `taken` returns the signals. Many Ctrl-C in a row
    still interrupt."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self._before: dict[int, Any] = {}
        self._interrupts = 0

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        for fd in (self._reader, self._writer):
            os.set_blocking(fd, False)
        self._wake_before = _signal.set_wakeup_fd(self._writer)
        for number in self._numbers:
            before = _signal.getsignal(number)
            # A background job of a script ignores SIGINT: keep ignoring SIGINT.
            if before != _signal.SIG_IGN:
                self._before[number] = before
                _signal.signal(number, self._noticed)
        return self

    def __exit__(self, *_: object) -> None:
        _signal.set_wakeup_fd(self._wake_before)
        for number, before in self._before.items():
            _signal.signal(number, before)
        os.close(self._reader)
        os.close(self._writer)

    def _noticed(self, number: int, frame: FrameType | None) -> None:
        if number == SIGINT:
            self._interrupts += 1
            if self._interrupts >= PATIENCE:
                raise KeyboardInterrupt

    def fileno(self) -> int:
        return self._reader

    def taken(self) -> set[int]:
        """The signals since the last call."""
        try:
            found = set(os.read(self._reader, 512)) & set(self._before)
        except BlockingIOError:
            return set()
        if SIGINT in found:
            self._interrupts = 0
        return found

    def wait(self, stream: Readable, seconds: float | None, *others: int) -> set[int]:
        """Wait for the stream, a signal, or another descriptor. Returns the readable descriptors.
        Empty: timeout."""
        if stream.has_arrived():
            return {stream.fileno()}
        poll = select.poll()
        for fd in (stream.fileno(), self._reader, *others):
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
