"""What the local engine promises beyond the seam: whole trees, restarts, limits, other users, talking inside a run."""

import asyncio
import os
import pwd
import resource
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from danlu.domain.job import RunId
from danlu.domain.parsing import Notice
from danlu.engines.base import Ending, RunState
from danlu.engines.local.keeper.spawn import CannotStart
from danlu.engines.local.keeper.spawn_as import spawn_as
from danlu.engines.local.protocol import PROTOCOL, parse_line, render_line
from danlu.errors import EngineDown, Refused
from tests.contract.engine_rigs import NEVER, SOON, LocalRig, living, with_rig

both = with_rig("local", "local-without-cgroups")
local = with_rig("local")
PYTHON = sys.executable
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may run jobs as somebody else")


def python(code: str) -> tuple[str, ...]:
    return (PYTHON, "-u", "-c", textwrap.dedent(code))


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


async def pid_in(rig: LocalRig, name: str) -> int:
    path = rig.folder / name
    await rig.until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


# Whole trees

RUNAWAYS = {
    "child": "sleep 1000 & echo $! > {pid}",
    "setsid": "setsid sh -c 'echo $$ > {pid}; exec sleep 1000' &",
    "double fork": "( ( sh -c 'echo $$ > {pid}; exec sleep 1000' & ) & )",
    "ignores TERM": "( setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > {pid}; while :; do sleep 1; done' & )",
    "empty environment": "( env -i setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & )",
    "all of it": "( env -i setsid sh -c 'trap \"\" TERM HUP; echo $$ > {pid}; while :; do sleep 1; done' "
    "> /dev/null 2>&1 < /dev/null & )",
}


@both
async def test_nothing_survives_the_end_of_a_run(rig: LocalRig) -> None:
    for number, script in enumerate(RUNAWAYS.values()):
        name = f"pid{number}"
        wait = f"while ! [ -s {name} ]; do sleep 0.01; done; exit 7"
        handle = await rig.start(f"run{number}.1", "sh", "-c", f"{script.format(pid=name)}\n{wait}")
        end = await rig.ended(handle)
        assert (end.ending, end.exit_code) == (Ending.EXITED, 7)
        assert is_gone(await pid_in(rig, name)), script


@local
async def test_a_process_that_forks_away_all_the_time_does_not_outlive_its_run(rig: LocalRig) -> None:
    """It is on no list for long, and the next run, which may be another person's, gets the same group."""
    runaway = """
        import os
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
            with open("NAME", "a") as file:
                file.write(".")
    """
    names = [f"beat{number}" for number in range(12)]
    starts = [rig.start(f"{n}.1", "sh", "-c", f'"$@" & while ! [ -s {n} ]; do sleep 0.01; done', "sh",
                        *python(runaway.replace("NAME", n))) for n in names]  # fmt: skip
    for start in starts:
        await rig.ended(await start)
    sizes = [(rig.folder / name).stat().st_size for name in names]
    await rig.ended(await rig.start("later.1", "sleep", "0.3"))
    assert [(rig.folder / name).stat().st_size for name in names] == sizes


@both
async def test_nothing_survives_a_stop(rig: LocalRig) -> None:
    for number, script in enumerate(RUNAWAYS.values()):
        name = f"pid{number}"
        handle = await rig.start(f"run{number}.1", "sh", "-c", f"{script.format(pid=name)}\nsleep 1000")
        pid = await pid_in(rig, name)
        await rig.engine.stop(handle, grace=SOON)
        assert (await rig.ended(handle)).ending is Ending.STOPPED
        assert is_gone(pid), script


@both
async def test_a_runaway_is_not_taken_for_one_of_another_run(rig: LocalRig) -> None:
    """Both runs have daemons; when one run ends, the other keeps its own."""
    handles, pids = [], []
    for number in range(2):
        script = f"{RUNAWAYS['double fork'].format(pid=f'pid{number}')}; while ! [ -e go{number} ]; do sleep 0.01; done"
        handles.append(await rig.start(f"run{number}.1", "sh", "-c", script))
        pids.append(await pid_in(rig, f"pid{number}"))
    (rig.folder / "go0").touch()
    await rig.ended(handles[0])
    assert is_gone(pids[0])
    assert not is_gone(pids[1])
    (rig.folder / "go1").touch()
    await rig.ended(handles[1])
    assert is_gone(pids[1])


