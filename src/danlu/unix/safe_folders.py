"""Checks of the server's folders: no other user can replace them, root may give files away there, and the shared folder
is still the same folder."""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator

from danlu.errors import Refused

_SOMEBODY = 65534


def check_out_of_reach(folder: str) -> None:
    """Refuse a folder that another user could replace: root would then write into a folder of that user's choice."""
    given = os.path.abspath(folder)
    # Check both the given path and the resolved path: a link on the way also has an owner.
    for path in dict.fromkeys([*_way_to(given), *_way_to(os.path.realpath(given))]):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue  # the server will create and own this folder
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
    """Refuse a folder in which root has no root rights: root could not give runs the files they need."""
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


def recognise(state_dir: str, shared_dir: str) -> None:
    """Call this before anything is created: an unmounted folder looks like a new folder, and all runs look lost."""
    ours, theirs = _marks(state_dir, shared_dir)
    expected = _read_word(ours)
    if expected and expected != _read_word(theirs):
        raise Refused(
            f"{shared_dir} is not the shared folder that this server used before",
            f"is it mounted? If another is meant, and nothing runs in the old one: rm {ours}",
        )


def make_way_to(folder: str) -> None:
    """Create the missing folders above a folder, open for every user to pass. Existing folders stay as they are."""
    above = os.path.dirname(folder.rstrip("/"))
    if not above or os.path.isdir(above):
        return
    make_way_to(above)
    with contextlib.suppress(FileExistsError):  # another server was faster
        os.mkdir(above)
        os.chmod(above, 0o755)  # regardless of the umask


def mark(state_dir: str, shared_dir: str) -> None:
    """Several servers may start at the same time: all use the mark of the first server."""
    ours, theirs = _marks(state_dir, shared_dir)
    with contextlib.suppress(FileExistsError), open(theirs, "x", encoding="utf-8") as file:
        file.write(f"{secrets.token_hex(8)}\n")
    if (word := _read_word(theirs)) != _read_word(ours):
        with open(ours, "w", encoding="utf-8") as file:
            file.write(f"{word}\n")


def _marks(state_dir: str, shared_dir: str) -> tuple[str, str]:
    """The two files with the same mark: with the server, and in the shared folder."""
    return os.path.join(state_dir, "shared.id"), os.path.join(shared_dir, "danlu.id")


def _read_word(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(100).strip()
    except FileNotFoundError:
        return ""
