"""The Slurm engine on commands that say what the tests want: what no real cluster can be made to do."""

import asyncio
import errno
import os
import pwd
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from danlu.domain.job import RunId
from danlu.domain.resources import Ask
from danlu.engines.base import Ending, Handle, Launch, Observation, RunState
from danlu.engines.slurm import cancel as slurm_cancel
from danlu.engines.slurm import submit as slurm_submit
from danlu.engines.slurm.commands import Commands
from danlu.engines.slurm.engine import SlurmEngine
from danlu.engines.slurm.poll import Poller
from danlu.engines.slurm.run_folders import Folders, Record
from danlu.engines.slurm.text.parse_jobs import PastJob
from danlu.engines.slurm.timing import Timing
from danlu.errors import EngineDown, Refused

NEVER = timedelta(days=1)
SHORT = Timing(poll_idle_s=0.01)
SETTLED = replace(SHORT, settles_after_s=0.0)


def slurm_that_lists(
    tmp_path: Path, *jobs: tuple[int, str, str], programs: dict[str, str] | None = None, timing: Timing = SHORT
) -> SlurmEngine:
    """An engine whose Slurm says always the same: numbers, states and comments of jobs of root's. It takes ten."""
    path = commands_that_list(tmp_path, *jobs, programs=programs)
    return SlurmEngine(str(tmp_path / "shared"), commands_path=path, timing=timing)


def commands_that_list(tmp_path: Path, *jobs: tuple[int, str, str], programs: dict[str, str] | None = None) -> str:
    """The search path of such a Slurm's commands."""
    commands, shared = tmp_path / "commands", tmp_path / "shared"
    commands.mkdir()
    shared.mkdir(exist_ok=True)
    (shared / "instance").write_text("abcd\n")
    said = ""
    for number, state, comment in jobs:
        line = f"{number}|{number}|{state}|0|root|gpu|1|n1|1|0|N/A|0|0|0|None|{comment}|train"
        said += f'echo "${{mark}}|{line}"\n'
    settings = "MaxJobCount = 10\nAccountingStorageType = accounting_storage/slurmdbd"
    programs = {
        "squeue": f'for last; do :; done; mark="${{last%%|*}}"\n{said}',
        "scontrol": f'case "$*" in *config*) echo "{settings}";; esac\n',
        **(programs or {}),
    }
    for name, text in programs.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}")
        (commands / name).chmod(0o755)
    return f"{commands}:/usr/bin:/bin"


def write(tmp_path: Path, *records: Record) -> None:
    """What an earlier server knew."""
    folders = Folders(str(tmp_path / "shared"))
    folders.open()
    folders.write_all(records)
    for record in records:
        Path(folders.folder(record.run_id)).mkdir()
    folders.close()


def play(engine: SlurmEngine, scenario: Callable[[], Awaitable[None]]) -> None:
    async def body() -> None:
        await engine.open(lambda: None)
        try:
            async with asyncio.timeout(60):
                await scenario()
        finally:
            await engine.close()

    asyncio.run(body())


async def seen_of(engine: SlurmEngine, run_id: str) -> Observation | None:
    handle = engine.handle(RunId(run_id))
    return (await engine.observe([handle])).get(handle)


def launch_of(engine: SlurmEngine, tmp_path: Path, *, run_id: str = "a.1", priority: int = 5) -> Launch:
    """Of whoever runs the tests."""
    me, log, run = pwd.getpwuid(os.getuid()).pw_name, str(tmp_path / "log"), RunId(run_id)
    return Launch(engine.handle(run), run, ("true",), "/", {}, None, log, user=me, ask=Ask(), priority=priority)


def test_what_is_over_fills_the_controller_too(tmp_path: Path) -> None:
    over = [(number, "COMPLETED", f"danlu:abcd:{number}.1") for number in range(1, 6)]  # ours, and forgotten here
    engine = slurm_that_lists(tmp_path, *over, (6, "PENDING", ""))

    async def scenario() -> None:
        assert [one.id for one in await engine.others()] == ["slurm:6"]
        assert engine.room_for() == 2

    play(engine, scenario)


