"""Code snapshots: files kept once by their content, laid out anew as a folder for each run."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from danlu.errors import Invalid, NotFound, StoreDown, TooBig
from danlu.unix.become import trash_in

MAX_FILES = 50_000
LONGEST_NAME, LONGEST_PATH = 255, 3000  # in bytes


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    path: str  # relative, with slashes
    mode: int  # as in stat: regular files and symbolic links only
    size: int
    sha256: str


def check_manifest(files: Sequence[SnapshotFile], *, limit_bytes: int) -> None:
    """Refuse whatever could write outside the folder or grow too big."""
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
        # A file "below" a link would be written wherever the link points.
        parents = file.path.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            if "/".join(parents[:depth]) in taken:
                raise Invalid(f"the snapshot names `{file.path[:80]}` below something that is not a folder")


def _is_nameable(parts: Sequence[str]) -> bool:
    """Would a file system take these names, with room for where the folder is?"""
    try:
        sizes = [len(os.fsencode(part)) for part in parts]
    except UnicodeError:
        return False
    return max(sizes) <= LONGEST_NAME and sum(sizes) + len(sizes) <= LONGEST_PATH


class SnapshotShelf:
    """Snapshots of one person. People share nothing here: knowing a checksum must not give a file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def add(self, files: Sequence[SnapshotFile]) -> tuple[str, list[str]]:
        """Keep the list of files; give its id and the checksums whose bytes are still missing."""
        lines = sorted([f.path, f.mode, f.size, f.sha256] for f in files)
        text = json.dumps(lines).encode()
        snapshot_id = hashlib.sha256(text).hexdigest()[:32]
        _write_whole(self._manifest(snapshot_id), [text])
        wanted = {file.sha256 for file in files}
        return snapshot_id, sorted(sha for sha in wanted if not os.path.exists(self._blob(sha)))

    def put_blob(self, sha256: str, chunks: Iterable[bytes]) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise Invalid("a blob is named by its SHA-256")
        seen = hashlib.sha256()

        def checked() -> Iterable[bytes]:
            for chunk in chunks:
                seen.update(chunk)
                yield chunk
            if seen.hexdigest() != sha256:
                raise Invalid("the bytes do not have the checksum that they were announced with", "send them again")

        _write_whole(self._blob(sha256), checked())

    def check(self, snapshot_id: str) -> None:
        """Refuse a snapshot that is unknown, incomplete, or larger than it was said to be."""
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

    def lay_out(self, snapshot_id: str, target: str, *, owner: tuple[int, int] | None = None) -> None:
        """Make `target` a fresh folder with the snapshot's files. Half-made ones are begun again."""
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
                trash.take(making)  # nobody would come back for it
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
    # The outermost folder last: whoever can enter could put a link in the place of what is still to be given.
    for folder, _, names in os.walk(top, topdown=False):
        for name in names:
            os.chown(os.path.join(folder, name), *owner, follow_symlinks=False)
        os.chown(folder, *owner)


def _write_whole(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file so that it is there wholly and durably, or not at all."""
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    making = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.rename(making, path)
    except OSError as error:
        raise StoreDown(f"the snapshot could not be kept: {error.strerror}", f"look at {path}") from error
    finally:
        if os.path.exists(making):
            os.unlink(making)
