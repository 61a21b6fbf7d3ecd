"""The server's sockets under strangers who send too much, too slowly, or nothing at all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from danlu.api.app import make_app
from danlu.api.connections import Lines, limits_for
from danlu.api.listener import make_server
from danlu.api.server import MOST_HEAD
from danlu.startup.process import Place, tcp_socket, unix_sockets
from tests.app.rig import BASE, Rig, rig
from tests.app.test_people import come, team_with
from tests.warden import short_folder

BIG = 2 << 20
GET = b"GET /healthz HTTP/1.1\r\nHost: danlu\r\n"
UPGRADE = (
    f"GET {BASE}/jobs/1/exec HTTP/1.1\r\nHost: danlu\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
).encode()


@dataclass
class Doors:
    rig: Rig
    lines: Lines
    port: int
    path: str

    async def connect(self, *, unix: bool = False) -> "Guest":
        opening = asyncio.open_unix_connection(self.path) if unix else asyncio.open_connection("127.0.0.1", self.port)
        return Guest(*await opening)


@dataclass
class Guest:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *pieces: bytes) -> None:
        """Send; a server that has hung up meanwhile is fine."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()

    async def status(self) -> int:
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            if b"content-length: " in head:
                await self.reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
            return int(head.split()[1])

    async def is_ended(self) -> bool:
        """Wait for the end of the connection."""
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass
        return True


@contextlib.asynccontextmanager
async def doors(folder: Path, patience_s: float, descriptors: int) -> AsyncIterator[Doors]:
    short = short_folder("dl-doors-")
    async with rig(folder) as made:
        lines = Lines(limits_for(descriptors), asyncio.get_running_loop().time, patience_s=patience_s)
        server = make_server(make_app(made.desk), lines)
        remote = tcp_socket("127.0.0.1:0")
        path = str(short / "s")
        sockets = [remote, *unix_sockets(Place(str(folder), path))]
        serving = asyncio.create_task(server.serve(sockets=sockets))
        await made.until(lambda: server.started)
        try:
            yield Doors(made, lines, remote.getsockname()[1], path)
        finally:
            server.should_exit = True
            await serving
            (short / "s").unlink()
            short.rmdir()


def at_the_doors(
    scenario: Callable[[Doors], Awaitable[None]], folder: Path, *, patience_s: float = 60, descriptors: int = 4096
) -> None:
    async def play() -> None:
        async with doors(folder, patience_s, descriptors) as made:
            await scenario(made)

    uvloop.run(play())


