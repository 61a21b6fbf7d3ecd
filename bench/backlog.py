"""Many waiting jobs: how long a server takes to load them, and how long others wait beside the largest array.

`python -m bench.backlog FOLDER COUNT` makes a home with so many waiting jobs, half of them in arrays."""

import asyncio
import getpass
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from subprocess import run

from bench.figures import Figure
from bench.place import PYTHON, ROOT, Home, clean_environ
from bench.wire import Wire
from danlu.domain.job import Job, JobId, JobSpec
from danlu.domain.parsing import MAX_ARRAY_TASKS
from danlu.domain.resources import Ask
from danlu.store.sql import SqlStore

LOADED_S, BESIDE_S = 20.0, 1.0
AT_ONCE = 10_000


def measure(quick: bool) -> list[Figure]:
    count, tasks = (20_000, 1000) if quick else (1_000_000, MAX_ARRAY_TASKS)
    loaded = _loaded(count)
    inserted, beside = _beside(tasks)
    return [
        Figure(f"start with {count:,} waiting jobs", loaded, "s", at_most=LOADED_S),
        Figure(f"submit of an array of {tasks:,}", inserted, "s"),
        Figure("submits of one job beside it, the slowest", beside, "s", at_most=BESIDE_S),
    ]


def _loaded(count: int) -> float:
    with tempfile.TemporaryDirectory(prefix="danlu-bench-") as folder:
        argv = [PYTHON, "-m", "bench.backlog", folder, str(count)]
        run(argv, cwd=ROOT, env=clean_environ(), check=True)
        begin = time.perf_counter()
        with Home(Path(folder)).up():
            return time.perf_counter() - begin


def _beside(tasks: int) -> tuple[float, float]:
    """All behind a job that sleeps, so that only the writing is measured."""
    with Home().up() as home, Wire(home.socket) as wire, Wire(home.socket) as other:
        first = wire.submit(["sleep", "600"])
        inserted: list[float] = []

        def insert() -> None:
            begin = time.perf_counter()
            wire.submit(["true"], array=f"1-{tasks}", after=[first])
            inserted.append(time.perf_counter() - begin)

        thread, slowest = threading.Thread(target=insert), 0.0
        thread.start()
        while thread.is_alive():
            begin = time.perf_counter()
            other.submit(["true"], after=[first])
            slowest = max(slowest, time.perf_counter() - begin)
        other.ask("POST", f"/jobs/{first}/stop", {"kill": True})
        return inserted[0], slowest


async def make_backlog(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    store = SqlStore(f"sqlite:///{folder}/danlu.db")
    await store.open()
    for jobs in _waiting(count):
        await store.insert(jobs)
    await store.close()


def _waiting(count: int) -> Iterator[list[Job]]:
    """By turns an array and as many single jobs, which ask for a card that the machine does not have."""
    user, now = getpass.getuser(), datetime.now(UTC)
    for number in range(count // AT_ONCE):
        spec = JobSpec(("python", "train.py", "--seed", str(number)), "/", ask=Ask(gpus=1), name=f"train-{number}")
        key, is_array = f"b{number:05}", number % 2 == 0
        yield [
            Job(JobId(f"{key}_{index}"), user, spec, now, array_id=key, array_index=index)
            if is_array
            else Job(JobId(f"{key}x{index}"), user, spec, now)
            for index in range(AT_ONCE)
        ]


if __name__ == "__main__":
    asyncio.run(make_backlog(Path(sys.argv[1]), int(sys.argv[2])))
