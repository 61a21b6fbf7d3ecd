"""Logs in files: read as a whole, read from the end, or followed during growth."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

from inotify_simple import INotify, flags

from danlu.domain.job import RunId
from danlu.errors import EngineDown
from danlu.unix.patient_folder import PatientFolder

CHUNK = 256 * 1024
# Readers of a constantly growing log wake at most this often; the first line goes out at once.
PAUSE_S = 0.005
FAR_S = 0.5  # between checks of files written by other machines, whose growth inotify does not report
# The search for the last lines stops here: a log may have no newlines, or be a huge sparse file.
FARTHEST_BACK = 256 * 1024 * 1024
KEPT_READS = 4
# The writer may own the file, and with a lease can block an open for most of a minute: such an open fails instead.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
Given = ParamSpec("Given")
Found = TypeVar("Found")


class LogFiles:
    """All logs below a folder. All followers of a file share a watch, and a read per change.
    `far`: other machines write the logs. Then inotify reports no growth, and the kernel knows the true size of a file
    only after a new open."""

    def __init__(self, root: str, far: PatientFolder | None = None) -> None:
        self._root = root
        self._far = far
        self._looking: asyncio.Task[None] | None = None
        self._inotify: INotify | None = None  # made for the first follower
        self._by_watch: dict[int, Growing] = {}
        self._by_path: dict[str, Growing] = {}

    def of(self, run_id: RunId) -> "LogFile":
        """Grouped by the first letter of the id: a folder with a million files is slow."""
        return LogFile(self, f"{self._root}/{run_id[0]}/{run_id}.log")

    def close(self) -> None:
        if self._looking:
            self._looking.cancel()
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    async def do(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Call `do` on a file: directly, or in a thread with a timeout if the file is far. Timeout: EngineDown."""
        return do(*given, **named) if self._far is None else await self._far.in_time(do, *given, **named)

    async def apart(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """As `do`, for calls that may also take a moment on a local file."""
        return await (self._far.in_time if self._far else asyncio.to_thread)(do, *given, **named)

    async def size(self, path: str) -> int:
        return await self.do(_size_now, path)

    async def open(self, path: str) -> "Growing":
        """A file that may grow. Use the result with `with`. Raises FileNotFoundError, EngineDown, and BlockingIOError
        if the owner holds a lease."""
        if path not in self._by_path:
            found = await self.do(Growing, path, self._let_go, self._far)
            if path in self._by_path:  # another reader was faster
                os.close(found.fd)
            else:
                self._watch(found)
        found = self._by_path[path]
        found.readers += 1
        return found

    async def read_all(self, path: str, offset: int, length: int) -> AsyncIterator[bytes]:
        """`length` bytes from `offset`, in large pieces."""
        if not length:
            return
        fd = await self.do(os.open, path, _FLAGS)
        try:
            end = offset + length
            while offset < end:
                data = await self.apart(os.pread, fd, min(4 * CHUNK, end - offset), offset)
                if not data:
                    return
                offset += len(data)
                yield data
        finally:
            os.close(fd)

    def _watch(self, found: "Growing") -> None:
        if self._inotify is None:
            self._inotify = INotify(nonblocking=True)
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._woken)
        # By descriptor: a lookup by name could be slow.
        try:
            found.watch = self._inotify.add_watch(f"/proc/self/fd/{found.fd}", flags.MODIFY)
        except OSError:
            os.close(found.fd)
            raise
        self._by_path[found.path] = found
        self._by_watch[found.watch] = found
        if self._far and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self._by_path:
            for found in list(self._by_path.values()):
                with contextlib.suppress(OSError, EngineDown):  # the readers get the same error
                    size = await self.size(found.path)
                    if size != found.size:
                        found.size = size
                        found.grew()
            await asyncio.sleep(FAR_S)

    @property
    def is_idle(self) -> bool:
        """No file has followers."""
        return not self._by_path and not self._by_watch

    def _woken(self) -> None:
        assert self._inotify is not None
        for watch in {event.wd for event in self._inotify.read(timeout=0)}:
            if watch in self._by_watch:
                self._by_watch[watch].grew()

    def _let_go(self, growing: "Growing") -> None:
        del self._by_path[growing.path]
        del self._by_watch[growing.watch]
        if self._inotify is not None:
            with contextlib.suppress(OSError):  # the watch of a deleted file is gone already
                self._inotify.rm_watch(growing.watch)


