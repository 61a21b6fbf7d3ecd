"""What Danlu adds to Slurm: the way of a job into its queue, a tick over a long queue, and how often an idle controller
is asked. On a private cluster of Debian's Slurm, of the kind that the tests use."""

import asyncio
import gc
import json
import re
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from bench.figures import Figure, spread
from bench.place import Home, clean_environ
from bench.timing import round_robin, whole_run
from bench.wire import Wire
from danlu.engines.slurm.engine import SlurmEngine
from danlu.engines.slurm.kind import ABILITIES
from danlu.loops.dispatch import Dispatcher
from danlu.loops.launch import Launcher
from danlu.loops.schedule import Schedule
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache
from danlu.state.people import Roster
from danlu.state.snapshots import Outlook, Standing
from danlu.state.usage import Tally
from danlu.store.sql import SqlStore
from tests.slurm.cluster import SlurmCluster
from tests.slurm.layout import Layout
from tests.slurm.releases import slurm_release, why_missing

# Of a real cluster: jobs are started in moments, but nobody wakes up twice a second.
SETTINGS = {"MaxJobCount": "20000", "SchedulerParameters": "bf_interval=30,batch_sched_delay=3"}
PATIENCE_S = 900.0
SETTLES_S = 15.0  # so long a server that was just started looks more often
GRACE = timedelta(seconds=30)


def measure(quick: bool) -> list[Figure]:
    if missing := why_missing("22.05"):
        raise RuntimeError(f"not measured: {missing}")
    rounds, queued, watched_s = (5, 200, 10.0) if quick else (30, 10_000, 60.0)
    cluster = SlurmCluster(slurm_release("22.05"), Layout(settings=SETTINGS))
    try:
        with Home() as home:
            config = home.folder / "slurm.toml"
            config.write_text(f'[engine]\nkind = "slurm"\n[policy]\nwaiting_there = {queued + 1000}\n')
            home.environ |= cluster.environment
            home.up("--config", str(config))
            with Wire(home.socket) as wire:
                figures = [_idle(cluster, watched_s)]
                # Cards that stay held, so that what is submitted waits.
                holders = [wire.submit(["sleep", "100000"], gpus=4, time="3d") for _ in cluster.layout.names]
                _until(lambda: wire.ask("GET", "/status")["jobs"].get("RUNNING", 0) == len(holders), "they run")
                figures += _submits(cluster, home.folder, wire, rounds)
                wire.submit(["true"], gpus=4, time="1h", array=f"1-{queued}")
                _until(lambda: wire.ask("GET", "/status")["jobs"].get("PENDING", 0) >= queued, "all are in the queue")
            home.down()
            figures += asyncio.run(_ticks(cluster, home.folder, 3 if quick else 30, queued))
    finally:
        cluster.close()
    return figures


def _submits(cluster: SlurmCluster, folder: Path, wire: Wire, rounds: int) -> list[Figure]:
    """From the request until Slurm has answered with a number, beside `sbatch` from its start to its end."""
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    sbatch = [cluster.release.program("sbatch"), "--gres=gpu:4", "--time=60", "--parsable", str(script)]
    environ = clean_environ() | dict(cluster.environment)

    def danlu() -> float:
        begin = time.perf_counter()
        job_id = wire.submit(["true"], gpus=4, time="1h")
        record = folder / f"slurm/records/{job_id}.1.json"
        while not (record.exists() and json.loads(record.read_text())["number"]):
            time.sleep(0.0002)
        return time.perf_counter() - begin

    samples = round_robin({"sbatch": lambda: whole_run(sbatch, environ, folder), "danlu": danlu}, rounds, warm_up=2)
    plain, ours = median(samples["sbatch"]) * 1e3, median(samples["danlu"]) * 1e3
    return [
        Figure("plain sbatch", plain, "ms", note=spread(samples["sbatch"])),
        Figure(
            "from the request to Slurm's queue", ours, "ms", at_most=1.5 * plain + 20, note=spread(samples["danlu"]),
            limit=f"≤ 1.5 × sbatch + 20 ms = {1.5 * plain + 20:.0f} ms",
        ),
    ]  # fmt: skip


