"""Scheduling goes on whatever people hold up; and if it does not, monitoring learns it."""

import asyncio
import threading
from pathlib import Path

import pytest

from danlu.loops import schedule
from tests.app.rig import Rig, on_rig

BODY = {"command": ["true"], "workdir": "/"}


def test_a_full_default_pool_holds_up_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of long queues are made in a thread. People's requests use the default threads."""
    monkeypatch.setattr(schedule, "THINKS_APART", 0)

    async def scenario(rig: Rig) -> None:
        held = threading.Event()
        loop = asyncio.get_running_loop()
        waiting = [loop.run_in_executor(None, held.wait, 60) for _ in range(64)]
        try:
            made = (await rig.client(0).post("/jobs", json=BODY)).json()
            await rig.until(lambda: rig.desk.cache.active_jobs.jobs[made["id"]].state != "QUEUED")
        finally:
            held.set()
            await asyncio.gather(*waiting)

    on_rig(scenario, tmp_path)


def test_a_tick_that_does_not_end_is_told_to_people_and_to_monitoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        stranger, owner = rig.client(), rig.client(0)
        healthy = await stranger.get("http://danlu/healthz")
        assert (healthy.status_code, healthy.json()) == (200, {"ok": True, "code": None})

        stuck = asyncio.Event()

        async def tick(now: object) -> None:
            stuck.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(rig.schedule, "tick", tick)
        rig.schedule.late_s = 0.05
        rig.desk.cache.changed.set()
        await stuck.wait()
        await rig.until(lambda: rig.schedule.trouble)
        sick = await stranger.get("http://danlu/healthz")
        assert (sick.status_code, sick.json()) == (503, {"ok": False, "code": "scheduler_late"})
        assert "scheduler has not moved" in (await owner.get("/status")).json()["trouble"]

    on_rig(scenario, tmp_path)
