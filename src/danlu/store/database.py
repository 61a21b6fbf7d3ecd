"""What differs between SQLite and PostgreSQL, behind one seam: connections, the lease, what an error means."""

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
    """`lease` comes first and `release` last; what is between may fail and be asked again."""

    readers: Engine

    @property
    def is_new(self) -> bool:
        """Known without asking: there is no database yet."""
        ...

    def lease(self) -> None:
        """Make sure that no other server works with this database. Refused names the one that does."""
        ...

    def release(self) -> None: ...

    def writer(self) -> Connection:
        """A new connection for the one writer."""
        ...

    def examine(self, connection: Connection) -> None:
        """Refused if this is damaged, or older than the last `mark`. Before anything is read or written."""
        ...

    def mark(self, connection: Connection) -> None:
        """Remember, in the database and outside of it, how far it has come. Rarely: it takes a commit of its own."""
        ...

    def check_room(self) -> None:
        """StoreDown if the room that is left is kept for what is known already: stops, ends, removals."""
        ...

    def next_seq(self, connection: Connection) -> int: ...

    def run_many(self, connection: Connection, statement: str, found: list[Row]) -> int:
        """Run a statement for each row; gives how many rows of the database it touched."""
        ...

    def told(self, error: SQLAlchemyError) -> DanluError:
        """What a person should read."""
        ...

    def spoils(self, error: SQLAlchemyError) -> bool:
        """Should the connection that raised this be thrown away?"""
        ...


def holder() -> str:
    """Who takes a lease: machine and process, and a random part because process numbers come again."""
    return f"danlu {socket.gethostname()[:32]} {os.getpid()} {secrets.token_hex(4)}"


def read_next_seq(connection: Connection) -> int:
    last = connection.execute(select(func.max(tables.jobs.c.seq))).scalar()
    connection.rollback()
    return int(last or 0) + 1


def unfit() -> Invalid:
    return Invalid("the database cannot keep one of these values", "numbers must fit into 64 bits")


def told_alike(error: SQLAlchemyError) -> DanluError | None:
    """Errors that mean the same on both: the fault of one change, not of the database."""
    if isinstance(error, IntegrityError):
        return Conflict("one of these ids is taken", "repeat it: a new id is made each time")
    if isinstance(error, DataError):
        return unfit()
    return None


def parse_url(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # Not shown: it may hold a password.
        raise Invalid(
            "the database URL cannot be read",
            "for example `sqlite:////var/lib/danlu/danlu.db` or `postgresql://danlu@db.lab/danlu`",
        ) from None
