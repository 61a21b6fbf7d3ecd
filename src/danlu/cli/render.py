"""The only module that writes to the terminal: data to stdout, messages to stderr, logs as raw bytes."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.errors import DanluError

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_wanted = "auto"


def set_color(when: str) -> None:
    """`auto`, `always` or `never`; with `auto`, NO_COLOR and a pipe mean never."""
    global _wanted
    _wanted = when


def is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def has_color(fd: int = 1) -> bool:
    if _wanted != "auto":
        return _wanted == "always"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and is_terminal(fd)


def painted(text: str, style: str, fd: int = 1) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and has_color(fd) else text


def width() -> int | None:
    """The columns of the terminal on stdout. None: stdout is no terminal, and nothing is cut."""
    try:
        return os.get_terminal_size(1).columns if is_terminal(1) else None
    except OSError:
        return None


def raw(data: bytes, fd: int = 1) -> None:
    """Write every byte, also to a slow or non-blocking reader. Raises BrokenPipeError if the reader went away."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            import select

            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def out(text: str) -> None:
    """Write a line of data."""
    raw(_encoded(text + "\n"), 1)


def say(text: str, style: str = "") -> None:
    """Write a message. No caller depends on messages, so a closed stderr is fine."""
    try:
        raw(_encoded(painted(text, style, 2) + "\n"), 2)
    except OSError:
        return


def progress(text: str) -> None:
    """Write a line that the next line replaces, on terminals only."""
    if is_terminal(2):
        raw(_encoded(f"\r\x1b[K{text}"), 2)


def as_json(data: object) -> None:
    import json

    out(json.dumps(data, indent=2))


def error(problem: DanluError) -> None:
    from danlu.cli.text import visible

    say(f"{painted('error', 'red', 2)}: {visible(problem.text, lines=True)}")
    if problem.hint:
        say(f"\n{painted('hint', 'cyan', 2)}: {visible(problem.hint, lines=True)}")


def trace() -> None:
    import traceback

    say(traceback.format_exc())


def question(text: str, wake: int = -1) -> str | None:
    """Ask on the terminal. None: no answer, or `wake` became readable first."""
    import select

    raw(_encoded(text), 2)
    poll = select.poll()
    for fd in (0, wake):
        if fd >= 0:
            poll.register(fd, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    # A terminal gives whole lines, so a read returns a whole answer.
    answer = os.read(0, 4096) if wake not in ready else b""
    return answer.decode("utf-8", "replace").strip().lower() if answer else None


def _encoded(text: str) -> bytes:
    return text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace")