@both
async def test_a_runaway_that_hides_completely_goes_at_the_latest_with_the_last_run(rig: LocalRig) -> None:
    handles, pids = [], []
    for number in range(2):
        script = f"{RUNAWAYS['all of it'].format(pid=f'pid{number}')}; while ! [ -e go{number} ]; do sleep 0.01; done"
        handles.append(await rig.start(f"run{number}.1", "sh", "-c", script))
        pids.append(await pid_in(rig, f"pid{number}"))
    (rig.folder / "go0").touch()
    await rig.ended(handles[0])
    assert not is_gone(pids[1]), "the daemon of the run that goes on was killed"
    (rig.folder / "go1").touch()
    await rig.ended(handles[1])
    await rig.until(lambda: is_gone(pids[0]) and is_gone(pids[1]))


@local
async def test_groups_that_somebody_removed_are_made_again(rig: LocalRig) -> None:
    pid = rig.engine.keeper_pid
    await rig.ended(await rig.start("first.1", "true"))
    # Not rglob: groups of other keepers come and go meanwhile.
    walked = (Path(folder) for folder, _, _ in os.walk("/sys/fs/cgroup"))
    found = [folder for folder in walked if folder.name.startswith(f"{pid}.")]
    for folder in found:
        folder.rmdir()
    for parent in {folder.parent for folder in found}:
        with suppress(OSError):  # the keeper of an earlier run may have left a group there
            parent.rmdir()
    name = "pid0"
    script = (
        f"{RUNAWAYS['all of it'].format(pid=name)}; cat /proc/self/cgroup; while ! [ -s {name} ]; do sleep 0.01; done"
    )
    assert (await rig.ended(await rig.start("second.1", "sh", "-c", script))).exit_code == 0
    assert is_gone(await pid_in(rig, name))
    assert not found or f"/{pid}." in rig.log("second.1").read_text()


@both
async def test_dead_orphans_are_buried_while_their_run_goes_on(rig: LocalRig) -> None:
    await rig.start("orphans.1", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do ( true & ); done; echo made; sleep 1000")
    await rig.until_logged("orphans.1", "made")

    def zombies() -> list[str]:
        children = Path(f"/proc/{rig.engine.keeper_pid}/task/{rig.engine.keeper_pid}/children").read_text().split()
        return [pid for pid in children if is_gone(int(pid))]

    await rig.until(lambda: not zombies())


@both
async def test_children_may_use_the_grace_when_their_parent_is_gone(rig: LocalRig) -> None:
    saver = python("""
        import signal, sys, time
        def save(*_):
            time.sleep(0.3)
            open("saved", "w").write("yes")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready")
        time.sleep(1000)
    """)
    handle = await rig.start("saver.1", "sh", "-c", f"{shlex.join(saver)} & wait")
    await rig.until_logged("saver.1", "ready")
    await rig.engine.stop(handle, grace=timedelta(seconds=30))
    assert (await rig.ended(handle)).ending is Ending.STOPPED
    assert (rig.folder / "saved").exists()


# Limits, stops, notices


@both
async def test_a_notice_goes_only_to_those_who_catch_it(rig: LocalRig) -> None:
    """A shell that would die of USR1 is spared, and so are workers below the process that catches it."""
    trainer = python("""
        import os, signal, sys, time
        if os.fork() == 0:
            signal.signal(signal.SIGUSR1, lambda *_: print("worker was hit"))
            while True:
                time.sleep(0.01)
        def checkpoint(*_):
            print("checkpoint")
            sys.exit(9)
        signal.signal(signal.SIGUSR1, checkpoint)
        print("ready")
        while True:
            time.sleep(0.01)
    """)
    handle = await rig.start(
        "noticed.1", "bash", "-c", f"{shlex.join(trainer)}; exit $?", time_limit=timedelta(hours=1)
    )
    await rig.until_logged("noticed.1", "ready")
    await rig.engine.stop(handle, grace=NEVER, notice=Notice("USR1", NEVER))
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code, end.notes) == (Ending.STOPPED, 9, ())
    log = rig.log("noticed.1").read_text()
    assert "checkpoint" in log
    assert "worker was hit" not in log


@local
async def test_a_time_limit_gives_notice_before(rig: LocalRig) -> None:
    trainer = python("""
        import signal, time
        signal.signal(signal.SIGUSR2, lambda *_: print("noticed"))
        signal.signal(signal.SIGTERM, lambda *_: print("asked to end"))
        while True:
            time.sleep(0.01)
    """)
    handle = await rig.start(
        "limited.1",
        *trainer,
        time_limit=timedelta(seconds=6),
        notice=Notice("USR2", timedelta(seconds=2)),
        grace=timedelta(seconds=2),
    )
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.TIMED_OUT, 137)
    assert end.reason is not None
    assert "time limit of 6s" in end.reason.text
    assert rig.log("limited.1").read_text().split("\n")[:2] == ["noticed", "asked to end"]
    assert timedelta(seconds=7.9) <= end.ended_at - end.started_at  # type: ignore[operator]


