"""Turns the parsed words of a command into arguments for the client: the connection, and a job's options."""

from __future__ import annotations

import os

from danlu.cli import render
from danlu.client import Client
from danlu.domain.options import OPTIONS, PAIRS, SWITCH
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.client.job_body import Options

    Values = dict[str, Any]


def connect(values: Values, *, start: bool = True, remembered: bool = True) -> Client:
    client = Client(values["server"] or "", start=start, remembered=remembered)
    client.on_upload = _upload_progress
    return client


def say_trouble(client: Client) -> None:
    """Warn that the output shows the last known state: the engine is out of reach."""
    if client.trouble:
        render.say(f"warning: {client.trouble}; what is shown is of then", "yellow")


def asked(values: Values, client: Client | None = None) -> tuple[list[str] | None, Options]:
    """The command after `--` and the options; both override the job file. Beside a batch script, the words after `--`
    are arguments of the script. `client` knows the queues and teams that the script may name."""
    options: dict[str, Any] = {}
    command: list[str] | None = None
    is_script = False
    named = values.get("file") or (values["words"][0] if "file" in values and values["words"] else None)
    if named:
        from danlu.cli.input.job_file import parse_job, read_file

        data = read_file(named)
        is_script = data.startswith(b"#!") or b"#SBATCH" in data
        if is_script:
            from danlu.compat.batch_script import is_script as looks_like_script

            is_script = looks_like_script(data)
        if is_script:
            command, options = _of_script(data, named, values["rest"] or [], client)
        else:
            command, options = parse_job(data, named)
    for option in OPTIONS:
        value = values[option.name]
        if option.kind == SWITCH:
            _add_switch(options, values, option.name)
        elif value in (None, []):
            continue
        elif option.kind == PAIRS:
            read = _variable if option.name == "env" else _label
            options[option.name] = {**options.get(option.name, {}), **dict(read(text) for text in value)}
        else:
            options[option.name] = value
    if values["snapshot"]:
        options["snapshot"] = True
    if values["no_inherit_env"]:
        options["inherit_env"] = False
    if options.get("snapshot"):
        options["snapshot_limit"] = _snapshot_limit(values["snapshot_limit"])
    asks: Any = options
    return command if is_script else values["rest"] or command, asks


def _of_script(data: bytes, path: str, arguments: list[str], client: Client | None) -> tuple[list[str], dict[str, Any]]:
    from danlu.cli.input import batch_scripts

    request = batch_scripts.request_of(data, [], arguments, name="sbatch" if path == "-" else os.path.basename(path))
    if client is not None:
        batch_scripts.settle(client, request)
    for note in request.notes:
        render.say(f"warning: {note}", "yellow")
    for switch in sorted(request.switches - {"quiet", "parsable"}):
        raise Invalid(f"the script asks for `--{switch}`, which `danlu submit` does not do", "use `sbatch`")
    return request.command, request.options


def _add_switch(options: dict[str, Any], values: Values, name: str) -> None:
    if values[name] and values[f"no_{name}"]:
        raise Invalid(f"--{name} or --no-{name}, not both")
    if values[name] or values[f"no_{name}"]:
        options[name] = bool(values[name])


def _label(text: str) -> tuple[str, str]:
    return pair(text, "--label")


def pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Invalid(f"{option} takes NAME=VALUE, not `{text}`", f"for example `{option} SEED=1`")
    return name, value


def _variable(text: str) -> tuple[str, str]:
    if "=" in text:
        return pair(text, "--env")
    if text not in os.environ:
        raise Invalid(
            f"--env {text}: there is no such variable in your environment", f"give it a value: `--env {text}=…`"
        )
    return text, os.environ[text]


def _snapshot_limit(given: str | None) -> int | None:
    text = given or os.environ.get("DANLU_SNAPSHOT_LIMIT")
    if not text:
        return None
    from danlu.domain.parsing import parse_memory_mib

    try:
        return parse_memory_mib(text) << 20
    except Invalid:
        raise Invalid(f"--snapshot-limit takes a size such as 500M or 2G, not `{text}`") from None


def _upload_progress(sent: int, total: int) -> None:
    if total > 1 << 20:
        render.progress(f"copying the code: {sent >> 20} of {total >> 20} MiB" if sent < total else "")
