"""What a server that runs jobs as other people stands on: folders that nobody else can move from under it, and in which
it may give files away."""

import os
import stat
import tempfile
from collections.abc import Iterator

from danlu.errors import Refused

_SOMEBODY = 65534


def check_out_of_reach(folder: str) -> None:
    """Refuse a folder in whose place somebody else could put another one: root would write there whatever they like."""
    given = os.path.abspath(folder)
    # Where the name is, and where it leads to: a link on the way is somebody's too.
    for path in dict.fromkeys([*_way_to(given), *_way_to(os.path.realpath(given))]):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue  # it will be ours
        if found.st_uid not in (0, os.getuid()):
            raise Refused(
                f"{path} belongs to another user (uid {found.st_uid}), who could put something else in its place",
                "`chown` it, or choose another folder: engine.shared_dir, server.state_dir",
            )
        is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
        if is_open and not stat.S_ISLNK(found.st_mode) and path != given:
            raise Refused(
                f"others may write to {path}, and so move {folder} away and put theirs in its place",
                f"`chmod +t {path}` (what is in there is then its owner's to move), or choose another folder",
            )


def _way_to(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)


def check_gives_away(folder: str) -> None:
    """Refuse a folder in which root is not root: what runs need could not be made theirs."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".danlu-") as file:
            os.fchown(file.fileno(), _SOMEBODY, -1)
            is_given = os.fstat(file.fileno()).st_uid == _SOMEBODY
    except PermissionError:
        is_given = False
    if not is_given:
        raise Refused(
            f"root may not give files away in {folder}, so runs could not have theirs there",
            "an NFS server must not take root for nobody on this machine: `no_root_squash` in its exports",
        )
