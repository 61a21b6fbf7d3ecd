"""Exec: a command next to a running job, over a WebSocket."""

from __future__ import annotations

import contextlib
import json

from danlu.client.http import Lost, quoted
from danlu.client.session import error_of
from danlu.errors import DanluError, Invalid, ServerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from websockets.frames import Frame

    from danlu.client.client import Client

STDIN, STDOUT, STDERR = b"\x00", b"\x01", b"\x02"
MOST_BYTES = 1 << 16  # of one message to the server


class Shell:
    """A command next to a running job. `pump` returns its output; `exit_code` is valid when `is_over`."""

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
        first = {"command": list(command), "tty": tty, "rows": size[0], "columns": size[1], "term": term}
        said = json.dumps(first).encode("ascii")
        if len(said) > MOST_BYTES:
            raise Invalid(
                f"the command has {len(said) >> 10} KiB, and at most {MOST_BYTES >> 10} KiB reach a job",
                "give the text to its input, or put it into a file: danlu exec JOB -- sh < FILE",
            )
        from websockets.client import ClientProtocol
        from websockets.uri import parse_uri

        self._connection = client.connection()
        self._connection.set_timeout(None)
        self._protocol = ClientProtocol(parse_uri(f"ws://danlu/api/v1/jobs/{quoted(ref)}/exec"), max_size=None)
        self._parts: list[bytes] = []
        self._is_text = False
        self.is_over, self.exit_code = False, 1
        request = self._protocol.connect()
        request.headers.update(client.headers())
        self._protocol.send_request(request)
        self._flush()
        while self._protocol.state.name == "CONNECTING":
            self._receive()
            if self._protocol.handshake_exc is not None:
                raise ServerDown("the server refused the connection for this command") from self._protocol.handshake_exc
        self._early = self._frames()  # frames that arrived together with the handshake
        self._tell(first)

    def fileno(self) -> int:
        return self._connection.fileno()

    def has_arrived(self) -> bool:
        return bool(self._early) or self._connection.has_arrived()

    def write(self, data: bytes) -> None:
        """Send input to the command; empty means end of input."""
        if not self._is_open:
            return  # the command has ended, and reads no more input
        for start in range(0, len(data), MOST_BYTES):
            self._protocol.send_binary(STDIN + data[start : start + MOST_BYTES])
            self._flush()
        if not data:
            self._tell({"eof": True})

    def resize(self, rows: int, columns: int) -> None:
        if self._is_open:
            self._tell({"resize": [rows, columns]})

    def pump(self) -> list[tuple[bytes, bytes]]:
        """Wait for the next bytes; return (STDOUT or STDERR, data) pairs."""
        frames, self._early = self._early, []
        if not frames:
            self._receive()
            frames = self._frames()
        output: list[tuple[bytes, bytes]] = []
        for frame in frames:
            match frame.opcode.name:
                case "CLOSE":
                    if not self.is_over:
                        raise ServerDown("the server closed the connection before the command ended")
                case "TEXT" | "BINARY" | "CONT":
                    if frame.opcode.name != "CONT":
                        self._is_text = frame.opcode.name == "TEXT"
                    self._parts.append(bytes(frame.data))
                    if frame.fin:
                        whole, self._parts = b"".join(self._parts), []
                        if self._is_text:
                            self._told(json.loads(whole))
                        else:
                            output.append((whole[:1], whole[1:]))
        return output

    def _told(self, message: dict[str, Any]) -> None:
        if "problem" in message:
            raise error_of(int(message["problem"].get("status") or 409), json.dumps(message["problem"]).encode())
        if "exit" in message:
            self.is_over, self.exit_code = True, int(message["exit"])

    @property
    def _is_open(self) -> bool:
        return self._protocol.state.name == "OPEN"

    def _tell(self, message: dict[str, Any]) -> None:
        self._protocol.send_text(json.dumps(message).encode("ascii"))
        self._flush()

    def _frames(self) -> list[Frame]:
        from websockets.frames import Frame

        return [event for event in self._protocol.events_received() if isinstance(event, Frame)]

    def _receive(self) -> None:
        try:
            self._protocol.receive_data(self._connection.take())
        except Lost as lost:
            raise ServerDown(f"{lost.text} before the command ended", "the job itself is not affected") from lost
        self._flush()  # an answer to a ping, or to a close

    def _flush(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self._connection.send(data)
        except Lost:
            # The server's last message, still to be read, explains more than a broken pipe.
            if self.is_over:
                return
            raise

    def close(self) -> None:
        if self.is_over and self._is_open:
            with contextlib.suppress(DanluError):
                self._protocol.send_close(1000)
                self._flush()
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
