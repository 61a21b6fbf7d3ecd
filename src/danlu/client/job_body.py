"""The JSON body of a submit, built from the options of a user or a script."""

from __future__ import annotations

import os

from danlu.domain.options import NAMES as OPTIONS
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from typing import Any, TypedDict

    class Options(TypedDict, total=False):
        """The options of a job, named as on the command line."""

        gpus: int | str  # 2, "RTX3090:2"
        shards: int
        cpus: int
        mem: int | str  # MiB, or "16G"
        shm: int | str  # shared memory: MiB, or "8G"
        nodes: int  # each with all of the above
        time: int | str | timedelta  # minutes, or "2h30m"
        name: str
        priority: int  # 1 to 9, 9 goes first
        queue: str
        team: str
        preemptible: bool  # the job may be stopped with a checkpoint and queued again
        interactive: bool  # a user works with the job directly
        env: Mapping[str, str]
        label: Mapping[str, str]
        workdir: str
        array: str  # "1-10%2"
        after: str | Sequence[str]  # "ID", "ID:any"
        retries: int
        signal: str  # "USR1@300"
        snapshot: bool | str  # True: copy the code of the working folder now
        snapshot_limit: int  # bytes
        inherit_env: bool


NAMES = (*OPTIONS, "snapshot", "snapshot_limit", "inherit_env")

# Variables of the terminal, of the login, or of an enclosing job, rather than of the user's work.
_SESSION_NAMES = frozenset(
    ("_", "COLUMNS", "DISPLAY", "LINES", "LS_COLORS", "OLDPWD", "PWD", "SHLVL", "STY", "TERM", "TERMCAP", "TMUX",
     "TMUX_PANE", "WAYLAND_DISPLAY", "WINDOW", "WINDOWID", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_SEAT", "XDG_VTNR",
     "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "MAKEFLAGS", "MAKELEVEL", "MFLAGS",
     "SUDO_COMMAND", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLORTERM", "MAIL", "CUDA_VISIBLE_DEVICES",
     "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "NNODES", "MASTER_ADDR",
     "MASTER_PORT")
)  # fmt: skip
_SESSION_PREFIXES = (
    "DANLU_", "SSH_", "XDG_SESSION_", "DBUS_", "VSCODE_", "GPG_", "_ARGCOMPLETE", "COMP_", "TORCHELASTIC_",
)  # fmt: skip


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a job inherits."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _SESSION_NAMES and not name.startswith(_SESSION_PREFIXES) and not name.endswith("_TTY")
    }


def working_folder(chosen: str = "") -> str:
    """The absolute folder to run in. The shell's `PWD` is preferred if it names the same folder."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        if os.path.isabs(chosen):
            return os.path.normpath(chosen)
        raise Invalid("the current folder no longer exists", "`cd` to another folder, or give `--workdir`") from None
    named = os.environ.get("PWD", "")
    if named != here and os.path.isabs(named):
        try:
            if os.path.samefile(named, here):
                here = named
        except OSError:
            pass
    return os.path.normpath(os.path.join(here, chosen)) if chosen else here


def current_umask() -> int:
    """Reading the umask means setting it; 0o077 meanwhile."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def body_of(command: Sequence[str] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON body of a submit. Without a command: the changes of a clone."""
    for name in options:
        if name not in NAMES:
            raise Invalid(f"a job has no option `{name}`", "options: " + ", ".join(NAMES))
    skipped = ("snapshot_limit", "inherit_env", "workdir", "snapshot")
    body = {name: value for name, value in options.items() if name not in skipped and value not in (None, "")}
    if isinstance(command, str):
        raise Invalid("a command is a list of words, not a text", 'for example `["python", "train.py"]`')
    if command:
        body["command"] = [str(word) for word in command]
    if hasattr(body.get("time"), "total_seconds"):
        body["time"] = f"{max(int(body['time'].total_seconds()), 1)}s"
    if isinstance(body.get("after"), str):
        body["after"] = [body["after"]]
    for name in ("env", "label"):
        if name in body:
            body[name] = dict(body[name])
    snapshot = options.get("snapshot")
    if isinstance(snapshot, str) and snapshot:
        body["snapshot"] = snapshot
    if command is not None or options.get("workdir"):
        body["workdir"] = working_folder(options.get("workdir") or "")
    if options.get("inherit_env", True):
        body["environ"] = inherited(os.environ)
        body["umask"] = f"{current_umask():04o}"
    return body
