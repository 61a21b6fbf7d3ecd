"""uvicorn, with the Unix user of a local client where the address of a remote one would be."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from danlu.api.desk import PEER


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


def make_server(app: Any, *, tls_cert: str = "", tls_key: str = "") -> QuietServer:
    config = uvicorn.Config(
        app,
        http=PeerHttp,
        ws=PeerWebSocket,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        # Pooled clients must not meet a connection that was closed under them.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        ssl_certfile=tls_cert or None,
        ssl_keyfile=tls_key or None,
    )
    return QuietServer(config)