@local
async def test_a_run_that_heeds_the_notice_has_not_timed_out(rig: LocalRig) -> None:
    trainer = python("""
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
        time.sleep(1000)
    """)
    notice = Notice("USR1", timedelta(seconds=NEVER.total_seconds() - 3))
    handle = await rig.start("heeds.1", *trainer, time_limit=NEVER, notice=notice)
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)


@local
async def test_a_notice_that_nobody_catches_is_noted(rig: LocalRig) -> None:
    handle = await rig.start("deaf.1", "sleep", "1000")
    await rig.engine.stop(handle, grace=NEVER, notice=Notice("USR1", SOON))
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, 143)
    assert end.notes == ("notice USR1 was not sent: none of its processes catches it",)


@local
async def test_a_suspended_run_can_be_stopped(rig: LocalRig) -> None:
    handle = await rig.start("suspended.1", "sh", "-c", "trap 'echo bye; exit 3' TERM; echo up; kill -STOP $$; sleep 9")
    await rig.until_logged("suspended.1", "up")
    await rig.engine.stop(handle, grace=timedelta(seconds=30))
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, 3)
    assert "bye" in rig.log("suspended.1").read_text()


@local
async def test_too_much_memory_is_the_reason(rig: LocalRig) -> None:
    handle = await rig.start("hog.1", *python("x = bytearray(400 << 20)"), memory_mib=64)
    seen = await rig.ended(handle)
    if any("memory limit not enforced" in note for note in seen.notes):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(seen.notes[0])
    assert (seen.ending, seen.exit_code) == (Ending.EXITED, 137)
    assert seen.reason is not None
    assert seen.reason.text == "killed: used more than its 64 MiB of memory"


@local
async def test_a_run_within_its_memory_is_left_alone(rig: LocalRig) -> None:
    handle = await rig.start("small.1", *python("x = bytearray(20 << 20); print(len(x))"), memory_mib=200)
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)


# What cannot be started


@local
async def test_what_is_missing_is_said_and_logged(rig: LocalRig) -> None:
    (rig.folder / "plain").write_text("echo hi\n")
    (rig.folder / "a-file").write_text("")
    (rig.folder / "badshebang").write_text("#!/no/such/interpreter\n")
    (rig.folder / "badshebang").chmod(0o755)
    cases: list[tuple[tuple[str, ...], dict[str, Any], int | None, str]] = [
        (("./nowhere",), {}, 127, "command not found: ./nowhere"),
        (("true",), {"env": {"PATH": "/nonexistent"}}, 127, "command not found on the job's PATH: true"),
        (("./plain",), {}, 126, "not executable: ./plain"),
        (("./state",), {}, 126, "is a folder"),
        (("./badshebang",), {}, 126, "interpreter named in the first line of ./badshebang"),
        (("true",), {"workdir": str(rig.folder / "gone")}, None, "working folder does not exist"),
        (("true",), {"workdir": str(rig.folder / "a-file")}, None, "working folder is not a folder"),
        (("true", "a\0b"), {}, None, "cannot be passed"),
        (("true",), {"user": "no-such-user-here"}, None, "no user no-such-user-here"),
        (("true", "x" * (3 << 20)), {}, 126, "longer than the system allows"),
    ]
    for number, (command, particulars, code, words) in enumerate(cases):
        handle = await rig.start(f"case{number}.1", *command, **particulars)
        end = await rig.ended(handle)
        assert (end.ending, end.exit_code) == (Ending.NOT_STARTED, code), words
        assert end.reason is not None
        assert words in end.reason.text
        assert words in rig.log(f"case{number}.1").read_text()


HALF = "\ud800"  # half of a character: no file system has a name for it
IMPOSSIBLE: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((HALF,), {}),
    ((f"./{HALF}",), {}),
    (("echo", HALF), {}),
    (("true",), {"workdir": f"/{HALF}"}),
    (("true",), {"env": {"A": HALF}}),
    (("true",), {"env": {"PATH": HALF}}),
    (("true",), {"env": {"": "x"}}),
    (("true",), {"env": {"A": 5}}),  # from here on: what a server with a fault may send
    (("true",), {"umask": "x"}),
    (("true",), {"memory_mib": "x"}),
    (("true",), {"workdir": None}),
    (("true",), {"log_path": None}),
    (("true",), {"log_path": f"/{HALF}/log"}),
    (("true",), {"user": 5}),
]


