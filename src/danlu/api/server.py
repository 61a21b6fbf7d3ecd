"""uvicorn's protocols. For a local client, the Unix user stands in place of the remote address. Limits apply to the
bytes of a client before the server has identified the client."""

import asyncio
import json
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS, Request

from danlu.api.bodies import problem_out
from danlu.api.connections import LINE, PEER, Line
from danlu.errors import DanluError, Invalid, TooLong, TooMany

MOST_HEAD = 1 << 16  # bytes of a request line with all headers; also of trailers, and of text between chunks
MOST_MESSAGE = (1 << 16) + 1  # bytes of a WebSocket message: 64 KiB, and the byte for their type
MOST_PIECES = 1000  # frames of a WebSocket message: even an empty frame takes memory
LINGER_S = 2.0  # a refused client gets this time to read the reason


def answer_of(error: DanluError, status: int, phrase: str) -> bytes:
    """A complete HTTP answer that announces the end of the connection."""
    said = json.dumps(problem_out(error) | {"status": status}).encode()
    return (
        b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (status, phrase.encode(), len(said), said)
    )


TOO_MANY = answer_of(
    TooMany("there are too many connections open", "end some of your commands, or try again in a minute"),
    429,
    "Too Many Requests",
)
_TOO_LONG = answer_of(
    TooLong(f"the headers of the request are longer than {MOST_HEAD >> 10} KiB", "send less of them"),
    431,
    "Request Header Fields Too Large",
)
_NOT_HTTP = answer_of(Invalid("this is not HTTP", "see docs/api.md"), 400, "Bad Request")


class _TooLong(Exception):
    """Raised in a callback of the parser."""


class PeerHttp(HttpToolsProtocol):
    def __init__(self, line: Line, **given: Any) -> None:
        super().__init__(**given)
        self.line = line
        self._unheard = 0  # bytes since the parser last delivered a head or a part of a body
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.line.end = transport.abort
        if self.line.address.startswith(PEER):
            self.client = self.line.address, 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.lines.let_go(self.line)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self.line.is_known and self.line in self.line.lines.waiting:
            self.line.waits()
        if len(data) <= MOST_HEAD:
            self._feed(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), MOST_HEAD):
            # An upgrade in the middle hands the connection to another protocol; the rest is dropped.
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            self._feed(view[start : start + MOST_HEAD])

    def _feed(self, data: bytes | memoryview) -> None:
        if self._is_refused:
            return
        self._unheard += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        except httptools.HttpParserError as error:
            is_too_long = isinstance(error.__context__, _TooLong) or isinstance(error.__cause__, _TooLong)
            self._refuse(_TOO_LONG if is_too_long else _NOT_HTTP)
        else:
            # The parser joins the pieces of a header in turn: the work grows with the square of the header's length.
            if self._unheard > MOST_HEAD:
                self._refuse(_TOO_LONG)

    def _refuse(self, answer: bytes) -> None:
        """Answer, then close after `LINGER_S`: a client that still sends would lose the answer if reads stopped."""
        self._is_refused = True
        self.line.has_asked()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer to an earlier request is unfinished
            return
        self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[LINE] = self.line  # type: ignore[literal-required]
        self._unset_keepalive_if_required()
        self.line.waits()

    def on_headers_complete(self) -> None:
        if self._unheard > MOST_HEAD and self._head_bytes() > MOST_HEAD:
            raise _TooLong
        self._unheard = 0
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = []  # trailers end up in this list, and do not change the request

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        self._unheard = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unheard = 0
        self.line.has_asked()
        if self.cycle is None or not self.cycle.response_complete:
            self.line.is_busy = True
        elif not self.transport.is_closing():  # the answer was complete before the request
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.line.is_busy = bool(self.pipeline)
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        lines = [len(name) + len(value) + 8 for name, value in self.headers]
        if len(lines) > MAX_NUM_HEADERS or max([*lines, len(self.url) + 32]) > MAX_LINE_LENGTH:
            self._refuse(_TOO_LONG)  # for the WebSocket protocol, which would take over
            return
        super().handle_websocket_upgrade()


class PeerWebSocket(WebSocketsSansIOProtocol):
    """Takes a connection over from a PeerHttp."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        before = transport.get_protocol()
        assert isinstance(before, PeerHttp)
        self.line, self.client = before.line, before.client
        self.line.waits()  # for the first message
        self.line.is_busy = False  # a stranger on a WebSocket gives way like a waiting stranger

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.lines.let_go(self.line)
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope[LINE] = self.line  # type: ignore[literal-required]

    def send_receive_event_to_app(self) -> None:
        self.line.has_asked()
        super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MOST_PIECES:
            self.transport.abort()
            return
        super().handle_cont(event)
