"""The Unix groups of people on this machine, for queues that only some groups may use."""

import grp
import os
import time
from contextlib import suppress

from danlu.unix.users import find_unix_user

FRESH_S = 30.0  # a lookup may ask a directory server of the whole site

_known: dict[str, tuple[float, frozenset[str]]] = {}


def groups_of(user: str) -> frozenset[str]:
    """The names of the groups; empty if this machine does not know the person."""
    now = time.monotonic()
    asked_at, groups = _known.get(user, (-FRESH_S, frozenset()))
    if now - asked_at >= FRESH_S:
        groups = frozenset(_ask(user))
        _known[user] = now, groups
    return groups


def _ask(user: str) -> list[str]:
    found, person = [], find_unix_user(user)
    for number in os.getgrouplist(person.pw_name, person.pw_gid) if person else ():
        with suppress(KeyError):  # a group without a name
            found.append(grp.getgrgid(number).gr_name)
    return found
