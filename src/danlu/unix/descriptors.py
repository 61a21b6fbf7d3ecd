"""The limit of open files and connections of this process, and of the processes that this process starts."""

import os
import resource
import sys
from collections.abc import Sequence

PRLIMIT = "/usr/bin/prlimit"
_usual = 0  # the soft limit at the start of this process, if the limit is different now

# Python ignores some signals, and the program that follows would ignore them too.
_PROGRAM = """\
import os, sys, resource, _signal
soft, program, *words = sys.argv[1:]
for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    os.execv(program, words)
except OSError as error:
    sys.exit(f"{program}: {error.strerror}")
"""


def raise_limit() -> None:
    """Let this process open as many files as the hard limit allows."""
    global _usual
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _usual = soft


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def with_usual_limit(program: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The program and words that run this command with the soft limit from before `raise_limit`: programs that use
    `select` break above 1024, and Slurm gives the limits of `sbatch` to the job. A shell would change the variables."""
    if not _usual or not os.access(program, os.X_OK):  # the kernel reports a missing program to the caller
        return program, list(words)
    if words[0] == program and os.path.exists(PRLIMIT):  # starts faster than Python, but cannot set another `argv[0]`
        return PRLIMIT, [PRLIMIT, f"--nofile={_usual}:", "--", *words]
    return sys.executable, [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_usual), program, *words]