def _idle(cluster: SlurmCluster, watched_s: float) -> Figure:
    """What the controller is asked while nothing happens; its own nodes and this question do not count."""
    time.sleep(SETTLES_S)
    before, begin = _asked(cluster), time.perf_counter()
    time.sleep(watched_s)
    seconds = time.perf_counter() - begin
    asked = {name: count - before.get(name, 0) for name, count in _asked(cluster).items()}
    beside = ("REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS")
    ours = {name: count for name, count in asked.items() if count and name not in beside}
    note = ", ".join(f"{count} × {name}" for name, count in sorted(ours.items()))
    return Figure("requests to the controller of an idle cluster", sum(ours.values()) / seconds, "/s",
                  at_most=1 / 3, limit="≤ one in 3 s", note=note)  # fmt: skip


def _asked(cluster: SlurmCluster) -> dict[str, int]:
    said = cluster.ask("sdiag").partition("Remote Procedure Call statistics by message type")[2]
    by_type = said.partition("Remote Procedure Call statistics by user")[0]
    return {name: int(count) for name, count in re.findall(r"(\w+)\s+\(\s*\d+\) count:(\d+)", by_type)}


async def _ticks(cluster: SlurmCluster, folder: Path, rounds: int, queued: int) -> list[Figure]:
    """A look at Slurm and all that follows from it, beside one `squeue` of the same jobs."""
    store = SqlStore(f"sqlite:///{folder}/danlu.db")
    cache = JobCache(store, await store.open())
    engine = SlurmEngine(
        f"{folder}/slurm", conf=cluster.environment["SLURM_CONF"], commands_path=cluster.environment["PATH"]
    )
    roster = Roster(store, await store.people(), cache.changed.set)
    standing = Standing(roster, Tally(timedelta(days=7), (), datetime.now(UTC)), Inventory(), abilities=ABILITIES)
    launcher = Launcher(cache, str(folder), standing.inventory, engine.logs, as_submitter=False, grace=GRACE)
    schedule = Schedule(cache, Dispatcher(cache, engine, launcher, GRACE), Outlook(standing))
    await engine.open(cache.changed.set)
    await schedule.tick(datetime.now(UTC))
    if engine._watcher:
        engine._watcher.cancel()  # it would look in between, and every other look would wait for it
    gc.freeze()  # as the server does when it is up
    gc.set_threshold(20_000, 20, 50)
    environ = clean_environ() | dict(cluster.environment)
    ask = partial(subprocess.run, env=environ, capture_output=True, check=True)
    samples: dict[str, list[float]] = {"squeue": [], "calm": [], "moved": [], "squeue moved": []}
    for _ in range(rounds + 1):
        for what in ("calm", "moved"):
            if what == "moved":  # somebody comes
                await asyncio.to_thread(ask, ["sbatch", "--gres=gpu:4", "--time=60", "--wrap=true"])
            begin = time.perf_counter()
            await asyncio.to_thread(ask, ["squeue"])
            asked = time.perf_counter()
            await engine.poll()
            await schedule.tick(datetime.now(UTC))
            samples["squeue" if what == "calm" else "squeue moved"].append(asked - begin)
            samples[what].append(time.perf_counter() - asked)
    await engine.close()
    await store.close()
    figures = []
    for what, name, plain in (
        ("calm", "a tick over them, with its look at Slurm", "squeue"),
        ("moved", "the same after one more has come", "squeue moved"),
    ):
        ours, theirs = (median(samples[one][1:]) * 1e3 for one in (what, plain))
        if what == "calm":
            figures.append(Figure(f"squeue of {queued:,} jobs", theirs, "ms", note=spread(samples[plain][1:])))
        note = f"{spread(samples[what][1:])}; {ours / theirs:.2f} × squeue in the same rounds"
        figures.append(Figure(name, ours, "ms", at_most=1.2 * theirs, limit="≤ 1.2 × squeue", note=note))
    return figures


def _until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"waited in vain until {what}")
        time.sleep(0.2)
