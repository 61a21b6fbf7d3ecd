"""Exec: a command beside a running job, over a WebSocket."""

from __future__ import annotations

import contextlib
import json
import os

from danlu.client.http import Lost, quoted
from danlu.client.wire import error_of
from danlu.errors import DanluError, ServerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from danlu.client.verbs import Client

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
STDIN, STDOUT, STDERR = b"\x00", b"\x01", b"\x02"


class Shell:
    """A command that runs beside a job. `pump` gives its output; `exit_code` is there when `is_over`."""

    def __init__(
        self,
        client: Client,
        ref: str,
        command: Sequence[str],
        *,
        tty: bool = False,
        size: tuple[int, int] = (24, 80),
        term: str = "xterm",
    ) -> None:
        import binascii

        headers = client.headers() | {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": binascii.b2a_base64(os.urandom(16), newline=False).decode("ascii"),
        }
        self._connection = client.connection()
        answer = self._connection.exchange("GET", f"/api/v1/jobs/{quoted(ref)}/exec", headers)
        if answer.status != 101:
            raise error_of(answer.status, answer.body())
        self._connection.set_timeout(None)
        self._data, self._parts = b"", b""
        self.is_over, self.exit_code = False, 1
        first = {"command": list(command), "tty": tty, "rows": size[0], "columns": size[1], "term": term}
        self._send(_TEXT, json.dumps(first).encode("ascii"))

    def fileno(self) -> int:
        return self._connection.fileno()

    def has_arrived(self) -> bool:
        return self._connection.has_arrived()

    def write(self, data: bytes) -> None:
        """Give the command input; empty means: no more."""
        if data:
            self._send(_BINARY, STDIN + data)
        else:
            self._send(_TEXT, b'{"eof": true}')

    def resize(self, rows: int, columns: int) -> None:
        self._send(_TEXT, json.dumps({"resize": [rows, columns]}).encode("ascii"))

    def pump(self) -> list[tuple[bytes, bytes]]:
        """Wait for the next bytes; give (STDOUT or STDERR, data) for what they bring."""
        try:
            self._data += self._connection.take()
        except Lost as lost:
            raise ServerDown(f"{lost.text} before the command ended", "the job itself is not touched") from lost
        output: list[tuple[bytes, bytes]] = []
        while (frame := self._frame()) is not None:
            kind, payload = frame
            if kind == _BINARY:
                output.append((payload[:1], payload[1:]))
            elif kind == _TEXT:
                self._told(json.loads(payload))
            elif kind == _PING:
                self._send(_PONG, payload)
            elif kind == _CLOSE:
                if not self.is_over:
                    raise ServerDown("the server closed the connection before the command ended")
                break
        return output

    def _told(self, message: dict[str, Any]) -> None:
        if "problem" in message:
            raise error_of(int(message["problem"].get("status") or 409), json.dumps(message["problem"]).encode())
        if "exit" in message:
            self.is_over, self.exit_code = True, int(message["exit"])

    def _frame(self) -> tuple[int, bytes] | None:
        """The next whole message, put together from its fragments."""
        while True:
            data = self._data
            if len(data) < 2:
                return None
            final, kind, size, at = data[0] & 0x80, data[0] & 0x0F, data[1] & 0x7F, 2
            if size >= 126:
                at = 4 if size == 126 else 10
                if len(data) < at:
                    return None
                size = int.from_bytes(data[2:at], "big")
            if len(data) < at + size:
                return None
            payload, self._data = data[at : at + size], data[at + size :]
            if kind >= _CLOSE:
                return kind, payload
            if kind:
                self._kind = kind
            self._parts += payload
            if final:
                whole, self._parts = self._parts, b""
                return self._kind, whole

    def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
        mask = os.urandom(4)
        pad = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")
        try:
            self._connection.send(head + mask + masked)
        except Lost:
            # What it said before it closed is still to be read, and says more than a broken pipe.
            if self.is_over:
                return
            raise

    def close(self) -> None:
        if self.is_over:
            with contextlib.suppress(DanluError):
                self._send(_CLOSE, b"\x03\xe8")
        self._connection.close()


def collected(client: Client, ref: str, command: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Run a command without input: exit code, stdout, stderr."""
    shell = Shell(client, ref, command)
    found = {STDOUT: b"", STDERR: b""}
    try:
        shell.write(b"")
        while not shell.is_over:
            for stream, data in shell.pump():
                found[stream] += data
    finally:
        shell.close()
    return shell.exit_code, found[STDOUT], found[STDERR]