async def start_good_and_bad(rig: LocalRig, user: str) -> None:
    good = [rig.launch(f"good{number}.1", "true", user=user) for number in range(len(IMPOSSIBLE) + 1)]
    bad = [
        rig.launch(f"bad{number}.1", *command, **{"user": user, **particulars})
        for number, (command, particulars) in enumerate(IMPOSSIBLE)
    ]
    keeper = rig.engine.keeper_pid
    await rig.engine.start([*good[:1], *[launch for pair in zip(bad, good[1:], strict=True) for launch in pair]])
    for launch in good:
        end = await rig.ended(launch.handle)
        assert (end.ending, end.exit_code) == (Ending.EXITED, 0), launch.run_id
    for launch, asked in zip(bad, IMPOSSIBLE, strict=True):
        end = await rig.ended(launch.handle)
        assert end.ending is Ending.NOT_STARTED, asked
        assert end.reason is not None
    assert rig.engine.keeper_pid == keeper


@both
async def test_a_run_that_cannot_be_started_holds_up_no_other_run_of_its_message(rig: LocalRig) -> None:
    await start_good_and_bad(rig, "")


@needs_root
@local
async def test_nor_does_one_of_somebody_else(rig: LocalRig) -> None:
    rig.folder.chmod(0o755)
    await start_good_and_bad(rig, "daemon")


@local
async def test_a_log_that_cannot_be_written_is_said(rig: LocalRig) -> None:
    handle = await rig.start("unlogged.1", "true", log_path="/dev/null/folder/log")
    end = await rig.ended(handle)
    assert end.ending is Ending.NOT_STARTED
    assert end.reason is not None
    assert "log cannot be written" in end.reason.text


@local
async def test_commands_are_found_as_a_shell_would(rig: LocalRig) -> None:
    (rig.folder / "bin").mkdir()
    script = rig.folder / "bin" / "plain-script"
    script.write_text('echo "no shebang $1"\n')
    script.chmod(0o755)
    for number, (command, env) in enumerate(
        [
            ("plain-script", {"PATH": f"{rig.folder}/bin:/usr/bin:/bin"}),
            ("plain-script", {"PATH": "bin:/usr/bin:/bin"}),
            ("./bin/plain-script", {"PATH": "/usr/bin:/bin"}),
        ]
    ):
        handle = await rig.start(f"found{number}.1", command, "it", env=env)
        assert (await rig.ended(handle)).exit_code == 0
        assert rig.log(f"found{number}.1").read_text() == "no shebang it\n"


# What is passed


@local
async def test_bytes_that_are_no_text_pass_unharmed(rig: LocalRig) -> None:
    odd = os.fsdecode(b"caf\xe9 \xff\x80")
    folder = rig.folder / f"d{odd}"
    folder.mkdir()
    script = 'printf "%s|%s|%s" "$1" "$ODD" "$(pwd)"'
    env = {"PATH": "/usr/bin:/bin", "ODD": odd}
    log = str(folder / f"log{odd}")
    handle = await rig.start("odd.1", "sh", "-c", script, "sh", odd, env=env, workdir=str(folder), log_path=log)
    assert (await rig.ended(handle)).exit_code == 0
    raw = os.fsencode(odd)
    assert Path(log).read_bytes() == b"|".join([raw, raw, os.fsencode(str(folder))])


@local
async def test_a_run_starts_clean(rig: LocalRig) -> None:
    """Only its own environment and marks, three descriptors, default signals, its own session, nothing to read."""
    probe = python("""
        import os, signal, sys
        print(sorted(name for name in os.environ if name != "LC_CTYPE"))
        print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
        print(os.getsid(0) == os.getpid(), sys.stdin.read() == "")
        status = open("/proc/self/status").read()
        sets = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
        print([[n for n in signal.valid_signals() if bits >> n - 1 & 1] for bits in sets] == [[], [13, 25]])
    """)
    handle = await rig.start("clean.1", *probe, env={"PATH": os.environ["PATH"]})
    assert (await rig.ended(handle)).exit_code == 0
    assert rig.log("clean.1").read_text().splitlines() == [
        "['DANLU_KEEPER', 'DANLU_RUN_ID', 'PATH']",
        "[0, 1, 2] 4",
        "True True",
        "True",  # Python itself ignores PIPE and XFSZ
    ]
    assert rig.log("clean.1").stat().st_mode & 0o777 == 0o600


@local
async def test_output_is_complete_when_the_end_is_told(rig: LocalRig) -> None:
    handle = await rig.start("fast.1", "sh", "-c", "head -c 50000000 /dev/zero; printf end >&2")
    await rig.ended(handle)
    assert rig.log("fast.1").stat().st_size == 50_000_003
    handle = await rig.start("noline.1", "printf", "no newline")
    await rig.ended(handle)
    assert rig.log("noline.1").read_bytes() == b"no newline"