def test_a_job_that_borrows_the_name_of_a_run_is_seen_and_counted(tmp_path: Path) -> None:
    write(tmp_path, Record("a.1", uid=0, at=0.0, tokens=["t"], number=7))
    (tmp_path / "shared/runs/a.1/began").write_text("token=t\nrestart=0\njob=7\nnode=n1\nstarted=1000\n")
    engine = slurm_that_lists(tmp_path, *((number, "RUNNING", "danlu:abcd:a.1") for number in (7, 8)))

    async def scenario() -> None:
        await engine.poll()  # by now it is known as which job the run has begun
        assert [one.id for one in await engine.others()] == ["slurm:8"]
        seen = await seen_of(engine, "a.1")
        assert seen
        assert seen.state is RunState.RUNNING

    play(engine, scenario)


def test_a_run_is_called_what_slurm_calls_it(tmp_path: Path) -> None:
    numbers = {"begun.1": 7, "unanswered.1": None, "forgotten.1": 12}
    write(tmp_path, *(Record(run_id, uid=0, at=0.0, tokens=["t"], number=n) for run_id, n in numbers.items()))
    (tmp_path / "shared/heartbeat").touch()  # nobody was away
    (tmp_path / "shared/runs/begun.1/began").write_text("token=t\nrestart=0\njob=7\nnode=n1\nstarted=1000\n")
    borrowed = [(number, "RUNNING", "danlu:abcd:begun.1") for number in (7, 8)]
    jobs = [*borrowed, (9, "PENDING", "danlu:abcd:unanswered.1"), (12, "RUNNING", "")]
    engine = slurm_that_lists(tmp_path, *jobs, programs={"sacct": "exit 0"}, timing=SETTLED)

    async def scenario() -> None:
        def name_of(run_id: str) -> str:
            return engine.name_of(engine.handle(RunId(run_id)))

        while (seen := await seen_of(engine, "forgotten.1")) is None:
            await engine.poll()
        assert seen.state is RunState.UNKNOWN
        assert name_of("begun.1") == "slurm:7", "and not what another job of its owner's says"
        assert name_of("unanswered.1") == "slurm:9"
        assert name_of("forgotten.1") == "", "its number is another's by now"
        assert name_of("unheard.1") == ""
        assert engine.name_of(Handle("slurm:dcba:begun.1")) == "", "of another installation"

    play(engine, scenario)


def test_a_run_has_no_name_before_it_is_submitted(tmp_path: Path) -> None:
    door = tmp_path / "door"
    engine = slurm_that_lists(tmp_path, programs={"sbatch": f"while [ ! -e {door} ]; do sleep 0.02; done; echo 17"})

    async def scenario() -> None:
        launch = launch_of(engine, tmp_path)
        await engine.start([launch])
        assert engine.name_of(launch.handle) == ""
        door.touch()
        while not (name := engine.name_of(launch.handle)):
            await asyncio.sleep(0.01)
        assert name == "slurm:17"

    play(engine, scenario)


def test_a_controller_that_was_restarted_may_have_other_settings(tmp_path: Path) -> None:
    settings, gone = tmp_path / "settings", tmp_path / "gone"
    settings.write_text("MaxJobCount = 10\n")
    programs = {"squeue": f"[ ! -e {gone} ]", "scontrol": f'case "$*" in *config*) cat {settings};; esac'}
    engine = slurm_that_lists(tmp_path, programs=programs)

    async def scenario() -> None:
        assert engine.room_for() == 8
        gone.touch()
        with pytest.raises(EngineDown):
            await engine.poll()
        settings.write_text("MaxJobCount = 100\n")
        gone.unlink()
        await engine.poll()
        assert engine.room_for() == 80

    play(engine, scenario)


