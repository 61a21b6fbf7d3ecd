"""What is asked of the database. Reading only; each function is one question on a reader's connection."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, func, literal, select, tuple_, union_all

from danlu.domain.job import ACTIVE, Job, JobState
from danlu.store import rows, tables
from danlu.store.base import JobFilter, Outcome, Page, PastRun, Token

jobs, specs, labels = tables.jobs, tables.specs, tables.labels

_NEWEST = 2**63 - 1
_LAST_CHARACTER = "\U0010ffff"
_CHUNK = 50

Pinned = Sequence[tuple[ColumnElement[str], str]]


def _with_spec() -> Select[Any]:
    return select(jobs, specs.c.spec).join(specs, specs.c.id == jobs.c.spec_id)


def active(connection: Connection) -> tuple[Job, ...]:
    wanted = _with_spec().where(jobs.c.state.in_([state.value for state in ACTIVE]))
    return tuple(sorted(rows.jobs_of(connection.execute(wanted)), key=lambda job: job.seq))


def get(connection: Connection, job_id: str) -> Job | None:
    found = rows.jobs_of(connection.execute(_with_spec().where(jobs.c.id == rows.stored(job_id))))
    return found[0] if found else None


def page(connection: Connection, wanted: JobFilter, limit: int, before: int | None, row_ranges: bool) -> Page:
    limit = max(limit, 1)
    found = rows.jobs_of(connection.execute(page_statement(wanted, limit + 1, before, row_ranges)))
    return Page(found[:limit], found[limit - 1].seq if len(found) > limit else None)


def page_statement(wanted: JobFilter, limit: int, before: int | None, row_ranges: bool) -> Select[Any]:
    """First the numbers, from one index per branch and in its order; then only these jobs."""
    branches, rest = _branches(wanted)
    top = _NEWEST if before is None else before
    found = [select(_newest(pinned, rest, top, limit, row_ranges).subquery().c.seq) for pinned in branches]
    picked = (union_all(*found) if len(found) > 1 else found[0]).subquery("picked")
    return (
        select(jobs, specs.c.spec)
        .select_from(picked)
        .join(jobs, jobs.c.seq == picked.c.seq)
        .join(specs, specs.c.id == jobs.c.spec_id)
        .order_by(jobs.c.seq.desc())
        .limit(limit)
    )


def _branches(wanted: JobFilter) -> tuple[list[Pinned], list[ColumnElement[bool]]]:
    """Which columns of an index to pin, several times if several states are wanted, and what is left to check."""
    states = [] if len(wanted.states) == len(JobState) else sorted(state.value for state in wanted.states)
    user, name, array = rows.stored(wanted.user), rows.stored(wanted.name), rows.stored(wanted.array_id)
    rest: list[ColumnElement[bool]] = []
    pinned: list[tuple[ColumnElement[str], str]] = []
    if array:
        pinned = [(jobs.c.array_id, array)]
    elif wanted.label is not None:
        key, value = wanted.label
        pinned = [(labels.c.key, rows.indexed(key)), (labels.c.value, rows.indexed(value))]
    elif name:
        pinned = [(jobs.c.user, user)] if user else []
        pinned += [(jobs.c.name, name)]
        user = name = ""
    else:
        pinned = [(jobs.c.user, user)] if user else []
        if not states:
            return [pinned], []
        return [[*pinned, (jobs.c.state, state)] for state in states], []
    if array and wanted.label is not None:
        key, value = wanted.label
        has = (labels.c.key == rows.indexed(key)) & (labels.c.value == rows.indexed(value))
        rest.append(select(labels.c.seq).where(has, labels.c.seq == jobs.c.seq).exists())
    # Joined with nothing, a column cannot tempt the planner to another index, which would have to be sorted.
    rest += [column.concat("") == text for column, text in ((jobs.c.user, user), (jobs.c.name, name)) if text]
    if states:
        rest.append(jobs.c.state.concat("").in_(states))
    return [pinned], rest


def _newest(
    pinned: Pinned, rest: Sequence[ColumnElement[bool]], before: int, limit: int, row_ranges: bool
) -> Select[Any]:
    """The numbers below `before`, from the newest, of the rows where every pinned column has its value."""
    by_label = bool(pinned) and pinned[0][0].table is labels
    seq: ColumnElement[int] = labels.c.seq if by_label else jobs.c.seq
    found = select(seq.label("seq"))
    if by_label and rest:
        found = found.join(jobs, jobs.c.seq == labels.c.seq)
    if row_ranges and pinned:
        # With `user = x` PostgreSQL may walk the primary key and skip a million jobs of others.
        columns = [column for column, _ in pinned]
        values = [literal(value, column.type) for column, value in pinned]
        low, high = (tuple_(*values, literal(seq_bound, BigInteger)) for seq_bound in (0, before))
        found = found.where(tuple_(*columns, seq) >= low, tuple_(*columns, seq) < high)
        found = found.order_by(*(column.desc() for column in columns), seq.desc())
    else:
        found = found.where(*(column == value for column, value in pinned), seq < before).order_by(seq.desc())
    return found.where(*rest).limit(limit)


def find(connection: Connection, prefix: str, limit: int) -> tuple[str, ...]:
    low = rows.stored(prefix)
    exact = select(jobs.c.seq).where((jobs.c.id == low) | (jobs.c.array_id == low)).limit(1)
    if connection.execute(exact).first() is not None:
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
            # Tasks hide behind their array, or no prefix of an array could ever be unique.
            found[array_id if array_id is not None and array_id.startswith(low) else job_id] = None
        if last is None:
            break
        after = last[0]
        if last[1] is not None and last[1] in found and after.startswith(f"{last[1]}_"):
            after = f"{last[1]}_{_LAST_CHARACTER}"
    return tuple(rows.restored(one) for one in sorted(found)[:limit])


def _arrays(connection: Connection, low: str, high: str, limit: int) -> list[str]:
    """One step per array, however many tasks it has."""
    found: list[str] = []
    while len(found) < limit:
        inside = (jobs.c.array_id > (found[-1] if found else low)) & (jobs.c.array_id < high)
        first = connection.execute(select(jobs.c.array_id).where(inside).order_by(jobs.c.array_id).limit(1)).scalar()
        if first is None:
            break
        found.append(first)
    return found


def latest(connection: Connection, user: str, back: int, row_ranges: bool) -> str | None:
    """Walks from the newest, and over an array in one step."""
    before, known, left = _NEWEST, "", back
    while True:
        seqs = _newest([(jobs.c.user, rows.stored(user))], (), before, _CHUNK, row_ranges).subquery()
        some = connection.execute(
            select(jobs.c.seq, jobs.c.id, jobs.c.array_id)
            .join(seqs, seqs.c.seq == jobs.c.seq)
            .order_by(jobs.c.seq.desc())
        ).all()
        if not some:
            return None
        for seq, job_id, array_id in some:
            before = seq
            group = job_id if array_id is None else array_id
            if group == known:
                continue
            if left == 0:
                return rows.restored(group)
            known, left = group, left - 1
        if some[-1].array_id is not None:
            first = select(jobs.c.seq).where(jobs.c.array_id == known).order_by(jobs.c.array_id, jobs.c.seq).limit(1)
            before = min(before, connection.execute(first).scalar() or before)


def outcome(connection: Connection, ref: str) -> Outcome:
    counted = select(jobs.c.state, func.count()).group_by(jobs.c.state)
    plain = rows.stored(ref)
    found = {row[0]: int(row[1]) for row in connection.execute(counted.where(jobs.c.array_id == plain))}
    if not found:
        found = {row[0]: int(row[1]) for row in connection.execute(counted.where(jobs.c.id == plain))}
    going = sum(found.get(state.value, 0) for state in ACTIVE)
    return Outcome(sum(found.values()), going, found.get(JobState.SUCCEEDED.value, 0))


def past_runs(connection: Connection, job_id: str) -> tuple[PastRun, ...]:
    table = tables.past_runs
    wanted = select(table).where(table.c.job_id == rows.stored(job_id)).order_by(table.c.attempt)
    return tuple(rows.past_of(tuple(row)) for row in connection.execute(wanted))


def environ(connection: Connection, environ_id: str) -> dict[str, str]:
    table = tables.environs
    text = connection.execute(select(table.c.environ).where(table.c.id == rows.stored(environ_id))).scalar()
    return {} if text is None else rows.environ_of(text)


def environ_ids(connection: Connection) -> tuple[str, ...]:
    return tuple(rows.restored(one) for one in connection.execute(select(tables.environs.c.id)).scalars())


def tokens(connection: Connection) -> tuple[Token, ...]:
    table = tables.tokens
    return tuple(rows.token_of(tuple(row)) for row in connection.execute(select(table).order_by(table.c.created_at)))


def token(connection: Connection, digest: str) -> Token | None:
    table = tables.tokens
    row = connection.execute(select(table).where(table.c.digest == rows.stored(digest))).first()
    return None if row is None else rows.token_of(tuple(row))
