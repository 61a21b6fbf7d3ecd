"""What a successor reads in a journal, also after a full disk or a torn line."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from danlu.engines.local.keeper.journal import Journal, read_journal
from danlu.engines.local.keeper.run import Run, shown_duration


def run(handle: str = "local:boot:a.1") -> Run:
    return Run({"handle": handle, "workdir": "/", "log": "/log", "at": 1.0, "limit": 60.0})


def test_records_of_a_run_are_merged(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    one = run()
    one.pid = 7
    journal.append(one.start_record())
    journal.append(one.pid_record())
    assert journal.write()
    assert read_journal(journal.path)["local:boot:a.1"]["is"] == 7
    one.why = "stopped"
    one.end = one.ended(at=2.0, oom_kills=0)
    journal.append(one.records()[0], sync=True)
    journal.write()
    found = read_journal(journal.path)["local:boot:a.1"]
    assert found["ended"] is True
    assert (found["ending"], found["ended_at"]) == ("stopped", 2.0)


def test_a_forgotten_run_is_gone(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    for name in ("a", "b"):
        journal.append(run(f"local:boot:{name}.1").start_record())
    journal.append({"forget": ["local:boot:a.1"]})
    journal.write()
    assert list(read_journal(journal.path)) == ["local:boot:b.1"]


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"start":"local:b:x.1"}\n\xff\xfe\n[]\n"text"\n\n{"pid":3}\n{"start":"local:b:y.1","lo')
    assert list(read_journal(str(path))) == ["local:b:x.1"]
    assert read_journal(str(tmp_path / "none")) == {}


def test_a_compacted_journal_says_the_same(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    one = run()
    one.end = one.ended(at=2.0, oom_kills=0)
    journal.rewrite([record for each in (one, run("local:boot:b.1")) for record in each.records()])
    journal.append({"stop": "local:boot:b.1", "why": "stopped"})
    journal.write()
    found = read_journal(journal.path)
    assert found["local:boot:a.1"]["ended"] is True
    assert found["local:boot:b.1"]["why"] == "stopped"
    journal.rewrite([])
    assert os.path.getsize(journal.path) == 0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip(f"no small disk can be made here: {made.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_delays_records_and_loses_none(tiny_disk: Path) -> None:
    journal = Journal(str(tiny_disk / "journal"))
    handles = [f"local:boot:{number}.1" for number in range(1000)]
    for handle in handles[:500]:
        journal.append(run(handle).start_record())
    assert not journal.write()
    for handle in handles[500:]:
        journal.append(run(handle).start_record())
        assert not journal.write()
    journal.rewrite([])  # everything was forgotten meanwhile
    assert journal.write()
    (tiny_disk / "big").write_bytes(b"x" * 60_000)
    for handle in handles[:60]:
        journal.append(run(handle).start_record())
    assert not journal.write()
    assert journal.has_waiting
    (tiny_disk / "big").unlink()
    assert journal.write()
    assert list(read_journal(journal.path)) == handles[:60]


def test_a_compaction_that_finds_no_room_keeps_all(tiny_disk: Path) -> None:
    journal = Journal(str(tiny_disk / "journal"))
    runs = [run(f"local:boot:{number}.1") for number in range(20)]
    for one in runs:
        journal.append(one.start_record())
    assert journal.write()
    (tiny_disk / "big").write_bytes(b"")
    with pytest.raises(OSError, match="No space"):
        (tiny_disk / "big").write_bytes(b"x" * 70_000)
    journal.rewrite([record for one in runs for record in one.records()])
    journal.write()
    (tiny_disk / "big").unlink()
    assert journal.write()
    assert list(read_journal(journal.path)) == [one.handle for one in runs]


def test_durations_are_shown_as_people_write_them() -> None:
    shown = [shown_duration(seconds) for seconds in (0.2, 1, 90, 3600, 9000, 90061)]
    assert shown == ["0.2s", "1s", "1m30s", "1h", "2h30m", "1d1h1m1s"]
