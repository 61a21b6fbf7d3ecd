"""The one thread that writes. Whatever arrives while it commits shares the next commit."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from danlu.errors import DanluError, StoreDown
from danlu.store.changes import Change, Statements, Transaction
from danlu.store.database import Database
from danlu.store.ledger import Ledger

log = logging.getLogger(__name__)

Asked = tuple[Change, "asyncio.Future[Any]"]
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Writer:
    def __init__(self, database: Database, connection: Connection, ledger: Ledger) -> None:
        self._database = database
        self._connection: Connection | None = connection
        self._ledger = ledger
        self._text = Statements(connection.dialect)
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="danlu-store-writer", daemon=True)
        self._thread.start()

    async def write(self, change: Change) -> Any:
        """Durable when it returns."""
        if self._closed:
            raise StoreDown("the store is closed")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asked.put((change, answer))
        return await answer

    def close(self) -> None:
        """Write what was asked so far, then let go. Blocks."""
        self._closed = True
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        goes_on = True
        while goes_on:
            asked = [self._asked.get()]
            try:
                while True:
                    asked.append(self._asked.get_nowait())
            except Empty:
                pass
            goes_on = None not in asked
            group = [one for one in asked if one is not None]
            if group:
                self._answer(self._written(group))
        self._drop_connection()

    def _answer(self, answers: list[Answer]) -> None:
        try:
            self._loop.call_soon_threadsafe(_deliver, answers)
        except RuntimeError:
            log.warning("%d writes were done, but nobody waits for them any more", len(answers))

    def _written(self, group: list[Asked]) -> list[Answer]:
        try:
            try:
                return self._together(group)
            except Exception as error:
                # Whose fault it is shows when each is done alone.
                if self._is_down(error) or len(group) == 1:
                    raise
                return self._one_by_one(group)
        except Exception as error:  # noqa: BLE001 - the thread must outlive every error
            return _all_failed(group, self._told(error))

    def _together(self, group: list[Asked]) -> list[Answer]:
        connection = self._connected()
        draft = self._ledger.draft()
        with connection.begin():
            tx = Transaction(connection, self._text, draft)
            results = tx.perform([change for change, _ in group])
            tx.finish()
        draft.keep()
        return [(future, result, None) for (_, future), result in zip(group, results, strict=True)]

    def _one_by_one(self, group: list[Asked]) -> list[Answer]:
        """Each in its own savepoint, so that a change that cannot be done takes no other with it."""
        connection = self._connected()
        draft = self._ledger.draft()
        answers: list[Answer] = []
        with connection.begin():
            tx = Transaction(connection, self._text, draft)
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
        draft.keep()
        return answers

    def _is_down(self, error: Exception) -> bool:
        return isinstance(self._told(error), StoreDown)

    def _told(self, error: Exception) -> Exception:
        """The error as the caller shall see it; a connection that may be spoilt is thrown away."""
        if not isinstance(error, SQLAlchemyError):
            return error
        told = self._database.told(error)
        if isinstance(told, StoreDown) and self._database.spoils(error):
            self._drop_connection()
        return told

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.writer()
            self._ledger.next_seq = self._database.next_seq(self._connection)
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except SQLAlchemyError as error:
                log.debug("closing a spoilt connection: %s", error)


def _deliver(answers: Sequence[Answer]) -> None:
    """One wake-up of the event loop for the whole group."""
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _all_failed(group: list[Asked], error: Exception) -> list[Answer]:
    """An exception object of its own for each: sharing one would grow one traceback from many tasks."""
    if not isinstance(error, DanluError):
        log.error("a write failed", exc_info=error)
        return [(future, None, error) for _, future in group]
    return [(future, None, type(error)(error.text, error.hint, code=error.code)) for _, future in group]
