"""`danlu run`: submit, show the live log, exit with the job's exit code."""

from __future__ import annotations

from time import time

from danlu.cli import render
from danlu.cli.input.options import asked, connect
from danlu.cli.input.signals import SIGINT, SIGTERM, Signals
from danlu.cli.text import epoch, render_duration, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.cli.input.options import Values
    from danlu.client import Client, Follow, Job

INTERRUPTED = 130
DETACHED = INTERRUPTED
NOT_LOOKED_AT = "_new"  # suffix of a provisional reason code: the engine will soon give a better reason


def run(values: Values) -> int:
    command, options = asked(values)
    client = connect(values)
    body = client.body(command or [], options)
    if values["dry_run"]:
        from danlu.cli.commands.jobs import dry_run

        return dry_run(client, body, values)
    if values["detach"]:
        from danlu.cli.commands.jobs import print_submitted

        return print_submitted(client.submit_body(body), values)
    return follow(client, body, values)


def follow(client: Client, body: dict[str, Any], values: Values) -> int:
    """Submit, show the log until the end; the job's exit code."""
    with Signals(SIGINT, SIGTERM) as signals:
        if body.get("array"):
            from danlu.cli.commands.run_array import run_array

            return run_array(client, body, signals, values)
        return _Screen(client, signals, values).show(client.follow_new(body))


class _Screen:
    """The output of a followed job: the log on stdout, messages on stderr."""

    def __init__(self, client: Client, signals: Signals, values: Values) -> None:
        self._client, self._signals = client, signals
        self._is_quiet, self._as_json = values["quiet"], values["json"]
        self._log_fd = 2 if self._as_json else 1
        self._at_line_start = True
        self._announced = ""
        self._waits_for = ""
        self._is_stopping = False
        self._taken: set[int] = set()

    def show(self, stream: Follow) -> int:
        try:
            while not stream.is_over:
                # Keep a signal until the job has an id.
                if self._taken and stream.job and self._has_left(stream.job):
                    return DETACHED
                ready = self._signals.wait(stream, self._patience(stream.job))
                if self._signals.fileno() in ready:
                    self._taken |= self._signals.taken()
                if stream.fileno() in ready:
                    for event in stream.pump():
                        self._show_event(event)
                elif not ready and stream.job:
                    self._tell_waiting(stream.job)
        finally:
            stream.close()
        job = stream.job
        assert job is not None, "a stream is over only after its job was seen"
        if self._as_json:
            render.as_json(job.data)
        self._talk(render_end(job.data))
        return exit_code_of(job)

    def _show_event(self, event: bytes | Job) -> None:
        if isinstance(event, bytes):
            render.raw(event, self._log_fd)
            self._at_line_start = event.endswith(b"\n")
        elif not self._announced:
            self._announced = event.id
            self._talk(f"job {event.id}")
        elif event.state in ("STARTING", "RUNNING") and self._waits_for:
            self._talk(event.reason)
            self._waits_for = ""

    def _patience(self, job: Job | None) -> float | None:
        """The time before a message about a waiting job; a job that starts at once needs no message."""
        if job is None or job.state not in ("QUEUED", "PENDING") or job.data.get("stop_requested_at"):
            return None
        if self._is_quiet or self._waits_for == _why(job):
            return None
        if _why(job).endswith(NOT_LOOKED_AT):
            return 3.0
        return 0.3 if render.is_terminal(2) else 1.0

    def _tell_waiting(self, job: Job) -> None:
        self._waits_for = _why(job)
        estimate = job.data.get("estimated_at")
        left_s = epoch(estimate) - time() if estimate else 0.0
        when = f"; starts in about {render_duration(left_s)}" if left_s > 0 else ""
        self._talk(f"waiting: {job.reason or 'a place'}{when}")

    def _has_left(self, job: Job) -> bool:
        """Stop the job after a signal, or detach and let the job run. True: detached."""
        taken, self._taken = self._taken, set()
        if self._is_stopping:
            return False
        if not wants_stop(self._signals, taken):
            self._talk(f"job {job.id} goes on; `danlu logs -f {job.id}` follows it, `danlu stop {job.id}` ends it")
            return True
        self._is_stopping = True
        self._talk(f"stopping job {job.id}")
        self._client.stop(job.id)
        return False

    def _talk(self, text: str) -> None:
        if self._is_quiet:
            return
        if not self._at_line_start and render.is_terminal(1) and render.is_terminal(2):
            render.say("")
            self._at_line_start = True
        render.say(visible(text), "dim")


def wants_stop(signals: Signals, taken: set[int]) -> bool:
    """Ask the person at the terminal. Without a terminal, the job ends with its command."""
    if SIGTERM in taken or not render.is_terminal(0):
        return True
    while True:
        answer = render.question("\nstop the job, or detach and let it run? [s/d] ", signals.fileno())
        if answer is None:
            signals.taken()
            render.say("")
            return False
        if answer in ("s", "stop", "d", "detach"):
            return answer.startswith("s")


def _why(job: Job) -> str:
    """The code of the job's reason: numbers in the text may change all the time."""
    return str((job.data.get("reason") or {}).get("code") or "unknown")


def exit_code_of(job: Job) -> int:
    """The job's own exit code; 1 for an unsuccessful job without a code."""
    return 0 if job.succeeded else job.exit_code or 1


def render_end(job: dict[str, Any]) -> str:
    """`job k3fz82aw failed with exit code 3 after 1m: …`."""
    verb = {
        "SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELLED": "was stopped", "TIMED_OUT": "ran out of time",
        "LOST": "was lost",
    }.get(job["state"], job["state"].lower())  # fmt: skip
    code = job.get("exit_code")
    with_code = f" with exit code {code}" if code else ""
    took = ""
    if job.get("started_at") and job.get("ended_at"):
        took = f" after {render_duration(epoch(job['ended_at']) - epoch(job['started_at']))}"
    why = str((job.get("reason") or {}).get("text") or "")
    told = f": {why}" if why and job["state"] != "SUCCEEDED" and f"exit code {code}" not in why else ""
    return f"job {job['id']} {verb}{with_code}{took}{told}"
