"""uvicorn, with the Unix user of a local client where the address of a remote one would be."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from danlu.api.desk import PEER

ANSWER_S = 1.0  # what an answer that is under way gets at the end


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """The Unix user at the other end of a Unix socket, in the form of an address."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return f"{PEER}{uid}", 0


class PeerHttp(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = peer_of(transport) or self.client


class PeerWebSocket(WebSocketsSansIOProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = peer_of(transport) or self.client


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to whoever runs several of them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        hanging_up = asyncio.create_task(self._hang_up())
        await super().shutdown(sockets)
        hanging_up.cancel()

    async def _hang_up(self) -> None:
        """Whoever follows or waits sees a broken line, and comes back: a proper end would look like all there is."""
        await asyncio.sleep(ANSWER_S)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        while self.server_state.connections:  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.01)
        for task in [*self.server_state.tasks]:
            task.cancel()


def ends_quietly(app: ASGIApp) -> ASGIApp:
    """Nobody is there any more for an answer that is cancelled: it is no error, as it would be for uvicorn."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return answer


def make_server(app: ASGIApp, *, tls_cert: str = "", tls_key: str = "") -> QuietServer:
    config = uvicorn.Config(
        ends_quietly(app),
        http=PeerHttp,
        ws=PeerWebSocket,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        # Pooled clients must not meet a connection that was closed under them.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,  # for what even a broken line does not end
        ssl_certfile=tls_cert or None,
        ssl_keyfile=tls_key or None,
    )
    return QuietServer(config)
