"""What is known of runs on Slurm, kept in real folders. There is no Slurm here: what it lists is said by the tests."""

import asyncio
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from danlu.engines.base import Ending, Observation, RunState
from danlu.engines.slurm.commands import Commands
from danlu.engines.slurm.poll import Poller
from danlu.engines.slurm.run_folders import Folders, Record
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.options import Ended, parse_ended
from danlu.engines.slurm.text.parse_jobs import QueueLine
from danlu.engines.slurm.timing import Timing
from danlu.engines.slurm.verdict import ACCEPTED

AT_ONCE = Timing(settles_after_s=0.0)


def begun(tmp_path: Path) -> tuple[Runs, Poller]:
    """A run that has begun as job 7."""
    folders, look = Folders(str(tmp_path)), Poller(Commands())
    folders.open()
    runs = Runs(folders, look, AT_ONCE)
    runs.load([Record("a.1", uid=0, at=0.0, tokens=["t"], number=7)])
    (tmp_path / "runs" / "a.1").mkdir()
    write_beginning(tmp_path, restart=0)
    return runs, look


def write_beginning(tmp_path: Path, *, restart: int, started_at: datetime | None = None) -> None:
    started = round(started_at.timestamp() * 1000) if started_at else ""
    text = f"token=t\nrestart={restart}\njob=7\nnode=n1\nstarted={started}\n"
    (tmp_path / "runs" / "a.1" / "began").write_text(text)


def look_at(runs: Runs, look: Poller, *states: str, starts_at: datetime | None = None) -> Observation:
    """What is true of it when Slurm lists it so: as job 7, and as 8 if it was submitted twice."""
    lines = []
    for number, state in enumerate(states, start=7):
        nodes = "n1" if state == "RUNNING" else ""
        times = (None, starts_at, None)
        rest = (*times, "BeginTime", "danlu:abcd:a.1", "train")
        line = QueueLine(str(number), number, state, 0, "root", "gpu", 1, nodes, 1, 0, "", *rest)
        lines += [line] if state else []
    jobs, look.began_at = look.jobs, time.monotonic()
    jobs.instance = "abcd"
    before = jobs.ours.get("a.1", [])
    jobs.update(lines, before, began_at=look.began_at, owner_of=runs.owner_of, begun_number=runs.begun_number)
    asyncio.run(runs.settle())
    return runs.seen_of("a.1") or ACCEPTED


def test_a_run_that_lost_its_node_while_nobody_looked_waits_for_its_second_attempt(tmp_path: Path) -> None:
    runs, look = begun(tmp_path)
    seen = look_at(runs, look, "PENDING")
    assert (seen.state, seen.attempt) == (RunState.PENDING, 2)


def test_a_beginning_that_was_written_late_counts(tmp_path: Path) -> None:
    runs, look = begun(tmp_path)
    states = ["RUNNING", "PENDING", "RUNNING", "RUNNING"]  # these are seen before its word has come through the folder
    assert [look_at(runs, look, state).attempt for state in states] == [1, 2, 2, 2]
    write_beginning(tmp_path, restart=1)
    assert look_at(runs, look, "RUNNING").attempt == 2
    seen = look_at(runs, look, "PENDING")
    assert (seen.state, seen.attempt) == (RunState.PENDING, 3)


def test_a_run_that_waited_again_while_nobody_looked_is_in_its_next_attempt(tmp_path: Path) -> None:
    runs, look = begun(tmp_path)
    first, second = datetime(2026, 3, 1, 8, tzinfo=UTC), datetime(2026, 3, 1, 9, tzinfo=UTC)
    times = [first, first, second, second]
    assert [look_at(runs, look, "RUNNING", starts_at=at).attempt for at in times] == [1, 1, 2, 2]
    write_beginning(tmp_path, restart=1)
    assert [look_at(runs, look, "RUNNING", starts_at=at).attempt for at in (second, second)] == [2, 2]


def test_a_node_that_was_switched_on_for_a_run_makes_no_second_attempt(tmp_path: Path) -> None:
    runs, look = begun(tmp_path)
    asked_at, came_at = datetime(2026, 3, 1, 8, tzinfo=UTC), datetime(2026, 3, 1, 9, tzinfo=UTC)
    write_beginning(tmp_path, restart=0, started_at=came_at + timedelta(seconds=1))
    assert [look_at(runs, look, "RUNNING", starts_at=at).attempt for at in (asked_at, came_at)] == [1, 1]


def submitted_twice(tmp_path: Path) -> tuple[Runs, Poller]:
    """The first answer was lost. Both wait; the second is taken back, and then the controller forgets the first."""
    folders, look = Folders(str(tmp_path)), Poller(Commands())
    folders.open()
    runs = Runs(folders, look, AT_ONCE)
    runs.load([Record("a.1", uid=0, at=0.0, tokens=["s", "t"], number=8)])
    (tmp_path / "runs" / "a.1").mkdir()
    assert look_at(runs, look, "PENDING", "PENDING").state is RunState.PENDING
    assert [line.number for line in asyncio.run(runs.drop_extras())] == [8]
    return runs, look


def started_again(runs: Runs, look: Poller) -> Runs:
    """By a server after the one that was killed."""
    runs._folders.close()
    folders = Folders(runs._folders.root)
    after = Runs(folders, look, AT_ONCE)
    after.load(folders.open())
    return after