class LogFile:
    """The log of a run: LogSource."""

    def __init__(self, files: LogFiles, path: str) -> None:
        self._files = files
        self.path = path

    async def size(self) -> int | None:
        try:
            return await self._files.size(self.path)
        except (FileNotFoundError, BlockingIOError):
            return None

    async def start_of_tail(self, lines: int) -> int:
        try:
            return await self._files.apart(offset_of_tail, self.path, lines)
        except (FileNotFoundError, BlockingIOError):
            return 0

    def read(self, offset: int, length: int) -> AsyncIterator[bytes]:
        return self._files.read_all(self.path, offset, length)

    async def follow(self) -> "Growing | None":
        try:
            return await self._files.open(self.path)
        except (FileNotFoundError, BlockingIOError):
            return None

    async def prepare(self) -> None:
        # Only for followed logs: making a file during a disk commit is slow.
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))

    async def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(os.unlink, self.path)


class Growing:
    """An open log file, shared by all its followers."""

    def __init__(self, path: str, let_go: Callable[["Growing"], None], far: PatientFolder | None) -> None:
        self.path = path
        self.size = 0  # at the last check, for far files only
        self._far = far
        self.fd = os.open(path, _FLAGS)
        self.watch = -1
        self.readers = 0
        self._let_go = let_go
        self._cache: dict[int, bytes] = {}
        self._next: asyncio.Future[None] | None = None
        self._woken_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Growing":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove a reader; the last reader closes the file."""
        self.readers -= 1
        if not self.readers:
            self._let_go(self)
            os.close(self.fd)
            if self._timer:
                self._timer.cancel()

    def grew(self) -> None:
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._woken_at + PAUSE_S - loop.time()
        if wait_s <= 0:
            self._wake()
        else:
            self._timer = loop.call_later(wait_s, self._wake)

    def growth(self) -> "asyncio.Future[None]":
        """Done at the next growth. Take the future before reading: otherwise a growth in between is missed."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    async def read(self, offset: int) -> bytes:
        """Up to CHUNK bytes from `offset`; nothing if there is no more yet."""
        if offset in self._cache:
            return self._cache[offset]
        if self._far:
            if data := await self._far.in_time(_read_now, self.path, offset):
                self._keep(offset, data)
            return data
        behind = os.fstat(self.fd).st_size - offset
        if behind <= 0:
            return b""
        if behind < CHUNK:  # just written, thus in memory: a thread would only cost time
            data = os.pread(self.fd, CHUNK, offset)
            self._keep(offset, data)
        else:
            data = await asyncio.to_thread(os.pread, self.fd, CHUNK, offset)
        return data

    def _keep(self, offset: int, data: bytes) -> None:
        if len(self._cache) >= KEPT_READS:  # readers begin at any offset, which would fill the cache
            self._cache.clear()
        self._cache[offset] = data

    def _wake(self) -> None:
        self._timer = None
        self._woken_at = asyncio.get_running_loop().time()
        self._cache.clear()
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


def _opened(path: str, _: int) -> int:
    return os.open(path, _FLAGS)


def _size_now(path: str) -> int:
    with open(path, "rb", opener=_opened) as file:
        return os.fstat(file.fileno()).st_size


def _read_now(path: str, offset: int) -> bytes:
    try:
        with open(path, "rb", buffering=0, opener=_opened) as file:
            return os.pread(file.fileno(), CHUNK, offset)
    except (FileNotFoundError, BlockingIOError):
        return b""  # the log was removed, or the owner holds a lease


def offset_of_tail(path: str, lines: int) -> int:
    """Where the last `lines` lines begin, or the limit of the search. May take a moment."""
    with open(path, "rb", opener=_opened) as file:
        position = end = file.seek(0, os.SEEK_END)
        first = max(0, end - FARTHEST_BACK)
        if lines <= 0:
            return end
        seen = 0
        while position > first:
            size = min(CHUNK, position - first)
            position -= size
            file.seek(position)
            block = file.read(size)
            # A newline that ends the file ends the last line and begins none.
            at = len(block) - (position + len(block) == end and block.endswith(b"\n"))
            there = block.count(b"\n", 0, at)
            if seen + there < lines:
                seen += there
                continue
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                seen += 1
                if seen == lines:
                    return position + at + 1
        return first
