"""What the Slurm engine promises beyond the contract of all engines: nothing runs twice, nothing is concluded in the
dark, others are seen, and the words of Slurm reach people translated."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from danlu.domain.parsing import Notice
from danlu.domain.resources import Ask
from danlu.engines.base import Ending, Observation, RunState
from danlu.errors import EngineDown, Refused
from tests.contract.engine_rigs import LIMIT_SECONDS, NEVER, with_rig

older = with_rig("slurm-22.05")
older_impatient = with_rig("slurm-22.05-impatient")  # for lost nodes and lost words
both_impatient = with_rig("slurm-22.05-impatient", "slurm-24.11-impatient")
both_versions = with_rig("slurm-22.05", "slurm-24.11")
STRANGER = "games"  # is on every machine, and in a group of the same name


async def until(is_so: Callable[[], Awaitable[Any]]) -> Any:
    """The first true answer; an engine that is down has none."""
    async with asyncio.timeout(2 * LIMIT_SECONDS):
        while True:
            try:
                if answer := await is_so():
                    return answer
            except EngineDown:
                pass
            await asyncio.sleep(0.05)


async def state_of(rig: Any, handle: Any) -> RunState | None:
    seen: Observation | None = (await rig.engine.observe([handle])).get(handle)
    return seen.state if seen else None


async def as_the_loop_does(rig: Any, launch: Any) -> Observation:
    """Start what is unknown, again and again, until it ends."""

    async def look() -> Observation | None:
        seen: Observation | None = (await rig.engine.observe([launch.handle])).get(launch.handle)
        if seen and seen.state is RunState.UNKNOWN:
            await rig.engine.start([launch])
        return seen if seen and seen.state is RunState.ENDED else None

    found: Observation = await until(look)
    return found


def counting(rig: Any, then: str = "true") -> tuple[str, str, str]:
    """A command that leaves one line for each time it was run."""
    return "sh", "-c", f"echo once >> {rig.folder}/times; {then}"


def times(rig: Any) -> int:
    path = rig.folder / "times"
    return len(path.read_text().splitlines()) if path.exists() else 0


@both_versions
async def test_a_run_sees_its_cards_and_only_them(rig: Any) -> None:
    said = "echo [$CUDA_VISIBLE_DEVICES]"
    whole = await rig.start("w.1", "sh", "-c", f"{said}; sleep 100", ask=Ask(gpus=2, gpu_model="3090"))
    part = await rig.start("p.1", "sh", "-c", f"{said}; sleep 100", ask=Ask(shards=16))
    none = await rig.start("n.1", "sh", "-c", said)
    await rig.ended(none)
    assert rig.log("n.1").read_text() == "[]\n"
    (seat,) = (await rig.observe(whole)).seats
    assert len(seat.gpus) == 2
    assert f"[{','.join(map(str, seat.gpus))}]" in await rig.until_logged("w.1", "]")
    (shared,) = (await rig.observe(part)).seats
    assert shared.shards == 16
    assert f"[{shared.shared_gpu}]" in await rig.until_logged("p.1", "]")
    assert shared.shared_gpu not in seat.gpus or shared.node != seat.node


@older
async def test_a_notice_comes_before_the_time_limit(rig: Any) -> None:
    command = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.05; done"
    notice = Notice("USR1", timedelta(seconds=50))
    # Five seconds for a shell to begin, and fifty to end.
    handle = await rig.start("n.1", "sh", "-c", command, time_limit=timedelta(seconds=55), notice=notice)
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    assert "saved" in rig.log("n.1").read_text()


@older
async def test_a_waiting_run_says_why_and_is_stopped_without_beginning(rig: Any) -> None:
    launch = rig.launch("big.1", *counting(rig), ask=Ask(gpus=4, nodes=2))
    other = rig.cluster.submit("sleep 1000", "--gres=gpu:1")
    rig.cluster.wait_for(other, "RUNNING")
    await rig.engine.start([launch])

    async def waits() -> Any:
        seen = (await rig.engine.observe([launch.handle])).get(launch.handle)
        return seen if seen and seen.reason and seen.reason.code == "no_room" else None

    seen = await until(waits)
    assert seen.state is RunState.PENDING
    await rig.engine.stop(launch.handle, grace=NEVER)
    end = await rig.ended(launch.handle)
    assert (end.ending, end.exit_code, end.started_at) == (Ending.STOPPED, None, None)
    assert times(rig) == 0


@both_versions
async def test_who_is_boosted_while_they_wait_goes_first(rig: Any) -> None:
    await rig.start("h.1", "sleep", "1000", ask=Ask(gpus=4, nodes=2))
    earlier, later = (rig.launch(run_id, "true", ask=Ask(gpus=1)) for run_id in ("e.1", "l.1"))
    for launch in (earlier, later):
        await rig.engine.start([launch])
        await until(partial(state_of, rig, launch.handle))

    def first() -> str:
        said: str = rig.cluster.ask("squeue", "--noheader", "--states=PENDING", "--format=%Q %A %k")
        ranked = sorted(map(str.split, said.splitlines()), key=lambda words: (-int(words[0]), int(words[1])))
        return ranked[0][2].rpartition(":")[2]

    assert first() == "e.1"
    await rig.engine.reorder({earlier.handle: False, later.handle: True})
    await rig.until(lambda: first() == "l.1")
    await rig.restart()  # what Slurm was told is known after it
    await rig.engine.reorder({earlier.handle: False, later.handle: False})
    await rig.until(lambda: first() == "e.1")


@both_versions
async def test_a_refusal_is_explained(rig: Any) -> None:
    rig.cluster.is_harmed = True
    rig.cluster.ask("scontrol", "update", "partitionname=debug", "RootOnly=YES")
    rig.cluster.ask("scontrol", "update", "partitionname=closed", "State=DRAIN")
    for run_id, particulars, code, hint in (
        ("a.1", {"queue": "nosuch"}, "no_queue", "; `danlu queues` lists them"),
        ("b.1", {"ask": Ask(gpus=5)}, "too_big", "; ask for less: `danlu nodes`"),
        ("c.1", {"ask": Ask(gpus=1, gpu_model="h100")}, "too_big", "; ask for less: `danlu nodes`"),
        ("d.1", {"user": "nobody-of-this-name"}, "slurm_user", "no user nobody-of-this-name"),
        ("e.1", {"ask": Ask(cpus=1, memory_mib=1 << 20)}, "too_big", "; ask for less `--mem`"),
        ("f.1", {"user": STRANGER, "workdir": "/", "queue": "debug"}, "slurm_user", "; try another `--queue`, or ask"),
        ("g.1", {"queue": "closed"}, "closed", "; try another `--queue`"),
    ):
        handle = await rig.start(run_id, "true", **particulars)
        end = await rig.ended(handle)
        assert (end.ending, end.reason.code) == (Ending.NOT_STARTED, code), end
        assert hint in end.reason.full_text


@both_impatient
async def test_a_submit_whose_answer_was_lost_runs_once(rig: Any) -> None:
    """The controller hangs, takes the job later, and nobody was told."""
    launch = rig.launch("lost.1", *counting(rig))
    rig.cluster.hang_controller()
    await rig.engine.start([launch])
    await rig.until(lambda: not rig.engine._submitter.is_busy)  # the client has given up
    assert rig.engine.name_of(launch.handle) == ""
    rig.cluster.continue_controller()
    end = await as_the_loop_does(rig, launch)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    assert times(rig) == 1


@both_versions
async def test_the_same_run_submitted_twice_runs_once(rig: Any) -> None:
    """What if both submits came through? The second job ends without a deed."""
    launch = rig.launch("twice.1", *counting(rig, "sleep 3"))
    await rig.engine.start([launch])
    await rig.until(lambda: times(rig) == 1)
    submitter = rig.engine._submitter
    await submitter._submit(launch)
    end = await as_the_loop_does(rig, launch)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    await rig.until(lambda: not rig.cluster.ask("squeue", "--noheader"))
    assert times(rig) == 1


@older
async def test_a_forgotten_job_is_submitted_again(rig: Any) -> None:
    """An old controller that is killed may forget a job that it has acknowledged: it never began, so it may start."""
    launch = rig.launch("forgotten.1", *counting(rig))
    rig.cluster.ask("scontrol", "update", "partitionname=gpu", "state=down")
    await rig.engine.start([launch])
    await until(lambda: _is(rig, launch.handle, RunState.PENDING))
    number = rig.engine.name_of(launch.handle).removeprefix("slurm:")
    await rig.close()
    rig.cluster.ask("scancel", number)
    rig.cluster.stop_controller()
    for name in ("job_state", "job_state.old"):
        (rig.cluster.folder / "state" / name).unlink(missing_ok=True)
    rig.cluster.start_controller()
    rig.cluster.ask("scontrol", "update", "partitionname=gpu", "state=up")
    await rig.restart()
    end = await as_the_loop_does(rig, launch)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    assert times(rig) == 1


async def _is(rig: Any, handle: Any, state: RunState) -> bool:
    return await state_of(rig, handle) is state


@both_versions
async def test_an_end_in_the_dark_is_known(rig: Any) -> None:
    """Nobody looked, and Slurm has forgotten the job: its own word is there."""
    handle = await rig.start("dark.1", "sh", "-c", "sleep 1; exit 7")
    await rig.close()
    await rig.until(lambda: (rig.folder / "shared/runs/dark.1/exit").exists())
    rig.cluster.stop_controller()
    for name in ("job_state", "job_state.old"):
        (rig.cluster.folder / "state" / name).unlink(missing_ok=True)
    rig.cluster.start_controller()
    await rig.restart()
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 7)


@older
async def test_while_the_controller_is_away_nothing_is_concluded(rig: Any) -> None:
    handle = await rig.start("asleep.1", "sleep", "1000")
    before = await rig.observe(handle)
    rig.cluster.stop_controller()  # in good order: one that is killed may forget what it has just begun
    await rig.go_down()
    rig.cluster.start_controller()
    assert await until(lambda: _is(rig, handle, RunState.RUNNING))
    assert await rig.observe(handle) == before


@older_impatient
async def test_a_run_of_a_lost_node_goes_on_elsewhere(rig: Any) -> None:
    handle = await rig.start("moved.1", *counting(rig, "sleep 1000"))
    (seat,) = (await rig.observe(handle)).seats
    rig.cluster.cut_power(seat.node)

    async def went_on() -> Any:
        seen = (await rig.engine.observe([handle])).get(handle)
        assert seen is None or seen.state is not RunState.ENDED, seen
        return seen if seen and seen.state is RunState.RUNNING and seen.attempt == 2 else None

    seen = await until(went_on)
    assert seen.seats[0].node != seat.node
    await rig.until(lambda: times(rig) == 2)
    await rig.engine.stop(handle, grace=NEVER)
    assert (await rig.ended(handle)).attempt == 2


@older_impatient
async def test_where_only_the_daemon_of_a_node_is_lost_the_run_does_not_go_on_twice(rig: Any) -> None:
    lives = f"while :; do touch {rig.folder}/lives-on-$DANLU_NODE; sleep 0.1; done"
    handle = await rig.start("left.1", "sh", "-c", lives)
    (seat,) = (await rig.observe(handle)).seats
    left = rig.folder / f"lives-on-{seat.node}"
    await rig.until(left.exists)
    rig.cluster.kill_node_daemon(seat.node)

    async def is_elsewhere() -> bool:
        seen = (await rig.engine.observe([handle])).get(handle)
        return bool(seen and seen.seats and seen.seats[0].node != seat.node)

    async def is_still() -> bool:
        left.unlink(missing_ok=True)
        await asyncio.sleep(2)
        return not left.exists()

    assert await until(is_elsewhere)
    assert await until(is_still)
    seen = await rig.observe(handle)
    assert (seen.state, seen.attempt) == (RunState.RUNNING, 2)
    await rig.engine.stop(handle, grace=NEVER)
    end = await rig.ended(handle)
    assert (end.ending, end.attempt) == (Ending.STOPPED, 2)


@both_versions
async def test_jobs_of_others_are_seen_and_can_be_stopped(rig: Any) -> None:
    number = rig.cluster.submit("sleep 1000", "--gres=gpu:1", "--job-name=plain", "--time=10")
    rig.cluster.wait_for(number, "RUNNING")

    async def seen() -> Any:
        return next((one for one in await rig.engine.others() if one.name == "plain" and one.seats), None)

    other = await until(seen)
    assert (other.user, other.queue, other.state, other.ask.gpus) == ("root", "gpu", RunState.RUNNING, 1)
    assert len(other.seats[0].gpus) == 1
    assert timedelta(minutes=9) < other.ends_at - other.started_at <= timedelta(minutes=10)
    await rig.engine.stop(other.handle, grace=NEVER)
    rig.cluster.wait_for(number, "CANCELLED")


@older
async def test_a_comment_makes_no_run(rig: Any) -> None:
    """Somebody writes the name of another's run into a comment: it stays a job of theirs."""
    handle = await rig.start("mine.1", "sleep", "1000")
    before = await rig.observe(handle)
    instance = handle.split(":")[1]
    number = rig.cluster.submit("sleep 1000", f"--comment=danlu:{instance}:mine.1", user=STRANGER)
    rig.cluster.wait_for(number, "RUNNING")

    async def is_theirs() -> bool:
        return [one.user for one in await rig.engine.others() if one.state is RunState.RUNNING] == [STRANGER]

    await until(is_theirs)
    assert await rig.observe(handle) == before
    await rig.engine.stop(handle, grace=NEVER)
    await rig.ended(handle)
    assert rig.cluster.state(number) == "RUNNING"


