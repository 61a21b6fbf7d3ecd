"""Starting a process of a run: folder, command, user, output; with a clear error text for each missing part."""

import errno
import os
import signal
from typing import Any

LONGEST_SHOWN = 256  # characters of a user-given text in an error
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Joins a group before the command begins; the command replaces the shell.
_JOIN = 'echo $$ > "$1" || exit 125; shift; exec "$@"'
# The keeper or its parent may have changed the handling of these signals.
SIGNALS_TO_RESET = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class CannotStart(Exception):
    """No process was started; the text is for people."""

    def __init__(self, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


def find_command(name: str, env: dict[str, str]) -> str:
    """The file that a shell in the current folder would run: along the run's own PATH, unless the name has a slash."""
    candidates = [name]
    if "/" not in name:
        candidates = [f"{folder or '.'}/{name}" for folder in env.get("PATH", USUAL_PATH).split(":")]
    refused = ""
    for path in candidates:
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if not refused and os.path.exists(path):
            refused = path
    if not refused:
        where = "" if "/" in name else " on the job's PATH"
        raise CannotStart(f"command not found{where}: {shown(name)}", 127)
    if os.path.isdir(refused):
        raise CannotStart(f"the command is a folder: {shown(refused)}", 126)
    raise CannotStart(f"the command is not executable: {shown(refused)} (try `chmod +x`)", 126)


def enter_folder(folder: str) -> None:
    try:
        os.chdir(folder)
    except FileNotFoundError:
        raise CannotStart(f"the working folder does not exist: {shown(folder)}") from None
    except NotADirectoryError:
        raise CannotStart(f"the working folder is not a folder: {shown(folder)}") from None
    except PermissionError:
        raise CannotStart(f"the working folder may not be entered: {shown(folder)}") from None
    except (OSError, ValueError) as error:
        raise CannotStart(f"the working folder cannot be used: {shown(folder)} ({describe(error)})") from None


def open_log(path: str) -> int:
    """Open a run's log for writing; make its folder if missing."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
    try:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return os.open(path, flags, 0o600)
    except (OSError, ValueError) as error:
        raise CannotStart(f"the log cannot be written: {shown(path)} ({describe(error)})") from None


def spawn(command: list[str], env: dict[str, str], file_actions: list[Any], *, join: str = "") -> int:
    """Start `command` in the current folder and in a new session. Return the pid."""
    path, words = command[0], command
    try:
        path = find_command(command[0], env)
        if join:
            path, words = "/bin/sh", ["sh", "-c", _JOIN, "sh", join, path, *command[1:]]
        return _spawn(path, words, env, file_actions)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without #!, as shells run it
            return _try_spawn("/bin/sh", ["sh", path, *words[1:]], env, file_actions)
        raise CannotStart(*why_not(error, path)) from None
    except (ValueError, TypeError) as error:
        raise CannotStart(f"the command cannot be passed to the system: {error}") from None


def _try_spawn(path: str, words: list[str], env: dict[str, str], file_actions: list[Any]) -> int:
    try:
        return _spawn(path, words, env, file_actions)
    except OSError as error:
        raise CannotStart(*why_not(error, path)) from None


def _spawn(path: str, words: list[str], env: dict[str, str], file_actions: list[Any]) -> int:
    return os.posix_spawn(
        path, words, env, file_actions=file_actions, setsid=True, setsigmask=(), setsigdef=SIGNALS_TO_RESET
    )


def why_not(error: OSError, path: str) -> tuple[str, int | None]:
    if error.errno == errno.ENOENT:
        return f"the interpreter named in the first line of {shown(path)} does not exist", 126
    if error.errno == errno.E2BIG:
        return "the command and its environment are longer than the system allows", 126
    if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return f"the machine has no room for another process now ({describe(error)})", None
    return f"{shown(path)} cannot be run ({describe(error)})", 126


def describe(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def shown(text: str) -> str:
    """Readable text for people: undecodable bytes become `?`, and a long text is cut."""
    written = text.encode("utf-8", "replace").decode("utf-8")
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]}…"
