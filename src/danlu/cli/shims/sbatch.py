"""`sbatch`: submit a script; print its number."""

from __future__ import annotations

import os
from time import localtime, strftime, time

from danlu.cli import render
from danlu.cli.input import batch_scripts
from danlu.cli.text import epoch
from danlu.client import Client
from danlu.compat import batch_script, sbatch_options
from danlu.compat import sbatch as dialect
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.compat.sbatch import Request


def sbatch(words: list[str]) -> int:
    given, rest = dialect.read_words(words)
    names = {one.name for one in given}
    if names & {"help", "usage"}:
        render.out(_help())
        return 0
    if "version" in names:
        from danlu import __version__

        render.out(f"danlu {__version__} (sbatch)")
        return 0
    if "wrap" in names:
        if rest:
            raise Invalid("Script arguments not permitted with --wrap option")
        line = next(one.value for one in reversed(given) if one.name == "wrap")
        data, name = batch_script.wrapped(line).encode("utf-8", "surrogateescape"), "wrap"
    elif rest:
        data, name = batch_scripts.read_file(rest[0]), os.path.basename(rest[0])
    else:
        data, name = batch_scripts.read_stdin(), "sbatch"
    request = batch_scripts.request_of(data, given, rest[1:], name=name)
    client = Client(start=True)
    batch_scripts.settle(client, request)
    if "quiet" not in request.switches:
        for note in request.notes:
            render.say(f"sbatch: warning: {note}")
    options: Any = request.options
    body = client.body(request.command, options)
    if "test-only" in request.switches:
        return _test_only(client, body)
    return _submit(client, body, request)


def _submit(client: Client, body: dict[str, Any], request: Request) -> int:
    answer = client.submit_body(body)
    number = str(answer["jobs"][0]["number"]).partition("_")[0]
    if "parsable" in request.switches:
        render.out(number)
    elif "quiet" not in request.switches:
        render.out(f"Submitted batch job {number}")
    if "wait" not in request.switches:
        return 0
    while not (ended := client.wait_once(answer["id"], 30.0))["done"]:
        pass
    return max(0 if job["state"] == "SUCCEEDED" else job["exit_code"] or 1 for job in ended["items"])


def _test_only(client: Client, body: dict[str, Any]) -> int:
    plan = client.ask("POST", "/jobs?dry_run=true", body, again=True)
    seat = plan.get("seat") or {}
    at = time() if plan["fits_now"] else epoch(plan["estimated_at"]) if plan.get("estimated_at") else 0.0
    when = strftime("%Y-%m-%dT%H:%M:%S", localtime(at)) if at else "an unknown time"
    where = f" on nodes {seat['node']}" if seat.get("node") else ""
    render.say(f"sbatch: Job to start at {when} using {body.get('cpus', 1)} processors{where}")
    return 0


def _help() -> str:
    lines = ["Usage: sbatch [OPTIONS...] script [args...]", "", "These options work as in Slurm:"]
    lines += [f"  --{option.name}" + (f", -{option.short}" if option.short else "") for option in sbatch_options.USED]
    return "\n".join([*lines, "", "docs/coming-from-slurm.md says what becomes of the others."])
