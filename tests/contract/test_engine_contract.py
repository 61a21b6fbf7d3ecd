"""What every engine promises, unchanged for each of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from danlu.domain.job import RunId
from danlu.domain.parsing import Notice
from danlu.domain.resources import Ask
from danlu.engines.base import Ending, RunState
from danlu.errors import EngineDown
from tests.contract.engine_rigs import HALTED, LIMIT_SECONDS, NEVER, SOON, with_rig

every_engine = with_rig(
    "fake", "local", "local-without-cgroups", "local-uvloop", "slurm-22.05", "slurm-22.05-books", "slurm-24.11"
)


@every_engine
async def test_a_run_ends_with_its_exit_code(rig: Any) -> None:
    for run_id, command, code in (("a.1", ("true",), 0), ("b.1", ("sh", "-c", "exit 3"), 3)):
        handle = await rig.start(run_id, *command)
        end = await rig.ended(handle)
        assert (end.ending, end.exit_code) == (Ending.EXITED, code)
        assert end.started_at <= end.ended_at <= datetime.now(UTC)
        assert end.started_at > datetime.now(UTC) - timedelta(seconds=2 * LIMIT_SECONDS)
        assert end.reason is not None


@with_rig("local", "slurm-22.05", "slurm-24.11")
async def test_a_run_that_is_halted_for_a_while_goes_on(rig: Any) -> None:
    """By its person, or by a Slurm that lets others go first."""
    handle = await rig.start("a.1", "sh", "-c", f"{HALTED}; echo on; exit 5")
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 5)
    assert rig.log("a.1").read_text() == "on\n"


@every_engine
async def test_a_handle_is_the_same_whenever_it_is_asked(rig: Any) -> None:
    assert rig.engine.handle(RunId("a.1")) == rig.engine.handle(RunId("a.1"))
    assert rig.engine.handle(RunId("a.1")) != rig.engine.handle(RunId("a.2"))


@every_engine
async def test_a_run_nobody_heard_of_is_unknown(rig: Any) -> None:
    handle = rig.engine.handle(RunId("never.1"))
    assert (await rig.observe(handle)).state is RunState.UNKNOWN
    await rig.engine.stop(handle, grace=SOON)
    await rig.engine.forget([handle])
    assert (await rig.observe(handle)).state is RunState.UNKNOWN


@every_engine
async def test_one_question_for_many_runs(rig: Any) -> None:
    launches = [rig.launch(f"many{n}.1", "true") for n in range(20)]
    asleep = rig.launch("asleep.1", "sleep", "1000")
    await rig.engine.start([*launches, asleep])
    for launch in launches:
        await rig.ended(launch.handle)
    await rig.observe(asleep.handle)  # that it has begun may be told later than that others have ended
    unknown = rig.engine.handle(RunId("unknown.1"))
    seen = await rig.engine.observe([*(launch.handle for launch in launches), asleep.handle, unknown])
    assert {seen[launch.handle].state for launch in launches} == {RunState.ENDED}
    assert seen[asleep.handle].state is RunState.RUNNING
    assert seen[asleep.handle].started_at is not None
    assert seen[unknown].state is RunState.UNKNOWN


@every_engine
async def test_starting_twice_is_one_run(rig: Any) -> None:
    first = rig.launch("twice.1", "sleep", "1000")
    await rig.engine.start([first])
    started_at = (await rig.observe(first.handle)).started_at
    await rig.engine.start([first, first])
    assert (await rig.observe(first.handle)).started_at == started_at
    await rig.engine.stop(first.handle, grace=NEVER)
    end = await rig.ended(first.handle)
    await rig.engine.start([first])
    assert await rig.observe(first.handle) == end


@every_engine
async def test_a_stopped_run_says_so(rig: Any) -> None:
    handle = await rig.start("stopped.1", "sleep", "1000")
    await rig.engine.stop(handle, grace=NEVER)
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, 143)
    await rig.engine.stop(handle, grace=SOON)
    assert await rig.observe(handle) == end


@every_engine
async def test_without_grace_a_run_is_killed(rig: Any) -> None:
    handle = await rig.start("killed.1", "sleep", "1000")
    await rig.engine.stop(handle, grace=timedelta())
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, 137)


@every_engine
async def test_who_does_not_listen_is_killed_after_grace(rig: Any) -> None:
    handle = await rig.start("deaf.1", "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done")
    await rig.until_logged("deaf.1", "deaf")
    await rig.engine.stop(handle, grace=SOON)
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, 137)


@every_engine
async def test_a_later_stop_hastens_an_earlier_one(rig: Any) -> None:
    handle = await rig.start("hasten.1", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
    await rig.engine.stop(handle, grace=NEVER, notice=Notice("USR1", NEVER))
    await rig.engine.stop(handle, grace=NEVER)
    await rig.engine.stop(handle, grace=SOON)
    assert (await rig.ended(handle)).ending is Ending.STOPPED


@every_engine
async def test_an_end_is_not_changed_by_a_stop(rig: Any) -> None:
    handle = await rig.start("done.1", "sh", "-c", "exit 5")
    end = await rig.ended(handle)
    await rig.engine.stop(handle, grace=timedelta())
    assert await rig.observe(handle) == end
    assert (end.ending, end.exit_code) == (Ending.EXITED, 5)


@every_engine
async def test_a_time_limit_is_kept(rig: Any) -> None:
    handle = await rig.start("late.1", "sleep", "1000", time_limit=SOON, grace=NEVER)
    end = await rig.ended(handle)
    assert end.ending is Ending.TIMED_OUT
    assert end.ended_at - end.started_at >= SOON - timedelta(milliseconds=20)


@every_engine
async def test_a_missing_command_is_explained(rig: Any) -> None:
    handle = await rig.start("missing.1", "no-such-command-here")
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.NOT_STARTED, 127)
    assert end.reason is not None
    assert "no-such-command-here" in end.reason.text


@every_engine
async def test_a_forgotten_run_is_unknown(rig: Any) -> None:
    ended, running = await rig.start("ended.1", "true"), await rig.start("running.1", "sleep", "1000")
    await rig.ended(ended)
    assert list(rig.engine.ended()) == [ended]
    await rig.engine.forget([ended, running])
    assert list(rig.engine.ended()) == []
    assert (await rig.observe(ended)).state is RunState.UNKNOWN
    assert (await rig.observe(running)).state is RunState.RUNNING
    await rig.restart()
    assert (await rig.observe(ended)).state is RunState.UNKNOWN


@every_engine
async def test_runs_go_on_without_the_server(rig: Any) -> None:
    asleep = await rig.start("asleep.1", "sleep", "1000")
    done = await rig.start("done.1", "sh", "-c", "exit 4")
    end = await rig.ended(done)
    before = await rig.observe(asleep)
    await rig.restart()
    assert await rig.observe(asleep) == before
    assert await rig.observe(done) == end
    await rig.engine.stop(asleep, grace=NEVER)
    assert (await rig.ended(asleep)).ending is Ending.STOPPED


@every_engine
async def test_a_run_of_an_earlier_boot_is_lost_and_not_begun_again(rig: Any) -> None:
    handle = rig.other_boot("old.1")
    await rig.engine.start([rig.launch("old.1", "sh", "-c", "exit 0", handle=handle)])
    await rig.engine.stop(handle, grace=SOON)
    seen = await rig.observe(handle)
    assert (seen.state, seen.ending, seen.exit_code) == (RunState.ENDED, Ending.LOST, None)
    assert seen.reason is not None
    assert "restarted" in seen.reason.text
    assert not rig.log("old.1").exists()


@every_engine
async def test_an_engine_out_of_reach_says_so_and_changes_nothing(rig: Any) -> None:
    handle = await rig.start("asleep.1", "sleep", "1000")
    launch = rig.launch("later.1", "true")
    await rig.go_down()
    for asked in (
        rig.engine.start([launch]),
        rig.engine.observe([handle]),
        rig.engine.stop(handle, grace=SOON),
        rig.engine.forget([handle]),
        rig.engine.shell(handle, ("true",), tty=False),
    ):
        with pytest.raises(EngineDown):
            await asked


@every_engine
async def test_the_inventory_lists_the_nodes(rig: Any) -> None:
    assert list(await rig.engine.inventory()) == list(rig.nodes)


@with_rig("local", "slurm-22.05", "slurm-24.11")
async def test_shared_memory_that_is_not_enforced_is_told(rig: Any) -> None:
    end = await rig.ended(await rig.start("a.1", "true", ask=Ask(shm_mib=8)))
    assert [note for note in end.notes if note.startswith("shared memory not enforced")]
    assert not (await rig.ended(await rig.start("b.1", "true"))).notes
