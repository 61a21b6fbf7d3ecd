"""The writer thread. Changes that arrive during a commit share the next commit."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from danlu.errors import DanluError, Refused, StoreDown
from danlu.store.database import Database, unfit
from danlu.store.lanes import Asked, Lanes
from danlu.store.operations import Change, Insert, Statements, Transaction
from danlu.store.writer_state import Draft, Ledger

log = logging.getLogger(__name__)

Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Writer:
    """`load` reads the ledger from the database when the ledger in memory may be wrong."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        ledger: Ledger,
        *,
        load: Callable[[Connection], Ledger],
        patience: timedelta,
        mark_every: timedelta,
    ) -> None:
        self._database = database
        self._connection: Connection | None = connection
        self._ledger = ledger
        self._load = load
        self._patience = patience
        self._mark_every_s = mark_every.total_seconds()
        self._unmarked_since: float | None = None  # the first commit after the last mark
        self._is_unsure = False  # a commit broke, and its outcome is unknown
        self._text = Statements(connection.dialect)
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="danlu-store-writer", daemon=True)
        self._thread.start()

    async def write(self, change: Change) -> Any:
        """Durable on return."""
        if self._closed:
            raise StoreDown("the store is closed")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asked.put((change, answer))
        return await answer

    def close(self) -> None:
        """Write all pending changes, then end the thread. Blocks."""
        self._closed = True
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        lanes = Lanes()
        goes_on = True
        while goes_on or lanes:
            asked = self._waited_for(is_busy=bool(lanes) or not goes_on)
            goes_on = goes_on and None not in asked
            group = lanes.sorted_out([one for one in asked if one is not None])
            # Two commits: what is small is answered before the arrays of somebody are written.
            for some in filter(None, (group, lanes.turn())):
                self._answer(self._written(some))
            if self._mark_in() == 0:
                self._mark()
        self._mark()
        self._drop_connection()

    def _waited_for(self, *, is_busy: bool) -> list[Asked | None]:
        """Everything asked by now; nothing if it is time for a mark. A busy writer does not wait for more."""
        asked: list[Asked | None] = []
        with contextlib.suppress(Empty):
            if not is_busy:
                asked.append(self._asked.get(timeout=self._mark_in()))
            while True:
                asked.append(self._asked.get_nowait())
        return asked

    def _mark_in(self) -> float | None:
        """Seconds until the next mark; None if nothing was written since the last one."""
        if self._unmarked_since is None:
            return None
        return max(0.0, self._unmarked_since + self._mark_every_s - time.monotonic())

    def _mark(self) -> None:
        is_due, self._unmarked_since = self._unmarked_since is not None, None
        # After trouble, the next commit asks for it again.
        if is_due and self._connection is not None and not marked(self._database, self._connection):
            self._drop_connection()

    def _answer(self, answers: list[Answer]) -> None:
        try:
            self._loop.call_soon_threadsafe(_deliver, answers)
        except RuntimeError:
            log.warning("%d writes were done, but their callers are gone", len(answers))

    def _written(self, group: list[Asked]) -> list[Answer]:
        """Refuse new jobs if the disk space is reserved for stops, ends and removals."""
        new = [asked for asked in group if isinstance(asked[0], Insert)]
        refused: list[Answer] = []
        if new:
            try:
                self._database.check_room()
            except StoreDown as error:
                refused = _all_failed(new, error)
                group = [asked for asked in group if not isinstance(asked[0], Insert)]
        return [*refused, *(self._written_all(group) if group else ())]

    def _written_all(self, group: list[Asked]) -> list[Answer]:
        try:
            try:
                return self._twice(self._together, group)
            except Exception as error:
                # Only separate writes show which change fails.
                if self._is_down(error) or len(group) == 1:
                    raise
                return self._twice(self._one_by_one, group)
        except Exception as error:  # noqa: BLE001 - the thread must outlive every error
            if isinstance(error, SQLAlchemyError) and self._database.spoils(error):
                self._drop_connection()
            return _all_failed(group, self._told(error))

    def _twice(self, write: Callable[[list[Asked]], list[Answer]], group: list[Asked]) -> list[Answer]:
        """A connection that broke before its commit has changed nothing, so a new connection may try again."""
        try:
            return write(group)
        except DBAPIError as error:
            if not error.connection_invalidated or self._is_unsure:
                raise
            self._drop_connection()
            return write(group)

    def _together(self, group: list[Asked]) -> list[Answer]:
        connection, draft = self._connected(), self._ledger.draft()
        with connection.begin() as begun:
            tx = self._transaction(connection, draft)
            results = tx.perform([change for change, _ in group])
            tx.finish()
            self._commit(begun.commit, group, draft)
        return [(future, result, None) for (_, future), result in zip(group, results, strict=True)]

    def _one_by_one(self, group: list[Asked]) -> list[Answer]:
        """A savepoint per change, so that a failing change does not affect the others."""
        connection, draft = self._connected(), self._ledger.draft()
        answers: list[Answer] = []
        with connection.begin() as begun:
            tx = self._transaction(connection, draft)
            for change, future in group:
                mark = draft.mark()
                try:
                    with connection.begin_nested():
                        (result,) = tx.perform([change])
                except Exception as error:
                    if self._is_down(error):
                        raise
                    draft.back_to(mark)
                    answers.append((future, None, self._told(error)))
                else:
                    answers.append((future, result, None))
            tx.finish()
            done = [asked for asked, (_, _, error) in zip(group, answers, strict=True) if error is None]
            self._commit(begun.commit, done, draft)
        return answers

    def _transaction(self, connection: Connection, draft: Draft) -> Transaction:
        return Transaction(connection, self._text, draft, self._database.run_many)

    def _commit(self, commit: Callable[[], None], group: list[Asked], draft: Draft) -> None:
        try:
            commit()
        except SQLAlchemyError as error:
            # The database may have committed and died before its answer: ask again when the database is back.
            self._is_unsure = True
            if not self._was_committed([change for change, _ in group], error):
                raise
        draft.keep()
        if self._unmarked_since is None:
            self._unmarked_since = time.monotonic()

    def _was_committed(self, changes: Sequence[Change], error: SQLAlchemyError) -> bool:
        self._drop_connection()
        until = time.monotonic() + self._patience.total_seconds()
        while True:
            try:
                transaction = self._transaction(self._connected(reload=False), self._ledger.draft())
                found = transaction.was_committed(changes)
                self._is_unsure = found is None
                return bool(found)
            except (SQLAlchemyError, StoreDown):
                self._drop_connection()
                if time.monotonic() > until:
                    told = self._database.told(error)
                    raise StoreDown(f"{told.text}; the outcome of the last change is unknown", told.hint) from error
                time.sleep(0.1)

    def _is_down(self, error: Exception) -> bool:
        return isinstance(self._told(error), StoreDown)

    def _told(self, error: Exception) -> Exception:
        """The error for the caller."""
        if isinstance(error, OverflowError):  # SQLite's way to refuse a number
            return unfit()
        return self._database.told(error) if isinstance(error, SQLAlchemyError) else error

    def _connected(self, *, reload: bool = True) -> Connection:
        if self._connection is None:
            try:
                self._connection = self._database.writer()
            except Refused as error:
                raise StoreDown(error.text, error.hint) from error
            self._ledger.next_seq = self._database.next_seq(self._connection)
        if reload and self._is_unsure:
            self._ledger = self._load(self._connection)
            self._is_unsure = False
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except SQLAlchemyError as error:
                log.debug("closing a spoilt connection: %s", error)


def marked(database: Database, connection: Connection) -> bool:
    """A mark that cannot be written keeps nobody from working."""
    try:
        database.mark(connection)
    except (SQLAlchemyError, OSError) as error:
        log.warning("the mark of the database was not written: %s", error)
        return False
    return True


def _deliver(answers: Sequence[Answer]) -> None:
    """Wake the event loop once for the whole group."""
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _all_failed(group: list[Asked], error: Exception) -> list[Answer]:
    """A separate exception object per caller: a shared object would collect the tracebacks of many tasks."""
    if not isinstance(error, DanluError):
        log.error("a write failed", exc_info=error)
        return [(future, None, error) for _, future in group]
    return [(future, None, type(error)(error.text, error.hint, code=error.code)) for _, future in group]
