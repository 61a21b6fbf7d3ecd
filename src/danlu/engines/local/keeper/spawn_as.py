"""Starting a process as another user: the child first gives up all privileges, and only then handles the request.

No process that is still root touches the submitter's folder, variables and command: root could enter a folder below a
closed folder, and a variable such as LD_PRELOAD would make the submitter root."""

import errno
import os
import pwd
import select
import signal
from typing import Any, NoReturn

from danlu.engines.local.keeper.spawn import SIGNALS_TO_RESET, CannotStart, enter_folder, find_command, shown, why_not
from danlu.engines.local.protocol import parse_line, render_line

# Before exec the child already belongs to the user, who may stop the child, and whose folder may not respond.
HEARD_WITHIN_SECONDS = 0.05
_LONGEST_TEXT = 4000  # fits into a pipe without a reader


def account_of(user: str) -> pwd.struct_passwd:
    """The Unix user, if the keeper may start processes as this user."""
    try:
        found = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise CannotStart(f"this machine has no user {shown(user)}") from None
    if os.geteuid() not in (0, found.pw_uid):
        raise CannotStart(f"only a keeper of root may run jobs as {shown(user)}")
    return found


def spawn_as(
    account: pwd.struct_passwd,
    command: list[str],
    env: dict[str, str],
    file_actions: list[Any],
    *,
    folder: str,
    join: str = "",
) -> tuple[int, int]:
    """Start `command` in the folder and in a new session. Return the pid; and if exec has not happened soon, a
    descriptor that later reports the problem (see `problem_of`), else -1: runs of other users must not wait."""
    try:
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except OSError:
            os.close(read_end)
            os.close(write_end)
            raise
    except OSError as error:
        raise CannotStart(*why_not(error, command[0])) from None
    if not pid:
        _become(account, command, env, file_actions, folder, join, write_end)
    os.close(write_end)
    os.set_blocking(read_end, False)
    told = select.poll()
    told.register(read_end, select.POLLIN)
    if not told.poll(HEARD_WITHIN_SECONDS * 1000):
        return pid, read_end
    problem = problem_of(read_end)
    if problem:
        os.kill(pid, signal.SIGKILL)  # the report is complete, but the user could keep the child from exiting
        os.waitpid(pid, 0)
        raise problem
    return pid, -1


def problem_of(told: int) -> CannotStart | None:
    """Why the command did not begin; None if the command began, or is still to begin. Closes the descriptor."""
    try:
        said = os.read(told, 1 << 16)
    except BlockingIOError:
        said = b""
    finally:
        os.close(told)
    return CannotStart(*parse_line(said)) if said else None


def _become(
    account: pwd.struct_passwd,
    command: list[str],
    env: dict[str, str],
    file_actions: list[Any],
    folder: str,
    join: str,
    problems: int,
) -> NoReturn:
    cannot: CannotStart | None = None
    path = command[0]
    try:
        signal.set_wakeup_fd(-1)  # belongs to the keeper, not to this child
        os.setsid()
        if join:
            with open(join, "w") as group:
                group.write("0")
        for action in file_actions:
            _act(*action)
        for number in SIGNALS_TO_RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.initgroups(account.pw_name, account.pw_gid)
        # From here on the user may keep the child alive: open descriptors would withhold the keeper's lock and socket
        # from the next keeper.
        os.closerange(3, problems)
        os.closerange(problems + 1, os.sysconf("SC_OPEN_MAX"))
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
        enter_folder(folder)
        path = find_command(command[0], env)
        _execute(path, command, env)
    except CannotStart as error:
        cannot = error
    except OSError as error:
        cannot = CannotStart(*why_not(error, path))
    except (ValueError, TypeError) as error:
        cannot = CannotStart(f"the command cannot be passed to the system: {error}")
    finally:
        if cannot:
            os.write(problems, render_line([cannot.text[:_LONGEST_TEXT], cannot.exit_code]))
        os._exit(126)


def _act(kind: int, fd: int, *what: Any) -> None:
    """Apply a file action as posix_spawn does."""
    if kind == os.POSIX_SPAWN_DUP2:
        os.dup2(fd, what[0])
        return
    opened = os.open(*what)
    os.dup2(opened, fd)
    if opened != fd:
        os.close(opened)


def _execute(path: str, command: list[str], env: dict[str, str]) -> None:
    try:
        os.execve(path, command, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve("/bin/sh", ["sh", path, *command[1:]], env)  # a script without #!, as shells run it
