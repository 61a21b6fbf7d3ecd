"""The keeper's journal, from which its successor learns every run: append-only, a JSON record per line.

    {"start": HANDLE, …}              about to be spawned, with its limits
    {"pid": HANDLE, "is": PID, …}     spawned
    {"stop": HANDLE, "why": …}        a user or the clock ended the run
    {"end": HANDLE, …}                ended, with all that the server is told about the end
    {"forget": [HANDLE, …]}           the server has recorded these runs

A full disk stops no run: records wait in memory, and the keeper retries the write."""

import os
from typing import Any

from danlu.engines.local.protocol import parse_line, render_line

COMPACT_ABOVE_BYTES = 4 << 20
MAX_WAITING_BYTES = 64 << 20


class Journal:
    def __init__(self, path: str) -> None:
        self.path = path
        self.needs_sync = False
        self._waiting = bytearray()
        self._fd = -1
        self._size = 0
        self._size_after_compaction = 0

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_fat(self) -> bool:
        return self._size > COMPACT_ABOVE_BYTES + 2 * self._size_after_compaction

    def append(self, record: Any, *, sync: bool = False) -> None:
        # After 64 MiB of records that the disk refuses, memory matters more than the records.
        if len(self._waiting) < MAX_WAITING_BYTES:
            self._waiting += render_line(record)
        self.needs_sync |= sync

    def write(self) -> bool:
        """Give the waiting records to the kernel. False: the disk is full or broken, try again later."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._size = os.fstat(self._fd).st_size
            while self._waiting:
                written = os.write(self._fd, self._waiting)
                del self._waiting[:written]  # the next try completes a record torn by a full disk
                self._size += written
        except OSError:
            return False
        return True

    def sync(self) -> None:
        self.needs_sync = False
        try:
            if self._fd >= 0:
                os.fdatasync(self._fd)
        except OSError:
            return

    def rewrite(self, records: list[Any]) -> None:
        """Keep only these records. On failure the long journal stays: its content is equivalent."""
        self._waiting.clear()
        text = b"".join(render_line(record) for record in records)
        if not text and self._fd >= 0:
            os.ftruncate(self._fd, 0)
            self._size = self._size_after_compaction = 0
            self.needs_sync = False
            return
        fresh = f"{self.path}.new"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(text)
                while view:
                    view = view[os.write(fd, view) :]
                os.fdatasync(fd)
            finally:
                os.close(fd)
            os.rename(fresh, self.path)
        except OSError:
            self._waiting += b"\n"  # the last line may be torn
            for record in records:
                self.append(record, sync=True)
            return
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._size = self._size_after_compaction = len(text)
        self.needs_sync = False


def read_journal(path: str) -> dict[str, dict[str, Any]]:
    """Every unforgotten run, with all its records merged. Torn lines are skipped."""
    runs: dict[str, dict[str, Any]] = {}
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    record = parse_line(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    _merge(runs, record)
    except OSError:
        return runs
    return runs


def _merge(runs: dict[str, dict[str, Any]], record: dict[str, Any]) -> None:
    if isinstance(gone := record.get("forget"), list):
        for handle in gone:
            runs.pop(handle, None)
        return
    for kind in ("start", "pid", "stop", "end"):
        if isinstance(handle := record.pop(kind, None), str):
            run = runs.setdefault(handle, {"start": handle})
            run.update(record)
            if kind == "end":
                run["ended"] = True
            return
