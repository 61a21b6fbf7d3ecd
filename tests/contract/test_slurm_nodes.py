"""Runs on several nodes of a real Slurm: the ranks find each other, live and end together, and one word tells how."""

import asyncio
import sys
from collections import Counter
from datetime import timedelta
from functools import cache
from typing import Any

from danlu.domain.parsing import Notice
from danlu.domain.resources import MEETING_PORTS, Ask
from danlu.engines.base import Ending, RunState
from tests.contract.engine_rigs import HALTED, LIMIT_SECONDS, NEVER, RIGS, living, with_rig
from tests.contract.slurm_rig import SlurmRig
from tests.contract.test_engine_slurm import STRANGER, until
from tests.slurm.cluster import SlurmCluster, slurm_cluster
from tests.slurm.layout import Layout

older = with_rig("slurm-22.05")
impatient = with_rig("slurm-22.05-impatient")  # for lost nodes
with_cgroups = with_rig("slurm-22.05-cgroups")  # where Slurm signals only the process that it started
both_versions = with_rig("slurm-22.05", "slurm-24.11")
TWO = Ask(nodes=2)


@cache
def _cluster_with_cgroups() -> SlurmCluster:
    return slurm_cluster("22.05", Layout(settings={"ProctrackType": "proctrack/cgroup"}))


RIGS["slurm-22.05-cgroups"] = lambda folder: SlurmRig(folder, "22.05", _cluster_with_cgroups())


async def until_said(rig: Any, run_id: str, word: str, times: int = 2) -> None:
    log = rig.log(run_id)
    await rig.until(lambda: log.exists() and log.read_text().split().count(word) == times)


def said(rig: Any, run_id: str) -> Counter[str]:
    return Counter(rig.log(run_id).read_text().split())


@both_versions
async def test_every_rank_knows_its_place(rig: Any) -> None:
    names = ("RANK", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "NNODES", "MASTER_ADDR", "MASTER_PORT", "DANLU_NODE")
    # The submitter's own values would lead the ranks elsewhere.
    env = {**rig.launch("x.1", "true").env, "MASTER_ADDR": "elsewhere", "RANK": "7"}
    handle = await rig.start("env.1", "sh", "-c", f"echo {' '.join(f'${name}' for name in names)}", ask=TWO, env=env)
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    lines = sorted(rig.log("env.1").read_text().splitlines())
    found = [dict(zip(names, line.split(), strict=True)) for line in lines]
    ports = {one.pop("MASTER_PORT") for one in found}
    same = {"LOCAL_RANK": "0", "WORLD_SIZE": "2", "NNODES": "2", "MASTER_ADDR": "gn1"}
    assert found == [
        {"RANK": "0", "NODE_RANK": "0", "DANLU_NODE": "gn1", **same},
        {"RANK": "1", "NODE_RANK": "1", "DANLU_NODE": "gn2", **same},
    ]
    assert len(ports) == 1
    assert int(ports.pop()) in MEETING_PORTS


@older
async def test_one_node_is_no_rank_of_several(rig: Any) -> None:
    """The line for torchrun works; but a plain script is not told that it is a part of something."""
    script = "echo $MASTER_ADDR $NNODES $NODE_RANK [$RANK$LOCAL_RANK$WORLD_SIZE] $((MASTER_PORT - OWN))"
    env = {**rig.launch("x.1", "true").env, "OWN": "4000", "MASTER_PORT": "4001"}
    handle = await rig.start("one.1", "sh", "-c", script, env=env)
    await rig.ended(handle)
    assert rig.log("one.1").read_text() == "127.0.0.1 1 0 [] 1\n"


@both_versions
async def test_every_node_gives_its_cards(rig: Any) -> None:
    script = "echo $DANLU_NODE=$CUDA_VISIBLE_DEVICES; echo ready; sleep 1000"
    whole = await rig.start("w.1", "sh", "-c", script, ask=Ask(gpus=2, nodes=2, cpus=3))
    part = await rig.start("p.1", "sh", "-c", script, ask=Ask(shards=16, nodes=2))
    for run_id, handle in (("w.1", whole), ("p.1", part)):
        await until_said(rig, run_id, "ready")
        seats = (await rig.observe(handle)).seats
        assert [seat.node for seat in seats] == ["gn1", "gn2"]
        for seat in seats:
            cards = seat.gpus if seat.shared_gpu is None else (seat.shared_gpu,)
            assert (len(seat.gpus), seat.cpus) == (2, 3) if run_id == "w.1" else (seat.shards == 16)
            assert said(rig, run_id)[f"{seat.node}={','.join(map(str, cards))}"] == 1
    assert len(said(rig, "w.1")) == len(said(rig, "p.1")) == 3


