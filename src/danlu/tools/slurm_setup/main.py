"""The command `danlu slurm init`: read the machines, write the files. `danlu.cli.commands.tools` starts it."""

import argparse
import os
import pwd
import re
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from danlu.cli import render
from danlu.config.cluster import nodes_of, queues_of
from danlu.config.settings import load_settings
from danlu.errors import DanluError, Invalid, Refused
from danlu.tools.slurm_setup.blueprint import Blueprint, blueprint_of
from danlu.tools.slurm_setup.hostlist import folded
from danlu.tools.slurm_setup.rollout import first_test, render_check, render_install, render_readme, render_rollout
from danlu.tools.slurm_setup.side_files import CONSTRAINTS, render_cgroup_conf, render_gres_conf, render_slurmdbd_conf
from danlu.tools.slurm_setup.slurm_conf import Line, decisions, render_slurm_conf
from danlu.tools.slurm_setup.tryout import check_size, place_below, render_try

FOLDER = "slurm"
FIRST_PORT = 16817
SECRET = "slurmdbd.conf"


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    render.set_color(options.color)
    try:
        return _init(options)
    except DanluError as error:
        render.error(error)
        return error.exit_code
    except BrokenPipeError:
        return 141


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m danlu.tools.slurm_setup.main", allow_abbrev=False)
    parser.add_argument("config")
    parser.add_argument("--out", default=FOLDER)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--try-here", action="store_true")
    parser.add_argument("--port", type=int, default=FIRST_PORT)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--color", default="auto")
    return parser.parse_args(argv)


def _init(options: argparse.Namespace) -> int:
    folder = os.path.abspath(options.out)
    plan = _plan(options.config, options.try_here)
    if options.try_here:
        plan = _played_here(plan, folder, options.port)
        files = _try_files(plan, folder)
        steps = [
            f"sh {folder}/try.sh up",
            f"export SLURM_CONF={folder}/slurm.conf",
            "sinfo",
            "srun hostname",
            # A separate server, and no folder that exists only on the real machines.
            f"export DANLU_HOME={folder}/danlu DANLU_ENGINE_KIND=slurm DANLU_ENGINE_SHARED_DIR={folder}/shared",
            f"danlu up --detach --config {options.config}",
        ]
    else:
        files = _files(plan, folder)
        steps = [
            f"copy {options.out} to {plan.controller}; there, as root: sh rollout.sh",
            first_test(plan),
            f'`kind = "slurm"` in [engine] of {options.config}, and on {plan.controller}: '
            f"danlu doctor --config {options.config} --deep",
            f"danlu serve --config {options.config}",
        ]
    _write(folder, files, force=options.force)
    chosen = [*decisions(plan), *([] if options.try_here else CONSTRAINTS)]
    if options.json:
        render.as_json(
            {
                "cluster": plan.cluster,
                "controller": plan.controller,
                "nodes": list(plan.names),
                "queues": [one.name for one in plan.partitions],
                "folder": folder,
                "files": list(files),
                "decisions": [asdict(line) for line in chosen],
                "notes": list(plan.notes),
                "next": steps,
            }
        )
    else:
        _tell(plan, options.out, files, chosen, steps)
    return 0


def _plan(path: str, is_here: bool) -> Blueprint:
    settings = load_settings(path, os.environ)
    nodes = nodes_of(settings.nodes, shards_per_gpu=settings.engine.shards_per_gpu)
    plan = blueprint_of(settings, nodes, queues_of(settings.queues, nodes))
    if settings.slurm.controller or is_here:
        return plan
    note = f"no `slurm.controller` is named, so {plan.controller}, the first node, controls the cluster"
    return replace(plan, notes=(note, *plan.notes))


def _played_here(plan: Blueprint, folder: str, port: int) -> Blueprint:
    check_size(plan)
    if not 1024 <= port <= 65535 - len(plan.names):
        raise Invalid(f"--port takes the first of {len(plan.names) + 1} free ports, not {port}")
    notes = plan.notes
    if plan.has_accounting:
        notes += ("a cluster played by this machine has no database: `slurm.accounting` is ignored",)
    host = socket.gethostname().partition(".")[0]
    place = place_below(folder, pwd.getpwuid(os.getuid()).pw_name, port)
    return replace(plan, place=place, controller=host, has_accounting=False, notes=notes)


def _files(plan: Blueprint, folder: str) -> dict[str, str]:
    files = {
        "slurm.conf": render_slurm_conf(plan),
        "gres.conf": render_gres_conf(plan),
        "cgroup.conf": render_cgroup_conf(plan),
        "install.sh": render_install(plan),
        "check-node.sh": render_check(),
        "rollout.sh": render_rollout(plan),
    }
    if plan.has_accounting:
        files[SECRET] = render_slurmdbd_conf(plan, _password(os.path.join(folder, SECRET)))
    files["README.md"] = render_readme(plan, list(files))
    return files


def _try_files(plan: Blueprint, folder: str) -> dict[str, str]:
    return {
        "slurm.conf": render_slurm_conf(plan),
        "gres.conf": render_gres_conf(plan, f"{folder}/dev/nvidia"),
        "cgroup.conf": render_cgroup_conf(plan),
        "try.sh": render_try(plan, folder),
    }


def _password(path: str) -> str:
    """The existing password, so that the files of a running cluster can be written again; otherwise a new password."""
    try:
        with open(path) as file:
            found = re.search(r"(?m)^StoragePass=(\w+)$", file.read())
    except OSError:
        found = None
    return found[1] if found else secrets.token_hex(16)


def _write(folder: str, files: Mapping[str, str], *, force: bool) -> None:
    """Write all files, or none if any would overwrite other content."""
    for name, text in files.items():
        path = os.path.join(folder, name)
        try:
            with open(path) as file:
                is_other = file.read() != text
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError):
            is_other = True
        if is_other and not force:
            raise Refused(f"{path} exists with other content", "`--force` overwrites it, `--out` writes elsewhere")
    try:
        os.makedirs(folder, exist_ok=True)
        for name, text in files.items():
            _write_one(os.path.join(folder, name), text, 0o600 if name == SECRET else 0o644)
    except OSError as error:
        raise Invalid(f"cannot write {error.filename or folder}: {error.strerror}") from error


def _write_one(path: str, text: str, mode: int) -> None:
    # Write atomically, and never let a secret be readable.
    new = f"{path}.new"
    with open(new, "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    os.replace(new, path)


def _tell(plan: Blueprint, out: str, files: Mapping[str, str], chosen: Sequence[Line], steps: Sequence[str]) -> None:
    count = f"{len(plan.names)} node{'' if len(plan.names) == 1 else 's'}"
    render.out(f"cluster {plan.cluster}: {count}, controller {plan.controller}")
    for one in plan.machines:
        cards = "".join(f", {number} × {kind}" for kind, number in one.cards)
        render.out(f"  {folded(one.names)}: {one.cpus} cores, {one.memory_mib} MiB for jobs{cards}")
    render.out("\nwritten")
    for name in files:
        render.out(f"  {os.path.join(out, name)}")
    render.out("\ndecided (the reasons are in the files)")
    for line in chosen:
        render.out(f"  {line.name}={line.value}")
    if plan.notes:
        render.out("\ngood to know")
        for note in plan.notes:
            render.out(f"  {note}")
    render.out("\nnext")
    for step in steps:
        render.out(f"  {step}")


if __name__ == "__main__":
    sys.exit(main())
