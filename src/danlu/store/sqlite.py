"""SQLite: one file, write-ahead log, one server."""

import contextlib
import fcntl
import os
import shutil
import sqlite3
import time
from datetime import timedelta
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from danlu.errors import DanluError, Invalid, Refused, StoreDown
from danlu.store.database import holder, read_next_seq, told_alike
from danlu.store.job_rows import Row
from danlu.store.mark import Mark, damaged

CHECK_S = 0.5  # longest check of each start
RESERVE_BYTES = 16 << 20  # enough for thousands of stops and ends


class SqliteDatabase:
    def __init__(self, url: URL, *, patience: timedelta, readers: int) -> None:
        if not url.database or url.database == ":memory:":
            raise Invalid("the SQLite URL names no file", "for example `sqlite:////var/lib/danlu/danlu.db`")
        self._path = os.path.abspath(url.database)
        self._lease: int | None = None
        self._mark = Mark(f"{self._path}.mark")
        connect = {"timeout": patience.total_seconds(), "check_same_thread": False}
        where = URL.create("sqlite+pysqlite", database=self._path)
        self.readers = create_engine(
            where, connect_args=connect, pool_size=readers, paramstyle="named", hide_parameters=True
        )
        self._writers = create_engine(where, connect_args=connect, poolclass=NullPool, hide_parameters=True)
        event.listen(self.readers, "connect", _set_up_reader)
        event.listen(self._writers, "connect", _set_up_writer)
        # Take the write lock at once: a transaction that needs it later fails without waiting.
        event.listen(self._writers, "begin", lambda connection: _run(connection, "BEGIN IMMEDIATE"))

    @property
    def is_new(self) -> bool:
        return not os.path.exists(self._path)

    def lease(self) -> None:
        """A locked file instead of a row: the lock ends with the process, so there is no timeout to wait for."""
        try:
            lease = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._out_of_reach(error.strerror or str(error)) from error
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lease, 0)
            os.write(lease, holder().encode())
            self._mark.refuse_empty(self._path)
            self._make_private()
        except BlockingIOError:
            other = os.read(lease, 200).decode(errors="replace") or "another process"
            os.close(lease)
            raise Refused(
                f"the database {self._path} is in use by `{other}` (program, machine, process)",
                "stop that server first, or give this one another database",
            ) from None
        except OSError as error:
            os.close(lease)
            raise self._out_of_reach(error.strerror or str(error)) from error
        except Refused:
            os.close(lease)
            raise
        self._lease = lease

    def _make_private(self) -> None:
        """Make the file readable by its owner only, before SQLite opens it: a later close would release SQLite's
        locks."""
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        if os.stat(self._path).st_mode & 0o077:
            os.chmod(self._path, 0o600)

    def release(self) -> None:
        self.readers.dispose()
        self._writers.dispose()
        lease, self._lease = self._lease, None
        if lease is not None:
            os.close(lease)

    def writer(self) -> Connection:
        connection = self._writers.connect()
        self._keep_reserve()
        return connection

    def _keep_reserve(self) -> None:
        """Reserve blocks for the write-ahead log, beyond its end: a job that fills the disk cannot take these blocks,
        and new writes go there first. Best effort: not every file system supports this."""
        import ctypes  # only here: the rest of the server works without ctypes

        with contextlib.suppress(OSError):
            size = min(RESERVE_BYTES, shutil.disk_usage(os.path.dirname(self._path)).free // 8)
            # SQLite holds no lock on this file, so closing it here releases none.
            fd = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                keep_size = 1  # FALLOC_FL_KEEP_SIZE
                ctypes.CDLL(None).fallocate(fd, keep_size, ctypes.c_int64(0), ctypes.c_int64(size))
            finally:
                os.close(fd)

    def examine(self, connection: Connection) -> None:
        found = connection.exec_driver_sql("PRAGMA user_version").scalar()
        connection.rollback()
        self._mark.refuse_older(self._path, int(found or 0))
        if (trouble := _quick_check(connection)) != "ok":
            raise damaged(self._path, trouble, self._mark.path)

    def mark(self, connection: Connection) -> None:
        """First the database, then the file: after a crash between the two, the database is ahead, which is fine."""
        with connection.begin():
            count = int(connection.exec_driver_sql("PRAGMA user_version").scalar() or 0) + 1
            connection.exec_driver_sql(f"PRAGMA user_version = {count}")
        self._mark.write(count)

    def check_room(self) -> None:
        try:
            disk = shutil.disk_usage(os.path.dirname(self._path))
        except OSError:
            return
        if disk.free < min(RESERVE_BYTES, disk.total // 64):
            raise self._no_room()

    def _no_room(self) -> StoreDown:
        return StoreDown(f"no room to write the database {self._path}{self._room()}", "free some space on its disk")

    def next_seq(self, connection: Connection) -> int:
        return read_next_seq(connection)

    def run_many(self, connection: Connection, statement: str, found: list[Row]) -> int:
        return _run(connection, statement, found)

    def spoils(self, error: SQLAlchemyError) -> bool:
        return True  # A new connection starts with the real content of the file.

    def told(self, error: SQLAlchemyError) -> DanluError:
        cause = error.orig if isinstance(error, DBAPIError) else None
        code = getattr(cause, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreDown(
                f"the database {self._path} is locked by another program",
                f"see which one has it open: `fuser -v {self._path}`",
            )
        if primary == sqlite3.SQLITE_FULL:
            return self._no_room()
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            told = damaged(self._path, str(cause), self._mark.path)
            return StoreDown(told.text, told.hint)
        return told_alike(error) or self._out_of_reach(str(cause or error).splitlines()[0])

    def _out_of_reach(self, why: str) -> StoreDown:
        return StoreDown(
            f"the database {self._path} cannot be used: {why}{self._room()}",
            "check the folder, its owner and its disk",
        )

    def _room(self) -> str:
        try:
            return f" ({shutil.disk_usage(os.path.dirname(self._path)).free >> 20:,} MiB free)"
        except OSError:
            return ""


def _quick_check(connection: Connection) -> str:
    """What SQLite finds wrong, or "ok"; also if the look at a large database would take too long."""
    until = time.monotonic() + CHECK_S
    raw: Any = connection.connection.driver_connection
    raw.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        return "ok"
    finally:
        raw.set_progress_handler(None, 0)
        connection.rollback()


def _run(connection: Connection, statement: str, found: list[Row] | None = None) -> int:
    """Bypass SQLAlchemy, whose overhead per statement exceeds SQLite's work; errors are still SQLAlchemy's."""
    cursor: sqlite3.Cursor = connection.connection.cursor()  # type: ignore[assignment]
    try:
        done = cursor.execute(statement) if found is None else cursor.executemany(statement, found)
        return done.rowcount
    except sqlite3.Error as error:
        dialect = connection.dialect
        raise DBAPIError.instance(statement, None, error, sqlite3.Error, True, dialect=dialect) from error
    finally:
        cursor.close()


def _set_up_reader(raw: Any, _record: Any) -> None:
    raw.isolation_level = None
    raw.execute("PRAGMA query_only = ON")


def _set_up_writer(raw: Any, _record: Any) -> None:
    raw.isolation_level = None
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "mmap_size = 0",
        "cache_size = -4000",
        "journal_size_limit = 67108864",
        # Environments may hold secrets: overwrite deleted content if this costs no extra write.
        "secure_delete = FAST",
    ):
        raw.execute(f"PRAGMA {pragma}").fetchall()
