"""The store on SQLite or PostgreSQL: a writer thread, a few readers, and no blocking of the event loop."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from danlu.domain.charge import Charge
from danlu.domain.job import Job, JobId
from danlu.domain.people import AuditEntry
from danlu.errors import Invalid, StoreDown
from danlu.store import job_queries, operations, pages, people_queries, tables
from danlu.store.database import Database, parse_url
from danlu.store.job_rows import stored
from danlu.store.people_protocol import People, PeopleChange, Use, UseFilter
from danlu.store.protocol import ArraySummary, JobFilter, Outcome, Page, PastRun, Token
from danlu.store.schema import bring_up
from danlu.store.writer import Writer, marked
from danlu.store.writer_state import Ledger

_READERS = 4
_PATIENCE = timedelta(seconds=5)
_MARK_EVERY = timedelta(seconds=10)

T = TypeVar("T")


class SqlStore:
    """`url` in SQLAlchemy's form: `sqlite:////path/to.db`, `postgresql://user@host/name`.

    `patience`: how long to wait for a locked or silent database before StoreDown.
    `mark_every`: the next start notices a loss of changes that are older than this.
    """

    def __init__(self, url: str, *, patience: timedelta = _PATIENCE, mark_every: timedelta = _MARK_EVERY) -> None:
        self._database = _database(url, patience)
        self._patience, self._mark_every = patience, mark_every
        self._pool: ThreadPoolExecutor | None = None
        self._writer: Writer | None = None

    def migrate_apart(self) -> None:
        """Before any thread starts: create the tables of a new database file in a child process. The migration code
        takes 10 MB, which end with the child. `open` meets any failure again and reports it."""
        if self._database.is_new:
            child = os.fork()
            if child == 0:
                try:
                    self._opened()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)

    async def open(self) -> Sequence[Job]:
        pool = ThreadPoolExecutor(_READERS, "danlu-store-reader")
        try:
            connection, ledger, jobs = await asyncio.get_running_loop().run_in_executor(pool, self._opened)
        except BaseException:
            pool.shutdown(wait=False)
            raise
        self._pool = pool
        self._writer = Writer(
            self._database, connection, ledger, load=self._ledger, patience=self._patience, mark_every=self._mark_every
        )
        return jobs

    def _opened(self) -> tuple[Connection, Ledger, tuple[Job, ...]]:
        self._database.lease()
        try:
            connection = self._database.writer()
            try:
                self._database.examine(connection)
                bring_up(connection)
                marked(self._database, connection)
                jobs = _tidied(connection)
                ledger = Ledger(jobs, self._database.next_seq(connection))
            except BaseException:
                connection.close()
                raise
        except SQLAlchemyError as error:
            self._database.release()
            raise self._database.told(error) from error
        except BaseException:
            self._database.release()
            raise
        return connection, ledger, jobs

    def _ledger(self, connection: Connection) -> Ledger:
        return Ledger(_tidied(connection), self._database.next_seq(connection))

    async def close(self) -> None:
        """Write all pending changes. Closing twice is fine."""
        writer, self._writer = self._writer, None
        pool, self._pool = self._pool, None
        if writer is None or pool is None:
            return
        await asyncio.get_running_loop().run_in_executor(pool, writer.close)
        pool.shutdown(wait=True)
        self._database.release()

    async def insert(
        self,
        jobs: Sequence[Job],
        *,
        key: str = "",
        environ: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> Sequence[Job]:
        made: Sequence[Job] = await self._write(operations.Insert(tuple(jobs), key, environ, tuple(audit)))
        return made

    async def by_key(self, user: str, key: str) -> Sequence[Job]:
        found: Sequence[Job] = await self._write(operations.Find(user, key))
        return found

    async def update(
        self,
        jobs: Sequence[Job],
        past: Sequence[PastRun] = (),
        charges: Sequence[Charge] = (),
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        await self._write(operations.Update(tuple(jobs), tuple(past), tuple(charges), tuple(audit)))

    async def remove(self, ids: Sequence[JobId], audit: Sequence[AuditEntry] = ()) -> int:
        gone: int = await self._write(operations.Remove(tuple(ids), tuple(audit)))
        return gone

    async def get(self, job_id: str) -> Job | None:
        return await self._read(job_queries.get, job_id)

    async def get_all(self, ids: Sequence[str]) -> Sequence[Job]:
        return await self._read(job_queries.get_all, ids) if ids else ()

    async def numbered(self, seq: int) -> Job | None:
        return await self._read(job_queries.numbered, seq)

    async def find(self, prefix: str, *, limit: int = 10) -> Sequence[str]:
        return await self._read(job_queries.find, prefix, limit)

    async def latest(self, user: str, back: int = 0) -> str | None:
        return await self._read(job_queries.latest, user, back)

    async def page(self, wanted: JobFilter, *, limit: int, before: int | None = None) -> Page:
        return await self._read(pages.page, wanted, limit, before)

    async def outcome(self, ref: str) -> Outcome:
        return await self._read(job_queries.outcome, ref)

    async def array(self, array_id: str) -> ArraySummary:
        return await self._read(job_queries.array, array_id)

    async def past_runs(self, job_id: JobId) -> Sequence[PastRun]:
        return await self._read(job_queries.past_runs, job_id)

    async def snapshots(self) -> frozenset[str]:
        return await self._read(job_queries.snapshots)

    async def environ(self, environ_id: str) -> Mapping[str, str]:
        return await self._read(job_queries.environ, environ_id)

    async def add_token(self, token: Token, audit: Sequence[AuditEntry] = ()) -> None:
        await self._write(operations.AddToken(token, tuple(audit)))

    async def tokens(self) -> Sequence[Token]:
        return await self._read(job_queries.tokens)

    async def token(self, digest: str) -> Token | None:
        return await self._read(job_queries.token, digest)

    async def drop_token(self, token_id: str, audit: Sequence[AuditEntry] = ()) -> bool:
        gone: bool = await self._write(operations.DropToken(token_id, tuple(audit)))
        return gone

    async def people(self) -> People:
        return await self._read(people_queries.people)

    async def record(self, changed: Sequence[PeopleChange], audit: Sequence[AuditEntry] = ()) -> None:
        await self._write(operations.Record(tuple(changed), tuple(audit)))

    async def audit(
        self, *, limit: int, before: int | None = None, who: str = "", what: str = "", target: str = ""
    ) -> Sequence[AuditEntry]:
        return await self._read(people_queries.audit, limit, before, who, what, target)

    async def use(self, wanted: UseFilter) -> Sequence[Use]:
        return await self._read(people_queries.use, wanted)

    async def charges(self, since: datetime, *, with_gpus: bool = False) -> Sequence[Charge]:
        return await self._read(people_queries.charges, since, with_gpus)

    async def _write(self, change: operations.Change) -> Any:
        if self._writer is None:
            raise StoreDown("the store is not open")
        return await self._writer.write(change)

    async def _read(self, ask: Callable[..., T], *args: object) -> T:
        if self._pool is None:
            raise StoreDown("the store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._asked, ask, *args)

    def _asked(self, ask: Callable[..., T], *args: object) -> T:
        try:
            try:
                return self._once(ask, *args)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # The database server was gone and may be back: by now the pool has dropped its old connections.
                return self._once(ask, *args)
        except SQLAlchemyError as error:
            raise self._database.told(error) from error

    def _once(self, ask: Callable[..., T], *args: object) -> T:
        with self._database.readers.connect() as connection:
            return ask(connection, *args)


def _tidied(connection: Connection) -> tuple[Job, ...]:
    """The active jobs, after deleting the environments that no active job needs."""
    with connection.begin():
        jobs = job_queries.active(connection)
        needed = {job.spec.environ for job in jobs}
        unneeded = [stored(one) for one in job_queries.environ_ids(connection) if one not in needed]
        for one in unneeded:
            connection.execute(tables.environs.delete().where(tables.environs.c.id == one))
    return jobs


def _database(url: str, patience: timedelta) -> Database:
    parsed = parse_url(url)
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        from danlu.store.sqlite import SqliteDatabase

        return SqliteDatabase(parsed, patience=patience, readers=_READERS)
    if kind in ("postgresql", "postgres"):
        from danlu.store.postgres import PostgresDatabase

        return PostgresDatabase(parsed, patience=patience, readers=_READERS)
    raise Invalid(
        f"Danlu keeps its jobs in SQLite or PostgreSQL, not in `{kind}`", "use `sqlite:///` or `postgresql://`"
    )
