"""Migrations make exactly the tables that the code believes in, and strange databases are refused."""

import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

import danlu.store.migrations
from danlu.domain.job import JobState
from danlu.domain.resources import Ask, Seat
from danlu.errors import DanluError, Invalid, Refused, StoreDown
from danlu.store import tables
from danlu.store.people_protocol import People
from danlu.store.protocol import JobFilter
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.contract.store_tools import KINDS, fresh_url, opened, started
from tests.postgres import postgres_server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


def driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def change(url: str, sql: str) -> None:
    engine = create_engine(driver(url))
    with engine.begin() as connection:
        connection.execute(text(sql))
    engine.dispose()


def refusal(url: str) -> DanluError:
    with pytest.raises(DanluError) as refused, opened(url):
        pass
    assert refused.value.hint
    return refused.value


def test_the_migrated_schema_is_the_one_in_tables(url: str) -> None:
    with opened(url):
        pass
    engine = create_engine(driver(url))
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        found: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata)
        kind = connection.dialect.name
        indexes = "pg_indexes WHERE schemaname = 'public'" if kind == "postgresql" else "sqlite_master WHERE sql > ''"
        sql = " ".join(
            connection.execute(text(f"SELECT {'indexdef' if kind == 'postgresql' else 'sql'} FROM {indexes}")).scalars()
        )
    engine.dispose()
    assert found == []
    assert sql.count("IS NOT NULL") == 6  # which Alembic does not compare


def test_the_newest_migration_is_the_one_the_code_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(danlu.store.migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == tables.SCHEMA


# Landed migrations. An edited one makes other tables under the same number, and existing databases never learn of it:
# write a new migration, and append its hash here.
LANDED = {
    "0001_first.py": "ccf29172ab7f2f7eadb350f420ec8f5c2c61448010f7ff6a27b66c36e1a9a0d8",
    "0002_people.py": "340be73d8421df25c2dc1bcee3b1575de8c629943fcdca7ecdf691eba3d3aa89",
    "0003_requeued.py": "7020f43679a09258b38bef1866919e7feab4d599dcaf3bd024a2d2821b532bd8",
    "0004_audit_indexes.py": "80975d8be5d94bd88f3eaa8aa9ff0be0b3f34cc95f4d00f94201f3e3e166774f",
    "0005_invitations.py": "7f21f1102c4d3f4c44d1a71371cb6bd27c930165e403efc4945f0efb7b6ad2ba",
}


def test_landed_migrations_are_not_edited() -> None:
    folder = Path(danlu.store.migrations.__file__).parent / "versions"
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("0*.py")}
    assert found == LANDED, "a landed migration was edited, or a new one is not in the list"


@pytest.mark.parametrize(
    ("sql", "missing"),
    [
        ("ALTER TABLE jobs DROP COLUMN requeued", "the column `requeued` of the table `jobs`"),
        ("DROP TABLE boosts", "the table `boosts`"),
    ],
)
def test_other_tables_under_the_same_number_are_refused_by_name(url: str, sql: str, missing: str) -> None:
    with opened(url):
        pass
    change(url, sql)
    error = refusal(url)
    assert isinstance(error, Refused)
    assert error.text == f"the database says that it has schema {tables.SCHEMA}, but {missing} is missing"
    assert "put back a copy" in error.hint


def test_tables_that_are_not_those_of_their_number_are_not_upgraded(url: str) -> None:
    make_0001(url)
    change(url, "ALTER TABLE jobs ADD COLUMN requeued BIGINT")
    error = refusal(url)
    assert isinstance(error, Refused)
    assert f"says that it has schema 0001, and cannot be brought to {tables.SCHEMA}" in error.text
    assert "requeued" in error.text
    assert "start the version of Danlu that made it" in error.hint


def make_0001(url: str) -> None:
    """A database as the first version left it: a job that waits, a task that is over, a token."""
    config = Config()
    config.set_main_option("script_location", str(Path(danlu.store.migrations.__file__).parent))
    engine = create_engine(driver(url))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for sql in OLD_ROWS:
            connection.exec_driver_sql(sql)
    engine.dispose()


OLD_ROWS = [
    r"""INSERT INTO specs VALUES (1, '{"command":["echo","caf\udce9"],"workdir":"/tmp","ask":{"gpus":2,"gpu_model":null,
    "shards":0,"cpus":1,"memory_mib":0},"name":"","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],
    "labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":""}')""",
    """INSERT INTO jobs VALUES (1, 'old', NULL, NULL, 'ada', NULL, 1767268800000000, 1, NULL, 'QUEUED', 'queued',
    'waits to be placed', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1)""",
    """INSERT INTO jobs VALUES (2, 'arr_7', 'arr', 7, 'bo', 'train', 1767268800000000, 1, NULL, 'FAILED', 'exit',
    'code 3', 2, 1767268800000000, 1767268800000001, 3, '["n1", 2, 10, [0], null, 0]', 'local:x',
    NULL, NULL, '["a note"]', 9)""",
    "INSERT INTO tokens VALUES ('t', 'd', 'ada', 'admin', 'laptop', 1767268800000000, NULL)",
]