def test_after_a_quiet_week_it_still_looks() -> None:
    pauses = [Timing().poll_pause_s(calm_polls, is_busy=False) for calm_polls in (0, 1, 100, 100_000)]
    assert pauses == [0.1, pytest.approx(0.15), 12.0, 12.0]
    assert Timing().poll_pause_s(100_000, is_busy=True) == 2.0


def test_a_controller_that_hung_once_is_soon_asked_again(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    hangs_once = f'date +%s.%N >> {asked}; [ "$(wc -l < {asked})" -ne 3 ] || sleep 1'
    engine = slurm_that_lists(tmp_path, programs={"squeue": hangs_once})

    async def scenario() -> None:
        while not asked.exists() or len(asked.read_text().splitlines()) < 4:
            await asyncio.sleep(0.01)

    play(engine, scenario)
    moments = [float(line) for line in asked.read_text().splitlines()]
    assert moments[3] - moments[2] < 4.5, "and not only after four times as long as it hung"


def test_a_submit_that_was_killed_is_no_refusal(tmp_path: Path) -> None:
    """Whoever killed it: Slurm may have the job."""
    engine = slurm_that_lists(tmp_path, programs={"sbatch": "kill -KILL $$", "sacctmgr": ""}, timing=SETTLED)

    async def scenario() -> None:
        launch = launch_of(engine, tmp_path)
        await engine.start([launch])
        while not (seen := await seen_of(engine, "a.1")):
            await asyncio.sleep(0.01)
        assert seen.state is RunState.UNKNOWN
        assert seen.reason
        assert "killed by signal 9" in seen.reason.text
        await engine.forget([launch.handle])  # it was stopped meanwhile
        assert not (tmp_path / "shared/records/a.1.json").exists()
        assert await seen_of(engine, "a.1") == Observation(RunState.UNKNOWN)

    play(engine, scenario)


@pytest.mark.parametrize(
    ("sacct", "state", "ending"),
    [
        ("exit 1", None, None),
        ("echo '7|CANCELLED by 5|0:0|Unknown|Unknown|games'", RunState.UNKNOWN, None),
        ("echo '7|CANCELLED by 0|0:0|Unknown|Unknown|root'", RunState.ENDED, Ending.STOPPED),
    ],
    ids=["does not answer", "knows another's", "knows ours"],
)
def test_what_the_books_say_of_a_number_that_slurm_has_let_go(
    tmp_path: Path, sacct: str, state: RunState | None, ending: Ending | None
) -> None:
    write(tmp_path, Record("a.1", uid=0, at=0.0, tokens=["t"], number=7))
    (tmp_path / "shared/heartbeat").write_text("")
    engine = slurm_that_lists(tmp_path, programs={"sacct": sacct}, timing=SETTLED)

    async def scenario() -> None:
        for _ in range(5):
            await engine.poll()
        seen = await seen_of(engine, "a.1")
        assert (seen and seen.state, seen and seen.ending) == (state, ending)

    play(engine, scenario)


def test_the_stops_of_many_go_with_few_commands(tmp_path: Path) -> None:
    names = [f"a{number}.1" for number in range(1, 301)]
    write(tmp_path, *(Record(name, uid=0, at=0.0, tokens=["t"], number=at) for at, name in enumerate(names, start=1)))
    said = tmp_path / "said"
    engine = slurm_that_lists(
        tmp_path,
        *((at, "PENDING", f"danlu:abcd:{name}") for at, name in enumerate(names, start=1)),
        programs={"scancel": f'sleep 0.1; echo "$@" >> {said}'},  # of a busy controller
    )

    async def scenario() -> None:
        for name in names:
            await engine.stop(engine.handle(RunId(name)), grace=NEVER)
        wanted = {str(at) for at in range(1, 301)}
        while not (said.exists() and wanted <= set(said.read_text().split())):
            await asyncio.sleep(0.01)

    play(engine, scenario)
    calls = said.read_text().splitlines()
    assert len(calls) < 150, "those that are asked for while others are passed on go together"
    assert all(call.startswith("--user=0 --state=PENDING ") for call in calls)


def test_the_parts_of_a_job_of_others_end_together(tmp_path: Path) -> None:
    """Slurm ends all of them with the first; a refusal of something else is still told."""
    said = tmp_path / "said"
    over, refused = "Invalid job id specified", "Access/permission denied"
    answers = f'*17) echo "scancel: error: {over}";; *) echo "scancel: error: {refused}";;'
    engine = slurm_that_lists(
        tmp_path,
        *((number, "PENDING", "") for number in (9, 17)),
        programs={"scancel": f'echo "$@" >> {said}\ncase "$*" in {answers} esac >&2\nexit 1'},
    )

    async def scenario() -> None:
        others = {one.id: one.handle for one in await engine.others()}
        await engine.stop(others["slurm:17"], grace=NEVER)
        with pytest.raises(Refused, match="permission denied"):
            await engine.stop(others["slurm:9"], grace=NEVER)

    play(engine, scenario)
    assert len(said.read_text().splitlines()) == 2


def test_a_script_that_may_not_have_heard_is_told_again_and_not_for_ever(tmp_path: Path) -> None:
    write(tmp_path, Record("a.1", uid=0, at=0.0, tokens=["t"], number=7))
    (tmp_path / "shared/runs/a.1/began").write_text("token=t\nrestart=0\njob=7\nnode=n1\nstarted=1000\n")
    said = tmp_path / "said"
    engine = slurm_that_lists(
        tmp_path,
        (7, "RUNNING", "danlu:abcd:a.1"),
        programs={"scancel": f'echo "$@" >> {said}'},
        timing=replace(SHORT, stop_signal_retry_s=0.0),
    )

    async def scenario() -> None:
        await engine.poll()
        await engine.stop(engine.handle(RunId("a.1")), grace=NEVER)
        for _ in range(slurm_cancel.WAKE_TRIES + 2):
            await engine.poll_and_act()

    play(engine, scenario)
    assert said.read_text().splitlines() == ["--user=0 --signal=URG --batch 7"] * slurm_cancel.WAKE_TRIES


@pytest.mark.parametrize("asked_s_ago", [86_400.0, -86_400.0], ids=["long ago", "by a clock that was set back"])
def test_a_stop_from_before_is_told_before_anything_is_done_by_force(tmp_path: Path, asked_s_ago: float) -> None:
    """Whoever asked for it was killed before the script was told."""
    stop = {"at": time.time() - asked_s_ago, "last_s": 600.0, "text": "grace=600000\n"}
    write(tmp_path, Record("a.1", uid=0, at=0.0, tokens=["t"], number=7, stop=stop))
    (tmp_path / "shared/runs/a.1/began").write_text("token=t\nrestart=0\njob=7\nnode=n1\nstarted=1000\n")
    said = tmp_path / "said"
    engine = slurm_that_lists(tmp_path, (7, "RUNNING", "danlu:abcd:a.1"), programs={"scancel": f'echo "$@" >> {said}'})

    async def scenario() -> None:
        await engine.poll()
        await engine.poll_and_act()
        await engine.poll_and_act()

    play(engine, scenario)
    assert said.read_text().splitlines() == ["--user=0 --signal=URG --batch 7"]


def test_a_script_that_does_not_end_its_run_in_time_is_ended_by_force(tmp_path: Path) -> None:
    write(tmp_path, Record("a.1", uid=0, at=0.0, tokens=["t"], number=7))
    (tmp_path / "shared/runs/a.1/began").write_text("token=t\nrestart=0\njob=7\nnode=n1\nstarted=1000\n")
    said = tmp_path / "said"
    engine = slurm_that_lists(
        tmp_path,
        (7, "RUNNING", "danlu:abcd:a.1"),
        programs={"scancel": f'echo "$@" >> {said}'},
        timing=replace(SHORT, stop_overdue_s=0.0),
    )

    async def scenario() -> None:
        await engine.poll()
        await engine.stop(engine.handle(RunId("a.1")), grace=timedelta(0))
        while not said.exists() or "--user=0 7" not in said.read_text().splitlines():
            await engine.poll_and_act()

    play(engine, scenario)


def test_what_cannot_be_cleared_away_of_one_holds_up_nobody(tmp_path: Path) -> None:
    """Its owner has mounted something on its folder."""
    over = {"started_at": None, "ended_at": None, "ending": "lost", "exit_code": None, "reason": None}
    end: dict[str, Any] = {**over, "notes": [], "attempt": 1}
    write(tmp_path, *(Record(f"{name}.1", uid=0, at=0.0, tokens=["t"], number=7, end=end) for name in "abc"))
    engine = slurm_that_lists(tmp_path)
    take = engine._folders._trash.take

    def take_all_but_one(path: str) -> None:
        if path.endswith("/b.1"):
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        take(path)

    engine._folders._trash.take = take_all_but_one  # type: ignore[method-assign]

    async def scenario() -> None:
        await engine.forget([engine.handle(RunId(f"{name}.1")) for name in "abc"])

    play(engine, scenario)
    assert os.listdir(tmp_path / "shared/runs") == ["b.1"]


def test_whom_slurms_books_allow_no_more_jobs_goes_on_in_order(tmp_path: Path) -> None:
    room, taken = tmp_path / "room", tmp_path / "taken"
    refused = 'echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; exit 1'
    engine = slurm_that_lists(
        tmp_path,
        programs={"sbatch": f'cat > /dev/null; [ -e {room} ] || {{ {refused}; }}; echo "$@" >> {taken}; echo 7'},
        timing=replace(SETTLED, full_retry_s=0.2),
    )
    names = {"low1": 3, "low2": 3, "high1": 9, "high2": 9}

    async def scenario() -> None:
        launches = [launch_of(engine, tmp_path, run_id=f"{name}.1", priority=one) for name, one in names.items()]

        async def start_again() -> None:
            """As the server does."""
            await engine.start(launches)
            await asyncio.sleep(0.02)

        async def said(run_id: str) -> str:
            seen = await seen_of(engine, run_id)
            return seen.reason.text if seen and seen.reason else ""

        while not all(["reached its limit of jobs" in await said(one.run_id) for one in launches]):
            await start_again()
        room.touch()
        while not taken.exists() or len(taken.read_text().splitlines()) < len(launches):
            await start_again()

    play(engine, scenario)
    assert re.findall(r"danlu:abcd:(\w+)\.1", taken.read_text()) == ["high1", "high2", "low1", "low2"]


def test_a_lost_answer_is_not_asked_for_again_when_another_finds_a_place(tmp_path: Path) -> None:
    room, tried = tmp_path / "room", tmp_path / "tried"
    refused = 'echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; exit 1'
    asks = f'cat > /dev/null; [ -e {room} ] || {{ {refused}; }}; echo "$@" >> {tried}'
    dies = 'case "$*" in *high*) kill -9 $$;; esac'
    engine = slurm_that_lists(
        tmp_path, programs={"sbatch": f"{asks}; {dies}; echo 7"}, timing=replace(SETTLED, full_retry_s=0.0)
    )

    async def scenario() -> None:
        high, low = (
            launch_of(engine, tmp_path, run_id=f"{name}.1", priority=one) for name, one in (("high", 9), ("low", 3))
        )

        async def said(launch: Launch) -> str:
            seen = await seen_of(engine, launch.run_id)
            return seen.reason.text if seen and seen.state is RunState.UNKNOWN and seen.reason else ""

        await engine.start([high, low])
        while not (await said(high) and await said(low)):
            await asyncio.sleep(0.02)
        room.touch()
        await engine.start([high])
        while "killed by signal 9" not in await said(high):
            await asyncio.sleep(0.02)
        await engine.start([low])
        while not engine.name_of(low.handle):
            await asyncio.sleep(0.02)

    play(engine, scenario)
    assert sorted(re.findall(r"danlu:abcd:(\w+)\.1", tried.read_text())) == ["high", "low"]


def test_of_two_servers_in_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    engine = slurm_that_lists(tmp_path)
    second = SlurmEngine(str(tmp_path / "shared"))

    async def scenario() -> None:
        with pytest.raises(Refused, match="another server works in"):
            await second.open(lambda: None)

    play(engine, scenario)
    play(engine, no_harm)


async def no_harm() -> None:
    """Just open it, and close it."""


def test_a_run_that_is_forgotten_while_it_is_submitted_is_stopped(tmp_path: Path) -> None:
    """Its job was stopped while its code was laid out, a moment before it was given to Slurm."""
    door = tmp_path / "door"
    engine = slurm_that_lists(tmp_path, programs={"sbatch": f"while [ ! -e {door} ]; do sleep 0.02; done; echo 7"})

    async def scenario() -> None:
        launch = launch_of(engine, tmp_path)
        await engine.start([launch])
        await engine.forget([launch.handle])
        stop = tmp_path / "shared/runs/a.1/stop"
        while not stop.exists():
            await asyncio.sleep(0.01)
        door.touch()
        assert stop.read_text() == "grace=0\n"

    play(engine, scenario)


def test_the_books_are_asked_about_more_jobs_than_fit_into_one_command(tmp_path: Path) -> None:
    """The controller was started anew without its memory, and all that waited are gone from it."""
    path = commands_that_list(
        tmp_path, programs={"sacct": 'for last; do :; done; echo "${last%%,*}|FAILED|1:0|1|2|root"'}
    )

    async def ask() -> list[PastJob]:
        commands = Commands(path=path)
        poller = Poller(commands)
        try:
            await poller.read_settings()
            return await poller.accounting_of(range(10_000_001, 10_020_001))
        finally:
            commands.close()

    found = asyncio.run(ask())
    assert [one.number for one in found] == [10_000_001, 10_005_001, 10_010_001, 10_015_001]


@pytest.mark.parametrize(
    "odd",
    [{"env": {"A": "\ud800"}}, {"name": "\ud800"}, {"name": "a\0"}, {"env": {"A": 5}}],
    ids=["variable", "name", "NUL", "number"],
)
def test_what_no_system_takes_is_refused_and_leaves_nothing(tmp_path: Path, odd: dict[str, Any]) -> None:
    engine = slurm_that_lists(tmp_path, programs={"sbatch": "echo 7", "sacctmgr": ""})

    async def scenario() -> None:
        launch = replace(launch_of(engine, tmp_path), **odd)
        other = launch_of(engine, tmp_path, run_id="b.1")
        await engine.start([launch, other])
        async with asyncio.timeout(60):
            while not (seen := await seen_of(engine, "a.1")):
                await asyncio.sleep(0.01)
            assert (seen.state, seen.ending) == (RunState.ENDED, Ending.NOT_STARTED)
            while engine._runs.known["b.1"].record.number != 7:
                await asyncio.sleep(0.01)
        await engine.forget([launch.handle])

    play(engine, scenario)
    assert os.listdir(tmp_path / "shared/runs") == ["b.1"]


def test_that_a_run_may_be_submitted_is_on_the_disk_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, after a power failure, a run that goes on in Slurm is unknown here, and is begun again."""
    asked = tmp_path / "asked"
    engine = slurm_that_lists(tmp_path, programs={"sbatch": f"touch {asked}; echo 7", "sacctmgr": ""})
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def note(fd: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))[:8], asked.exists()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)

    async def scenario() -> None:
        await engine.start([launch_of(engine, tmp_path)])
        while not asked.exists():
            await asyncio.sleep(0.01)

    play(engine, scenario)
    assert synced == [("a.1.json", False), ("records", False)]


def test_nothing_is_kept_of_those_that_are_forgotten(tmp_path: Path) -> None:
    """One waited for a place in Slurm's books, and was stopped; one ended while nobody looked."""
    write(tmp_path, Record("b.1", uid=0, at=0.0, tokens=["t"], number=7))
    engine = slurm_that_lists(
        tmp_path,
        programs={"sbatch": 'echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; exit 1', "sacctmgr": "", "sacct": ""},
        timing=SETTLED,
    )

    async def scenario() -> None:
        launch = launch_of(engine, tmp_path)
        await engine.start([launch])
        while not (await seen_of(engine, "a.1") and await seen_of(engine, "b.1")):
            await asyncio.sleep(0.01)
        await engine.forget([launch.handle, engine.handle(RunId("b.1"))])
        await engine.poll()
        kept = {**vars(engine._runs), "full": engine._submitter._full}
        assert not [name for name, one in kept.items() if isinstance(one, dict | set) and one]

    play(engine, scenario)


@pytest.mark.parametrize("trouble", [errno.EMFILE, errno.ENOENT, errno.ESHUTDOWN])
def test_trouble_of_the_server_or_its_folder_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: int
) -> None:
    engine = slurm_that_lists(tmp_path, programs={"sbatch": "echo 7", "sacctmgr": "", "sacct": ""}, timing=SETTLED)
    fill = Folders._fill

    def fail(*_: Any) -> None:
        raise OSError(trouble, os.strerror(trouble))

    async def scenario() -> None:
        launch = launch_of(engine, tmp_path)
        monkeypatch.setattr(Folders, "_fill", fail)
        await engine.start([launch])
        while not (seen := await seen_of(engine, "a.1")):
            await asyncio.sleep(0.01)
        assert seen.state is RunState.UNKNOWN
        assert seen.reason
        assert os.strerror(trouble) in seen.reason.text
        monkeypatch.setattr(Folders, "_fill", fill)
        await engine.start([launch])
        while engine.name_of(launch.handle) != "slurm:7":
            await asyncio.sleep(0.01)

    play(engine, scenario)


