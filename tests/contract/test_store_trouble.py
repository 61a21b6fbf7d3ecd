"""Locked, full, killed, restarted: the store says so in a sentence, loses nothing it acknowledged, and recovers."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text

from danlu.domain.job import JobId, JobState
from danlu.errors import Conflict, StoreDown
from danlu.store.protocol import JobFilter
from danlu.store.sql import SqlStore
from tests.builders import job
from tests.contract.store_tools import KINDS, array, ended, fresh_url, opened, started, writers
from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


def test_a_locked_database_is_said_so_and_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "danlu.db"
    with opened(f"sqlite:///{path}", patience=0.2) as (store, run), closing(sqlite3.connect(path)) as other:
        run(store.insert([job("a")]))
        other.execute("BEGIN EXCLUSIVE")
        down = run.together(store.insert([job("b")]), store.insert([job("c")]), store.get("a"))
        other.execute("ROLLBACK")
        assert [type(one) for one in down[:2]] == [StoreDown, StoreDown]
        assert f"{path} is locked" in down[0].text
        assert "fuser" in down[0].hint
        assert down[2].id == "a"  # reading goes on
        assert run(store.insert([job("b")]))[0].seq == 2


def test_a_full_disk_is_said_so_and_nothing_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "danlu.db"

    def limit(raw: sqlite3.Connection, _record: object) -> None:
        raw.execute("PRAGMA max_page_count = 80")

    def limited(store: SqlStore) -> None:
        event.listen(writers(store), "connect", limit)

    with opened(f"sqlite:///{path}", before=limited) as (store, run):
        a = run(store.insert([job("a", environ="e")], environ={"A": "1"}))[0]
        with pytest.raises(StoreDown) as full:
            run(store.insert(array("big", 5000)))
        assert "no room" in full.value.text
        assert "MiB free" in full.value.text
        assert run(store.find("big")) == ()
        event.remove(writers(store), "connect", limit)
        assert len(run(store.insert(array("big", 5000)))) == 5000
        run(store.update([ended(a)]))
        assert run(store.environ("e")) == {}


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk takes root; the same without a real disk is tested above")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_real_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, opened(f"sqlite:///{disk}/danlu.db") as (store, run):
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 500_000)
        run(store.insert([job("a")]))
        answers = [run.together(store.insert(array(f"arr{i}", 200)))[0] for i in range(20)]
        refused = [one for one in answers if not isinstance(one, tuple)]
        assert {type(one) for one in refused} == {StoreDown}
        assert "danlu.db" in refused[0].text
        kept = 1 + 200 * (20 - len(refused))
        assert len(run(store.page(JobFilter(), limit=100_000)).jobs) == kept
        ballast.unlink()
        run(store.insert([job("after")]))
        assert len(run(store.page(JobFilter(), limit=100_000)).jobs) == kept + 1


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Started again whatever the test did to it."""
    server = postgres_server()
    yield server
    server.execute("SELECT 1")


def test_postgresql_gone_and_back(server: PostgresServer) -> None:
    with opened(server.fresh_url(), patience=0.3) as (store, run):
        a = run(store.insert([job("a")]))[0]
        server.crash()
        try:
            for asked in (store.insert([job("b")]), store.get("a"), store.update([started(a)])):
                with pytest.raises(StoreDown) as down:
                    run(asked)
                assert "PostgreSQL" in down.value.text
                assert down.value.hint
        finally:
            server.start()
        # The first question after it already works, although every old connection is dead.
        assert run(store.get("a")) == a
        assert run(store.insert([job("b")]))[0].seq == 2
        run(store.update([started(a)]))


def test_a_restart_between_two_writes_is_not_noticed(server: PostgresServer) -> None:
    with opened(server.fresh_url()) as (store, run):
        a = run(store.insert([job("a")]))[0]
        server.crash()
        server.start()
        run(store.update([started(a)]))
        assert run(store.insert([job("b")]))[0].seq == 2