@both_versions
async def test_a_run_belongs_to_its_user(rig: Any) -> None:
    handle = await rig.start("theirs.1", "sh", "-c", "id -un; id -gn; umask; sleep 1000", user=STRANGER, umask=0o027)
    said = await rig.until_logged("theirs.1", "0027")
    assert said.split() == [STRANGER, STRANGER, "0027"]
    stream = await rig.engine.shell(handle, ("id", "-un"), tty=False)
    assert await _all_of(stream) == (f"{STRANGER}\n".encode(), 0)
    secret = rig.folder / "shared/runs/theirs.1/env"
    assert (secret.stat().st_mode & 0o777, secret.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    await rig.engine.stop(handle, grace=NEVER)
    assert (await rig.ended(handle)).ending is Ending.STOPPED


@both_versions
async def test_a_shell_inside_a_run(rig: Any) -> None:
    handle = await rig.start(
        "s.1", "sleep", "1000", env={"PATH": os.environ["PATH"], "HOME": str(rig.folder), "COLOUR": "blue"}
    )
    stream = await rig.engine.shell(handle, ("sh", "-c", "echo $COLOUR; pwd; cat; exit 3"), tty=False)
    await stream.write(b"hello\n")
    await stream.close_input()
    assert await _all_of(stream) == (f"blue\n{rig.folder}\nhello\n".encode(), 3)
    stream = await rig.engine.shell(handle, ("no-such-command",), tty=False)
    assert (await _all_of(stream))[1] == 127
    stream = await rig.engine.shell(handle, ("sh",), tty=True, rows=33, columns=99)
    await stream.write(b"stty size; exit 4\n")
    said, code = await _all_of(stream)
    assert b"33 99" in said
    assert code == 4
    await rig.engine.stop(handle, grace=timedelta())
    await rig.ended(handle)
    with pytest.raises(Refused, match="not running"):
        await rig.engine.shell(handle, ("true",), tty=False)


async def _all_of(stream: Any) -> tuple[bytes, int]:
    said = b""
    async with asyncio.timeout(LIMIT_SECONDS):
        while (part := await stream.read()) is not None:
            if part[0] == "stdout":
                said += part[1]
        code = await stream.wait()
    await stream.close()
    return said, code


@older
async def test_no_secret_is_in_an_argument(rig: Any) -> None:
    launch = rig.launch("secret.1", "sleep", "1000")
    launch.env["TOKEN"] = "s3cret-w0rd"
    await rig.engine.start([launch])
    async with asyncio.timeout(LIMIT_SECONDS):
        while await state_of(rig, launch.handle) is not RunState.RUNNING:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    assert b"s3cret-w0rd" not in path.read_bytes()
                except OSError:
                    continue
            await asyncio.sleep(0.002)
    shown = rig.cluster.ask("scontrol", "-d", "show", "job")
    assert "s3cret-w0rd" not in shown


@both_versions
async def test_what_people_ask_slurm_for_and_call_their_jobs_harms_nobody(rig: Any) -> None:
    """Of what is held nobody asks whether it can ever run, and a name may hold line breaks."""
    for cards in ("gpu:4000000000", "gpu:²"):
        rig.cluster.submit("true", f"--gres={cards}", "--hold", user=STRANGER)
    handle = await rig.start("mine.1", "sleep", "1000", ask=Ask(gpus=1, cpus=1))
    lie = "\n     Nodes=gn1 CPU_IDs=0-99999999999 Mem=5 GRES=gpu:4(IDX:0-3)"
    liar = rig.cluster.submit("sleep 1000", "--gres=gpu:1", f"--job-name=x{lie}", f"--comment=y{lie}", user=STRANGER)
    rig.cluster.wait_for(liar, "RUNNING")

    async def theirs() -> Any:
        return next((one for one in await rig.engine.others() if one.id == f"slurm:{liar}" and one.seats), None)

    (seat,) = (await until(theirs)).seats
    assert (seat.cpus, seat.gpus) == (1, ()), "which cards they have is not known"
    assert len((await rig.observe(handle)).seats[0].gpus) == 1
