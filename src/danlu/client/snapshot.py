"""Upload the code of a folder at submit: files tracked or not ignored by git, each content once."""

from __future__ import annotations

import os
import stat

from danlu.client.http import quoted
from danlu.errors import Conflict, Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from danlu.client.client import Client

LIMIT = 100 << 20
LINK_MODE = 0o120000
_SKIPPED_FOLDERS = frozenset((".git", "__pycache__", ".venv", "node_modules"))


def upload(
    client: Client, folder: str, limit: int | None = None, progress: Callable[[int, int], None] | None = None
) -> str:
    """Upload the missing files; return the snapshot's id. `progress` is called with (bytes sent, bytes to send)."""
    files = list(_measured(folder))
    _check_size(files, limit or LIMIT)
    listed, source = [], {}
    for path, mode, size in files:
        digest = _digest(_content(folder, path, mode))
        listed.append([path, mode, size, digest])
        source[digest] = (path, mode, size)
    answer = client.ask("POST", "/snapshots", {"files": listed}, again=True)
    missing = [digest for digest in answer["missing"] if digest in source]
    total, sent = sum(source[digest][2] for digest in missing), 0
    for digest in missing:
        path, mode, size = source[digest]
        content = _content(folder, path, mode)
        if _digest(content) != digest:
            raise Conflict(f"`{path}` changed during the copy", "submit again when no program writes there")
        client.ask("PUT", f"/blobs/{quoted(digest)}", content, again=True)
        sent += size
        if progress:
            progress(sent, total)
    return str(answer["id"])


def _measured(folder: str) -> Iterator[tuple[str, int, int]]:
    """(path, mode, size) of every regular file and link, in a stable order."""
    if not os.path.isdir(folder):
        raise Invalid(f"no folder `{folder}`", "give another one with `--workdir`")
    for path in sorted(set(_listed_by_git(folder) or _walked(folder))):
        try:
            found = os.lstat(os.path.join(folder, path))
        except FileNotFoundError:
            continue  # tracked by git, deleted here
        if stat.S_ISLNK(found.st_mode):
            yield path, LINK_MODE, found.st_size
        elif stat.S_ISREG(found.st_mode):
            yield path, 0o100755 if found.st_mode & 0o100 else 0o100644, found.st_size


def _listed_by_git(folder: str) -> list[str] | None:
    import subprocess

    try:
        found = subprocess.run(
            ["git", "-C", folder, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    if found.returncode:
        return None
    paths = []
    for path in os.fsdecode(found.stdout).split("\0"):
        inside = os.path.join(folder, path)
        if path and os.path.isdir(inside) and not os.path.islink(inside):
            # A submodule, or a repository in a repository: git names only its folder.
            nested = _listed_by_git(inside)
            paths += [os.path.join(path, deeper) for deeper in (nested if nested is not None else _walked(inside))]
        elif path:
            paths.append(path)
    return paths


def _walked(folder: str) -> list[str]:
    paths = []
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and name not in links]
        paths += [os.path.relpath(os.path.join(parent, name), folder) for name in names + links]
    return paths


def _content(folder: str, path: str, mode: int) -> bytes:
    whole = os.path.join(folder, path)
    try:
        if mode == LINK_MODE:
            return os.fsencode(os.readlink(whole))
        with open(whole, "rb") as file:
            return file.read()
    except OSError as error:
        raise Invalid(f"cannot copy `{path}`: {error.strerror}", "let git ignore it, or make it readable") from error


def _digest(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


def _check_size(files: list[tuple[str, int, int]], limit: int) -> None:
    total = sum(size for _, _, size in files)
    if total <= limit:
        return
    largest = sorted(files, key=lambda file: -file[2])[:5]
    named = ", ".join(f"{path} ({size / (1 << 20):.1f} MiB)" for path, _, size in largest)
    raise Refused(
        f"a snapshot may have {limit / (1 << 20):g} MiB, the folder has {total / (1 << 20):.1f}; largest: {named}",
        "exclude data and results with `.gitignore`, or allow more with `--snapshot-limit 500M`",
    )
