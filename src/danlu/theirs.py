"""What a server of root does in somebody's name: commands with their rights, and the end of what they left."""

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Sequence

SETPRIV = "/usr/bin/setpriv"
FEW = 64  # files that are removed without a process for it
PATIENCE_S = 3600.0
# Python ignores some signals, and what it becomes would ignore them too.
_PROGRAM = """\
import os, sys, _signal
uid, gid, groups, program, *words = sys.argv[1:]
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
os.setgroups([int(group) for group in groups.split(",") if group])
os.setresgid(int(gid), int(gid), int(gid))
os.setresuid(int(uid), int(uid), int(uid))
try:
    os.execv(program, words)
except OSError as error:
    sys.exit(f"{program}: {error.strerror}")
"""


def as_user(uid: int, gid: int, groups: Sequence[int], program: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The program and words that become this command of theirs, after giving up all rights.
    Not `Popen(user=…)`: that waits, without end, for a child whom that user can stop before it is the command."""
    listed = ",".join(map(str, groups))
    if words[0] == program and os.path.exists(SETPRIV):  # which takes a tenth of the time, and can give no other name
        who = [f"--reuid={uid}", f"--regid={gid}", f"--groups={listed}" if groups else "--clear-groups"]
        return SETPRIV, [SETPRIV, *who, "--", *words]
    return sys.executable, [sys.executable, "-I", "-S", "-c", _PROGRAM, str(uid), str(gid), listed, program, *words]


def remove(path: str, patience_s: float = PATIENCE_S) -> None:
    """A folder that somebody else may have filled. No link is followed, and nothing is removed in there that its
    owner could not remove: they may have moved a folder into it that holds what is another's."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, stat.S_IRWXU)
        if not _is_plain(fd):
            _remove_within(path, os.fstat(fd), patience_s)
        for name in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(path)


def _is_plain(fd: int) -> bool:
    """A few files and nothing else, as we made it."""
    with os.scandir(fd) as found:
        return all(at < FEW and not one.is_dir(follow_symlinks=False) for at, one in enumerate(found))


def _remove_within(path: str, folder: os.stat_result, patience_s: float) -> None:
    program = "/usr/bin/find"
    everything = [program, ".", "-xdev"]
    # Folders that their owner closed to themselves are opened first.
    opening = [*everything, "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
    for words in (opening, [*everything, "-mindepth", "1", "-delete"]):
        executable = program
        if os.getuid() == 0:
            executable, words = as_user(folder.st_uid, folder.st_gid, (), program, words)
        nothing = subprocess.DEVNULL
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        subprocess.run(
            words, executable=executable, cwd=path, env=env, stdin=nothing, stdout=nothing, stderr=nothing,
            timeout=patience_s, check=False,
        )  # fmt: skip
