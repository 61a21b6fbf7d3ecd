"""What each version of before left behind, opened by this one: golden/upgrades/make.py says how it was made."""

import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from danlu.engines.local.keeper import process_tree
from danlu.engines.local.keeper.process_tree import TICKS_PER_SECOND
from danlu.engines.local.protocol import RUN_MARK
from danlu.store.migrations import versions
from tests.e2e.conftest import Settings
from tests.e2e.installation import Installation, eventually
from tests.golden.upgrades.make import ANOTHER_BOOT, BOOT, HERE
from tests.postgres import postgres_server

SCHEMAS = sorted({path.name.partition("-")[0] for path in HERE.glob("*.sql")})
KINDS = ("sqlite", "postgresql")


def put_back(here: Installation, settings: Settings, schema: str, kind: str, boot: str = ANOTHER_BOOT) -> str:
    """The files of a version of before, as if its server had been killed on this machine; the journal."""
    settings(ENGINE_CPUS=2, ENGINE_NODE_NAME="desk")
    here.home.mkdir(mode=0o700)
    sql, journal = ((HERE / f"{schema}-{kind}.{name}").read_text() for name in ("sql", "journal"))
    sql, journal = sql.replace(ANOTHER_BOOT, boot), journal.replace(ANOTHER_BOOT, boot)
    if kind == "sqlite":
        with sqlite3.connect(here.home / "danlu.db") as database:
            database.executescript(sql)
        database.close()
    else:
        url = postgres_server().fresh_url()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())
        settings(STORE_URL=url)
    (here.home / "keeper.journal").write_text(journal)
    return journal


def jobs_of(here: Installation) -> dict[str, dict[str, Any]]:
    return {job["name"]: job for job in here.danlu("ps", "--all", "--json").json()["items"]}


def test_each_schema_before_the_present_one_has_its_files() -> None:
    migrations = sorted(path.name[:4] for path in Path(versions.__file__).parent.glob("0*.py"))
    assert set(migrations[:-1]) <= set(SCHEMAS), "make.py makes those of the schema of before"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_job_of_before_is_found(here: Installation, settings: Settings, schema: str, kind: str) -> None:
    put_back(here, settings, schema, kind)
    found = jobs_of(here)
    assert set(found) == {"runs", "finished", "waits"}
    finished = here.ended(found["finished"]["id"])
    assert (finished["state"], finished["exit_code"]) == ("FAILED", 7), "only the journal of its keeper knows it"
    runs = here.ended(found["runs"]["id"])
    assert (runs["state"], runs["reason"]["text"]) == ("LOST", "the machine restarted while it ran")
    waits = here.ended(found["waits"]["id"])
    assert waits["state"] == "SUCCEEDED"
    assert here.log_path(waits["id"]).read_text() == "upgraded\n"
    again = here.submit("--", "true")
    assert here.ended(again)["seq"] == 4


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_run_of_before_goes_on(here: Installation, settings: Settings, schema: str) -> None:
    """On the same boot, with a process in the place of the one that the keeper of before had started."""
    journal = put_back(here, settings, schema, "sqlite", BOOT)
    found = re.search(rf'"start":"local:{BOOT}:(\w+\.1)"', journal)  # the first record is of the job `runs`
    assert found
    begun = here.own(subprocess.Popen(["sleep", "600"], env={RUN_MARK: found[1]}, start_new_session=True, cwd="/"))
    seen = process_tree.look_at(begun.pid)
    assert seen
    at = seen.start_ticks / TICKS_PER_SECOND
    ours = f'"is":{begun.pid},"spawned":[{at},{at + 1 / TICKS_PER_SECOND}]'
    changed, count = re.subn(rf'(:{re.escape(found[1])}",)"is":\d+,"spawned":\[[^]]*\]', rf"\1{ours}", journal)
    assert count == 1
    (here.home / "keeper.journal").write_text(changed)

    jobs = jobs_of(here)
    assert here.ended(jobs["finished"]["id"])["exit_code"] == 7
    assert here.state(jobs["runs"]["id"]) == "RUNNING"
    here.danlu("stop", jobs["runs"]["id"])
    assert here.ended(jobs["runs"]["id"])["state"] == "CANCELLED"
    eventually(lambda: begun.poll() is not None, "the process of before is gone")
    assert here.ended(jobs["waits"]["id"])["state"] == "SUCCEEDED"
