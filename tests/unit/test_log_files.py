"""Logs read from the end and followed as they grow."""

import asyncio
import fcntl
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danlu.engines.log_files import CHUNK, FARTHEST_BACK, LogFiles, offset_of_tail
from danlu.unix.patient_folder import PatientFolder


@given(st.binary(max_size=200).map(lambda data: data.replace(b"\x01", b"\n")), st.integers(1, 5))
def test_a_tail_is_the_last_lines(data: bytes, lines: int) -> None:
    path = Path(os.environ["DANLU_HOME"]).parent / "log"
    path.write_bytes(data)
    whole = [line + b"\n" for line in data.split(b"\n")]
    whole[-1] = whole[-1][:-1]  # what comes after the last newline is a line only if there is something
    expected = b"".join([line for line in whole if line][-lines:])
    assert data[offset_of_tail(str(path), lines) :] == expected


def test_a_tail_of_nothing_is_the_end(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\nb\n")
    assert offset_of_tail(str(tmp_path / "log"), 0) == 4


def test_a_tail_reaches_back_over_blocks(tmp_path: Path) -> None:
    line = b"x" * (CHUNK // 2 + 7) + b"\n"
    (tmp_path / "log").write_bytes(line * 5)
    assert offset_of_tail(str(tmp_path / "log"), 3) == 2 * len(line)


def test_all_followers_see_each_growth_and_the_file_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()

    async def follow(files: LogFiles, size: int) -> bytes:
        seen = b""
        with await files.open(str(path)) as growing:
            while len(seen) < size:
                growth = growing.growth()
                data = await growing.read(len(seen))
                seen += data
                if not data:
                    await growth
        return seen

    async def scenario() -> None:
        files = LogFiles(str(tmp_path))
        text = b"".join(b"line %d\n" % number for number in range(200))
        followers = [asyncio.create_task(follow(files, len(text))) for _ in range(5)]
        await asyncio.sleep(0)
        with path.open("ab", buffering=0) as log:
            for line in text.splitlines(keepends=True):
                log.write(line)
                await asyncio.sleep(0)
        assert await asyncio.gather(*followers) == [text] * 5
        assert files.is_idle
        files.close()

    asyncio.run(scenario())


def test_growth_is_seen_that_the_kernel_does_not_tell_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    monkeypatch.setattr(LogFiles, "_woken", lambda self: self._inotify.read(timeout=0))  # as on a network file system

    async def scenario() -> None:
        files = LogFiles(str(tmp_path), PatientFolder(str(tmp_path)))
        with await files.open(str(path)) as one, await files.open(str(path)) as other:
            assert (one is other, await one.read(0)) == (True, b"first\n")
            offset = 6
            for line in (b"second\n", b"third\n"):
                growth = one.growth()
                with path.open("ab") as log:
                    log.write(line)
                await growth
                assert await one.read(offset) == line
                offset += len(line)
            assert await files.size(str(path)) == offset
            assert [data async for data in files.read_all(str(path), 2, 9)] == [b"rst\nsecon"]
            path.unlink()
            assert await one.read(offset) == b""
        assert files.is_idle
        files.close()

    asyncio.run(scenario())


def test_a_missing_file_is_not_opened(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = LogFiles(str(tmp_path))
        with pytest.raises(FileNotFoundError):
            await files.open(str(tmp_path / "none"))
        files.close()

    asyncio.run(scenario())


def test_a_tail_is_not_looked_for_in_a_hole_without_end(tmp_path: Path) -> None:
    """A run may cut its own output to any length: a terabyte of nothing takes no room, and hours to read."""
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 1 << 40)
    began = time.monotonic()
    assert offset_of_tail(str(path), 10) == (1 << 40) - FARTHEST_BACK
    path.write_bytes(b"\n" * (8 << 20))
    assert offset_of_tail(str(path), 1 << 62) == 0
    assert time.monotonic() - began < 20


def test_readers_who_begin_everywhere_do_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(range(256)) * 800)

    async def scenario() -> None:
        files = LogFiles(str(tmp_path))
        with await files.open(str(path)) as growing:
            for offset in range(100):
                assert (await growing.read(offset))[:1] == bytes([offset])
            assert sum(map(len, growing._cache.values())) < 4 * CHUNK
        files.close()

    asyncio.run(scenario())


def test_a_log_that_its_owner_holds_back_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x\n")
    ignored = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks for it back

    async def scenario() -> None:
        files = LogFiles(str(tmp_path))
        with pytest.raises(BlockingIOError):
            await files.open(str(path))
        with pytest.raises(BlockingIOError):
            offset_of_tail(str(path), 1)
        files.close()

    try:
        with path.open("r+b") as held:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            asyncio.run(scenario())
    finally:
        signal.signal(signal.SIGIO, ignored)
