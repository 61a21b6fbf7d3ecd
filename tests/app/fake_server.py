"""A small HTTP server on a Unix socket with canned answers: to test the client and the command line as processes.

It can die in the middle of anything, which a real server cannot be asked to do at a chosen byte."""

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


class Request:
    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        parts = urlsplit(target)
        self.method, self.path, self.headers, self.body = method, parts.path.removeprefix("/api/v1"), headers, body
        self.query = parse_qsl(parts.query, errors="surrogateescape")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Talk:
    """One connection, seen from the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file = sock.makefile("rb")

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, data: object, status: int = 200, content_type: str = "application/json") -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)

    def problem(self, status: int, code: str, detail: str, hint: str = "") -> None:
        data = {"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail, "hint": hint}
        self.answer(data, status, "application/problem+json")

    def begin_stream(self, extra: str = "") -> None:
        self.send(f"HTTP/1.1 200 OK\r\n{extra}Transfer-Encoding: chunked\r\n\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def frame(self, kind: str, payload: object = b"") -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.chunk(kind.encode() + len(data).to_bytes(4, "big") + data)

    def end_stream(self) -> None:
        self.send(b"0\r\n\r\n")

    def die(self) -> None:
        """Cut the connection as a killed server does."""
        self.sock.shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError


Handler = Callable[[Request, Talk], None]


class FakeServer:
    """Routes are `METHOD /path` (without /api/v1); `requests` is what was asked, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"unix://{path}"
        self.routes: dict[str, Handler] = {}
        self.requests: list[Request] = []
        self._listener: socket.socket | None = None

    def start(self) -> "FakeServer":
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        if self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self.path.unlink(missing_ok=True)

    def on(self, route: str, handler: Handler | object) -> None:
        """Answer a route with a function, or with this data."""
        if callable(handler):
            self.routes[route] = handler
        else:
            self.routes[route] = lambda _, talk: talk.answer(handler)

    def asked(self, route: str) -> list[Request]:
        return [request for request in self.requests if f"{request.method} {request.path}" == route]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        talk = Talk(sock)
        try:
            while (request := read_request(talk)) is not None:
                self.requests.append(request)
                handler = self.routes.get(f"{request.method} {request.path}")
                if handler is None:
                    talk.problem(404, "not_found", f"nothing at {request.method} {request.path}")
                else:
                    handler(request, talk)
        except (ConnectionError, ValueError):
            pass
        finally:
            sock.close()
            talk.file.close()


def read_request(talk: Talk) -> Request | None:
    first = talk.file.readline().decode("latin-1").split()
    if len(first) < 2:
        return None
    headers: dict[str, str] = {}
    while line := talk.file.readline().strip().decode("latin-1"):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = talk.file.read(int(headers.get("content-length", "0")))
    return Request(first[0], first[1], headers, body)


def a_job(job_id: str = "k3fz82aw", state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    """A job as the API describes it; a test names only what it is about."""
    return {
        "id": job_id,
        "seq": 17,
        "number": "17",
        "user": "li",
        "name": "",
        "state": state,
        "reason": {"code": state.lower(), "text": "running on desk" if state == "RUNNING" else ""},
        "place": None,
        "estimated_at": None,
        "command": ["python", "train.py"],
        "workdir": "/home/li",
        "env": {},
        "labels": {},
        "ask": {"gpus": 0, "gpu_model": None, "shards": 0, "cpus": 1, "memory_mib": 0, "nodes": 1},
        "priority": 5,
        "time_limit_s": None,
        "signal": "",
        "retries": 0,
        "attempt": 1,
        "after": [],
        "array_id": "",
        "array_index": None,
        "array": "",
        "snapshot": "",
        "submitted_at": "2026-11-15T10:00:00.000000Z",
        "started_at": None if state == "QUEUED" else "2026-11-15T10:00:01.000000Z",
        "ended_at": None if state in ("QUEUED", "STARTING", "RUNNING") else "2026-11-15T10:00:04.500000Z",
        "stop_requested_at": None,
        "exit_code": 0 if state == "SUCCEEDED" else None,
        "run_id": f"{job_id}.1",
        "node": None if state == "QUEUED" else "desk",
        "gpus": [],
        "shared_gpu": None,
        "log_path": f"/state/{job_id}.log",
        **changes,
    }


def server_at(folder: Path) -> FakeServer:
    """A server in a new folder whose path is short enough for a socket."""
    path = folder / "server.sock"
    if len(os.fsencode(path)) > 100:
        import tempfile

        path = Path(tempfile.mkdtemp(prefix="danlu-")) / "server.sock"
    return FakeServer(path).start()