def test_the_end_of_a_copy_that_was_taken_back_is_not_the_runs(tmp_path: Path) -> None:
    runs, look = submitted_twice(tmp_path)
    after = started_again(runs, look)
    assert after.known["a.1"].record.number == 7
    for _ in range(4):
        seen = look_at(after, look, "", "CANCELLED")
    assert seen.state is RunState.UNKNOWN, "it may be submitted again"


def test_a_copy_that_began_before_it_could_be_taken_back_is_the_run(tmp_path: Path) -> None:
    runs, look = submitted_twice(tmp_path)
    (tmp_path / "runs" / "a.1" / "began").write_text("token=t\nrestart=0\njob=8\nnode=n1\nstarted=1000\n")
    seen = look_at(runs, look, "PENDING", "RUNNING")
    assert seen.state is RunState.RUNNING
    assert [line.number for line in asyncio.run(runs.drop_extras())] == [7]
    (tmp_path / "runs" / "a.1" / "exit").write_text(
        "token=t\nrestart=0\nending=exited\ncode=0\nstarted=1000\nended=2000\nnode=n1\n"
    )
    seen = look_at(runs, look, "CANCELLED", "COMPLETED")
    assert (seen.state, seen.exit_code) == (RunState.ENDED, 0)


def test_an_end_that_cannot_be_written_down_is_told_later(tmp_path: Path) -> None:
    runs, look = begun(tmp_path)
    run = tmp_path / "runs" / "a.1"
    assert look_at(runs, look, "RUNNING").state is RunState.RUNNING
    (run / "exit").write_text("token=t\nrestart=0\nending=exited\ncode=3\nstarted=1000\nended=2000\nnode=n1\n")
    records = tmp_path / "records"
    records.rmdir()  # the disk does not take it
    assert not asyncio.run(runs.read_exits())
    assert runs.known["a.1"].state is RunState.RUNNING
    records.mkdir()
    assert asyncio.run(runs.read_exits())
    seen = runs.seen_of("a.1")
    assert seen
    assert (seen.state, seen.exit_code) == (RunState.ENDED, 3)
    assert (records / "a.1.json").exists()


def test_a_word_that_the_file_system_hides_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS does for half a minute with a file that was not there before."""
    runs, look = begun(tmp_path)
    (tmp_path / "runs" / "a.1" / "exit").write_text("token=t\nrestart=0\nending=timed_out\ncode=143\n")
    read, is_fresh = Folders.ended, []
    monkeypatch.setattr(Folders, "freshen", lambda self, record: is_fresh.append(record.run_id))
    monkeypatch.setattr(Folders, "ended", lambda self, record: read(self, record) if is_fresh else None)
    assert look_at(runs, look, "RUNNING").state is RunState.RUNNING
    assert not is_fresh, "it costs a request each time"
    assert look_at(runs, look, "FAILED").ending is Ending.TIMED_OUT


def test_to_freshen_a_folder_changes_nothing_in_it(tmp_path: Path) -> None:
    runs, _ = begun(tmp_path)
    folder = tmp_path / "runs" / "a.1"
    folder.chmod(0o711)
    before = folder.stat()
    time.sleep(0.02)
    runs._folders.freshen(runs.known["a.1"].record)
    after = folder.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (before.st_mode, before.st_mtime_ns, before.st_uid)
    assert after.st_ctime_ns > before.st_ctime_ns, "the file server was asked"


def test_a_run_that_is_forgotten_during_a_poll_stays_forgotten(tmp_path: Path) -> None:
    """Reading the shared folder takes time: requests go on meanwhile."""

    class Slow(Folders):
        def ended(self, record: Record) -> Ended | None:
            if loop:
                asyncio.run_coroutine_threadsafe(runs.forget([record.run_id]), loop[0]).result(timeout=60)
            return parse_ended("token=t\nrestart=0\nending=exited\ncode=0\n") if loop else None

    loop: list[asyncio.AbstractEventLoop] = []
    folders, poller = Slow(str(tmp_path)), Poller(Commands())
    folders.open()
    runs = Runs(folders, poller, AT_ONCE)
    runs.load([Record("a.1", uid=0, at=0.0, tokens=["t"])])
    while runs.seen_of("a.1") is None:
        look_at(runs, poller, "")

    async def settle() -> bool:
        loop.append(asyncio.get_running_loop())
        return await runs.settle()

    poller.began_at = time.monotonic()
    assert not asyncio.run(settle())
    assert not runs.known
    assert not list((tmp_path / "records").iterdir())


def test_no_run_is_given_up_before_slurm_was_asked_for_its_exit_code(tmp_path: Path) -> None:
    """The time for its exit file runs out while a poll waits for Slurm."""

    class Slow(Poller):
        async def exit_codes(self, numbers: Collection[int]) -> dict[int, int]:
            await asyncio.sleep(0.6)
            return dict.fromkeys(numbers, 6)

    folders, poller = Folders(str(tmp_path)), Slow(Commands())
    folders.open()
    runs = Runs(folders, poller, Timing(settles_after_s=1.5))
    runs.load([Record("a.1", uid=0, at=0.0, tokens=["t"], number=7)])
    (tmp_path / "runs" / "a.1").mkdir()
    write_beginning(tmp_path, restart=0)
    while (seen := look_at(runs, poller, "FAILED")).state is not RunState.ENDED:
        pass
    assert (seen.ending, seen.exit_code) == (Ending.EXITED, 6)
