"""A history of ended jobs, written straight into a database: `python -m bench.seed FOLDER COUNT`.

The first hundred jobs have the same pattern as all: half are the asker's, half are named, failed or labelled, so that
every filter fills a page in a short history as in a long one."""

import getpass
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from danlu.domain.job import Job, JobId, JobSpec, JobState, Reason
from danlu.domain.resources import Ask, Seat
from danlu.store import job_rows, tables
from danlu.store.schema import bring_up
from danlu.store.sqlite import SqliteDatabase

USERS = 200
NAMES = 500
SPECS = 2000
BLOCK = 10_000
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
ENDS = {
    JobState.SUCCEEDED: (Reason("succeeded", "ended with exit code 0"), 0),
    JobState.FAILED: (Reason("failed", "ended with exit code 1"), 1),
    JobState.CANCELLED: (Reason("stopped", "stopped by its owner"), 143),
    JobState.TIMED_OUT: (Reason("timed_out", "ran longer than its time limit"), 143),
    JobState.LOST: (Reason("lost", "the machine restarted while it ran"), None),
}


def make_history(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, mode=0o700)
    database = SqliteDatabase(make_url(f"sqlite:///{folder}/danlu.db"), patience=timedelta(seconds=5), readers=1)
    database.lease()
    connection = database.writer()
    bring_up(connection)
    connection.close()
    with closing(sqlite3.connect(folder / "danlu.db", isolation_level=None)) as raw:
        _fill(raw, count)
    database.release()


def _fill(raw: sqlite3.Connection, count: int) -> None:
    """Indexes last: sorting once is faster than keeping them sorted."""
    rng = random.Random(1)
    specs = [_spec(number, rng) for number in range(SPECS)]
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute("PRAGMA cache_size = -500000")
    indexes = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    raw.execute("BEGIN")
    for name, _ in indexes:
        raw.execute(f"DROP INDEX {name}")
    raw.executemany(
        "INSERT INTO specs VALUES (?, ?)", [(n, job_rows.spec_text(spec)) for n, spec in enumerate(specs, 1)]
    )
    names = ", ".join(f'"{column.name}"' for column in tables.jobs.c)  # not in the order that migrations left them in
    places = ", ".join("?" * len(tables.jobs.c))
    for block in _blocks(_jobs(specs, count, rng)):
        raw.executemany(f"INSERT INTO jobs ({names}) VALUES ({places})", [row for row, _ in block])
        labels = [(key, value, row[0]) for row, spec in block for key, value in spec.labels]
        raw.executemany("INSERT INTO labels VALUES (?, ?, ?)", labels)
    for _, text in indexes:
        raw.execute(text)
    raw.execute("COMMIT")
    # As a server leaves it: all in the database, nothing in its log.
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _spec(number: int, rng: random.Random) -> JobSpec:
    seed = rng.randrange(10_000)
    labels = [("exp", "a" if number % 2 else f"e{rng.randrange(300)}"), ("project", f"p{rng.randrange(40)}")]
    return JobSpec(
        command=("python", "train.py", "--lr", "0.001", "--seed", str(seed)),
        workdir=f"/home/someone/project-{number % 40}",
        ask=Ask(gpus=rng.choice((0, 1, 1, 2, 4)), cpus=rng.choice((1, 4, 8)), memory_mib=16_384),
        name="baseline" if number // 2 % 2 else f"train-{rng.randrange(NAMES)}",
        time_limit=timedelta(hours=rng.choice((1, 4, 24))),
        labels=tuple(labels[: rng.choice((1, 2))]),
    )


def _jobs(specs: list[JobSpec], count: int, rng: random.Random) -> Iterator[tuple[tuple[Any, ...], JobSpec]]:
    me = getpass.getuser()
    taken: set[str] = set()
    rare = (JobState.CANCELLED, JobState.TIMED_OUT, JobState.SUCCEEDED, JobState.SUCCEEDED)
    for seq in range(1, count + 1):
        job_id = "".join(rng.choices(LETTERS, k=8))
        while job_id in taken:
            job_id = "".join(rng.choices(LETTERS, k=8))
        taken.add(job_id)
        spec_id = rng.randrange(len(specs))
        # Lost ones only long ago: the list that is hardest to find.
        state = JobState.FAILED if rng.random() < 0.5 else JobState.LOST if seq <= 20 else rng.choice(rare)
        reason, exit_code = ENDS[state]
        at = BEGIN + timedelta(seconds=60 * seq)
        job = Job(
            id=JobId(job_id),
            user=me if rng.random() < 0.5 else f"user{rng.randrange(USERS - 1)}",
            spec=specs[spec_id],
            submitted_at=at,
            state=state,
            reason=reason,
            version=4,
            started_at=at + timedelta(seconds=5),
            ended_at=at + timedelta(seconds=rng.randrange(10, 9000)),
            exit_code=exit_code,
            seats=(Seat("desk", 4, 16_384, (seq % 4,)),),
            handle=f"35fffa35-3dda-475e-8f9e-2014644e3182/{job_id}.1",
        )
        yield job_rows.job_row(job, seq, spec_id + 1, None), job.spec


def _blocks(found: Iterator[tuple[tuple[Any, ...], JobSpec]]) -> Iterator[list[tuple[tuple[Any, ...], JobSpec]]]:
    block = []
    for one in found:
        block.append(one)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


if __name__ == "__main__":
    make_history(Path(sys.argv[1]), int(sys.argv[2]))
