"""The differences between SQLite and PostgreSQL behind one protocol: connections, the lease, error translation."""

import os
import secrets
import socket
from typing import Protocol

from sqlalchemy import URL, Connection, Engine, func, make_url, select
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, SQLAlchemyError

from danlu.errors import Conflict, DanluError, Invalid
from danlu.store import tables
from danlu.store.job_rows import Row


class Database(Protocol):
    """Call `lease` first and `release` last; calls between them may fail and be repeated."""

    readers: Engine

    @property
    def is_new(self) -> bool:
        """Whether the database certainly does not exist yet; needs no connection."""
        ...

    def lease(self) -> None:
        """Ensure that no other server uses this database. Raises Refused with the name of the other server."""
        ...

    def release(self) -> None: ...

    def writer(self) -> Connection:
        """A new connection for the single writer."""
        ...

    def examine(self, connection: Connection) -> None:
        """Refused if this is damaged, or older than the last `mark`. Before anything is read or written."""
        ...

    def mark(self, connection: Connection) -> None:
        """Remember, in the database and outside of it, how far it has come. Rarely: it takes a commit of its own."""
        ...

    def check_room(self) -> None:
        """Raise StoreDown if the remaining disk space is reserved for known jobs: stops, ends, removals."""
        ...

    def next_seq(self, connection: Connection) -> int: ...

    def run_many(self, connection: Connection, statement: str, found: list[Row]) -> int:
        """Run a statement for each row; return the number of affected rows."""
        ...

    def told(self, error: SQLAlchemyError) -> DanluError:
        """The error for users."""
        ...

    def spoils(self, error: SQLAlchemyError) -> bool:
        """Whether the connection must be closed after this error."""
        ...


def holder() -> str:
    """The name of a lease holder: machine, process, and a random part, because process ids are reused."""
    return f"danlu {socket.gethostname()[:32]} {os.getpid()} {secrets.token_hex(4)}"


def read_next_seq(connection: Connection) -> int:
    last = connection.execute(select(func.max(tables.jobs.c.seq))).scalar()
    connection.rollback()
    return int(last or 0) + 1


def unfit() -> Invalid:
    return Invalid("the database cannot keep one of these values", "numbers must fit into 64 bits")


def told_alike(error: SQLAlchemyError) -> DanluError | None:
    """Translate errors with the same meaning on both databases: errors of a change, not of the database."""
    if isinstance(error, IntegrityError):
        return Conflict("one of these ids is taken", "repeat the request: each request gets a new id")
    if isinstance(error, DataError):
        return unfit()
    return None


def parse_url(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The URL is not shown: it may contain a password.
        raise Invalid(
            "the database URL cannot be read",
            "for example `sqlite:////var/lib/danlu/danlu.db` or `postgresql://danlu@db.lab/danlu`",
        ) from None
