"""The whole server in this process, on a fake engine and a real SQLite store, behind an in-process HTTP client."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from danlu.actions.jobs.references import engine_ids
from danlu.actions.jobs.submit import Rules
from danlu.actions.people.context import PeopleContext, PeopleRules
from danlu.api.app import make_app
from danlu.api.auth import Desk
from danlu.domain.queue import Queue
from danlu.domain.resources import Node
from danlu.engines.log_files import LogFiles
from danlu.loops.dispatch import Dispatcher
from danlu.loops.external_usage import in_books
from danlu.loops.launch import Launcher
from danlu.loops.schedule import Schedule
from danlu.provision.paths import log_path_of
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache
from danlu.state.people import Roster
from danlu.state.snapshots import Outlook, Standing
from danlu.state.usage import Tally
from danlu.store.sql import SqlStore
from danlu.unix.patient_folder import PatientFolder
from tests.builders import node
from tests.fakes.engine import FakeEngine

BASE = "/api/v1"


@dataclass
class Rig:
    desk: Desk
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
        path = log_path_of(self.desk.state_dir, run_id)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as log:
            log.write(data)

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
    **node_options: Any,
) -> AsyncIterator[Rig]:
    """One node `desk`, or the given ones; or an engine that brings its own."""
    nodes = engine.nodes if engine else tuple(nodes) or (node("desk", **({"gpus": 2, "cpus": 4} | node_options)),)
    store = SqlStore(f"sqlite:///{folder}/danlu.db")
    engine = engine or FakeEngine(nodes)
    cache = JobCache(store, await store.open(), engine_ids(engine))
    roster = Roster(store, await store.people(), cache.changed.set)
    files = LogFiles(PatientFolder(str(folder)) if far_logs else None)
    inventory = Inventory(nodes, queues, is_known=not engine.has_scheduler)
    launcher = Launcher(cache, str(folder), inventory, as_submitter=False, grace=timedelta(seconds=30))
    half_life, now = timedelta(days=7), datetime.now(UTC)
    charges = await store.charges(Tally.since(half_life, now), with_gpus=True)
    tally = Tally(half_life, charges, now)
    outlook = Outlook(Standing(roster, tally, inventory, engine_places=engine.has_scheduler))
    dispatcher = Dispatcher(cache, engine, launcher, timedelta(seconds=30))
    schedule = Schedule(cache, dispatcher, outlook, others=in_books(charges, now))
    await engine.open(cache.changed.set)
    loop = asyncio.create_task(schedule.run())
    stops: list[bool] = []
    desk = Desk(
        cache=cache,
        engine=engine,
        files=files,
        outlook=schedule.outlook,
        rules=Rules(inventory, runs_on_many=engine.has_scheduler),
        roster=roster,
        context=PeopleContext(roster, store, PeopleRules()),
        state_dir=str(folder),
        files_dir=str(folder),
        addresses=("unix:///test",),
        trouble=lambda: schedule.trouble,
        stop_server=lambda: stops.append(True),
    )
    try:
        yield Rig(desk, engine, schedule, stops)
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        files.close()
        await store.close()


def on_rig(scenario: Callable[[Rig], Awaitable[None]], folder: Path, **options: Any) -> None:
    """Run a scenario to its end."""

    async def play() -> None:
        async with rig(folder, **options) as made:
            await scenario(made)

    asyncio.run(play())
