"""`danlu exec`: a command, or a shell with a terminal, beside a running job."""

from __future__ import annotations

import contextlib
import os

from danlu.cli import render
from danlu.cli.input.options import connect
from danlu.cli.input.signals import SIGWINCH, Signals
from danlu.client.shell import STDERR, Shell
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from danlu.cli.input.options import Values

# The shell from the job's own environment, not from this terminal's.
SHELL = ["/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"']


def run_beside(values: Values) -> int:
    ref, tty = values["words"][0], values["tty"]
    command = values["rest"] or (SHELL if tty else None)
    if command is None:
        raise Invalid(
            "`danlu exec` needs a command", f"`danlu exec {ref} -- nvidia-smi`, or a shell: `danlu exec -t {ref}`"
        )
    if tty and not (render.is_terminal(0) and render.is_terminal(1)):
        raise Invalid("-t needs a terminal", "leave out -t in scripts and pipes")
    size = os.get_terminal_size(0) if tty else os.terminal_size((80, 24))
    rows, columns = size.lines or 24, size.columns or 80
    term = os.environ.get("TERM", "xterm")
    shell = Shell(connect(values), ref, command, tty=tty, size=(rows, columns), term=term)
    try:
        with _raw_terminal() if tty else contextlib.nullcontext(), Signals(*([SIGWINCH] if tty else [])) as signals:
            _converse(shell, signals)
    finally:
        shell.close()
    return shell.exit_code


def _converse(shell: Shell, signals: Signals) -> None:
    """Carry bytes both ways until the command has ended."""
    is_typing = True
    while not shell.is_over:
        ready = signals.wait(shell, None, *([0] if is_typing else []))
        if signals.fileno() in ready and signals.taken():
            size = os.get_terminal_size(0)
            shell.resize(size.lines, size.columns)
        if is_typing and 0 in ready:
            data = _typed()
            shell.write(data)
            is_typing = bool(data)
        if shell.fileno() in ready:
            for stream, data in shell.pump():
                render.raw(data, 2 if stream == STDERR else 1)


def _typed() -> bytes:
    try:
        return os.read(0, 1 << 16)
    except OSError:
        return b""


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass every key to the command, also Ctrl-C; restore the terminal afterwards."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)  # flushing would lose keys typed ahead
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
