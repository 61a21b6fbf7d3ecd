"""A process inside a run: a step of `srun` with a terminal or pipes."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import secrets
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence
from typing import IO

from danlu.engines.slurm.commands import Person, become
from danlu.errors import EngineDown
from danlu.unix.descriptors import with_usual_limit

CHUNK = 1 << 16
_END_OF_INPUT = b"\x04"
# Messages of srun about the command's end: the exit code says the same.
_OF_THE_END = re.compile(rb"error: [^\s:]+: task 0: |Force Terminated |Terminating |First task exited ")


def open_stream(
    argv: Sequence[str],
    env: dict[str, str],
    person: Person,
    hang_up_s: float,
    *,
    tty: bool,
    rows: int,
    columns: int,
) -> "Step":
    """Start `srun`. Needs a running loop."""
    # srun puts this name before its messages: the command cannot forge them, nor can an srun inside.
    name = f"danlu-{secrets.token_hex(8)}"
    program, words = argv[0], [name, *argv[1:]]
    try:
        if tty:
            ours, theirs = pty.openpty()
            _resize(ours, rows or 24, columns or 80)
            try:
                process = _spawn(program, words, env, person, theirs, theirs, subprocess.PIPE)
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            (stderr,) = _taken(process.stderr)
            return Step(process, name, hang_up_s, ours, {ours: "stdout", stderr: "stderr"}, tty=True)
        process = _spawn(program, words, env, person, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
    except OSError as error:
        raise EngineDown(f"srun cannot be run: {error.strerror}") from None
    stdin, stdout, stderr = _taken(process.stdin, process.stdout, process.stderr)
    return Step(process, name, hang_up_s, stdin, {stdout: "stdout", stderr: "stderr"}, tty=False)


def _taken(*files: IO[bytes] | None) -> list[int]:
    """Duplicate the descriptors, and close the file objects around them."""
    found = []
    for file in files:
        assert file is not None
        found.append(os.dup(file.fileno()))
        file.close()
    return found


def _spawn(
    program: str, argv: list[str], env: dict[str, str], person: Person, stdin: int, stdout: int, stderr: int
) -> "subprocess.Popen[bytes]":
    executable, words = with_usual_limit(*become(person, program, argv))
    return subprocess.Popen(
        words,
        executable=executable,
        env=env,
        cwd="/",
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        bufsize=0,
    )


def _resize(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Step:
    """A Stream. `name` stands before each message of srun."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        name: str,
        hang_up_s: float,
        stdin: int,
        outputs: dict[int, str],
        *,
        tty: bool,
    ) -> None:
        self._hang_up_s = hang_up_s
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._stdin = stdin
        self._outputs = outputs
        self._tty = tty
        self._own_words = re.compile(rb"%s: ([^\n]*)(\n|\Z)" % name.encode())
        self._held = b""  # an incomplete message of srun
        self._output: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._is_closed = False
        self._pid_fd = os.pidfd_open(process.pid)
        for fd in {stdin, *outputs}:
            os.set_blocking(fd, False)
        for fd in outputs:
            self._loop.add_reader(fd, self._hear, fd)
        self._loop.add_reader(self._pid_fd, self._over)

    def _hear(self, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # the other end of the terminal is closed
            data = b""
        if data:
            self._pass_on(self._outputs[fd], data)
            if self._output.qsize() > 16:  # a slow reader stops the writer, and fills no memory
                self._loop.remove_reader(fd)
                self._loop.call_later(0.05, self._listen_again, fd)
            return
        self._drop(fd)

    def _pass_on(self, name: str, data: bytes, *, is_last: bool = False) -> None:
        if name == "stderr":
            data = self._held + data
            found = [*self._own_words.finditer(data)]
            cut = len(data)
            # Limited: a command with knowledge of the name could send an endless message.
            if found and not found[-1][2] and not is_last and cut - found[-1].start() < CHUNK:
                cut = found[-1].start()
            data, self._held = self._own_words.sub(self._worded, data[:cut]), data[cut:]
        if data:
            self._output.put_nowait((name, data))

    def _worded(self, word: re.Match[bytes]) -> bytes:
        if _OF_THE_END.match(word[1]):
            return b""
        # stderr passed no terminal, so nothing turned the line's end into CR LF.
        return b"danlu: " + word[1] + (b"\r\n" if self._tty else b"\n")

    def _listen_again(self, fd: int) -> None:
        if fd not in self._outputs:
            return
        if self._output.qsize() > 16:
            self._loop.call_later(0.05, self._listen_again, fd)
        else:
            self._loop.add_reader(fd, self._hear, fd)

    def _drop(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        name = self._outputs.pop(fd, None)
        if name == "stderr":
            self._pass_on(name, b"", is_last=True)
        if name and fd != self._stdin:
            os.close(fd)
        if not self._outputs:
            self._output.put_nowait(None)

    def _over(self) -> None:
        self._loop.remove_reader(self._pid_fd)
        os.close(self._pid_fd)
        code = self._process.wait()
        if not self._exit.done():
            self._exit.set_result(code if code >= 0 else 128 - code)

    async def read(self) -> tuple[str, bytes] | None:
        if self._is_closed:
            return None
        piece = await self._output.get()
        if piece is None:
            self._output.put_nowait(None)
        return piece

    async def write(self, data: bytes) -> None:
        """Drops the input of an ended process."""
        left = memoryview(data)
        while left and self._stdin >= 0 and not self._exit.done():
            try:
                left = left[os.write(self._stdin, left) :]
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError:
                return

    async def close_input(self) -> None:
        if self._tty:
            await self.write(_END_OF_INPUT)
        elif self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def resize(self, rows: int, columns: int) -> None:
        if self._tty and self._stdin >= 0 and not self._exit.done():
            with contextlib.suppress(OSError):
                _resize(self._stdin, rows, columns)
                # The kernel signals the controlling terminal only, and srun has another.
                self._process.send_signal(signal.SIGWINCH)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._stdin >= 0 and not self._tty:
            os.close(self._stdin)
            self._stdin = -1
        for sign in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            if self._exit.done():
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._hang_up_s):
                    await asyncio.shield(self._exit)
        for fd in list(self._outputs):
            self._drop(fd)
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        self._output.put_nowait(None)
