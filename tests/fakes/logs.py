"""The log of a fake run: bytes in memory."""

import asyncio
from collections.abc import AsyncIterator


class MemoryLog:
    """LogSource, without a file."""

    path = ""

    def __init__(self) -> None:
        self._data: bytes | None = None  # None: there is no log
        self._next: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        self._data = (self._data or b"") + data
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    async def size(self) -> int | None:
        return None if self._data is None else len(self._data)

    async def start_of_tail(self, lines: int) -> int:
        data = self._data or b""
        return len(data) - len(b"".join(data.splitlines(keepends=True)[-lines:])) if lines else len(data)

    async def _range(self, offset: int, length: int) -> AsyncIterator[bytes]:
        if data := (self._data or b"")[offset : offset + length]:
            yield data

    def read(self, offset: int, length: int = 1 << 62) -> AsyncIterator[bytes]:
        return self._range(offset, length)

    async def follow(self) -> "FollowedMemoryLog | None":
        return None if self._data is None else FollowedMemoryLog(self)

    async def prepare(self) -> None:
        self._data = self._data or b""

    async def remove(self) -> None:
        self._data = None

    def growth(self) -> "asyncio.Future[None]":
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next


class FollowedMemoryLog:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def growth(self) -> "asyncio.Future[None]":
        return self._log.growth()

    async def read(self, offset: int) -> bytes:
        return b"".join([data async for data in self._log.read(offset)])

    def close(self) -> None:
        return