def test_a_database_of_the_first_schema_is_brought_up_with_everything_in_it(url: str) -> None:
    make_0001(url)
    with opened(url) as (store, run):
        old, over = run(store.get("old")), run(store.get("arr_7"))
        assert old is not None
        assert over is not None
        assert (old.user, old.spec.command, old.spec.ask) == ("ada", ("echo", "caf\udce9"), Ask(gpus=2))
        assert (old.spec.team, old.spec.queue, old.submitted_at) == ("", "", NOW)
        assert (over.state, over.exit_code, over.array_index, over.version) == (JobState.FAILED, 3, 7, 9)
        assert (over.seat, over.handle, over.notes) == (Seat("n1", 2, 10, (0,)), "local:x", ("a note",))
        assert [one.name for one in run(store.tokens())] == ["laptop"]
        assert run(store.people()) == People()
        (new,) = run(store.insert([job("new", team="nlp")]))
        assert new.seq == 3
        run(store.update([started(old)]))
        assert run(store.page(JobFilter(team="nlp"), limit=5)).jobs == (new,)
    with opened(url) as (store, run):
        assert run(store.get("old")) == started(old)


def test_an_upgrade_that_fails_leaves_the_old_schema(url: str) -> None:
    make_0001(url)
    change(url, "CREATE TABLE charges_by_team (x INTEGER)")
    refusal(url)
    change(url, "UPDATE jobs SET attempt = 5 WHERE id = 'old'")
    change(url, "DROP TABLE charges_by_team")
    with opened(url) as (store, run):
        old = run(store.get("old"))
        assert old is not None
        assert old.attempt == 5


def test_a_newer_schema_is_refused(url: str) -> None:
    with opened(url):
        pass
    change(url, "UPDATE alembic_version SET version_num = '9999'")
    error = refusal(url)
    assert isinstance(error, Refused)
    assert "9999" in error.text
    change(url, f"UPDATE alembic_version SET version_num = '{tables.SCHEMA}'")
    with opened(url):
        pass


def test_tables_of_somebody_else_are_left_alone(url: str) -> None:
    change(url, "CREATE TABLE jobs (x INTEGER)")
    error = refusal(url)
    assert isinstance(error, Refused)
    assert "jobs" in error.text


def test_a_migration_that_fails_leaves_nothing_behind(url: str) -> None:
    # In the way of the last index, when everything else has been made.
    change(url, "CREATE TABLE tokens_by_digest (x INTEGER)")
    refusal(url)
    change(url, "DROP TABLE tokens_by_digest")
    with opened(url):
        pass


def test_no_database_at_all_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "danlu.db"
    path.write_bytes(b"This is a letter and not a database. " * 100)
    error = refusal(f"sqlite:///{path}")
    assert str(path) in error.text
    assert "damaged" in error.text


def test_a_damaged_database_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "danlu.db"
    with opened(f"sqlite:///{path}"):
        pass
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(8000))
    error = refusal(f"sqlite:///{path}")
    assert str(path) in error.text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    error = refusal(f"sqlite:///{tmp_path}/none/danlu.db")
    assert isinstance(error, StoreDown)
    assert "No such file" in error.text


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "nonsense", "postgresql://u:secret@h:x/y"]
)
def test_urls_that_make_no_sense(url: str) -> None:
    with pytest.raises(Invalid) as invalid:
        SqlStore(url)
    assert invalid.value.hint
    assert "secret" not in invalid.value.text + invalid.value.hint


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "danlu.db"
    path.touch(mode=0o666)
    with opened(f"sqlite:///{path}"):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("danlu.db*")}
    assert modes == dict.fromkeys(["danlu.db", "danlu.db-wal", "danlu.db-shm", "danlu.db.lock", "danlu.db.mark"], 0o600)


def test_writes_are_durable_by_settings(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/danlu.db") as (store, _):
        connection = store._writer._connection  # type: ignore[union-attr]
        assert connection is not None
        asked = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        }
        connection.rollback()
    assert asked == {"journal_mode": "wal", "synchronous": 2}


def test_another_encoding_is_refused() -> None:
    error = refusal(postgres_server().fresh_url("SQL_ASCII"))
    assert isinstance(error, Refused)
    assert "UTF8" in error.text


def test_without_the_driver_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("danlu.store.postgres.find_spec", lambda _name: None)
    with pytest.raises(Invalid) as invalid:
        SqlStore("postgresql://u:secret@h/y")
    assert "pip install 'danlu[postgres]'" in invalid.value.hint


def test_a_server_that_does_not_answer_keeps_the_password() -> None:
    with pytest.raises(StoreDown) as down, opened("postgresql://u:secret@127.0.0.1:1/y"):
        pass
    assert "127.0.0.1:1" in down.value.text
    assert "secret" not in f"{down.value.text}{down.value.hint}{down.value.__cause__}"


def test_a_current_schema_needs_neither_alembic_nor_psycopg(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/danlu.db"
    with opened(url):
        pass
    code = f"""
import asyncio, sys
from danlu.store.sql import SqlStore
asyncio.run(SqlStore({url!r}).open())
print(sorted({{"alembic", "psycopg", "mako", "sqlalchemy.orm"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_sqlite_agrees_that_the_file_is_sound(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/danlu.db"):
        pass
    with sqlite3.connect(tmp_path / "danlu.db") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