@older
async def test_every_rank_is_its_users(rig: Any) -> None:
    handle = await rig.start("user.1", "sh", "-c", 'id -un; echo "$0" >&2; umask', "odd  'word", ask=TWO, user=STRANGER)
    assert (await rig.ended(handle)).exit_code == 0
    assert sorted(rig.log("user.1").read_text().splitlines()) == 2 * ["0022"] + 2 * [STRANGER] + 2 * ["odd  'word"]


@both_versions
async def test_a_rank_that_fails_ends_the_others(rig: Any) -> None:
    fails = "while [ ! -e up ]; do sleep 0.05; done; exit 3"
    script = f'trap "echo asked; exit 9" TERM; echo ready; [ $RANK = 0 ] || {{ {fails}; }}; touch up; sleep 1000 & wait'
    end = await rig.ended(await rig.start("fails.1", "sh", "-c", script, ask=TWO, grace=NEVER))
    assert (end.ending, end.exit_code) == (Ending.EXITED, 3)
    assert end.reason.text == "exited with code 3 (rank 1 on gn2)"
    assert said(rig, "fails.1") == {"ready": 2, "asked": 1}


@older
async def test_a_rank_that_is_done_waits_for_the_others(rig: Any) -> None:
    waits = "while [ ! -e first ]; do sleep 0.05; done; sleep 1"
    script = f"[ $RANK = 0 ] || {{ {waits}; }}; echo done $RANK; touch first"
    end = await rig.ended(await rig.start("done.1", "sh", "-c", script, ask=TWO))
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    assert rig.log("done.1").read_text() == "done 0\ndone 1\n"


@both_versions
async def test_a_stop_gives_every_rank_its_notice_and_its_time(rig: Any) -> None:
    """One is quick, and ends without success: the other writes its checkpoint all the same."""
    quick, slow = "echo saved; exit 1", "sleep 2; echo saved; exit 0"
    script = f"[ $RANK = 0 ] && trap '{slow}' USR1 || trap '{quick}' USR1; echo ready; while :; do sleep 0.05; done"
    handle = await rig.start("stop.1", "sh", "-c", script, ask=TWO)
    await until_said(rig, "stop.1", "ready")
    await rig.engine.stop(handle, grace=NEVER, notice=Notice("USR1", NEVER))
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code, end.reason.text) == (Ending.STOPPED, 1, "stopped on request")
    assert said(rig, "stop.1") == {"ready": 2, "saved": 2}


@both_versions
async def test_nothing_is_left_on_any_node(rig: Any) -> None:
    marker = f"marker-{rig.folder.name}"
    script = f"trap '' TERM; sh -c 'trap : TERM; sleep 1000; :' {marker} & echo ready; while :; do sleep 0.05; done"
    handle = await rig.start("tree.1", "sh", "-c", script, ask=TWO)
    await until_said(rig, "tree.1", "ready")
    await rig.until(lambda: len(list(living(marker))) == 2)
    await rig.engine.stop(handle, grace=timedelta(seconds=1))
    end = await rig.ended(handle)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, 137)
    await rig.until(lambda: not list(living(marker)))


@older
async def test_a_time_limit_holds_while_the_controller_is_away(rig: Any) -> None:
    script = "trap 'echo warned' USR1; trap 'echo told; exit 4' TERM; echo ready; while :; do sleep 0.05; done"
    notice = Notice("USR1", timedelta(seconds=2))
    limit = timedelta(seconds=10)
    handle = await rig.start("limit.1", "sh", "-c", script, ask=TWO, time_limit=limit, notice=notice, grace=NEVER)
    await until_said(rig, "limit.1", "ready")
    rig.cluster.stop_controller()
    await until_said(rig, "limit.1", "told")
    rig.cluster.start_controller()

    async def has_ended() -> Any:
        seen = (await rig.engine.observe([handle])).get(handle)
        return seen if seen and seen.state is RunState.ENDED else None

    end = await until(has_ended)
    assert (end.ending, end.exit_code) == (Ending.TIMED_OUT, 4)
    assert (said(rig, "limit.1")["warned"], said(rig, "limit.1")["told"]) == (2, 2)


