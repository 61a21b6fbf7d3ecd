"""Framed streams: a job's log and state changes until its end, across lost connections."""

from __future__ import annotations

import json
from time import monotonic, sleep

from danlu.client.http import Lost, NoServer, query_of, quoted
from danlu.client.jobs import Job
from danlu.errors import ServerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from danlu.client.client import Client
    from danlu.client.http import Answer

RECONNECT_WITHIN_S = 30.0
# The server sends a heartbeat every 15 seconds; three missing heartbeats mean a dead connection.
SILENCE_S = 50.0


class Follow:
    """Iterate over log bytes and jobs (at the start, and at every change of state).

    `job` is the latest job object; after the iteration, the ended job.
    """

    def __init__(
        self,
        client: Client,
        opener: Callable[[], Answer] | None,
        ref: str = "",
        tail: int | None = None,
        *,
        reconnect_within_s: float = RECONNECT_WITHIN_S,
    ) -> None:
        self._reconnect_within_s = reconnect_within_s
        self._client, self._ref, self._tail = client, ref, tail
        self.offset = 0
        self.job: Job | None = None
        self.is_over = False
        self._pending, self._log_left = b"", 0
        self._opener = opener
        self._answer = self._opened()

    def _opened(self) -> Answer:
        if self._opener is not None and self.job is None:
            answer = self._opener()
        else:
            where = ("offset", self.offset) if self._tail is None else ("tail", self._tail)
            target = f"/jobs/{quoted(self._ref)}/follow" + query_of([where])
            answer = self._client.open("GET", target, start=self.job is None)
        answer.connection.set_timeout(SILENCE_S)
        self._pending, self._log_left = b"", 0
        return answer

    def __iter__(self) -> Iterator[bytes | Job]:
        try:
            while not self.is_over:
                yield from self.pump()
        finally:
            self.close()

    def fileno(self) -> int:
        return self._answer.connection.fileno()

    def has_arrived(self) -> bool:
        return self._answer.connection.has_arrived()

    def pump(self) -> list[bytes | Job]:
        """Wait for the next bytes; return the events in them, possibly none."""
        try:
            piece = self._answer.read()
            if not piece:
                raise Lost("the server ended the stream before the job ended")
        except Lost as lost:
            self._answer.close()
            self._answer = self._reopened(lost)
            return []
        return self._events(piece)

    def _events(self, piece: bytes) -> list[bytes | Job]:
        events: list[bytes | Job] = []
        data = self._pending + piece if self._pending else piece
        at = 0
        while at < len(data):
            if self._log_left:
                part = data[at : at + self._log_left]
                self._log_left -= len(part)
                self.offset += len(part)
                at += len(part)
                events.append(part)
                continue
            if len(data) - at < 5:
                break
            kind, size = data[at : at + 1], int.from_bytes(data[at + 1 : at + 5], "big")
            if kind == b"L":
                self._log_left = size
            elif len(data) - at < 5 + size:
                break
            elif kind in (b"J", b"E"):
                events.append(self._seen(json.loads(data[at + 5 : at + 5 + size])))
                self.is_over = kind == b"E"
            at += 5 if kind == b"L" else 5 + size
        self._pending = data[at:]
        return events

    def _seen(self, described: dict[str, Any]) -> Job:
        # After a tail, or at the start of another attempt's log, only the server knows the offset.
        if "log_offset" in described:
            self._tail, self.offset = None, int(described.pop("log_offset"))
        self.job = Job(self._client, described)
        self._ref = self.job.id
        return self.job

    def _reopened(self, lost: Lost) -> Answer:
        """Continue from the same byte. Never starts a server: after `danlu down` the server must stay down."""
        until, pause = monotonic() + self._reconnect_within_s, 0.02
        while True:
            try:
                return self._opened()
            except (Lost, NoServer) as error:
                if self.job is None:
                    raise
                if monotonic() >= until:
                    raise ServerDown(
                        f"{lost.text}, and no server has answered for {self._reconnect_within_s:.0f} seconds",
                        f"the job keeps running; `danlu logs -f {self._ref}` follows it again",
                    ) from error
            sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def close(self) -> None:
        self._answer.close()
