"""A job as last described by the server, and its log."""

from __future__ import annotations

from danlu.client.http import Lost, query_of, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Self, Unpack

    from danlu.client.client import Client
    from danlu.client.job_body import Options

ENDED = frozenset(("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "LOST"))


def is_ended(data: Mapping[str, Any]) -> bool:
    """Whether a job, or every task of an array, has ended."""
    if data.get("array") is True:
        return all(state in ENDED or not count for state, count in data["states"].items())
    return data["state"] in ENDED


class Job:
    """A job or an array. Its properties show the last answer; `refresh` asks again."""

    __slots__ = ("_client", "data")

    def __init__(self, client: Client, data: dict[str, Any]) -> None:
        self._client = client
        self.data = data

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def name(self) -> str:
        return str(self.data.get("name") or "")

    @property
    def user(self) -> str:
        return str(self.data.get("user") or "")

    @property
    def is_array(self) -> bool:
        return self.data.get("array") is True

    @property
    def state(self) -> str:
        """For an array: RUNNING or QUEUED while a task is active, then the worst end."""
        if not self.is_array:
            return str(self.data["state"])
        states: dict[str, int] = self.data["states"]
        order = ("RUNNING", "STARTING", "PENDING", "QUEUED", "FAILED", "LOST", "TIMED_OUT", "CANCELLED")
        return next((state for state in order if states.get(state)), "SUCCEEDED")

    @property
    def is_ended(self) -> bool:
        return is_ended(self.data)

    @property
    def succeeded(self) -> bool:
        return self.state == "SUCCEEDED"

    @property
    def exit_code(self) -> int | None:
        code = self.data.get("exit_code")
        return None if code is None else int(code)

    @property
    def reason(self) -> str:
        """Why the job waits or how it ended, in a sentence."""
        return str((self.data.get("reason") or {}).get("text") or "")

    def refresh(self) -> Self:
        self.data = self._client.job(self.id).data
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Wait for the end. TimeoutError after `timeout` seconds."""
        self.data = self._client.wait(self.id, timeout=timeout).data
        return self

    def logs(self, *, follow: bool = True, tail: int | None = None, attempt: int | None = None) -> Log:
        """The log until the job has ended; with `follow=False`, the current log."""
        return self._client.logs(self.id, follow=follow, tail=tail, attempt=attempt)

    def stop(self, *, now: bool = False, kill: bool = False) -> Self:
        self._client.stop(self.id, now=now, kill=kill)
        return self.refresh()

    def clone(self, **changes: Unpack[Options]) -> Job:
        return self._client.clone(self.id, **changes)

    def why(self) -> dict[str, Any]:
        return self._client.why(self.id)

    def exec(self, command: list[str]) -> tuple[int, bytes, bytes]:
        """Run a command next to the job, in its environment: exit code, stdout, stderr."""
        return self._client.exec(self.id, command)

    def remove(self) -> None:
        self._client.remove(self.id)

    def tasks(self) -> Iterator[Job]:
        """The tasks of an array, newest first."""
        return self._client.jobs(array=self.id, user="all")


class Log:
    """A job's log. Iterate over bytes as they arrive, or read all: `bytes()`, `text()`, `lines()`."""

    def __init__(self, client: Client, ref: str, *, follow: bool, tail: int | None, attempt: int | None) -> None:
        self._client, self._ref = client, ref
        self._follow, self._tail, self._attempt = follow, tail, attempt

    def __iter__(self) -> Iterator[bytes]:
        if self._follow and self._attempt is None:
            for event in self._client.follow(self._ref, tail=self._tail):
                if isinstance(event, bytes):
                    yield event
            return
        wanted = [("follow", "true" if self._follow else None), ("tail", self._tail), ("attempt", self._attempt)]
        answer = self._client.open("GET", f"/jobs/{quoted(self._ref)}/logs" + query_of(list(wanted)))
        whole = False
        try:
            while piece := answer.read():
                yield piece
            whole = True
        except Lost as lost:
            raise Lost(lost.text, "the rest of the log is missing; the job itself is not affected") from lost
        finally:
            # A reader that stops early leaves bytes unread: the connection cannot be reused.
            self._client.release(answer) if whole else answer.close()

    def bytes(self) -> bytes:
        return b"".join(self)

    def text(self) -> str:
        return self.bytes().decode("utf-8", "replace")

    def lines(self) -> Iterator[str]:
        rest = b""
        for piece in self:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    def __str__(self) -> str:
        return self.text()