@both_versions
async def test_a_command_that_is_missing_was_not_started(rig: Any) -> None:
    end = await rig.ended(await rig.start("none.1", "no-such-command", ask=TWO))
    assert (end.ending, end.exit_code) == (Ending.NOT_STARTED, 127)
    assert end.reason.text == "command not found on the job's PATH: no-such-command"


@both_versions
async def test_a_shell_enters_the_first_node(rig: Any) -> None:
    handle = await rig.start("in.1", "sh", "-c", "echo ready; sleep 1000", ask=Ask(nodes=2, gpus=1, memory_mib=500))
    await until_said(rig, "in.1", "ready")
    stream = await rig.engine.shell(handle, ("sh", "-c", "echo $DANLU_NODE $CUDA_VISIBLE_DEVICES"), tty=False)
    heard = b""
    async with asyncio.timeout(LIMIT_SECONDS):
        while (part := await stream.read()) is not None:
            heard += part[1]
    await stream.close()
    assert heard == b"gn1 0\n"


# A peer that is gone: rank 0 sees its connection closed, as every training does, and fails of it.
_PEERS = """
import os, socket, sys, time
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    peer, _ = socket.create_server(at).accept()
else:
    while True:
        try:
            peer = socket.create_connection(at)
            break
        except OSError:
            time.sleep(0.05)
print("connected", flush=True)
peer.recv(1)
sys.exit(1)
"""


@impatient
async def test_a_run_that_loses_a_node_begins_again(rig: Any) -> None:
    handle = await rig.start("lost.1", sys.executable, "-c", _PEERS, ask=TWO)
    await until_said(rig, "lost.1", "connected")
    rig.cluster.cut_power("gn2")

    async def waits() -> bool:
        seen = (await rig.engine.observe([handle])).get(handle)
        assert seen is None or seen.state is not RunState.ENDED, seen
        return seen is not None and seen.state is RunState.PENDING

    await until(waits)
    rig.cluster.start_node("gn2")

    async def runs_again() -> Any:
        seen = (await rig.engine.observe([handle])).get(handle)
        assert seen is None or seen.state is not RunState.ENDED, seen
        return seen if seen and seen.state is RunState.RUNNING and seen.attempt == 2 else None

    assert [seat.node for seat in (await until(runs_again)).seats] == ["gn1", "gn2"]
    await until_said(rig, "lost.1", "connected", 4)


@with_cgroups
async def test_slurm_itself_ends_a_run_politely(rig: Any) -> None:
    """`scancel`, a preemption, a requeue: the command is told, wherever Slurm stops telling."""
    script = "trap 'echo told; exit 6' TERM; echo ready; while :; do sleep 0.05; done"
    for run_id, ask in (("one.1", Ask()), ("two.1", TWO)):
        handle = await rig.start(run_id, "sh", "-c", script, ask=ask)
        await until_said(rig, run_id, "ready", ask.nodes)
        rig.cluster.ask("scancel", rig.engine.name_of(handle).removeprefix("slurm:"))
        await rig.ended(handle)
        assert said(rig, run_id)["told"] == ask.nodes


@older
async def test_ranks_that_are_halted_for_a_while_go_on(rig: Any) -> None:
    handle = await rig.start("a.1", "sh", "-c", f"{HALTED}; echo on", ask=TWO)
    assert (await rig.ended(handle)).exit_code == 0
    assert said(rig, "a.1") == {"on": 2}


@older
async def test_a_notice_goes_only_to_those_who_catch_it(rig: Any) -> None:
    """A plain shell around a training does not die of the training's notice; what nobody catches is noted."""
    inner = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    for run_id, ask in (("one.1", Ask()), ("two.1", TWO)):
        handle = await rig.start(run_id, "sh", "-c", 'sh -c "$0"; echo after', inner, ask=ask)
        await until_said(rig, run_id, "ready", ask.nodes)
        await rig.engine.stop(handle, grace=NEVER, notice=Notice("USR1", NEVER))
        end = await rig.ended(handle)
        assert (end.exit_code, end.notes) == (0, ())
        assert said(rig, run_id) == dict.fromkeys(("ready", "saved", "after"), ask.nodes)
    handle = await rig.start("deaf.1", "sh", "-c", "echo ready; sleep 1000")
    await until_said(rig, "deaf.1", "ready", 1)
    await rig.engine.stop(handle, grace=NEVER, notice=Notice("USR1", timedelta(milliseconds=200)))
    end = await rig.ended(handle)
    assert (end.exit_code, end.notes) == (143, ("notice USR1 was not sent: none of its processes catches it",))
