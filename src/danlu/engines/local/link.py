"""The server's connection to the keeper: start a keeper if none answers, shake hands, ask, listen, reconnect."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from danlu.engines.local.protocol import PROTOCOL, parse_line, render_line
from danlu.errors import EngineDown
from danlu.paths import check_owned, make_private
from danlu.unix.descriptors import with_usual_limit

START_WITHIN_SECONDS = 15.0
ANSWER_WITHIN_SECONDS = 60.0
PUT_OFF_SECONDS = 0.05
MAX_LOG_BYTES = 1 << 20
# Started by code and not by -m: Python searches no site packages, and no PYTHON variable has an effect.
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from danlu.engines.local.keeper.main import main; sys.exit(main())"
)
_SOURCES = str(Path(__file__).resolve().parents[3])

log = logging.getLogger(__name__)


class KeeperLink:
    """The controlling connection. `on_runs(views, is_all)` receives every change."""

    def __init__(
        self, *, state_dir: str, socket: str, options: tuple[str, ...], on_runs: Callable[[list[Any], bool], None]
    ) -> None:
        self.keeper_pid = 0
        self._state_dir = state_dir
        self._socket = socket
        self._options = options
        self._on_runs = on_runs
        self._wire: _Wire | None = None
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._number = 0
        self._put_off: list[bytes] = []
        self._put_off_timer: asyncio.TimerHandle | None = None
        self._started_pids: set[int] = set()
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_closed = True
        self._is_replaced = False

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    def check_up(self) -> None:
        if self._wire is not None:
            return
        if self._is_replaced:
            raise EngineDown("another server has taken over the local runs", "only one server may use a state folder")
        raise EngineDown("the keeper of local runs does not answer", f"see {self._state_dir}/keeper.log")

    async def open(self) -> None:
        self._is_closed = self._is_replaced = False
        await self._connect()

    async def close(self) -> None:
        self._is_closed = True
        if self._reconnecting:
            self._reconnecting.cancel()
        self._send_put_off()
        if self._wire:
            self._wire.close()
        self._drop("the engine was closed")

    def tell(self, messages: list[dict[str, Any]]) -> None:
        """Send, and do not wait."""
        self.check_up()
        assert self._wire
        if messages:
            self._wire.write(self._put_off_lines() + b"".join(map(render_line, messages)))

    def tell_later(self, messages: list[dict[str, Any]]) -> None:
        """Send with the next message, or soon: no caller waits for these messages."""
        self.check_up()
        self._put_off += map(render_line, messages)
        if self._put_off and self._put_off_timer is None:
            self._put_off_timer = asyncio.get_running_loop().call_later(PUT_OFF_SECONDS, self._send_put_off)

    def _send_put_off(self) -> None:
        lines = self._put_off_lines()
        if self._wire:
            self._wire.write(lines)

    def _put_off_lines(self) -> bytes:
        if self._put_off_timer is not None:
            self._put_off_timer.cancel()
            self._put_off_timer = None
        lines = b"".join(self._put_off)
        self._put_off.clear()
        return lines

    async def ask(self, messages: list[dict[str, Any]]) -> None:
        """Send, and wait until the keeper has carried out all messages."""
        self.check_up()
        assert self._wire
        waits, lines = [], []
        for message in messages:
            self._number += 1
            self._answers[self._number] = asyncio.get_running_loop().create_future()
            waits.append(self._answers[self._number])
            lines.append(render_line({**message, "number": self._number}))
        self._wire.write(self._put_off_lines() + b"".join(lines))
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                for wait in waits:
                    await wait
        except TimeoutError:
            raise EngineDown("the keeper of local runs takes too long to answer") from None

    # Connecting and reconnecting

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(START_WITHIN_SECONDS):
                pause = 0.002
                while not await self._try_connect():
                    if await self._start_keeper_if_none() and await self._try_connect():
                        break
                    await asyncio.sleep(pause)  # a keeper is just leaving, or another process is starting a keeper
                    pause = min(pause * 1.2, 0.1)
        except TimeoutError:
            raise EngineDown("the keeper of local runs does not start", f"see {self._state_dir}/keeper.log") from None
        except OSError as error:
            raise EngineDown(f"the keeper of local runs cannot be started: {error}") from None

    async def _try_connect(self) -> bool:
        loop = asyncio.get_running_loop()
        check_owned(os.path.dirname(self._socket))
        try:
            _, wire = await loop.create_unix_connection(lambda: _Wire(self), self._socket)
        except (FileNotFoundError, ConnectionError):
            return False
        wire.write(render_line({"do": "hello", "protocol": PROTOCOL}))
        try:
            hello = await wire.hello
        except (ConnectionError, asyncio.CancelledError) as error:
            wire.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            return False  # the keeper was just leaving
        if hello["hello"]["protocol"] != PROTOCOL:
            self._make_room(wire, hello["hello"])
            return False
        self.keeper_pid = hello["hello"]["pid"]
        self._wire = wire
        self._on_runs(hello["runs"], True)
        return True

    def _make_room(self, wire: "_Wire", hello: dict[str, Any]) -> None:
        if hello.get("alive"):
            wire.close()
            raise EngineDown(
                f"the running keeper speaks version {hello['protocol']}, this server version {PROTOCOL}",
                f"start the server that fits it, or wait until its {hello['alive']} runs have ended",
            )
        wire.write(render_line({"do": "quit"}))
        wire.close()

    def _reap(self) -> None:
        for pid in list(self._started_pids):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self._started_pids.discard(pid)
            except ChildProcessError:
                self._started_pids.discard(pid)

    async def _start_keeper_if_none(self) -> bool:
        """True: a keeper was started and listens, or has left. Never start a second keeper: the lock would be taken."""
        self._reap()
        if self._started_pids:
            return False
        make_private(os.path.dirname(self._socket))
        os.makedirs(self._state_dir, mode=0o700, exist_ok=True)
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            self._started_pids.add(start_keeper(self._state_dir, self._socket, self._options, stdout=write_end))
        finally:
            os.close(write_end)
        await _end_of(read_end)
        return True

    def heard(self, message: dict[str, Any]) -> None:
        if "runs" in message:
            self._on_runs(message["runs"], False)
        elif "done" in message:
            wait = self._answers.pop(message["done"], None)
            if wait and not wait.done():
                wait.set_result(None)
        elif "replaced" in message:
            self._is_replaced = True

    def lost(self, wire: "_Wire") -> None:
        if wire is not self._wire:
            return
        self._drop("the keeper of local runs went away")
        if not self._is_closed and not self._is_replaced:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _drop(self, why: str) -> None:
        self._wire = None
        self._put_off_lines()  # after a reconnect the keeper reports all runs again
        answers, self._answers = self._answers, {}
        for wait in answers.values():
            if not wait.done():
                wait.set_exception(EngineDown(why))
                wait.exception()  # the caller may be gone: mark the exception as retrieved

    async def _reconnect(self) -> None:
        pause = 0.05
        while not self._is_closed:
            try:
                await self._connect()
            except EngineDown as error:
                log.warning("%s; trying again", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                return


class _Wire(asyncio.Protocol):
    def __init__(self, link: KeeperLink) -> None:
        self.hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._link = link
        self._transport: asyncio.WriteTransport | None = None
        self._incoming = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's transports do not inherit from this class

    def data_received(self, data: bytes) -> None:
        self._incoming += data
        if b"\n" not in data:
            return
        *lines, self._incoming = self._incoming.split(b"\n")
        for line in lines:
            message = parse_line(line)
            if self.hello.done():
                self._link.heard(message)
            elif "hello" in message:
                self.hello.set_result(message)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.hello.done():
            self.hello.set_exception(ConnectionResetError("the keeper hung up"))
        self._link.lost(self)

    def write(self, data: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport:
            self._transport.close()


async def _end_of(pipe: int) -> None:
    """Return when all copies of the other end are closed; closes the pipe."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(pipe)
        os.close(pipe)


def start_keeper(state_dir: str, socket: str, options: tuple[str, ...], *, stdout: int) -> int:
    """Start a keeper that outlives this process, in a new session. Return the pid. When the keeper listens, `stdout`
    ends."""
    log_path = os.path.join(state_dir, "keeper.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if os.path.exists(log_path) and os.path.getsize(log_path) > MAX_LOG_BYTES:
        flags |= os.O_TRUNC
    # The keeper gets only the variables that it needs to decode names in the same way as this process.
    env = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "LC_CTYPE") if name in os.environ}
    utf8 = ("-X", "utf8") if sys.getfilesystemencoding() == "utf-8" else ()
    journal = os.path.join(state_dir, "keeper.journal")
    arguments = [*utf8, "-c", _PROGRAM, _SOURCES, "--socket", socket, "--journal", journal, *options]
    program, words = with_usual_limit(sys.executable, [sys.executable, "-I", "-S", *arguments])
    return os.posix_spawn(
        program,
        words,
        env,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_OPEN, 2, log_path, flags, 0o600),
        ],
    )
