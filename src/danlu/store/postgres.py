"""PostgreSQL through psycopg 3, imported only if configured."""

import re
import time
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from danlu.errors import DanluError, Invalid, Refused, StoreDown
from danlu.store.database import holder, read_next_seq, told_alike
from danlu.store.job_rows import Row

# A number that no other program on the same database uses: "danlu".
_LEASE = 0x64616E6C75
_LEASE_WAIT_S = 1.0
# From this number of rows on, COPY takes a quarter of the time; a few rows are faster as statements.
_COPIED = 500
_COPYABLE = re.compile(r"INSERT INTO (\w+ \([^()]*\)) VALUES \([^()]*\)")


class PostgresDatabase:
    def __init__(self, url: URL, *, patience: timedelta, readers: int) -> None:
        if find_spec("psycopg") is None:
            raise Invalid("PostgreSQL needs a driver that is not installed", "`pip install 'danlu[postgres]'`")
        self._url = url.set(drivername="postgresql+psycopg")
        self._holder = holder()
        seconds = max(1, round(patience.total_seconds()))
        connect = {
            "connect_timeout": max(2, seconds),
            "application_name": self._holder,
            "client_encoding": "utf8",
            # Detect a vanished machine within seconds instead of a quarter of an hour.
            "keepalives_idle": seconds,
            "keepalives_interval": 1,
            "keepalives_count": 3,
            "tcp_user_timeout": seconds * 2000,
        }
        self.readers = create_engine(
            self._url, connect_args=connect, pool_size=readers, isolation_level="AUTOCOMMIT", hide_parameters=True
        )
        limit = f"-c lock_timeout={seconds * 1000}"
        self._writers = create_engine(
            self._url,
            connect_args=connect | {"options": f"{url.query.get('options', '')} {limit}".strip()},
            poolclass=NullPool,
            paramstyle="format",
            hide_parameters=True,
        )

    @property
    def is_new(self) -> bool:
        return False

    def lease(self) -> None:
        """No action: the lease is a lock of the writer's connection, so no write can happen without the lease."""

    def release(self) -> None:
        self.readers.dispose()
        self._writers.dispose()

    def examine(self, connection: Connection) -> None:
        """PostgreSQL checks its own log, and does not start without it."""

    def mark(self, connection: Connection) -> None:
        """Nothing to remember: see `examine`."""

    def check_room(self) -> None:
        """No check: the disk belongs to the database server."""

    def writer(self) -> Connection:
        connection = self._writers.connect()
        try:
            self._take_lease(connection)
            if connection.exec_driver_sql("SHOW server_encoding").scalar() != "UTF8":
                raise Refused(f"the database {self._place()} is not in UTF8", "create it with `ENCODING 'UTF8'`")
            if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
                connection.exec_driver_sql("SET synchronous_commit = on")
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _take_lease(self, connection: Connection) -> None:
        """Wait a moment: PostgreSQL notices the end of the previous holder some milliseconds later."""
        until = time.monotonic() + _LEASE_WAIT_S
        while True:
            if connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (_LEASE,)).scalar():
                return
            pid, other = connection.exec_driver_sql(_WHO_HOLDS, (_LEASE >> 32, _LEASE & 0xFFFFFFFF)).first() or (0, "")
            if other == self._holder:
                # Our own previous connection: PostgreSQL has not noticed its end yet.
                connection.exec_driver_sql("SELECT pg_terminate_backend(%s, 100)", (pid,))
            if time.monotonic() > until:
                break
            time.sleep(0.03)
        raise Refused(
            f"the database {self._place()} is in use by `{other or 'another server'}` (program, machine, process)",
            "stop that server first, or give this one another database",
        )

    def next_seq(self, connection: Connection) -> int:
        return read_next_seq(connection)

    def run_many(self, connection: Connection, statement: str, found: list[Row]) -> int:
        if len(found) >= _COPIED and (copied := _COPYABLE.fullmatch(statement)):
            return _copy(connection, f"COPY {copied[1]} FROM STDIN", found)
        return connection.exec_driver_sql(statement, found if len(found) > 1 else found[0]).rowcount

    def spoils(self, error: SQLAlchemyError) -> bool:
        # Closing the connection gives up the lease, so close only a connection that is lost anyway.
        return not isinstance(error, DBAPIError) or error.connection_invalidated

    def told(self, error: SQLAlchemyError) -> DanluError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        why = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        if self._url.password:
            why = why.replace(str(self._url.password), "***")
        return told_alike(error) or StoreDown(
            f"PostgreSQL at {self._place()} cannot serve: {why}", "check that PostgreSQL runs, and its log"
        )

    def _place(self) -> str:
        host = self._url.host or self._url.query.get("host") or "the local socket"
        return f"{host}{f':{self._url.port}' if self._url.port else ''}, database {self._url.database}"


def _copy(connection: Connection, statement: str, found: list[Row]) -> int:
    """Past SQLAlchemy, which knows no COPY; errors are still its own."""
    import psycopg

    raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            for row in found:
                copy.write_row(row)
    except psycopg.Error as error:
        is_lost, dialect = raw.closed, connection.dialect
        raise DBAPIError.instance(statement, None, error, psycopg.Error, True, is_lost, dialect=dialect) from error
    return len(found)


_WHO_HOLDS = """
    SELECT a.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = %s::bigint::oid AND l.objid = %s::bigint::oid
"""
