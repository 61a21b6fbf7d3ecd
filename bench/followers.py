"""Many who follow one log: how long after a line was written each of them has it."""

import asyncio
import re
import time
from collections.abc import Iterator
from statistics import median
from typing import cast

import uvloop

from bench.figures import Figure, percentile
from bench.place import PYTHON, Home
from bench.processes import cpu_seconds
from bench.wire import PATIENCE_S, Wire, request

FOLLOWERS = 100
LINES_PER_S = 200
AT_MOST_MS = 20.0
# Begins when the file is there; one write per line, at times that do not drift.
WRITER = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
begin, pause = time.monotonic(), 1 / float(sys.argv[3])
for number in range(int(sys.argv[2])):
    time.sleep(max(0.0, begin + number * pause - time.monotonic()))
    os.write(1, b"at %d end\\n" % time.monotonic_ns())
"""
STAMP = re.compile(rb"at (\d+) end\n")


class Follower(asyncio.Protocol):
    """Notes when bytes came; what was in them is looked at afterwards."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.pieces: list[tuple[int, bytes]] = []
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(request("GET", f"/jobs/{self.ref}/logs?follow=true"))

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.monotonic_ns(), data))
        if not self.begun.done():
            self.begun.set_result(None)
        if data.endswith(b"0\r\n\r\n") and not self.over.done():
            self.over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(exc or RuntimeError("the server closed the connection"))

    def delays(self) -> list[float]:
        """Seconds from the write of each line to the arrival of its last byte."""
        found: list[float] = []
        rest = b""
        for arrived, data in self._chunks():
            rest += data
            end = 0
            for line in STAMP.finditer(rest):
                found.append((arrived - int(line[1])) / 1e9)
                end = line.end()
            rest = rest[end:]
        return found

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Each chunk of the body, with the time at which it was complete. A line may go on in the next."""
        raw = b""
        is_body = False
        for arrived, data in self.pieces:
            raw += data
            if not is_body and b"\r\n\r\n" in raw:
                is_body, raw = True, raw.partition(b"\r\n\r\n")[2]
            while is_body and (at := raw.find(b"\r\n")) >= 0 and len(raw) >= at + int(raw[:at], 16) + 4:
                size = int(raw[:at], 16)
                yield arrived, raw[at + 2 : at + 2 + size]
                raw = raw[at + size + 4 :]


def measure(quick: bool) -> list[Figure]:
    followers, lines = (20, 400) if quick else (FOLLOWERS, 10 * LINES_PER_S)
    with Home().up() as home, Wire(home.socket) as wire:
        go = home.folder / "go"
        job_id = wire.submit([PYTHON, "-c", WRITER, str(go), str(lines), str(LINES_PER_S)])
        delays, share, own = uvloop.run(_follow(home, home.socket, job_id, followers, lines))
    name = f"{followers} followers, {LINES_PER_S} lines/s"
    return [
        Figure(f"{name}, p50", median(delays) * 1e3, "ms", note=f"{len(delays):,} lines received"),
        Figure(f"{name}, p99", percentile(delays, 99) * 1e3, "ms", at_most=AT_MOST_MS),
        Figure(f"{name}, longest", max(delays) * 1e3, "ms"),
        Figure(f"{name}, server", share * 100, "% of a core", note=f"the followers themselves {own * 100:.0f} %"),
    ]


async def _follow(home: Home, socket: str, ref: str, count: int, lines: int) -> tuple[list[float], float, float]:
    loop = asyncio.get_running_loop()
    followers = []
    for _ in range(count):
        _, follower = await loop.create_unix_connection(lambda: Follower(ref), socket)
        followers.append(follower)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(follower.begun for follower in followers))
    begin, server, own = time.perf_counter(), cpu_seconds(home.server_pid), time.process_time()
    (home.folder / "go").touch()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(follower.over for follower in followers))
    seconds = time.perf_counter() - begin
    share, own_share = (cpu_seconds(home.server_pid) - server) / seconds, (time.process_time() - own) / seconds
    delays = [follower.delays() for follower in followers]
    if any(len(found) != lines for found in delays):
        raise RuntimeError(f"followers got {sorted({len(found) for found in delays})} of {lines} lines")
    return [delay for found in delays for delay in found], share, own_share
