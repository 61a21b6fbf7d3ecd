"""HTTP/1.1 over a Unix socket, TCP or TLS: the minimum for a short command.

Importing `http.client`, `urllib` or `socket` costs more than a whole command, so this module uses `_socket`.
"""

from __future__ import annotations

import _socket
import os

from danlu.errors import Invalid, ServerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 18
MAX_HEAD = 1 << 16
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@:,")


class NoServer(ServerDown):
    """No server listens: the request was certainly not received."""


class Lost(ServerDown):
    """The connection broke before the answer was complete: the server may have executed the request."""


class Address:
    """The address of a server: `unix:///path`, `http://host:port` or `https://host:port`."""

    __slots__ = ("host", "path", "port", "scheme", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.scheme, _, rest = text.partition(":")
        self.host, self.path, self.port = "localhost", "", 0
        if self.scheme == "unix" and rest.startswith("/"):
            self.path = "/" + rest.lstrip("/")
            return
        host, colon, port = rest.removeprefix("//").rstrip("/").rpartition(":")
        if self.scheme not in ("http", "https") or not rest.startswith("//"):
            raise _bad_address(text)
        if not colon or "]" in port:
            host, port = rest.removeprefix("//").rstrip("/"), "443" if self.scheme == "https" else "80"
        if not host or any(c in host for c in "/@?# \r\n") or not (port.isascii() and port.isdigit() and len(port) < 6):
            raise _bad_address(text)
        self.host, self.port = host, int(port)


def _bad_address(text: str) -> Invalid:
    return Invalid(
        f"`{text}` is not a server's address", "for example `unix:///run/danlu/server.sock` or `https://gpu.lab:7443`"
    )


def quoted(text: str) -> str:
    """Text as a component of a path or query."""
    return "".join(chr(b) if b in _UNRESERVED else f"%{b:02X}" for b in text.encode("utf-8", "surrogateescape"))


def query_of(pairs: list[tuple[str, object]]) -> str:
    """`?name=value&…`; None and empty values are omitted."""
    given = [f"{name}={quoted(str(value))}" for name, value in pairs if value is not None and value != ""]
    return "?" + "&".join(given) if given else ""


class Connection:
    """A connection for a single request at a time."""

    def __init__(self, address: Address, timeout: float | None) -> None:
        self._sock = _connected(address, timeout)
        self._host = address.host if not address.port else f"{address.host}:{address.port}"
        self._buffer = b""

    def exchange(self, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        """Send a request in a single write, and read the head of the response."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body)
        status, fields = self._head()
        while status == 100:
            status, fields = self._head()
        return Answer(self, status, fields)

    def send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise Lost(f"the connection to the server broke: {error.strerror or error}") from error

    def take(self, most: int = CHUNK) -> bytes:
        """Wait for bytes, and return at least one byte."""
        if self._buffer:
            data, self._buffer = self._buffer[:most], self._buffer[most:]
            return data
        try:
            data = self._sock.recv(most)
        except TimeoutError as error:
            raise Lost("the server does not answer") from error
        except OSError as error:
            raise Lost(f"the connection to the server broke: {error.strerror or error}") from error
        if not data:
            raise Lost("the server closed the connection")
        return bytes(data)

    def line(self, most: int = MAX_HEAD) -> bytes:
        """The bytes up to the next line end, without the line end."""
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > most:
                raise ServerDown("the server at this address does not speak HTTP")
            kept, self._buffer = self._buffer, b""
            self._buffer = kept + self.take(1 << 16)
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _head(self) -> tuple[int, dict[str, str]]:
        first = self.line().split(None, 2)
        if len(first) < 2 or not first[0].startswith(b"HTTP/1.") or not first[1].isdigit():
            raise ServerDown("the server at this address does not speak HTTP")
        fields: dict[str, str] = {}
        while line := self.line():
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        return int(first[1]), fields

    def has_arrived(self) -> bool:
        """Whether the next bytes are already in user space."""
        pending = getattr(self._sock, "pending", None)
        return bool(self._buffer) or bool(pending and pending())

    def is_idle(self) -> bool:
        """Whether the connection can carry another request: open, without a rest of the last response."""
        import select

        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not self.has_arrived() and not poll.poll(0)

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def set_timeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def close(self) -> None:
        self._sock.close()


class Answer:
    """A response whose body is read piece by piece."""

    def __init__(self, connection: Connection, status: int, fields: dict[str, str]) -> None:
        self.connection, self.status, self.fields = connection, status, fields
        self._chunked = "chunked" in fields.get("transfer-encoding", "").lower()
        self._left: int | None = None if not self._chunked else 0
        if status in (101, 204, 304):
            self._left, self._chunked = 0, False
        elif not self._chunked and "content-length" in fields:
            self._left = int(fields["content-length"])
        self.is_over = self._left == 0 and not self._chunked
        self.keeps_alive = "close" not in fields.get("connection", "").lower() and self._left is not None

    def read(self) -> bytes:
        """The next piece of the body; empty at the end. A truncated body raises Lost."""
        if self.is_over:
            return b""
        if self._chunked and self._left == 0:
            self._next_chunk()
            if self.is_over:
                return b""
        if self._left is None:
            try:
                return self.connection.take()
            except Lost:
                self.is_over = True
                return b""
        piece = self.connection.take(min(self._left, CHUNK))
        self._left -= len(piece)
        if self._left == 0:
            if self._chunked:
                self.connection.line()
            else:
                self.is_over = True
        return piece

    def _next_chunk(self) -> None:
        size = self.connection.line().split(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError:
            raise Lost("the server's answer is garbled") from None
        if self._left == 0:
            while self.connection.line():
                pass
            self.is_over = True

    def body(self) -> bytes:
        pieces = []
        while piece := self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self.connection.close()


def _connected(address: Address, timeout: float | None) -> Any:
    if address.scheme == "unix":
        return _connected_unix(address, timeout)
    if address.scheme == "https":
        return _connected_tls(address, timeout)
    last: OSError | None = None
    host = address.host.strip("[]")
    try:
        found = _socket.getaddrinfo(host, address.port, 0, _socket.SOCK_STREAM)
    except OSError as error:
        raise _out_of_reach(address, error) from error
    for family, kind, protocol, _, where in found:
        sock = _socket.socket(family, kind, protocol)
        sock.settimeout(timeout)
        try:
            sock.connect(where)
        except OSError as error:
            sock.close()
            last = error
            continue
        # A request and its follow-up must not wait for each other's acknowledgement (Nagle: 44 ms).
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        return sock
    raise _out_of_reach(address, last)


def _connected_unix(address: Address, timeout: float | None) -> Any:
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # Before the timeout is set: with a timeout, a full backlog is an error instead of a wait.
        sock.connect(os.fsencode(address.path))
    except OSError as error:
        sock.close()
        raise _out_of_reach(address, error) from error
    sock.settimeout(timeout)
    return sock


def _connected_tls(address: Address, timeout: float | None) -> Any:
    import socket
    import ssl

    authority = os.environ.get("DANLU_CA_FILE") or None
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise Invalid(f"cannot use DANLU_CA_FILE `{authority}`: {error.strerror or error}") from error
    host = address.host.strip("[]")
    try:
        sock = socket.create_connection((host, address.port), timeout=timeout)
    except OSError as error:
        raise _out_of_reach(address, error) from error
    try:
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ServerDown(
            f"the certificate of {address.text} is not trusted: {error.verify_message}",
            "set DANLU_CA_FILE to the certificate of its authority",
        ) from error
    except OSError as error:
        sock.close()
        raise _out_of_reach(address, error) from error


def _out_of_reach(address: Address, error: OSError | None) -> ServerDown:
    why = (error.strerror or str(error)) if error else "no address"
    if isinstance(error, PermissionError):
        return ServerDown(
            f"may not open {address.text}: {why}", "this server belongs to another user; use your own server or a token"
        )
    return NoServer(f"no server answers at {address.text}: {why}", "is it running? Its address comes from DANLU_SERVER")
