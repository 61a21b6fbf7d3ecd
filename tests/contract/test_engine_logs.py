"""What every engine promises of the logs of its runs, wherever it keeps them."""

import asyncio
from typing import Any

from danlu.domain.job import RunId
from danlu.engines.base import GrowingLog, LogSource
from tests.contract.engine_rigs import LIMIT_SECONDS, with_rig

every_engine = with_rig("fake", "local", "local-uvloop", "slurm-22.05", "slurm-24.11")


async def followed(log: LogSource) -> GrowingLog:
    """The log, once there is one."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while (growing := await log.follow()) is None:
            await asyncio.sleep(0.01)
    return growing


async def read_until(growing: GrowingLog, wanted: bytes, offset: int = 0) -> None:
    """Read on at each growth, as a follower does."""
    seen = b""
    async with asyncio.timeout(LIMIT_SECONDS):
        while seen != wanted:
            growth = growing.growth()
            if data := await growing.read(offset + len(seen)):
                seen += data
                assert wanted.startswith(seen)
            else:
                await growth


@every_engine
async def test_a_run_that_has_not_begun_has_no_log(rig: Any) -> None:
    log: LogSource = rig.engine.logs(RunId("never.1"))
    assert await log.size() is None
    assert await log.start_of_tail(10) == 0
    assert await log.follow() is None
    await log.remove()


@every_engine
async def test_a_log_is_followed_as_it_grows_until_its_run_has_ended(rig: Any) -> None:
    log: LogSource = rig.engine.logs(RunId("talks.1"))
    handle = await rig.start_talker("talks.1")
    growing = await followed(log)
    await read_until(growing, b"first\n")
    assert await log.size() == 6
    rig.go_on("talks.1")
    await read_until(growing, b"second\n", offset=6)
    await rig.ended(handle)
    assert await growing.read(13) == b"", "that was all"
    growing.close()


@every_engine
async def test_a_log_is_read_in_ranges_and_from_its_last_lines(rig: Any) -> None:
    log: LogSource = rig.engine.logs(RunId("talks.1"))
    handle = await rig.start_talker("talks.1")
    rig.go_on("talks.1")
    await rig.ended(handle)
    await read_until(growing := await followed(log), b"first\nsecond\n")
    growing.close()
    assert await log.size() == 13
    for (offset, length), expected in {
        (0, 13): b"first\nsecond\n",
        (2, 6): b"rst\nse",
        (10, 100): b"nd\n",
        (13, 5): b"",
        (0, 0): b"",
    }.items():
        assert b"".join([data async for data in log.read(offset, length)]) == expected
    assert [await log.start_of_tail(lines) for lines in (0, 1, 2, 3)] == [13, 6, 0, 0]


@every_engine
async def test_a_log_outlives_the_server_and_is_gone_once_it_is_removed(rig: Any) -> None:
    handle = await rig.start_talker("talks.1")
    rig.go_on("talks.1")
    await rig.ended(handle)
    await rig.restart()
    log: LogSource = rig.engine.logs(RunId("talks.1"))
    growing = await followed(log)
    await read_until(growing, b"first\nsecond\n")
    await log.remove()
    assert await growing.read(13) == b"", "a follower meets the end"
    growing.close()
    assert await log.size() is None
    assert await log.follow() is None
    await log.remove()


@every_engine
async def test_a_log_can_be_watched_before_its_run_begins(rig: Any) -> None:
    log: LogSource = rig.engine.logs(RunId("talks.1"))
    await log.prepare()
    growing = await followed(log)
    assert (await log.size(), await growing.read(0)) == (0, b"")
    handle = await rig.start_talker("talks.1")
    await read_until(growing, b"first\n")
    rig.go_on("talks.1")
    await rig.ended(handle)
    growing.close()
