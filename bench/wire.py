"""A client that costs next to nothing, so that what is measured is the server: HTTP/1.1 on its Unix socket."""

import json
import socket
from typing import Any, Self

PATIENCE_S = 120.0


class Wire:
    """One kept connection; one request at a time."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def open(self, method: str, target: str, body: object = None) -> tuple[dict[str, str], bytes]:
        """Send a request; the fields of the answer's head, and what came of its body already."""
        self.sock.sendall(request(method, target, body))
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._some()
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if not 200 <= int(first.split()[1]) < 300:
            raise RuntimeError(f"{method} {target}: {first} {rest[:500]!r}")
        return fields, rest

    def ask(self, method: str, target: str, body: object = None) -> dict[str, Any]:
        """A request and its whole answer."""
        fields, data = self.open(method, target, body)
        length = int(fields["content-length"])
        while len(data) < length:
            data += self._some()
        found: dict[str, Any] = json.loads(data)
        return found

    def first_output(self, command: list[str], line: bytes) -> None:
        """Submit and follow: returns when the job's line has arrived."""
        body = {"command": command, "environ": {"PATH": "/usr/bin:/bin"}}
        _, data = self.open("POST", "/jobs?follow=true", body)
        while line not in data:
            data = data[-len(line) :] + self._some()
        self._pending = data

    def rest_of_stream(self) -> None:
        data = self._pending
        while not data.endswith(b"0\r\n\r\n"):
            data = data[-16:] + self._some()

    def submit(self, command: list[str], **options: object) -> str:
        body = {"command": command, "environ": {"PATH": "/usr/bin:/bin"}, **options}
        found: str = self.ask("POST", "/jobs", body)["id"]
        return found

    def wait(self, ref: str) -> dict[str, int]:
        """Until all have ended; how many in which state."""
        while True:
            answer = self.ask("GET", f"/jobs/{ref}/wait?timeout=60")
            if answer["done"]:
                states: dict[str, int] = answer["states"]
                return states

    def _some(self) -> bytes:
        data = self.sock.recv(1 << 18)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data


def request(method: str, target: str, body: object = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode("ascii")
    about = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
    return f"{method} /api/v1{target} HTTP/1.1\r\nHost: localhost\r\n{about}\r\n".encode("ascii") + data