def test_a_shared_folder_that_hangs_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, prepare = threading.Event(), Folders.prepare

    def hang(*given: Any) -> None:
        goes_on.wait()
        prepare(*given)

    monkeypatch.setattr(Folders, "prepare", hang)
    engine = slurm_that_lists(tmp_path, programs={"sbatch": "echo 7", "sacctmgr": ""})

    async def scenario() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(slurm_submit.SUBMITS_PER_USER))
        await engine.start([launch_of(engine, tmp_path, run_id=f"{name}.1") for name in "abc"])
        try:
            async with asyncio.timeout(5):
                for _ in range(10):
                    await asyncio.sleep(0.01)
                    await asyncio.to_thread(time.sleep, 0)
        finally:
            goes_on.set()

    play(engine, scenario)


def test_a_shared_folder_that_hangs_is_said_and_what_was_known_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, Record("a.1", uid=0, at=0.0, tokens=["t"], number=7))
    goes_on, ended = threading.Event(), Folders.ended
    goes_on.set()

    def hang(self: Folders, record: Record) -> Any:
        goes_on.wait()
        return ended(self, record)

    monkeypatch.setattr(Folders, "ended", hang)
    engine = slurm_that_lists(tmp_path, (7, "RUNNING", "danlu:abcd:a.1"), timing=replace(SHORT, folder_patience_s=0.2))

    async def told() -> str:
        while True:
            try:
                await engine.observe([engine.handle(RunId("a.1"))])
            except EngineDown as error:
                return error.text
            await asyncio.sleep(0.01)

    async def observed() -> Mapping[Handle, Observation]:
        try:
            return await engine.observe([engine.handle(RunId("a.1"))])
        except EngineDown:
            return {}

    async def scenario() -> None:
        handle = engine.handle(RunId("a.1"))
        assert (await engine.observe([handle]))[handle].state is RunState.RUNNING
        goes_on.clear()
        try:
            assert f"the shared folder {tmp_path}/shared does not answer (since 20" in await told()
            with pytest.raises(EngineDown, match="does not answer"):
                await engine.stop(handle, grace=NEVER)
        finally:
            goes_on.set()
        while not (seen := await observed()):
            await asyncio.sleep(0.01)
        assert seen[handle].state is RunState.RUNNING

    play(engine, scenario)
