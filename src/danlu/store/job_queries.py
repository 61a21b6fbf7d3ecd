"""Queries for jobs and tokens. Read-only; each function uses a reader's connection."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, func, select

from danlu.domain.job import ACTIVE, SNAPSHOT_ID_LENGTH, Job, JobState
from danlu.store import job_rows, tables
from danlu.store.pages import NEWEST, newest, pin
from danlu.store.protocol import ArraySummary, Outcome, PastRun, Token

jobs, specs = tables.jobs, tables.specs

_LAST_CHARACTER = "\U0010ffff"
_CHUNK = 50
_IDS = 500  # per statement


def _with_spec() -> Select[Any]:
    return select(jobs, specs.c.spec).join(specs, specs.c.id == jobs.c.spec_id)


def active(connection: Connection) -> tuple[Job, ...]:
    wanted = _with_spec().where(jobs.c.state.in_([state.value for state in ACTIVE]))
    return tuple(sorted(job_rows.jobs_of(connection.execute(wanted)), key=lambda job: job.seq))


def get(connection: Connection, job_id: str) -> Job | None:
    found = job_rows.jobs_of(connection.execute(_with_spec().where(jobs.c.id == job_rows.stored(job_id))))
    return found[0] if found else None


def numbered(connection: Connection, seq: int) -> Job | None:
    found = job_rows.jobs_of(connection.execute(_with_spec().where(jobs.c.seq == seq)))
    return found[0] if found else None


def get_all(connection: Connection, ids: Sequence[str]) -> tuple[Job, ...]:
    found: list[Job] = []
    for start in range(0, len(ids), _IDS):
        some = [job_rows.stored(one) for one in ids[start : start + _IDS]]
        found += job_rows.jobs_of(connection.execute(_with_spec().where(jobs.c.id.in_(some))))
    return tuple(found)


def find(connection: Connection, prefix: str, limit: int) -> tuple[str, ...]:
    low = job_rows.stored(prefix)
    for column in (jobs.c.id, jobs.c.array_id):  # Two queries: with `or` and a limit, PostgreSQL would scan the table.
        if connection.execute(select(jobs.c.seq).where(column == low).limit(1)).first() is not None:
            return (prefix,)
    high = low + _LAST_CHARACTER
    found = dict.fromkeys(_arrays(connection, low, high, limit))
    after = low
    while len(found) < 2 * limit:
        inside = (jobs.c.id > after) & (jobs.c.id < high)
        some = connection.execute(select(jobs.c.id, jobs.c.array_id).where(inside).order_by(jobs.c.id).limit(_CHUNK))
        last: tuple[str, str | None] | None = None
        for job_id, array_id in some:
            last = (job_id, array_id)
            # An array hides its tasks; otherwise the prefix of an array could never be unique.
            found[array_id if array_id is not None and array_id.startswith(low) else job_id] = None
        if last is None:
            break
        after = last[0]
        if last[1] is not None and last[1] in found and after.startswith(f"{last[1]}_"):
            after = f"{last[1]}_{_LAST_CHARACTER}"
    return tuple(job_rows.restored(one) for one in sorted(found)[:limit])


def _arrays(connection: Connection, low: str, high: str, limit: int) -> list[str]:
    """A single step per array, regardless of its number of tasks."""
    found: list[str] = []
    while len(found) < limit:
        inside = (jobs.c.array_id > (found[-1] if found else low)) & (jobs.c.array_id < high)
        first = connection.execute(select(jobs.c.array_id).where(inside).order_by(jobs.c.array_id).limit(1)).scalar()
        if first is None:
            break
        found.append(first)
    return found


def latest(connection: Connection, user: str, back: int) -> str | None:
    """Walk from the newest job; skip an array in a single step."""
    seqs = newest([pin(jobs.c.user, "user")], (), connection.dialect.name).subquery()
    wanted = select(jobs.c.seq, jobs.c.id, jobs.c.array_id).join(seqs, seqs.c.seq == jobs.c.seq)
    wanted = wanted.order_by(jobs.c.seq.desc())
    before, known, left = NEWEST, "", back
    while True:
        some = connection.execute(wanted, {"user": job_rows.stored(user), "before": before, "n": _CHUNK}).all()
        if not some:
            return None
        for seq, job_id, array_id in some:
            before = seq
            group = job_id if array_id is None else array_id
            if group == known:
                continue
            if left == 0:
                return job_rows.restored(group)
            known, left = group, left - 1
        if some[-1].array_id is not None:
            first = select(jobs.c.seq).where(jobs.c.array_id == known).order_by(jobs.c.array_id, jobs.c.seq).limit(1)
            before = min(before, connection.execute(first).scalar() or before)


def outcome(connection: Connection, ref: str) -> Outcome:
    counted = select(jobs.c.state, func.count()).group_by(jobs.c.state)
    plain = job_rows.stored(ref)
    found = {row[0]: int(row[1]) for row in connection.execute(counted.where(jobs.c.array_id == plain))}
    if not found:
        found = {row[0]: int(row[1]) for row in connection.execute(counted.where(jobs.c.id == plain))}
    going = sum(found.get(state.value, 0) for state in ACTIVE)
    return Outcome(sum(found.values()), going, found.get(JobState.SUCCEEDED.value, 0))


def array(connection: Connection, array_id: str) -> ArraySummary:
    counted = select(jobs.c.state, func.count(), func.min(jobs.c.seq)).group_by(jobs.c.state)
    found = connection.execute(counted.where(jobs.c.array_id == job_rows.stored(array_id))).all()
    states = {JobState(state): int(count) for state, count, _ in found}
    return ArraySummary(states, min((int(first) for _, _, first in found), default=0))


def past_runs(connection: Connection, job_id: str) -> tuple[PastRun, ...]:
    table = tables.past_runs
    wanted = select(table).where(table.c.job_id == job_rows.stored(job_id)).order_by(table.c.attempt)
    return tuple(job_rows.past_of(tuple(row)) for row in connection.execute(wanted))


def snapshots(connection: Connection) -> frozenset[str]:
    """Read out of the specs by the database: there may be millions of them, and few snapshots."""
    text, mark = specs.c.spec, '"snapshot":"'
    begin = func.instr(text, mark) if connection.dialect.name == "sqlite" else func.strpos(text, mark)
    found = select(func.substr(text, begin + len(mark), SNAPSHOT_ID_LENGTH)).distinct()
    return frozenset(connection.execute(found.where(text.not_like(f'%{mark}",%'))).scalars())


def environ(connection: Connection, environ_id: str) -> dict[str, str]:
    table = tables.environs
    text = connection.execute(select(table.c.environ).where(table.c.id == job_rows.stored(environ_id))).scalar()
    return {} if text is None else job_rows.environ_of(text)


def environ_ids(connection: Connection) -> tuple[str, ...]:
    return tuple(job_rows.restored(one) for one in connection.execute(select(tables.environs.c.id)).scalars())


def tokens(connection: Connection) -> tuple[Token, ...]:
    table = tables.tokens
    return tuple(
        job_rows.token_of(tuple(row)) for row in connection.execute(select(table).order_by(table.c.created_at))
    )


def token(connection: Connection, digest: str) -> Token | None:
    table = tables.tokens
    row = connection.execute(select(table).where(table.c.digest == job_rows.stored(digest))).first()
    return None if row is None else job_rows.token_of(tuple(row))
