"""Removes the snapshots that no job needs any more, in a separate thread."""

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from danlu.errors import DanluError
from danlu.provision.paths import shelves
from danlu.store.protocol import Store

log = logging.getLogger(__name__)

GRACE = timedelta(days=1)  # an upload may be under way, and people submit the same code again
EVERY_S = 6 * 3600.0
FIRST_S = 600.0  # after the start: a personal server may not live for hours
PAUSE_S = 60.0  # jobs are often removed in large numbers, and each sweep reads the specs of all jobs


class Sweeper:
    """`soon` requests an early sweep, after jobs were removed."""

    def __init__(self, store: Store, files_dir: str) -> None:
        self._store, self._files_dir = store, files_dir
        self._wanted = asyncio.Event()
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sweep")

    def soon(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Sweep now and then, forever."""
        wait_s = FIRST_S
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wanted.wait()
                wait_s = EVERY_S
                await asyncio.sleep(PAUSE_S)
                self._wanted.clear()
                try:
                    await self.sweep(datetime.now(UTC))
                except (DanluError, OSError, ValueError) as error:
                    log.warning("snapshots that no job needs stay for now: %s", error)
        finally:
            self._stopping.set()

    async def sweep(self, now: datetime) -> None:
        """Remove snapshots that no job needs and that were not used for a day. Jobs are read after `now`: a later
        submit has also used its snapshot later."""
        loop, before = asyncio.get_running_loop(), (now - GRACE).timestamp()
        found = await loop.run_in_executor(self._thread, shelves, self._files_dir)
        needed = await self._store.snapshots() if found else frozenset()
        for shelf in found:
            await loop.run_in_executor(self._thread, shelf.sweep, needed, before, self._go_on)

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise DanluError("the server stops")
