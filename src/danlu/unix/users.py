"""The Unix users of this machine: people and system users."""

import contextlib
import os
import pwd
import re
from functools import cache

DEFINITIONS = "/etc/login.defs"
USUAL_LOWEST = 1000
_NOBODY = frozenset({65534, 65535})


def find_unix_user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None


def is_unix_user(name: str) -> bool:
    return find_unix_user(name) is not None


def is_system_user(name: str) -> bool:
    """Root, the user of a daemon, `nobody`: a process of such a user controls a part of the machine, or all of it."""
    found = find_unix_user(name)
    return found is not None and (found.pw_uid < lowest_uid() or found.pw_uid in _NOBODY)


@cache
def lowest_uid(path: str = DEFINITIONS) -> int:
    """The lowest uid of people on this machine (UID_MIN)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(r"(?m)^\s*UID_MIN\s+([1-9]\d*)", file.read())
    except OSError:
        found = None
    return int(found[1]) if found else USUAL_LOWEST


@cache
def machine_admins() -> frozenset[str]:
    """Names of root and of this process's own user: administrators on the Unix socket, regardless of their accounts."""
    found = set()
    for uid in (0, os.getuid()):
        with contextlib.suppress(KeyError):
            found.add(pwd.getpwuid(uid).pw_name)
    return frozenset(found)
