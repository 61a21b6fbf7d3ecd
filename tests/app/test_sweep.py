"""Snapshots through REST: how much one person keeps, and what goes once no job needs it."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from danlu.loops.sweep import Sweeper
from tests.app.rig import Rig, on_rig
from tests.app.test_jobs import ROOT, submit


async def upload(client: httpx.AsyncClient, content: bytes) -> str:
    sha = hashlib.sha256(content).hexdigest()
    told = (await client.post("/snapshots", json={"files": [["a.py", 0o100644, len(content), sha]]})).json()
    for missing in told["missing"]:
        assert (await client.put(f"/blobs/{missing}", content=content)).status_code == 204
    return str(told["id"])


def test_the_limit_of_a_person_is_told_with_its_numbers(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.desk = replace(rig.desk, rules=replace(rig.desk.rules, shelf_limit_bytes=1 << 20))
        client, content = rig.client(ROOT), b"x" * (1 << 20)
        sha = hashlib.sha256(content).hexdigest()
        files = [["a.py", 0o100644, len(content), sha]]
        for answer in (
            await client.post("/snapshots", json={"files": files}),
            await client.put(f"/blobs/{sha}", content=content + b"x"),
        ):
            said: dict[str, Any] = answer.json()
            assert (answer.status_code, said["code"]) == (409, "snapshots_full")
            assert "limit of 1 MiB" in said["detail"]
            assert "danlu rm" in said["hint"]
        await upload(client, b"small")

    on_rig(scenario, tmp_path)


def test_a_snapshot_goes_with_the_last_job_that_needs_it(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        asked: list[bool] = []
        rig.desk = replace(rig.desk, rules=replace(rig.desk.rules, sweep_soon=lambda: asked.append(True)))
        client, sweeper = rig.client(ROOT), Sweeper(rig.desk.cache.store, rig.desk.rules.files_dir)
        snapshot = await upload(client, b"print(1)")
        ids = [(await submit(client, snapshot=snapshot))["id"] for _ in range(2)]
        for job_id in ids:
            await rig.state(client, job_id, "RUNNING")
            rig.engine.finish(f"{job_id}.1", 0)
            await rig.state(client, job_id, "SUCCEEDED")
        in_two_days = datetime.now(UTC) + timedelta(days=2)

        async def is_kept() -> bool:
            await sweeper.sweep(in_two_days)
            return any(path.is_file() for path in (tmp_path / "snapshots").rglob("*"))

        assert await is_kept()
        await client.delete(f"/jobs/{ids[0]}")
        assert await is_kept()
        await client.delete(f"/jobs/{ids[1]}")
        await sweeper.sweep(datetime.now(UTC))
        assert len(asked) == 2
        assert await upload(client, b"print(1)") == snapshot, "for a day it can be used again"
        assert not await is_kept()
        refused = await client.post("/jobs", json={"command": ["true"], "workdir": "/", "snapshot": snapshot})
        assert refused.status_code == 404
        assert await upload(client, b"print(1)") == snapshot
        await submit(client, snapshot=snapshot)

    on_rig(scenario, tmp_path)
