"""uvicorn, with the Unix user of a local client where the address of a remote one would be."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import struct
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from danlu.api.auth import PEER
from danlu.api.bodies import problem_out
from danlu.errors import TooMany

_SAID = json.dumps(problem_out(TooMany("you have too many connections open", "end some of your commands"))).encode()
_TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_SAID), _SAID)
)
ANSWER_S = 1.0  # what an answer that is under way gets at the end


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """The Unix user at the other end of a Unix socket, in the form of an address."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return f"{PEER}{uid}", 0


class Lines:
    """The open connections of each Unix user. Each takes a descriptor, which the server has not without end; root and
    whose the server is may always come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, set[asyncio.Transport]] = {}
        self._free = {f"{PEER}0", f"{PEER}{os.getuid()}"}

    def take(self, peer: str, transport: asyncio.Transport) -> bool:
        held = self._open.setdefault(peer, set())
        if len(held) >= self._most and peer not in self._free:
            return False
        held.add(transport)
        return True

    def let_go(self, peer: str, transport: asyncio.Transport) -> None:
        held = self._open.get(peer, set())
        held.discard(transport)
        if not held:
            self._open.pop(peer, None)


# Who is in a job takes five descriptors for one connection.
LINES = Lines(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)


class PeerHttp(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = peer_of(transport)
        self.client = peer or self.client
        if peer and not LINES.take(peer[0], transport):
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        _let_go(self.client, self.transport)
        super().connection_lost(exc)


class PeerWebSocket(WebSocketsSansIOProtocol):
    """Takes a connection over from a PeerHttp."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = peer_of(transport) or self.client

    def connection_lost(self, exc: Exception | None) -> None:
        _let_go(self.client, self.transport)
        super().connection_lost(exc)


def _let_go(client: tuple[str, int] | None, transport: asyncio.Transport) -> None:
    if client and client[0].startswith(PEER):
        LINES.let_go(client[0], transport)


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