TOO_LONG = {
    "one header": (GET + b"X-Long: ", b"x" * BIG),
    "many headers": (GET, b"X-Many: yes\r\n" * (BIG // 13)),
    "a whole head": (GET + b"X-Long: " + b"x" * MOST_HEAD + b"\r\n\r\n",),
    "the name of a header": (GET, b"x" * BIG),
    "a request line": (b"GET /", b"x" * BIG),
    "a query": (b"GET /healthz?", b"x" * BIG),
    "an upgrade": (UPGRADE + b"X-Long: " + b"x" * 10_000 + b"\r\n\r\n",),
    "an upgrade with many headers": (UPGRADE + b"X-Many: yes\r\n" * 200 + b"\r\n",),
}


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("shape", TOO_LONG)
def test_long_heads_are_refused_and_fill_no_memory(tmp_path: Path, shape: str, unix: bool) -> None:
    async def scenario(doors: Doors) -> None:
        guest = await doors.connect(unix=unix)
        await guest.say(*TOO_LONG[shape])
        assert await guest.status() == 431
        assert await guest.is_ended()
        again = await doors.connect(unix=unix)
        await again.say(GET + b"X-Long: " + b"x" * (MOST_HEAD - 200) + b"\r\n\r\n")
        assert await again.status() == 200

    at_the_doors(scenario, tmp_path)


CHUNKED = f"POST {BASE}/login HTTP/1.1\r\nHost: danlu\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


@pytest.mark.parametrize(
    "rest", [b"2\r\n{}\r\n0\r\nX-Long: " + b"x" * BIG, b"2;long=" + b"x" * BIG], ids=["a trailer", "an extension"]
)
def test_what_is_not_body_in_a_body_has_the_same_limit(tmp_path: Path, rest: bytes) -> None:
    async def scenario(doors: Doors) -> None:
        guest = await doors.connect()
        await guest.say(CHUNKED, rest)
        assert await guest.is_ended()

    at_the_doors(scenario, tmp_path)


def test_trailers_change_nothing_of_a_request(tmp_path: Path) -> None:
    async def scenario(doors: Doors) -> None:
        guest = await doors.connect()
        await guest.say(CHUNKED + b"2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
        assert await guest.status() == 422
        await guest.say(GET + b"\r\n")
        assert await guest.status() == 200

    at_the_doors(scenario, tmp_path)


SLOW = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "half a head": GET + b"X-Slow: ",
    "half a body": f"POST {BASE}/login HTTP/1.1\r\nHost: danlu\r\nContent-Length: 10\r\n\r\n{{".encode(),
    "half a body nobody reads": f"POST {BASE}/jobs HTTP/1.1\r\nHost: d\r\nContent-Length: 10\r\n\r\n{{".encode(),
    "a second request": GET + b"\r\n" + GET,
    "no first message": UPGRADE + b"\r\n",
}


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("shape", SLOW)
def test_who_sends_no_whole_request_is_ended_and_others_stay(tmp_path: Path, shape: str, unix: bool) -> None:
    async def scenario(doors: Doors) -> None:
        idle, asking = await doors.connect(unix=unix), await doors.connect(unix=unix)
        await idle.say(GET + b"\r\n")
        assert await idle.status() == 200
        slow = await doors.connect(unix=unix)
        await slow.say(SLOW[shape])
        assert await slow.is_ended()
        assert await asking.is_ended()
        await idle.say(GET + b"\r\n")
        assert await idle.status() == 200, "a connection between two requests stays open"

    at_the_doors(scenario, tmp_path, patience_s=0.2)


def test_a_byte_now_and_then_is_no_request(tmp_path: Path) -> None:
    async def scenario(doors: Doors) -> None:
        guest = await doors.connect()

        async def drip() -> None:
            while True:
                await guest.say(b"x")
                await asyncio.sleep(0.02)

        await guest.say(GET + b"X-Slow: ")
        dripping = asyncio.create_task(drip())
        assert await guest.is_ended()
        dripping.cancel()

    at_the_doors(scenario, tmp_path, patience_s=0.3)


def test_an_upload_of_a_known_person_may_take_its_time(tmp_path: Path) -> None:
    async def scenario(doors: Doors) -> None:
        await team_with(doors.rig, "nlp", "li")
        token = (await come(doors.rig, "li")).headers["authorization"]
        head = f"POST {BASE}/jobs HTTP/1.1\r\nHost: danlu\r\nAuthorization: {token}\r\nContent-Length: 60\r\n\r\n"
        guest = await doors.connect()
        await guest.say(head.encode())
        lost = await doors.connect()
        await lost.say(head.encode())
        for _ in range(30):
            await guest.say(b"x")
            await asyncio.sleep(0.05)
        assert await lost.is_ended(), "a person who stops sending is ended too"
        await guest.say(b"x" * 30)
        assert await guest.status() == 422

    at_the_doors(scenario, tmp_path, patience_s=1.0)


def test_idle_strangers_keep_nobody_out(tmp_path: Path) -> None:
    async def scenario(doors: Doors) -> None:
        await team_with(doors.rig, "nlp", "li")
        token = (await come(doors.rig, "li")).headers["authorization"]
        ask = f"GET {BASE}/me HTTP/1.1\r\nHost: danlu\r\nAuthorization: {token}\r\n\r\n".encode()
        known = []
        for _ in range(doors.lines.limits.of_one - 2):
            known.append(await doors.connect())
            await known[-1].say(ask)
            assert await known[-1].status() == 200
        idle = [await doors.connect() for _ in range(400)]
        assert await idle[0].is_ended()
        for guest in (known[0], known[-1], await doors.connect(), await doors.connect(unix=True)):
            await guest.say(ask)
            assert await guest.status() == 200
        for guest in (*known, *idle):
            guest.writer.close()
        await doors.rig.until(lambda: not doors.lines.waiting)

    at_the_doors(scenario, tmp_path, descriptors=256)


def test_a_websocket_message_has_a_limit(tmp_path: Path) -> None:
    async def scenario(doors: Doors) -> None:
        for message in (b"\x81\xff" + (1 << 17).to_bytes(8) + bytes(4), b"\x01\x80" + bytes(4) + b"\x00\x80" * 2000):
            guest = await doors.connect(unix=True)
            await guest.say(UPGRADE + b"\r\n")
            assert await guest.status() == 101
            await guest.say(message + bytes(1 << 17))
            assert await guest.is_ended()

    at_the_doors(scenario, tmp_path)
