"""`danlu run --array`: submit many tasks, show their states, wait for all."""

from __future__ import annotations

from danlu.cli import render
from danlu.cli.commands.run import DETACHED, wants_stop
from danlu.cli.views.jobs import render_states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.cli.input.options import Values
    from danlu.cli.input.signals import Signals
    from danlu.client import Client

SHOWN_FAILURES = 5


def run_array(client: Client, body: dict[str, Any], signals: Signals, values: Values) -> int:
    """Returns 0 only if every task succeeded."""
    ref = str(client.submit_body(body)["id"])
    is_quiet, is_stopping = values["quiet"], False
    if not is_quiet:
        render.say(f"array {ref}", "dim")
    while True:
        # One second bounds the reaction to Ctrl-C and the age of the progress line.
        answer = client.wait_once(ref, 1.0)
        if answer["done"]:
            break
        if not is_quiet:
            render.progress(render_states(answer["states"]))
        taken = signals.taken()
        if taken and not is_stopping:
            if not wants_stop(signals, taken):
                render.say(f"array {ref} goes on; `danlu show {ref}` tells how it stands", "dim")
                return DETACHED
            is_stopping = True
            client.stop(ref)
    if values["json"]:
        render.as_json(answer)
    return _ended(ref, answer, is_quiet)


def _ended(ref: str, answer: dict[str, Any], is_quiet: bool) -> int:
    failed = [job for job in answer["items"] if job["state"] != "SUCCEEDED"]
    if not is_quiet:
        render.progress("")
        render.say(f"array {ref}: {render_states(answer['states'])}", "dim")
        for job in failed[:SHOWN_FAILURES]:
            code = "" if job.get("exit_code") is None else f" with exit code {job['exit_code']}"
            render.say(f"  {job['id']} {job['state'].lower().replace('_', ' ')}{code}; `danlu logs {job['id']}`", "dim")
    return 1 if failed else 0
