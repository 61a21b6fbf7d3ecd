"""The bash programs of a run, made of the `.sh` files beside this module. Pure.

The batch script starts the run's command. On several nodes it starts one rank per node with `srun`, and exchanges lines
with the ranks over srun's own streams: neither the controller nor the shared folder is involved.
The script writes to srun's standard input, which every rank reads:

    tell SIGNAL     to the command's process group
    warn SIGNAL     the notice: to those of its processes that handle the signal

A rank writes to standard error, between the messages of srun itself; the command's own output goes to standard output,
and from there into the log. Each line begins with the run's token:

    began RANK NODE
    told RANK NODE                 the rank got a signal: its later end is not its own
    unheard RANK NODE SIGNAL       no process there handles the signal
    failed RANK NODE CODE TEXT     the command could not be started
    ended RANK NODE CODE
"""

import shlex
from collections.abc import Mapping
from importlib import resources

from danlu.domain.resources import MEETING_PORTS
from danlu.engines.base import Launch
from danlu.engines.slurm.text.options import ALREADY_BEGUN, NO_FOLDER, milliseconds


def _part(name: str) -> str:
    return "\n" + resources.files(__package__).joinpath(f"{name}.sh").read_text("utf-8")


_SHARED, _BEGIN, _WATCH = _part("shared"), _part("begin"), _part("watch")
_ONE_NODE, _SEVERAL_NODES = _part("one_node"), _part("several_nodes")
_INSIDE, _RANK = _part("inside"), _part("rank")


def render_script(launch: Launch, folder: str, token: str, *, reaches_all: bool = True) -> str:
    """The batch script. `reaches_all`: Slurm signals every process of a run, not only the first."""
    notice = launch.notice
    values = {
        "folder": folder,
        "token": token,
        "nodes": str(launch.ask.nodes),
        "cpus": str(launch.ask.cpus),
        "limit": str(milliseconds(launch.time_limit)) if launch.time_limit else "",
        "grace": str(milliseconds(launch.grace)),
        "notice": notice.signal if notice else "",
        "lead": str(milliseconds(notice.lead)) if notice else "0",
        "reaches_all": "yes" if reaches_all else "",
        "first_port": str(MEETING_PORTS.start),
        "ports": str(len(MEETING_PORTS)),
    }
    return "\n".join(
        [
            "#!/bin/bash",
            f"# The run {launch.run_id} of Danlu. What its parts are for: see `danlu show`.",
            *_assignments(values),
            f"command=({' '.join(map(shlex.quote, launch.command))})",
            f"already_begun={ALREADY_BEGUN} no_folder={NO_FOLDER}",
            _SHARED,
            _BEGIN,
            _SEVERAL_NODES if launch.ask.nodes > 1 else _ONE_NODE,
            _WATCH,
        ]
    )


def render_inside(launch: Launch, folder: str) -> str:
    """The program that starts one command in the folder and environment of a run."""
    values = {
        "__danlu_folder": folder,
        "__danlu_workdir": launch.workdir,
        "__danlu_mask": f"{launch.umask:04o}",
        "__danlu_nodes": str(launch.ask.nodes),
    }
    return "\n".join(["#!/bin/bash", *_assignments(values), _INSIDE])


def render_rank(folder: str) -> str:
    """The program of one rank of a run on several nodes."""
    return "\n".join(["#!/bin/bash", *_assignments({"folder": folder}), _SHARED, _RANK])


def _assignments(values: Mapping[str, str]) -> list[str]:
    """Quoted assignments before the first line of bash: no value is ever inserted into the code."""
    return [f"{name}={shlex.quote(value)}" for name, value in values.items()]
