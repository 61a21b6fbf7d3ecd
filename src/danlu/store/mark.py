"""A small file beside an SQLite database: the database existed, and had reached this count of changes.

SQLite silently begins an empty database if the file is gone or empty, and silently drops the write-ahead log from the
first damaged frame on. The number in the mark is in the database too (`user_version`), and only grows."""

import os
import time
from dataclasses import dataclass

from danlu.errors import Refused


@dataclass(frozen=True, slots=True)
class Mark:
    path: str

    def read(self) -> int | None:
        """None: no database is known to have existed."""
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:
                written = file.read(20).strip()
        except FileNotFoundError:
            return None
        return int(written) if written.isdecimal() else 0

    def write(self, count: int) -> None:
        """The old number or the new one, whatever happens."""
        new = f"{self.path}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{count}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(new, self.path)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def refuse_empty(self, database: str) -> None:
        """Call this before SQLite opens the file and creates an empty database."""
        if self.read() is None:
            return
        try:
            what = "" if os.stat(database).st_size else "is empty"
        except FileNotFoundError:
            what = "is gone"
        if what:
            raise Refused(f"the database {database} {what}, and it had content on {self._when()}", self._way_back())

    def refuse_older(self, database: str, count: int) -> None:
        """A smaller count than in the mark means lost commits."""
        wanted = self.read()
        if wanted is not None and count < wanted:
            raise Refused(
                f"the database {database} is older than it was on {self._when()}: its count is {count}, not {wanted}; "
                "its write-ahead log is lost or damaged, or somebody put back a copy",
                self._way_back(),
            )

    def _when(self) -> str:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(self.path).st_mtime))

    def _way_back(self) -> str:
        return (
            "put back a copy of the database with its `-wal` file; to go on with what is there, or to begin anew, "
            f"remove {self.path}"
        )


def damaged(database: str, why: str, mark: str) -> Refused:
    return Refused(
        f"the database {database} is damaged or is no SQLite database ({why})",
        f"stop the server and put back a copy; or, to begin anew, move it and {mark} away",
    )
