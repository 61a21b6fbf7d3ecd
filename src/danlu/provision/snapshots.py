"""Code snapshots: files stored once by content, laid out as a new folder for each run."""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from danlu.errors import Invalid, NotFound, Refused, StoreDown, TooBig
from danlu.unix.become import trash_in

MAX_FILES = 50_000
LONGEST_NAME, LONGEST_PATH = 255, 3000  # in bytes
BLOCK = 4096  # the smallest allocation of common file systems
SWEPT_AT_ONCE = 100_000  # names in memory
REMOVED_AT_ONCE = 100  # uploads of the owner wait for this many removals


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    path: str  # relative, with slashes
    mode: int  # as in stat: regular files and symbolic links only
    size: int
    sha256: str


def check_manifest(files: Sequence[SnapshotFile], *, limit_bytes: int) -> None:
    """Refuse a list that could write outside the folder or is too large."""
    if len(files) > MAX_FILES:
        raise TooBig(f"a snapshot has at most {MAX_FILES:,} files, not {len(files):,}", "ignore data folders in git")
    total = sum(file.size for file in files)
    if total > limit_bytes:
        raise TooBig(
            f"the snapshot has {-(-total // 2**20)} MiB, at most {limit_bytes / 2**20:.0f} MiB are allowed",
            "keep data out of it with .gitignore",
        )
    taken: set[str] = set()
    for file in files:
        parts = file.path.split("/")
        if not file.path or file.path.startswith("/") or "\0" in file.path or {"", ".", ".."} & set(parts):
            raise Invalid(f"a snapshot cannot contain the path `{file.path[:80]}`")
        is_known = 0 <= file.mode < 1 << 16 and (stat.S_ISREG(file.mode) or stat.S_ISLNK(file.mode))
        if not is_known or file.size < 0:
            raise Invalid(f"a snapshot contains files and links only, not `{file.path[:80]}`")
        if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
            raise Invalid(f"the checksum of `{file.path[:80]}` is not a SHA-256")
        if not _is_nameable(parts):
            raise Invalid(f"no folder can hold the path `{file.path[:80]}…`", "shorter names, in UTF-8")
        if stat.S_ISLNK(file.mode) and not 0 < file.size <= LONGEST_PATH:
            raise Invalid(f"a link leads somewhere, in at most {LONGEST_PATH:,} bytes: not `{file.path[:80]}`")
        if file.path in taken:
            raise Invalid(f"the snapshot names `{file.path[:80]}` twice")
        taken.add(file.path)
    for file in files:
        # A file "below" a link would be written to the target of the link.
        parents = file.path.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            if "/".join(parents[:depth]) in taken:
                raise Invalid(f"the snapshot names `{file.path[:80]}` below something that is not a folder")


def _is_nameable(parts: Sequence[str]) -> bool:
    """Would a file system accept these names, with room for the path of the folder?"""
    try:
        sizes = [len(os.fsencode(part)) for part in parts]
    except UnicodeError:
        return False
    return max(sizes) <= LONGEST_NAME and sum(sizes) + len(sizes) <= LONGEST_PATH


