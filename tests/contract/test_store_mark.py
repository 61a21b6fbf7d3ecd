"""An SQLite database that is gone, empty, damaged or older than it was is refused, and never begun anew in silence."""

import asyncio
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from danlu.errors import DanluError, Refused
from danlu.store.sql import SqlStore
from tests.builders import job
from tests.contract.store_tools import opened

SOON = timedelta(milliseconds=1)


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/danlu.db"


def refusal(folder: Path) -> DanluError:
    with pytest.raises(DanluError) as refused, opened(url_of(folder)):
        pass
    return refused.value


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The files of a stopped server with one job."""
    with opened(url_of(tmp_path)) as (store, run):
        run(store.insert([job("a")]))
    return tmp_path


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a killed server leaves behind: the second job is in the write-ahead log only."""

    async def play() -> None:
        (tmp_path / "live").mkdir()
        store = SqlStore(url_of(tmp_path / "live"), mark_every=SOON)
        await store.open()
        mark = tmp_path / "live" / "danlu.db.mark"
        for name in ("a", "b"):
            before = mark.read_text()
            await store.insert([job(name)])
            async with asyncio.timeout(20):
                while mark.read_text() == before:
                    await asyncio.sleep(0.002)
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
        await store.close()

    asyncio.run(play())
    return tmp_path / "killed"


def active(folder: Path) -> list[str]:
    with opened(url_of(folder)) as (store, run):
        return sorted(one.id for one in run(store.get_all(["a", "b"])))


def test_what_is_sound_opens(stopped: Path, killed: Path) -> None:
    assert active(stopped) == ["a"]
    assert active(stopped) == ["a"]
    assert active(killed) == ["a", "b"]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: os.truncate(path, 0), "is empty"),
    ],
)
def test_no_database_where_there_was_one(stopped: Path, harm: Callable[[Path], None], said: str) -> None:
    path = stopped / "danlu.db"
    shutil.copy(path, stopped / "copy")
    harm(path)
    for _ in range(2):
        error = refusal(stopped)
        assert isinstance(error, Refused)
        assert f"the database {path} {said}, and it had content on 2" in error.text
        assert f"remove {path}.mark" in error.hint
    shutil.copy(stopped / "copy", path)
    assert active(stopped) == ["a"], "a copy is the way back"
    path.unlink()
    (stopped / "danlu.db.mark").unlink()
    assert active(stopped) == [], "the mark away is the way to begin anew"


def damage_frame(wal: Path, frame: int) -> None:
    """One byte of a page: SQLite believes neither this frame nor any after it."""
    data = bytearray(wal.read_bytes())
    (page,) = struct.unpack(">I", data[8:12])
    data[32 + frame * (24 + page) + 24 + 100] ^= 0xFF
    wal.write_bytes(data)


@pytest.mark.parametrize(
    "harm", [lambda wal: damage_frame(wal, 0), lambda wal: wal.unlink(), lambda wal: os.truncate(wal, 8000)]
)
def test_a_lost_or_damaged_log_of_writes(killed: Path, harm: Callable[[Path], None]) -> None:
    harm(killed / "danlu.db-wal")
    error = refusal(killed)
    assert isinstance(error, Refused)
    assert "is older than it was on 2" in error.text
    assert "write-ahead log is lost or damaged" in error.text
    assert f"remove {killed}/danlu.db.mark" in error.hint


def test_an_older_copy_needs_a_word(stopped: Path) -> None:
    shutil.copy(stopped / "danlu.db", stopped / "copy")
    with opened(url_of(stopped)) as (store, run):
        run(store.insert([job("b")]))
    shutil.copy(stopped / "copy", stopped / "danlu.db")
    assert "somebody put back a copy" in refusal(stopped).text
    (stopped / "danlu.db.mark").unlink()
    assert active(stopped) == ["a"]


def test_a_damaged_page_is_found_before_anything_is_done(stopped: Path) -> None:
    path = stopped / "danlu.db"
    with sqlite3.connect(path) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'audit'").fetchone()
        (page,) = raw.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * page)
        file.write(os.urandom(page))
    error = refusal(stopped)
    assert f"the database {path} is damaged" in error.text
    assert "put back a copy" in error.hint


def test_a_database_from_before_there_were_marks_opens_and_gets_one(stopped: Path) -> None:
    (stopped / "danlu.db.mark").unlink()
    with sqlite3.connect(stopped / "danlu.db") as raw:
        raw.execute("PRAGMA user_version = 0")
    assert active(stopped) == ["a"]
    assert (stopped / "danlu.db.mark").read_text().strip().isdecimal()
