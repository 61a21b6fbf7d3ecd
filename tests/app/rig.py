"""The whole server in this process, on a fake engine and a real SQLite store, behind an in-process HTTP client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from danlu.actions.installation import Installation
from danlu.api.app import make_app
from danlu.assembly import assembled
from danlu.config.settings import Settings
from danlu.domain.queue import Queue
from danlu.domain.resources import Node
from danlu.engines.log_files import LogFiles
from danlu.loops.schedule import Schedule
from danlu.startup.process import Place
from danlu.state.inventory import Inventory
from danlu.store.sql import SqlStore
from danlu.unix.patient_folder import PATIENCE_S, PatientFolder
from tests.builders import node
from tests.fakes.engine import FakeEngine

BASE = "/api/v1"


@dataclass
class Rig:
    desk: Installation
    engine: FakeEngine
    schedule: Schedule
    stops: list[bool] = field(default_factory=list)

    def client(self, uid: int | None = None, token: str = "") -> httpx.AsyncClient:
        """Somebody who comes through the Unix socket as `uid`, or over the network with a token."""
        address = (f"uid:{uid}", 0) if uid is not None else ("203.0.113.7", 4711)
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(make_app(self.desk), client=address),
            base_url=f"http://danlu{BASE}",
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    def write_log(self, run_id: str, data: bytes) -> None:
        self.engine.write_log(run_id, data)

    async def until(self, ready: Callable[[], Any], seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not ready():
                await asyncio.sleep(0.002)

    async def state(self, client: httpx.AsyncClient, ref: str, wanted: str) -> dict[str, Any]:
        """The job once it is in this state."""
        async with asyncio.timeout(20):
            while True:
                job: dict[str, Any] = (await client.get(f"/jobs/{ref}")).json()
                if job["state"] == wanted:
                    return job
                await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def rig(
    folder: Path,
    *,
    nodes: Sequence[Node] = (),
    queues: Mapping[str, Queue] | None = None,
    engine: FakeEngine | None = None,
    far_logs: bool = False,
    far_patience_s: float = PATIENCE_S,
    **node_options: Any,
) -> AsyncIterator[Rig]:
    """One node `desk`, or the given ones; or an engine that brings its own."""
    nodes = engine.nodes if engine else tuple(nodes) or (node("desk", **({"gpus": 2, "cpus": 4} | node_options)),)
    engine = engine or FakeEngine(nodes)
    if far_logs:
        engine.files = LogFiles(f"{folder}/logs", PatientFolder(str(folder), patience_s=far_patience_s))
    inventory = Inventory(nodes, queues, is_known=not engine.abilities.live_nodes)
    store = SqlStore(f"sqlite:///{folder}/danlu.db")
    place = Place(str(folder), own_socket="/test")
    stops: list[bool] = []
    stop = partial(stops.append, True)
    async with assembled(Settings(), place, store, engine, inventory, stop) as (desk, schedule):
        yield Rig(desk, engine, schedule, stops)


def on_rig(scenario: Callable[[Rig], Awaitable[None]], folder: Path, **options: Any) -> None:
    """Run a scenario to its end."""

    async def play() -> None:
        async with rig(folder, **options) as made:
            await scenario(made)

    asyncio.run(play())
