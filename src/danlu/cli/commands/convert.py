"""`danlu convert`: a batch script as our job file."""

from __future__ import annotations

import os

import yaml

from danlu.cli import render
from danlu.cli.input import batch_scripts
from danlu.compat import batch_script
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.cli.input.options import Values
    from danlu.compat.sbatch import Request


def convert(values: Values) -> int:
    path = values["words"][0]
    data = batch_scripts.read_stdin() if path == "-" else batch_scripts.read_file(path)
    if not batch_script.is_script(data):
        raise Invalid(f"`{path}` is no batch script", "one begins with #! and has #SBATCH lines")
    name = "sbatch" if path == "-" else os.path.basename(path)
    request = batch_scripts.request_of(data, [], values["rest"] or [], name=name)
    if request.queues:
        request.options["queue"] = request.queues[0]
        if len(request.queues) > 1:
            request.notes.append(f"of `--partition={','.join(request.queues)}`, the first is used")
    if request.account:
        request.notes.append(f"`--account={request.account}`: write `team: {request.account}` if that is your team")
    for switch in sorted(request.switches):
        request.notes.append(f"`--{switch}` belongs to the command sbatch")
    if values["json"]:
        render.as_json({"command": request.command, "options": request.options, "notes": request.notes})
        return 0
    render.out(render_job_file(request).rstrip("\n"))
    return 0


def render_job_file(request: Request) -> str:
    """YAML that `danlu submit` reads as the same job; what could not be carried over is a comment."""
    data: dict[str, Any] = {name: value for name, value in request.options.items() if name != "inherit_env"}
    if request.options.get("inherit_env") is False:
        data["no-inherit-env"] = True
    data["command"] = request.command
    notes = "".join(f"# {' '.join(note.split())}\n" for note in request.notes)
    return notes + yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
