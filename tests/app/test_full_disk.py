"""A database without room: what frees the room works all the same."""

from pathlib import Path
from typing import Any

import pytest

from danlu.domain.job import RunId
from danlu.errors import StoreDown
from tests.app.rig import Rig, on_rig

BODY = {"command": ["yes"], "workdir": "/"}


async def no_room(*_: Any, **__: Any) -> None:
    raise StoreDown("no room to write the database")


def test_a_job_can_be_stopped_though_that_cannot_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        job = (await client.post("/jobs", json=BODY)).json()["id"]
        await rig.state(client, job, "RUNNING")
        with monkeypatch.context() as full:
            full.setattr(rig.desk.cache.store, "update", no_room)
            answer = await client.post(f"/jobs/{job}/stop", json={})
            assert answer.status_code == 503
            assert "what runs was asked to end all the same" in answer.json()["detail"]
            assert [handle for handle, *_ in rig.engine.stops] == [rig.engine.handle(RunId(f"{job}.1"))]
        rig.desk.cache.changed.set()
        ended = await rig.state(client, job, "CANCELLED")
        assert ended["reason"]["code"] == "stopped"

    on_rig(scenario, tmp_path)


def test_the_server_can_be_stopped_though_that_cannot_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        monkeypatch.setattr("danlu.api.routes.server.note_server_stop", no_room)
        assert (await rig.client(0).post("/server/stop")).status_code == 200
        assert rig.stops == [True]

    on_rig(scenario, tmp_path)