def _break_commit(store: SqlStore, *, after: bool) -> None:
    """The next commit loses its connection, before or after the server has done it."""

    def cut(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        if after:
            raw.execute("COMMIT")
            raw.close()
        else:
            _terminate(store, raw.info.backend_pid)

    event.listen(writers(store), "commit", cut, once=True)


def _terminate(store: SqlStore, pid: int) -> None:
    with store._database.readers.connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


@pytest.mark.parametrize("after", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_up(server: PostgresServer, after: bool) -> None:
    with opened(server.fresh_url()) as (store, run):
        run(store.insert([job("z")]))
        _break_commit(store, after=after)
        (a,) = run(store.insert([job("a", environ="e")], environ={"A": "1"}))
        assert a.seq == 2
        assert run(store.get("a")) == a
        run(store.update([ended(a)]))
        assert run(store.environ("e")) == {}


def test_a_commit_whose_fate_stays_unknown_is_said_so(server: PostgresServer) -> None:
    def crash(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        raw.execute("COMMIT")
        raw.close()
        server.crash()

    with opened(server.fresh_url(), patience=0.3) as (store, run):
        run(store.insert([job("z")]))
        event.listen(writers(store), "commit", crash, once=True)
        try:
            with pytest.raises(StoreDown) as down:
                run(store.insert([job("a", environ="e")], key="k", environ={"A": "1"}))
            assert "is unknown" in down.value.text
        finally:
            server.start()
        (a,) = run(store.insert([job("again", environ="e")], key="k", environ={"A": "1"}))
        assert a.id == "a"
        # What is in memory was read anew: the environment goes when its job ends, and not before.
        assert run(store.insert([job("b")]))[0].seq == 3
        assert run(store.environ("e")) == {"A": "1"}
        run(store.update([ended(a)]))
        assert run(store.environ("e")) == {}


def test_another_server_that_took_over_is_respected(server: PostgresServer) -> None:
    url = server.fresh_url()
    with opened(url) as (store, run):
        a = run(store.insert([job("a")]))[0]
        pid = store._writer._connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
        _terminate(store, pid)
        with opened(url) as (other, run_other):
            run_other(other.insert([job("theirs")]))
            run_other(other.update([started(a)]))
            with pytest.raises(StoreDown) as down:
                run(store.insert([job("b")]))
            assert "in use by" in down.value.text
        assert run(store.insert([job("b")]))[0].seq == 3
        with pytest.raises(Conflict):
            run(store.update([started(a)]))


def test_every_acknowledged_write_survives_kill_9(url: str) -> None:
    acknowledged: dict[JobId, int] = {}
    for number in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.store_process", url, str(number)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        said = writer.stdout.readline()
        time.sleep(random.uniform(0, 0.4))
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read()
        writer.stdout.close()
        writer.wait()
        for line in said.decode().splitlines(keepends=True):
            if line.endswith("\n"):
                job_id, version = line.split()
                acknowledged[JobId(job_id)] = int(version)
        _assert_all_there(url, acknowledged)
    assert len(acknowledged) > 100


def _assert_all_there(url: str, acknowledged: dict[JobId, int]) -> None:
    with asyncio.Runner() as runner:
        store = SqlStore(url)
        deadline = time.monotonic() + 10
        while True:
            try:
                active = runner.run(store.open())
                break
            except Exception:
                # PostgreSQL notices a dead client a moment later.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        found = {one.id: one for one in active}
        missing = {one for one, version in acknowledged.items() if one not in found or found[one].version < version}
        assert not missing
        # All or none: no array is there in part.
        sizes: dict[str, int] = {}
        for one in active:
            if one.array_id:
                sizes[one.array_id] = sizes.get(one.array_id, 0) + 1
        assert set(sizes.values()) <= {5, 600}
        assert all(one.state in (JobState.QUEUED, JobState.STARTING) for one in active)
        # No change without its line of the log, and no line without its change.
        begun = {one.group for one in active if one.state is JobState.STARTING}
        for what, changed in (("job.submit", {one.group for one in active}), ("job.stop", begun)):
            lines = [one.target for one in runner.run(store.audit(limit=10**6, what=what))]
            assert len(lines) == len(changed)
            assert set(lines) == changed
        runner.run(store.close())
    if url.startswith("sqlite"):
        engine = create_engine(url)
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
        engine.dispose()


def test_a_lease_dies_with_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/danlu.db"
    writer = subprocess.Popen([sys.executable, "-m", "tests.contract.store_process", url, "0"], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with opened(url) as (store, run):
        assert run(store.latest("ada")) is not None
