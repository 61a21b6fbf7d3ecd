"""A full disk and a locked database: a clear sentence, and afterwards everything goes on by itself."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import Installation, eventually, is_gone

WAITS = "while [ ! -e {door} ]; do sleep 0.05; done; echo done; exit {code}"


@pytest.fixture
def small(here: Installation, as_root: None, settings: Settings) -> Installation:
    """An installation on a disk of 12 MB, with room for four jobs."""
    settings(ENGINE_CPUS=4)
    here.mount_small(here.home, "12m")
    return here


def fill(folder: Path) -> Path:
    """Take every byte that is left."""
    path = folder / "ballast"
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return path


def waiting(here: Installation, door: str, code: int) -> str:
    script = WAITS.format(door=here.work / door, code=code)
    job_id = here.submit("--", "sh", "-c", script)
    here.until(job_id, "RUNNING")
    return job_id


def submit_until_refused(here: Installation) -> tuple[list[str], str]:
    """What was still accepted (the database may have had room of its own), and the refusal."""
    accepted: list[str] = []
    for number in range(200):
        done = here.danlu("submit", "--name", f"more{number}", "--", "true", code=None)
        if done.code:
            assert done.code == 4, done.talk
            return accepted, done.talk
        accepted.append(done.text)
    raise AssertionError("a full disk refused nothing")


def assert_whole(here: Installation) -> None:
    with sqlite3.connect(f"file:{here.home}/danlu.db?mode=ro", uri=True) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_full_disk_is_said_and_nothing_is_lost(small: Installation) -> None:
    here = small
    stays, ends = waiting(here, "stays", 0), waiting(here, "ends", 6)
    main = here.main_of(f"{stays}.1")
    ballast = fill(here.home)
    accepted, refusal = submit_until_refused(here)
    assert "no room to write the database" in refusal
    assert "free some space" in refusal
    assert not is_gone(main)
    assert here.state(stays) == "RUNNING"
    assert stays in here.danlu("ps").text

    (here.work / "ends").touch()  # it ends while its end cannot be written down
    eventually(lambda: not here.marked(f"DANLU_RUN_ID={ends}.1"), "a job ends on a full disk")
    here.danlu("ps")
    refused = here.danlu("run", "--", "true", code=4).talk
    assert "no room" in refused

    ballast.unlink()
    ended = here.ended(ends)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 6)
    assert [here.ended(one)["state"] for one in accepted] == ["SUCCEEDED"] * len(accepted)
    assert here.danlu("run", "--", "echo", "goes on").out == b"goes on\n"
    assert here.main_of(f"{stays}.1") == main
    (here.work / "stays").touch()
    assert here.ended(stays)["state"] == "SUCCEEDED"
    assert here.danlu("logs", stays).text == "done"
    known = {job["id"] for job in here.danlu("ps", "--all", "--json").json()["items"]}
    assert known >= {stays, ends, *accepted}
    assert len(known) == len(accepted) + 3, "what was refused is not there; the one more is `goes on`"
    assert_whole(here)


def test_a_server_that_starts_on_a_full_disk_says_so(small: Installation) -> None:
    here = small
    stays = waiting(here, "stays", 3)
    here.kill_server()
    ballast = fill(here.home)
    accepted, refusal = submit_until_refused(here)
    assert "No space left on device" in refusal or "no room" in refusal, refusal
    ballast.unlink()
    assert here.state(stays) == "RUNNING"
    assert [here.ended(one)["state"] for one in accepted] == ["SUCCEEDED"] * len(accepted)
    (here.work / "stays").touch()
    assert here.ended(stays)["exit_code"] == 3
    assert_whole(here)


def test_a_job_that_fills_the_disk_with_its_log_hurts_itself_only(small: Installation) -> None:
    here = small
    stays = waiting(here, "stays", 0)
    main = here.main_of(f"{stays}.1")
    filler = here.submit("--", "sh", "-c", f"cat /dev/zero; echo $? > {here.work}/code")
    eventually((here.work / "code").exists, "the disk is full")
    assert (here.work / "code").read_text() == "1\n"
    assert not is_gone(main)
    here.danlu("ps")
    here.danlu("why", stays)
    assert here.danlu("logs", "--tail", "1", filler).code == 0
    os.truncate(here.log_path(filler), 0)
    assert here.ended(filler)["state"] in ("SUCCEEDED", "FAILED")
    assert here.danlu("run", "--", "echo", "goes on").out == b"goes on\n"
    assert here.main_of(f"{stays}.1") == main
    (here.work / "stays").touch()
    assert here.ended(stays)["state"] == "SUCCEEDED"
    assert_whole(here)


def test_on_a_full_disk_jobs_end_are_stopped_and_removed(small: Installation) -> None:
    """There is a reserve for what frees the disk again."""
    here = small
    ends, stopped = waiting(here, "ends", 6), waiting(here, "never", 0)
    ballast = fill(here.home)
    assert "no room" in here.danlu("submit", "--", "true", code=4).talk
    (here.work / "ends").touch()
    assert here.ended(ends)["exit_code"] == 6
    here.danlu("stop", stopped)
    assert here.ended(stopped)["state"] == "CANCELLED"
    here.danlu("rm", ends)
    assert ballast.exists()
    here.danlu("down")
    ballast.unlink()
    assert here.state(stopped) == "CANCELLED"
    assert_whole(here)


def test_a_locked_database_is_said_and_waited_for(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=4)
    stays = waiting(here, "stays", 5)
    other = sqlite3.connect(here.home / "danlu.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    refused = here.danlu("submit", "--", "true", code=4).talk
    assert f"the database {here.home}/danlu.db is locked by another program" in refused
    assert "fuser" in refused
    assert here.state(stays) == "RUNNING"
    (here.work / "stays").touch()  # its end has to wait for the lock
    eventually(lambda: not here.marked(f"DANLU_RUN_ID={stays}.1"), "the job ends while the database is locked")
    patient = here.begin("submit", "--", "echo", "in time")
    other.execute("ROLLBACK")
    other.close()
    out, told = patient.communicate(timeout=60)
    assert patient.returncode == 0, told
    assert here.ended(out.decode().strip())["state"] == "SUCCEEDED"
    ended = here.ended(stays)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 5)
    assert len(here.danlu("ps", "--all", "--json").json()["items"]) == 2
    assert_whole(here)


def test_an_emptied_database_is_no_new_installation(here: Installation) -> None:
    job_id = here.submit("--", "true")
    here.ended(job_id)
    here.danlu("down")
    database = here.home / "danlu.db"
    kept = database.read_bytes()
    os.truncate(database, 0)
    refused = here.danlu("ps", code=3).talk
    assert f"the database {database} is empty, and it had content on" in refused
    assert f"remove {database}.mark" in refused
    assert database.stat().st_size == 0
    database.write_bytes(kept)
    assert here.state(job_id) == "SUCCEEDED"