class SnapshotShelf:
    """The snapshots of a person. People share nothing here: a known checksum must not give access to a file.
    A single object for each folder (`shelf_in`) counts the bytes, and its lock separates the sweep from uploads."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._used: int | None = None  # not counted yet

    def add(self, files: Sequence[SnapshotFile], *, most_bytes: int = 0) -> tuple[str, list[str]]:
        """Store the list of files; return its id and the checksums whose bytes are still missing. Refuse a snapshot
        that would make the shelf larger than `most_bytes` (0: no limit)."""
        lines = sorted([f.path, f.mode, f.size, f.sha256] for f in files)
        text = json.dumps(lines).encode()
        snapshot_id = hashlib.sha256(text).hexdigest()[:32]
        wanted = {file.sha256: file.size for file in files}
        more = sum(_on_disk(wanted[sha]) for sha in self._missing(wanted))
        with self._lock:
            self._check_room(_on_disk(len(text)) + more, most_bytes)
        # From here on the sweep keeps the existing bytes: the list needs them.
        self._keep(self._manifest(snapshot_id), [text], len(text), most_bytes)
        return snapshot_id, self._missing(wanted)

    def _missing(self, wanted: Iterable[str]) -> list[str]:
        return sorted(sha for sha in wanted if not os.path.exists(self._blob(sha)))

    def put_blob(self, sha256: str, chunks: Iterable[bytes], *, size: int = 0, most_bytes: int = 0) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise Invalid("a blob is named by its SHA-256")
        seen = hashlib.sha256()

        def checked() -> Iterable[bytes]:
            for chunk in chunks:
                seen.update(chunk)
                yield chunk
            if seen.hexdigest() != sha256:
                raise Invalid("the bytes do not have the checksum that they were announced with", "send them again")

        self._keep(self._blob(sha256), checked(), size, most_bytes)

    def check(self, snapshot_id: str) -> None:
        """Refuse a snapshot that is unknown, incomplete, or of another size than announced. An accepted snapshot counts
        as used now: the sweep keeps it for the coming job."""
        with self._lock:
            for file in self._files(snapshot_id):
                try:
                    size = os.path.getsize(self._blob(file.sha256))
                except FileNotFoundError:
                    raise NotFound(f"the snapshot lacks the bytes of `{file.path}`", "upload them first") from None
                if size != file.size:
                    raise Invalid(
                        f"`{file.path}` was announced with {file.size:,} bytes and has {size:,}",
                        "it may have changed while it was copied: submit again",
                    )
            os.utime(self._manifest(snapshot_id))

    def sweep(self, needed: Container[str], before: float, go_on: Callable[[], None] = lambda: None) -> None:
        """Remove the snapshots that are not `needed` and were last used before this time, then the bytes that no
        snapshot lists. In this order: a killed sweep leaves too many bytes, never too few. The sweep calls `go_on`
        again and again; `go_on` raises to end the sweep."""
        for path in _old_files(os.path.join(self.folder, "manifests"), before):
            go_on()
            if os.path.basename(path) not in needed:
                with self._lock:
                    self._remove(path, before)
        blobs = _old_files(os.path.join(self.folder, "blobs"), before)
        while unlisted := {os.path.basename(path): path for path in islice(blobs, SWEPT_AT_ONCE)}:
            known: set[str] = set()
            self._spare_listed(unlisted, known, go_on)
            for some in _portions(list(unlisted), REMOVED_AT_ONCE):
                with self._lock:  # an upload may have listed existing blobs meanwhile
                    self._spare_listed(unlisted, known, go_on)
                    for sha in some:
                        if sha in unlisted:
                            self._remove(unlisted[sha], before)

    def _spare_listed(self, blobs: dict[str, str], known: set[str], go_on: Callable[[], None]) -> None:
        """Take out the blobs that a snapshot lists. `known` are the snapshots already checked."""
        for snapshot_id in set(_names(os.path.join(self.folder, "manifests"))) - known:
            go_on()
            if re.fullmatch(r"[0-9a-f]{32}", snapshot_id):
                for file in self._files(snapshot_id):
                    blobs.pop(file.sha256, None)
            known.add(snapshot_id)

    def _remove(self, path: str, before: float) -> None:
        """With the lock. A file used since `before` stays."""
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(path)
            if found.st_mtime < before:
                os.unlink(path)
                if self._used is not None:
                    self._used -= _on_disk(found.st_size)

    def _keep(self, path: str, chunks: Iterable[bytes], size: int, most_bytes: int) -> None:
        """Write a file completely and durably, or not at all. An existing file counts as used."""
        taken = _on_disk(size)
        with self._lock:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
                return
            self._check_room(taken, most_bytes)
            self._used = self._counted() + taken
        is_new = False
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with _written(path, chunks) as making, self._lock:
                is_new = not os.path.exists(path)  # else two uploads sent the same bytes at once
                os.rename(making, path)
        except OSError as error:
            raise StoreDown(f"the snapshot could not be kept: {error.strerror}", f"look at {path}") from error
        finally:
            if not is_new:
                with self._lock:
                    self._used = self._counted() - taken

    def _check_room(self, more: int, most_bytes: int) -> None:
        """With the lock."""
        if most_bytes and (used := self._counted()) + more > most_bytes:
            raise Refused(
                f"your snapshots take {used / 2**20:,.0f} MiB; {more / 2**20:,.1f} MiB more would exceed the limit of "
                f"{most_bytes / 2**20:,.0f} MiB",
                "remove ended jobs that you need no more: `danlu rm JOB`; their snapshots go a day after the last use",
                code="snapshots_full",
            )

    def _counted(self) -> int:
        """With the lock: the bytes of all files of the shelf, including files being written."""
        if self._used is None:
            self._used = sum(
                _on_disk(os.stat(path).st_size)
                for kind in ("manifests", "blobs")
                for path in _old_files(os.path.join(self.folder, kind), math.inf)
            )
        return self._used

    def lay_out(self, snapshot_id: str, target: str, *, owner: tuple[int, int] | None = None) -> None:
        """Make `target` a fresh folder with the snapshot's files. An unfinished folder is begun again."""
        making = f"{target}.making"
        trash = trash_in(os.path.dirname(target))
        trash.take(making)
        if os.path.isdir(target):
            return
        os.makedirs(making, mode=0o700)
        try:
            self._fill(making, snapshot_id)
            if owner:
                _give(making, owner)
            os.rename(making, target)
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                trash.take(making)  # no later call would remove this folder
                trash.empty()
            raise

    def _fill(self, folder: str, snapshot_id: str) -> None:
        for file in self._files(snapshot_id):
            path = os.path.join(folder, file.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if stat.S_ISLNK(file.mode):
                with open(self._blob(file.sha256), "rb") as blob:
                    os.symlink(blob.read(LONGEST_PATH), os.fsencode(path))
            else:
                shutil.copyfile(self._blob(file.sha256), path)
                os.chmod(path, 0o755 if file.mode & 0o100 else 0o644)

    def _files(self, snapshot_id: str) -> list[SnapshotFile]:
        try:
            if not re.fullmatch(r"[0-9a-f]{32}", snapshot_id):
                raise FileNotFoundError
            with open(self._manifest(snapshot_id), "rb") as file:
                return [SnapshotFile(*entry) for entry in json.load(file)]
        except FileNotFoundError:
            raise NotFound(f"no snapshot `{snapshot_id}`", "submit again with `--snapshot`") from None

    def _manifest(self, snapshot_id: str) -> str:
        return os.path.join(self.folder, "manifests", snapshot_id)

    def _blob(self, sha256: str) -> str:
        return os.path.join(self.folder, "blobs", sha256[:2], sha256)


def _give(top: str, owner: tuple[int, int]) -> None:
    # The outermost folder last: with access, the new owner could replace a file not yet given by a link.
    for folder, _, names in os.walk(top, topdown=False):
        for name in names:
            os.chown(os.path.join(folder, name), *owner, follow_symlinks=False)
        os.chown(folder, *owner)


@contextlib.contextmanager
def _written(path: str, chunks: Iterable[bytes]) -> Iterator[str]:
    """A durable temporary file with these bytes beside this path, for a later move to the path."""
    making = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        yield making
    finally:
        if os.path.exists(making):
            os.unlink(making)


def _on_disk(size: int) -> int:
    """The minimum disk usage of a file: many small files fill a disk too."""
    return max(1, -(-size // BLOCK)) * BLOCK


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _old_files(folder: str, before: float) -> Iterator[str]:
    """All files below this folder, last used before this time."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_mtime < before:
                    yield path


def _portions(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


@cache
def shelf_in(folder: str) -> SnapshotShelf:
    return SnapshotShelf(folder)
