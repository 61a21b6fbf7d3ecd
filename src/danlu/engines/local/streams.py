"""Streams to a process inside a run: the keeper passes terminal or pipes to the server, and reports the exit code."""

import array
import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any

from danlu.engines.base import Stream
from danlu.engines.local.protocol import parse_line, render_line
from danlu.errors import EngineDown, Refused

CHUNK = 1 << 16
ANSWER_WITHIN_SECONDS = 60.0
_END_OF_INPUT = b"\x04"


async def open_stream(path: str, asked: dict[str, Any], *, tty: bool) -> Stream:
    """Ask the keeper for a process. If the start fails, the stream prints the cause and ends, as in a shell."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, path)
        await loop.sock_sendall(sock, render_line(asked))
        async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
            await _readable(sock.fileno())
        data, fds = _receive(sock)
        answer = parse_line(data.partition(b"\n")[0])
    except (OSError, ValueError):  # a timeout is an OSError too
        sock.close()
        raise EngineDown("the keeper of local runs does not answer") from None
    except asyncio.CancelledError:
        sock.close()
        raise
    if "refused" in answer:
        sock.close()
        raise Refused(f"no process can be started inside: {answer['refused']}", code="not_running")
    stream = LocalStream(sock, fds, tty=tty, rest=data.partition(b"\n")[2])
    if "failed" in answer:
        stream.told(f"danlu: {answer['failed']}\n".encode("utf-8", "replace"), answer["exit"])
    return stream


class LocalStream:
    def __init__(self, sock: socket.socket, fds: list[int], *, tty: bool, rest: bytes = b"") -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._tty = tty
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._input = fds[0] if fds else -1
        # A terminal is input and output; among pipes, the first is input only.
        self._outputs = dict(zip(fds if tty else fds[1:], ("stdout", "stderr"), strict=False))
        self._said: list[bytes] = []
        self._waiting = 0  # readers and writers that wait for a descriptor of this stream
        self._nobody_waits = asyncio.Event()
        self._nobody_waits.set()
        self._is_closed = False
        self._control = bytearray(rest)
        for fd in fds:
            os.set_blocking(fd, False)
        self._loop.add_reader(sock.fileno(), self._hear)
        self._understand()

    def told(self, text: bytes, code: int) -> None:
        self._said.append(text)
        if not self._exit.done():
            self._exit.set_result(code)

    def _hear(self) -> None:
        try:
            data = self._sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._control += data
        self._understand()
        if not data:
            self._loop.remove_reader(self._sock.fileno())
            if not self._exit.done():
                self._exit.set_exception(EngineDown("the keeper of local runs went away"))
                self._exit.exception()  # perhaps no caller waits: mark the exception as retrieved

    def _understand(self) -> None:
        *lines, self._control = self._control.split(b"\n")
        for line in lines:
            message = parse_line(line)
            if "exit" in message and not self._exit.done():
                self._exit.set_result(message["exit"])

    async def read(self) -> tuple[str, bytes] | None:
        while not self._is_closed:
            if self._said:
                return "stderr", self._said.pop()
            has_ended = self._exit.done()  # checked before reading: the last output is readable by then
            for fd, name in list(self._outputs.items()):
                try:
                    data = os.read(fd, CHUNK)
                except BlockingIOError:
                    continue
                except OSError:  # a terminal without any process
                    data = b""
                if data:
                    return name, data
                self._drop_output(fd)
            if has_ended or not self._outputs:
                return None
            await self._until(_readable, *self._outputs)
        return None

    async def _until(self, ready: Callable[..., Awaitable[None]], *fds: int) -> None:
        self._waiting += 1
        self._nobody_waits.clear()
        try:
            await ready(*fds, unless=self._exit)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._nobody_waits.set()

    def _drop_output(self, fd: int) -> None:
        del self._outputs[fd]
        if fd != self._input:
            os.close(fd)

    async def write(self, data: bytes) -> None:
        """Drops input for a process that no longer reads."""
        left = memoryview(data)
        while left and self._input >= 0 and not self._exit.done() and not self._is_closed:
            try:
                left = left[os.write(self._input, left) :]
            except BlockingIOError:
                await self._until(_writable, self._input)
            except OSError:
                return

    async def close_input(self) -> None:
        if self._tty:
            await self.write(_END_OF_INPUT)
        elif self._input >= 0:
            os.close(self._input)
            self._input = -1

    async def resize(self, rows: int, columns: int) -> None:
        if self._tty and self._input >= 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        if not self._exit.done():
            self._exit.set_exception(EngineDown("the stream was closed"))
            self._exit.exception()
        elif self._is_closed:
            return
        self._is_closed = True
        await self._nobody_waits.wait()  # readers and writers stop using the descriptors before the close below
        for fd in {*self._outputs, *([self._input] if self._input >= 0 else [])}:
            os.close(fd)
        self._outputs.clear()
        self._input = -1


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    data, ancillary, _, _ = sock.recvmsg(CHUNK, socket.CMSG_SPACE(3 * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


async def _readable(*fds: int, unless: asyncio.Future[int] | None = None) -> None:
    loop = asyncio.get_running_loop()
    await _until(loop.add_reader, loop.remove_reader, fds, unless)


async def _writable(fd: int, unless: asyncio.Future[int]) -> None:
    loop = asyncio.get_running_loop()
    await _until(loop.add_writer, loop.remove_writer, (fd,), unless)


async def _until(
    add: Callable[..., object],
    remove: Callable[[int], object],
    fds: tuple[int, ...],
    unless: asyncio.Future[int] | None,
) -> None:
    """Wait until a descriptor is ready, or `unless` is done."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(*_: object) -> None:
        if not ready.done():
            ready.set_result(None)

    for fd in fds:
        add(fd, wake)
    if unless:
        unless.add_done_callback(wake)
    try:
        await ready
    finally:
        for fd in fds:
            remove(fd)
        if unless:
            unless.remove_done_callback(wake)
