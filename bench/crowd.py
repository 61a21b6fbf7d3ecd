"""Submits to a crowded installation: 10,000 queued jobs of 200 people in 20 teams with quotas. Each submit makes the
server think about the whole queue again, so that the next one comes while it thinks.

`python -m bench.crowd FOLDER COUNT` fills the database of a stopped server."""

import asyncio
import random
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles

from bench.figures import Figure, spread
from bench.place import PYTHON, ROOT, Home, clean_environ
from bench.wire import Wire
from danlu.domain.job import Job, JobId, JobSpec
from danlu.domain.people import Membership, Person, Team
from danlu.domain.quota import Quota, team_key, user_key
from danlu.domain.resources import Ask
from danlu.store.people_protocol import Limit, Member, PeopleChange
from danlu.store.sql import SqlStore

PEOPLE, TEAMS, NODES, CARDS = 200, 20, 60, 8
AT_MOST_MS = 20.0
CONFIG = f"""
[[nodes]]
name = "n[1-{NODES}]"
gpus = "{CARDS}xRTX3090"
cpus = 64
memory = "256G"

[[queues]]
name = "train"
default = true
"""


def measure(quick: bool) -> list[Figure]:
    queued, rounds = (1_000, 20) if quick else (10_000, 200)
    with Home() as home:
        config = home.folder / "crowd.toml"
        config.write_text(CONFIG)
        home.up("--config", str(config), "--fake")
        with Wire(home.socket) as wire:
            state_dir = wire.ask("GET", "/status")["state_dir"]
            # Cards that stay held, so that everybody waits.
            for _ in range(NODES):
                wire.submit(["sleep", "100000"], gpus=CARDS, time="3d")
        home.down()
        argv = [PYTHON, "-m", "bench.crowd", state_dir, str(queued)]
        subprocess.run(argv, cwd=ROOT, env=clean_environ(), check=True)
        home.up("--config", str(config), "--fake")
        with Wire(home.socket) as wire:
            samples = [_submit(wire) for _ in range(rounds)]
            holders = [job["id"] for job in wire.ask("GET", "/jobs?state=RUNNING&limit=1000")["items"]]
            for job_id in holders:
                wire.ask("POST", f"/jobs/{job_id}/stop?how=kill")
            for job_id in holders:
                wire.wait(job_id)
    what = f"a submit among {queued:,} queued jobs of {PEOPLE} people"
    late = quantiles(samples, n=20)[-1] * 1e3
    return [
        Figure(what, median(samples) * 1e3, "ms", at_most=AT_MOST_MS, note=spread(samples)),
        Figure("… 95 of 100 within", late, "ms", at_most=AT_MOST_MS),
    ]


def _submit(wire: Wire) -> float:
    begin = time.perf_counter()
    wire.submit(["true"], gpus=2, time="1h")
    return time.perf_counter() - begin


async def fill(folder: Path, count: int) -> None:
    store = SqlStore(f"sqlite:///{folder}/danlu.db")
    await store.open()
    rng, now = random.Random(1), datetime.now(UTC)
    teams = [f"team{number}" for number in range(TEAMS)]
    users = [f"user{number}" for number in range(PEOPLE)]
    changes: list[PeopleChange] = [Team(team, now) for team in teams]
    changes += [Limit(team_key(team), Quota(gpus=rng.choice((16, 32, 64)), borrow=True)) for team in teams]
    for number, user in enumerate(users):
        team = teams[number % TEAMS]
        changes += [Person(user, now), Member(user, team, Membership(team))]
        changes += [Limit(user_key(user), Quota(gpus=16, jobs=50))]
    await store.record(changes)
    jobs = []
    for number in range(count):
        whose = rng.randrange(PEOPLE)
        spec = JobSpec(
            ("python", "train.py"),
            "/tmp",
            Ask(gpus=rng.choice((1, 1, 2, 4, 8)), cpus=rng.choice((1, 4, 8)), memory_mib=rng.choice((0, 8192, 32768))),
            priority=rng.choice((5, 5, 5, 7, 3)),
            time_limit=timedelta(hours=rng.choice((1, 4, 12, 24))),
            team=teams[whose % TEAMS],
            queue="train",
            is_preemptible=rng.random() < 0.3,
        )
        jobs.append(Job(JobId(f"q{number:07}"), users[whose], spec, now))
    await store.insert(jobs)
    await store.close()


if __name__ == "__main__":
    asyncio.run(fill(Path(sys.argv[1]), int(sys.argv[2])))
