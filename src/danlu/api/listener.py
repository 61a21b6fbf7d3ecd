"""uvicorn's server, which accepts connections within the limits."""

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from danlu.api.connections import PEER, Line, Lines
from danlu.api.server import MOST_MESSAGE, TOO_MANY, PeerHttp, PeerWebSocket

log = logging.getLogger(__name__)

ANSWER_S = 1.0  # time for unfinished answers at shutdown
AT_ONCE = 64  # connections accepted before other tasks get their turn
REST_S = 1.0  # pause before the next try if the system has no room for a connection


class Listener:
    """Accepts the connections of one listening socket. A connection counts from its first moment: with TLS, asyncio
    itself would report a connection only after the handshake."""

    def __init__(
        self,
        listening: socket.socket,
        lines: Lines,
        make_protocol: Callable[[Line], PeerHttp],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening, self._lines, self._make_protocol, self._tls = listening, lines, make_protocol, tls
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._start()

    def close(self) -> None:
        if self._resting:
            self._resting.cancel()
        self._loop.remove_reader(self._listening.fileno())
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _start(self) -> None:
        self._resting = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be accepted for %g seconds: %s", REST_S, error.strerror)
                self._loop.remove_reader(self._listening.fileno())
                self._resting = self._loop.call_later(REST_S, self._start)
                return
            self._admit(connection, address)

    def _admit(self, connection: socket.socket, address: object) -> None:
        connection.setblocking(False)
        line = self._lines.take(_origin_of(connection, address), connection.close)
        if line is None:
            if self._tls is None:
                with contextlib.suppress(OSError):
                    connection.send(TOO_MANY)
            connection.close()
            return
        task = self._loop.create_task(self._open(connection, line))
        line.end = task.cancel
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, line: Line) -> None:
        protocol = self._make_protocol(line)
        patience = self._lines.patience_s if self._tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except (OSError, asyncio.CancelledError):
            connection.close()
            self._lines.let_go(line)


def _origin_of(connection: socket.socket, address: object) -> str:
    """The remote address; on a Unix socket, the user at the other end, as reported by the kernel."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return f"{PEER}{struct.unpack('3i', credentials)[1]}"
    assert isinstance(address, tuple)
    return str(address[0])


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller, which runs several servers."""

    def __init__(self, config: uvicorn.Config, lines: Lines) -> None:
        super().__init__(config)
        self._lines = lines

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def protocol_for(line: Line) -> PeerHttp:
            return PeerHttp(line, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

        made = [Listener(one, self._lines, protocol_for, self.config.ssl) for one in sockets or ()]
        self.servers = made  # type: ignore[assignment]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        self._lines.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        hanging_up = asyncio.create_task(self._hang_up())
        await super().shutdown(sockets)
        hanging_up.cancel()

    async def _hang_up(self) -> None:
        """Abort open connections: a following or waiting client sees the break and reconnects. A proper end would look
        like a complete answer."""
        await asyncio.sleep(ANSWER_S)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        while self.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event for this
            await asyncio.sleep(0.01)
        for task in [*self.server_state.tasks]:
            task.cancel()


def ends_quietly(app: ASGIApp) -> ASGIApp:
    """Suppress the cancellation of an answer: its client is gone. uvicorn would report an error."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return answer


def make_server(app: ASGIApp, lines: Lines, *, tls_cert: str = "", tls_key: str = "") -> QuietServer:
    config = uvicorn.Config(
        ends_quietly(app),
        http=PeerHttp,
        ws=PeerWebSocket,
        ws_max_size=MOST_MESSAGE,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        # Pooled clients must not reuse a connection just closed by the server.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,  # for requests that outlive an aborted connection
        ssl_certfile=tls_cert or None,
        ssl_keyfile=tls_key or None,
    )
    return QuietServer(config, lines)
