"""`danlu shims`: small files named `sbatch`, `squeue`… that call Danlu."""

from __future__ import annotations

import os
import sys

from danlu.cli import render
from danlu.cli.shims.main import COMMANDS
from danlu.errors import Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values

_MARK = b"# made by `danlu shims install`"
_LAUNCHERS = ("ilaunch", "zlaunch")


def install(values: Values) -> int:
    folder = _folder(values)
    hidden = [found for name in COMMANDS if name not in _LAUNCHERS and (found := _other(name, folder))]
    if hidden and not values["force"]:
        raise Refused(
            f"Slurm is installed here: {hidden[0]} would be hidden",
            "`--force` puts Danlu's commands in front of it; `danlu` itself works beside Slurm without them",
        )
    for name in COMMANDS:
        path = os.path.join(folder, name)
        if os.path.lexists(path) and not _is_ours(path):
            raise Refused(f"{path} exists and is not ours", "choose another folder, or move the file away")
    try:
        os.makedirs(folder, exist_ok=True)
        for name in COMMANDS:
            _write(os.path.join(folder, name), name)
    except OSError as error:
        raise Invalid(
            f"cannot write to {folder}: {error.strerror}", "`danlu shims install DIR` takes another"
        ) from None
    if values["json"]:
        render.as_json({"folder": folder, "commands": list(COMMANDS)})
        return 0
    render.out(f"{', '.join(COMMANDS)} in {folder}")
    if _found("sbatch") != os.path.join(folder, "sbatch"):
        render.say(f'now put the folder first: export PATH="{folder}:$PATH"')
    return 0


def remove(values: Values) -> int:
    folder = _folder(values)
    gone = [name for name in COMMANDS if _is_ours(os.path.join(folder, name))]
    for name in gone:
        os.remove(os.path.join(folder, name))
    if values["json"]:
        render.as_json({"folder": folder, "commands": gone})
    else:
        render.out(f"removed {', '.join(gone)} from {folder}" if gone else f"nothing of ours is in {folder}")
    return 0


def _folder(values: Values) -> str:
    named: str = (values["words"] or ["~/.local/bin"])[0]
    return os.path.abspath(os.path.expanduser(named))


def _found(name: str) -> str:
    import shutil

    return shutil.which(name) or ""


def _other(name: str, folder: str) -> str:
    """A command of this name on the PATH that is neither ours nor about to be."""
    found = _found(name)
    return "" if not found or _is_ours(found) or os.path.dirname(found) == folder else found


def _is_ours(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return _MARK in file.read(4096)
    except OSError:
        return False


def _write(path: str, name: str) -> None:
    text = (
        f"#!{sys.executable}\n{_MARK.decode()}\nimport sys\n\nfrom danlu.cli.shims.main import main\n\n"
        f'sys.exit(main("{name}"))\n'
    )
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.chmod(f"{path}.new", 0o755)
    os.replace(f"{path}.new", path)