@needs_root
@local
async def test_a_run_may_be_somebody_else(rig: LocalRig) -> None:
    rig.folder.chmod(0o755)
    script = "id -un; id -gn; id -G; cat /proc/self/status | grep CapEff"
    handle = await rig.start("nobody.1", "sh", "-c", script, user="daemon", memory_mib=100)
    assert (await rig.ended(handle)).exit_code == 0
    assert rig.log("nobody.1").read_text().split()[:5] == ["daemon", "daemon", "1", "CapEff:", "0" * 16]


@needs_root
@local
async def test_nobody_waits_for_somebody_who_is_slow_to_begin(rig: LocalRig) -> None:
    """Between root and the command it is its user's process: they can stop it there, or have it look for ever."""
    rig.folder.chmod(0o755)
    slow = await rig.start("slow.1", "nowhere", user="daemon", env={"PATH": "/x:" * 1_000_000})
    quick = await rig.start("quick.1", "true", user="games")
    assert (await rig.ended(quick)).exit_code == 0
    assert (await rig.observe(slow)).state is RunState.RUNNING
    keeper = rig.engine.keeper_pid
    (pid,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    assert len(os.listdir(f"/proc/{pid}/fd")) == 4, "its own, and the one that tells what it lacks"
    end = await rig.ended(slow)
    assert (end.ending, end.exit_code) == (Ending.NOT_STARTED, 127)
    assert "command not found" in rig.log("slow.1").read_text()


def test_who_cannot_be_started_for_want_of_descriptors_is_told_so() -> None:
    """Everything that is not a CannotStart would leave the others of the same message unstarted."""
    me = pwd.getpwuid(os.getuid())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(CannotStart, match="no room for another process"):
            spawn_as(me, ["true"], {}, [], folder="/")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Restarts

SERVER = """
import asyncio, sys
from danlu.engines.base import Launch
from danlu.domain.resources import Seat
from danlu.engines.local.engine import LocalEngine

async def main(folder):
    engine = LocalEngine(folder + "/state", folder + "/run/keeper.sock", lambda: [])
    await engine.open(lambda: None)
    script = "echo begun; while ! [ -e go ]; do sleep 0.01; done; echo done; exit 6"
    launch = Launch(engine.handle("srv.1"), "srv.1", ("sh", "-c", script), folder, {"PATH": "/usr/bin:/bin"},
                    Seat("here", 1), folder + "/logs/s/srv.1.log")
    await engine.start([launch])
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main(sys.argv[1]))
"""


@local
async def test_runs_outlive_a_killed_server(rig: LocalRig) -> None:
    await rig.engine.close()
    os.kill(rig.engine.keeper_pid, signal.SIGTERM)
    with subprocess.Popen([PYTHON, "-c", SERVER, str(rig.folder)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert await asyncio.to_thread(server.stdout.readline) == b"started\n"
        await rig.until_logged("srv.1", "begun")
        server.kill()
    await rig.restart()
    handle = rig.engine.handle(RunId("srv.1"))
    assert (await rig.observe(handle)).state is RunState.RUNNING
    (rig.folder / "go").touch()
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 6)
    assert rig.log("srv.1").read_text() == "begun\ndone\n"


@local
async def test_ends_without_a_server_are_remembered(rig: LocalRig) -> None:
    handle = await rig.start("alone.1", "sh", "-c", "while ! [ -e go ]; do sleep 0.01; done; exit 8")
    limited = await rig.start("limited.1", "sleep", "1000", time_limit=timedelta(seconds=1))
    await rig.engine.close()
    (rig.folder / "go").touch()
    journal = Path(rig.state_dir) / "keeper.journal"
    await rig.until(lambda: journal.read_text().count('"end"') == 2)
    os.kill(rig.engine.keeper_pid, signal.SIGKILL)
    await rig.restart()
    assert (await rig.ended(handle)).exit_code == 8
    assert (await rig.ended(limited)).ending is Ending.TIMED_OUT


async def kill_keeper(rig: LocalRig) -> int:
    """KILL it, and wait until the engine has another one."""
    killed: int = rig.engine.keeper_pid
    os.kill(killed, signal.SIGKILL)
    await rig.until(lambda: rig.engine.keeper_pid != killed)
    rig.keepers.add(rig.engine.keeper_pid)
    return killed


@both
async def test_a_killed_keeper_is_replaced_and_knows_every_run(rig: LocalRig) -> None:
    done = await rig.start("done.1", "sh", "-c", "exit 3")
    missing = await rig.start("missing.1", "no-such-command-here")
    script = "( setsid sh -c 'echo $$ > pid; exec sleep 1000' & ) ; while ! [ -e go ]; do sleep 0.01; done; exit 5"
    alive = await rig.start("alive.1", "sh", "-c", script)
    daemon = await pid_in(rig, "pid")
    ends = [await rig.ended(done), await rig.ended(missing)]
    await kill_keeper(rig)
    assert [await rig.observe(done), await rig.observe(missing)] == ends
    assert (await rig.observe(alive)).state is RunState.RUNNING
    await rig.engine.start([rig.launch("alive.1", "sh", "-c", "echo twice"), rig.launch("done.1", "true")])
    (rig.folder / "go").touch()
    end = await rig.ended(alive)
    # Since Linux 6.15 the kernel tells the exit code of a process that is not a child.
    assert (end.ending, end.exit_code) in [(Ending.EXITED, 5), (Ending.LOST, None)]
    assert is_gone(daemon)
    assert "twice" not in rig.log("alive.1").read_text()


@both
async def test_an_adopted_run_can_be_stopped_and_keeps_its_limits(rig: LocalRig) -> None:
    stopped = await rig.start("stopped.1", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    limited = await rig.start("limited.1", "sleep", "1000", time_limit=timedelta(seconds=2))
    await rig.until_logged("stopped.1", "up")
    await rig.observe(limited)  # a start that has not reached the keeper is lost with it, and nobody here repeats it
    await kill_keeper(rig)
    stream = await rig.engine.shell(stopped, ("sh", "-c", "echo $DANLU_RUN_ID; pwd"), tty=False)
    assert await read_all(stream) == {"stdout": f"stopped.1\n{rig.folder}\n".encode()}
    await rig.engine.stop(stopped, grace=SOON)
    assert (await rig.ended(stopped)).ending is Ending.STOPPED
    end = await rig.ended(limited)
    assert end.ending is Ending.TIMED_OUT
    assert timedelta(seconds=1.9) <= end.ended_at - end.started_at  # type: ignore[operator]


@local
async def test_a_run_that_died_with_its_keeper_is_lost(rig: LocalRig) -> None:
    handle = await rig.start("both.1", "sh", "-c", "echo $$ > pid; sleep 1000")
    pid = await pid_in(rig, "pid")
    os.kill(rig.engine.keeper_pid, signal.SIGSTOP)  # so that it cannot see the end
    os.killpg(pid, signal.SIGKILL)
    await kill_keeper(rig)
    end = await rig.ended(handle)
    assert end.ending is Ending.LOST or end.exit_code == 137
    assert end.reason is not None


@local
async def test_after_a_reboot_what_ran_is_lost_and_what_ended_is_known(rig: LocalRig) -> None:
    done = await rig.start("done.1", "sh", "-c", "exit 3")
    alive = await rig.start("alive.1", "sleep", "1000")
    end = await rig.ended(done)
    await rig.engine.stop(alive, grace=timedelta())
    await rig.engine.close()
    os.kill(rig.engine.keeper_pid, signal.SIGKILL)
    journal = Path(rig.state_dir) / "keeper.journal"
    lines = journal.read_text().splitlines()
    journal.write_text("".join(f"{line}\n" for line in lines if '"alive.1"' not in line or '"start"' in line))
    kept = [line for line in lines if "alive.1" in line and '"start"' in line] + [
        line for line in lines if "done.1" in line
    ]
    journal.write_text("\n".join(kept) + "\n{torn")
    rig.engine = rig.another_engine(boot="the-next-boot")
    await rig.open()
    assert await rig.observe(done) == end
    lost = await rig.observe(alive)
    assert (lost.ending, lost.exit_code) == (Ending.LOST, None)
    assert lost.reason is not None
    assert lost.reason.text == "the machine restarted while it ran"
    assert lost.started_at is not None


@local
async def test_while_the_keeper_is_away_nothing_is_claimed(rig: LocalRig) -> None:
    handle = await rig.start("asleep.1", "sleep", "1000")
    os.kill(rig.engine.keeper_pid, signal.SIGKILL)

    async def refused() -> None:
        while True:
            await rig.observe(handle)
            await asyncio.sleep(0)

    with pytest.raises(EngineDown):
        async with asyncio.timeout(30):
            await refused()


@local
async def test_a_polite_signal_does_not_end_a_keeper_with_runs(rig: LocalRig) -> None:
    handle = await rig.start("asleep.1", "sleep", "1000")
    pid = rig.engine.keeper_pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    await rig.engine.stop(handle, grace=NEVER)
    assert (await rig.ended(handle)).ending is Ending.STOPPED
    assert rig.engine.keeper_pid == pid


@local
async def test_a_keeper_without_server_and_runs_goes(rig: LocalRig) -> None:
    await rig.engine.close()
    os.kill(rig.engine.keeper_pid, signal.SIGTERM)
    await rig.until(lambda: is_gone(rig.engine.keeper_pid))
    rig.engine = rig.another_engine(linger=timedelta())
    await rig.open()
    handle = await rig.start("done.1", "sh", "-c", "exit 2")
    end = await rig.ended(handle)
    pid = rig.engine.keeper_pid
    await rig.engine.close()
    await rig.until(lambda: is_gone(pid))
    await rig.open()
    assert await rig.observe(handle) == end
    await rig.engine.forget([handle])
    await rig.until(lambda: (Path(rig.state_dir) / "keeper.journal").read_text() == "")


@local
async def test_a_newer_server_replaces_the_older(rig: LocalRig) -> None:
    handle = await rig.start("asleep.1", "sleep", "1000")
    newer = rig.another_engine()
    await newer.open(lambda: None)
    try:
        assert (await newer.observe([handle]))[handle].state is RunState.RUNNING

        async def until_replaced() -> None:
            while True:
                await rig.observe(handle)
                await asyncio.sleep(0.01)

        with pytest.raises(EngineDown, match="another server"):
            await asyncio.wait_for(until_replaced(), 30)
        assert (await newer.observe([handle]))[handle].state is RunState.RUNNING
    finally:
        await newer.stop(handle, grace=timedelta())
        await newer.close()


@local
async def test_another_protocol_is_refused_while_runs_are_alive(rig: LocalRig) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        await asyncio.get_running_loop().run_in_executor(None, sock.connect, rig.socket)
        sock.sendall(render_line({"do": "hello", "protocol": PROTOCOL + 1}))
        answer = parse_line(await asyncio.to_thread(sock.makefile("rb").readline))
    assert answer["hello"]["protocol"] == PROTOCOL
    assert answer["runs"] == []
    handle = await rig.start("still.1", "true")  # and the older server is not replaced
    await rig.ended(handle)


@local
async def test_nonsense_on_the_socket_harms_nobody(rig: LocalRig) -> None:
    handle = await rig.start("asleep.1", "sleep", "1000")
    for nonsense in (b"hello\n", b"[]\n", b'{"do":"dance"}\n', b'{"do":"start","runs":[{}]}\n', b"\xff\xfe\n"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(rig.socket)
            sock.sendall(nonsense)
            assert await asyncio.to_thread(sock.recv, 100) == b""
    assert (await rig.observe(handle)).state is RunState.RUNNING
    assert oct((Path(rig.socket).parent).stat().st_mode & 0o777) == "0o700"


@needs_root
@local
async def test_a_full_disk_ends_no_run_and_loses_no_end(rig: LocalRig) -> None:
    await rig.close()
    os.kill(rig.engine.keeper_pid, signal.SIGTERM)
    await rig.until(lambda: is_gone(rig.engine.keeper_pid))
    state = Path(rig.state_dir)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=6", "tmpfs", str(state)])
    if mounted.returncode:
        pytest.skip("no small disk can be made here")
    try:
        rig.engine = rig.another_engine()
        await rig.open()
        before = await rig.start("before.1", "sh", "-c", "while ! [ -e go ]; do sleep 0.01; done; exit 4")
        await rig.observe(before)
        for name in ("filler", "more"):
            with suppress(OSError):
                (state / name).write_bytes(b"x" * 70_000)
        runs = [await rig.start(f"full{number}.1", "sh", "-c", "exit 3") for number in range(30)]
        assert {(await rig.ended(handle)).exit_code for handle in runs} == {3}
        unlogged = await rig.ended(await rig.start("unlogged.1", "true", log_path=str(state / "log")))
        assert unlogged.ending is Ending.NOT_STARTED
        assert unlogged.reason is not None
        assert "No space left" in unlogged.reason.text
        (rig.folder / "go").touch()
        assert (await rig.ended(before)).exit_code == 4
        (state / "filler").unlink()
        await rig.until(lambda: (state / "keeper.journal").read_text().count('"end"') == 32)
        await kill_keeper(rig)
        assert (await rig.ended(before)).exit_code == 4
        assert {(await rig.ended(handle)).exit_code for handle in runs} == {3}
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


# Talking inside a run


async def read_all(stream: Any) -> dict[str, bytes]:
    said: dict[str, bytes] = {}
    async with asyncio.timeout(60):
        while (part := await stream.read()) is not None:
            said[part[0]] = said.get(part[0], b"") + part[1]
    return said


exec_kinds = with_rig("local", "local-without-cgroups", "local-uvloop")


@exec_kinds
async def test_a_process_inside_a_run_speaks_and_ends(rig: LocalRig) -> None:
    handle = await rig.start("host.1", "sleep", "1000", env={"PATH": os.environ["PATH"], "SEEN": "yes"})
    script = "echo $SEEN $DANLU_RUN_ID; pwd; echo oops >&2; exit 11"
    stream = await rig.engine.shell(handle, ("sh", "-c", script), tty=False)
    assert await read_all(stream) == {"stdout": f"yes host.1\n{rig.folder}\n".encode(), "stderr": b"oops\n"}
    assert await stream.wait() == 11
    await stream.close()


@exec_kinds
async def test_input_reaches_a_process_inside_a_run(rig: LocalRig) -> None:
    handle = await rig.start("host.1", "sleep", "1000")
    stream = await rig.engine.shell(handle, ("cat",), tty=False)
    data = bytes(range(256)) * 4096

    async def feed() -> None:
        await stream.write(data)
        await stream.close_input()

    said, _ = await asyncio.gather(read_all(stream), feed())
    assert said["stdout"] == data
    assert await stream.wait() == 0
    await stream.close()


@exec_kinds
async def test_a_terminal_inside_a_run(rig: LocalRig) -> None:
    handle = await rig.start("host.1", "sleep", "1000")
    stream = await rig.engine.shell(handle, ("sh", "-i"), tty=True, term="vt100", rows=31, columns=97)
    said = b""

    async def until(text: bytes) -> None:
        nonlocal said
        async with asyncio.timeout(60):
            while text not in said:
                part = await stream.read()
                assert part is not None, said
                said += part[1]

    await stream.write(b"echo T=$TERM; stty size\n")
    await until(b"T=vt100")
    await until(b"31 97")
    await stream.resize(40, 100)
    await stream.write(b"stty size; ls -l /dev/tty > /dev/tty && echo control\\led\n")
    await until(b"40 100")
    await until(b"controlled")
    await stream.write(b"sh -c 'echo asl\"\"eep; exec sleep 1000'\n")
    await until(b"asleep")
    await stream.write(b"\x03")  # Ctrl-C
    await stream.write(b"echo after-$((1+1))\n")
    await until(b"after-2")
    await stream.write(b"exit 13\n")
    await read_all(stream)
    assert await stream.wait() == 13
    await stream.close()


@exec_kinds
async def test_who_hangs_up_ends_the_process(rig: LocalRig) -> None:
    handle = await rig.start("host.1", "sleep", "1000")
    for number, tty in enumerate((True, False)):
        stream = await rig.engine.shell(handle, ("sh", "-c", f"echo $$ > pid{number}; exec sleep 1000"), tty=tty)
        pid = await pid_in(rig, f"pid{number}")
        gone = partial(is_gone, pid)
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0)
        await stream.close()
        assert await asyncio.wait_for(reading, 60) is None
        await rig.until(gone)
    assert (await rig.observe(handle)).state is RunState.RUNNING


@exec_kinds
async def test_a_process_inside_a_run_ends_with_it(rig: LocalRig) -> None:
    handle = await rig.start("host.1", "sleep", "1000", memory_mib=100)
    stream = await rig.engine.shell(handle, ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"), tty=False)
    assert await stream.read() == ("stdout", b"up\n")
    await rig.engine.stop(handle, grace=SOON)
    assert (await rig.ended(handle)).ending is Ending.STOPPED
    assert await asyncio.wait_for(stream.wait(), 60) == 137
    await stream.close()


@local
async def test_what_cannot_be_started_inside_a_run(rig: LocalRig) -> None:
    handle = await rig.start("host.1", "sleep", "1000")
    stream = await rig.engine.shell(handle, ("no-such-command-here",), tty=False)
    assert b"command not found" in (await read_all(stream))["stderr"]
    assert await stream.wait() == 127
    await stream.close()
    before = len(os.listdir(f"/proc/{rig.engine.keeper_pid}/fd"))
    for argv, particulars in [((HALF,), {}), (("true", "\0"), {}), (("true",), {"tty": True, "term": HALF})]:
        stream = await rig.engine.shell(handle, argv, **{"tty": False, **particulars})
        assert b"cannot be passed to the system" in (await read_all(stream))["stderr"]
        assert await stream.wait() == 126
        await stream.close()
    await rig.until(lambda: len(os.listdir(f"/proc/{rig.engine.keeper_pid}/fd")) <= before)
    await rig.engine.stop(handle, grace=NEVER)
    await rig.ended(handle)
    with pytest.raises(Refused):
        await rig.engine.shell(handle, ("true",), tty=False)


@needs_root
@local
async def test_a_terminal_of_somebody_else(rig: LocalRig) -> None:
    rig.folder.chmod(0o755)
    handle = await rig.start("host.1", "sleep", "1000", user="daemon")
    stream = await rig.engine.shell(handle, ("sh", "-c", "id -un; stat -c %U $(tty)"), tty=True)
    assert (await read_all(stream))["stdout"] == b"daemon\r\ndaemon\r\n"
    await stream.close()


def test_no_process_of_these_tests_is_left() -> None:
    assert not list(living("danlu-rig"))
