"""Lists of jobs, newest first. The cost of a page does not depend on the number of jobs.

First the numbers, from a single index in index order; then only these jobs. The tests check `EXPLAIN` of every shape.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Dialect,
    Select,
    bindparam,
    literal_column,
    select,
    tuple_,
    union_all,
)

from danlu.domain.job import JobState
from danlu.store import job_rows, tables
from danlu.store.protocol import JobFilter, Page

NEWEST = 2**63 - 1

jobs, specs, labels = tables.jobs, tables.specs, tables.labels

_SPARSE = frozenset({jobs.c.name, jobs.c.array_id, jobs.c.team})
_STATES = tuple(sorted(state.value for state in JobState))
_BEFORE: BindParameter[int] = bindparam("before", type_=BigInteger)
_LIMIT: BindParameter[int] = bindparam("n", type_=BigInteger)

Pin = tuple[ColumnElement[str], ColumnElement[str]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a filter without their values: filters of the same shape share a statement."""

    states: tuple[str, ...] = ()
    user: bool = False
    name: bool = False
    label: bool = False
    array: bool = False
    team: bool = False
    queue: bool = False

    @staticmethod
    def of(wanted: JobFilter) -> "Shape":
        states = () if len(wanted.states) == len(JobState) else tuple(sorted(state.value for state in wanted.states))
        return Shape(
            states,
            bool(wanted.user),
            bool(wanted.name),
            wanted.label is not None,
            bool(wanted.array_id),
            bool(wanted.team),
            bool(wanted.queue),
        )


def page(connection: Connection, wanted: JobFilter, limit: int, before: int | None) -> Page:
    limit = max(limit, 1)
    key, value = wanted.label or ("", "")
    values = {
        "user": job_rows.stored(wanted.user),
        "name": job_rows.stored(wanted.name),
        "array": job_rows.stored(wanted.array_id),
        "team": job_rows.stored(wanted.team),
        "queue": job_rows.stored(wanted.queue),
        "key": job_rows.indexed(key),
        "value": job_rows.indexed(value),
        "before": NEWEST if before is None else before,
        "n": limit + 1,
    }
    text, fixed = page_text(Shape.of(wanted), connection.dialect)
    found = job_rows.jobs_of(connection.exec_driver_sql(text, fixed | values))
    return Page(found[:limit], found[limit - 1].seq if len(found) > limit else None)


@lru_cache(maxsize=512)
def page_text(shape: Shape, dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """The statement, and the parameters added by SQLAlchemy. Cached: building a union of five states takes longer than
    its execution."""
    branches, rest = _branches(shape)
    found = [select(newest(pinned, rest, dialect.name).subquery().c.seq) for pinned in branches]
    picked = (union_all(*found) if len(found) > 1 else found[0]).subquery("picked")
    statement = (
        select(jobs, specs.c.spec)
        .select_from(picked)
        .join(jobs, jobs.c.seq == picked.c.seq)
        .join(specs, specs.c.id == jobs.c.spec_id)
        .order_by(jobs.c.seq.desc())
        .limit(_LIMIT)
    )
    compiled = statement.compile(dialect=dialect)
    return str(compiled), {name: value for name, value in compiled.params.items() if value is not None}


def _branches(shape: Shape) -> tuple[list[list[Pin]], list[ColumnElement[bool]]]:
    """The index columns to pin, and the remaining checks. Queues have no index: there are few queues, so the jobs of a
    queue are found quickly among all jobs."""
    branches, rest = _pinned(shape)
    return branches, [*rest, *_checks(shape, [pin(jobs.c.queue, "queue")] * shape.queue, states=False)]


def _pinned(shape: Shape) -> tuple[list[list[Pin]], list[ColumnElement[bool]]]:
    """Like `_branches`, without the queue; a branch per state if the filter has only states."""
    name, team = pin(jobs.c.name, "name"), pin(jobs.c.team, "team")
    label = [pin(labels.c.key, "key"), pin(labels.c.value, "value")]
    owner, crew = [pin(jobs.c.user, "user")] * shape.user, [team] * shape.team
    if shape.array:
        has = [column == value for column, value in label]
        rest = [select(labels.c.seq).where(*has, labels.c.seq == jobs.c.seq).exists()] if shape.label else []
        return [[pin(jobs.c.array_id, "array")]], [*rest, *_checks(shape, owner + crew + [name] * shape.name)]
    if shape.label:
        return [label], _checks(shape, owner + crew + [name] * shape.name)
    if shape.name:
        return [[*owner, name]], _checks(shape, crew)
    if shape.team and not shape.user:
        # A team's index contains the state: the branches of all states together are all jobs of the team.
        return [[team, (jobs.c.state, _quoted(state))] for state in shape.states or _STATES], []
    if shape.states:
        return [[*owner, (jobs.c.state, _quoted(state))] for state in shape.states], _checks(shape, crew, states=False)
    return [owner], _checks(shape, crew)


def _checks(shape: Shape, pins: Iterable[Pin], *, states: bool = True) -> list[ColumnElement[bool]]:
    found = [no_index(column) == value for column, value in pins]
    if shape.states and states:
        found.append(no_index(jobs.c.state).in_([_quoted(one) for one in shape.states]))
    return found


def no_index(column: ColumnElement[str]) -> ColumnElement[str]:
    """Concatenated with an empty string, a column cannot lead the planner to another index, which would need a sort."""
    return column.concat(literal_column("''"))


def pin(column: ColumnElement[str], name: str) -> Pin:
    return column, bindparam(name, type_=column.type)


def _quoted(state: str) -> ColumnElement[str]:
    return literal_column(f"'{JobState(state).value}'", tables.jobs.c.state.type)


def newest(pinned: Sequence[Pin], rest: Sequence[ColumnElement[bool]], dialect: str) -> Select[Any]:
    """The first `n` numbers below `before`, newest first, of the rows with the pinned values."""
    table = pinned[0][0].table if pinned else jobs
    by_label = table is labels
    seq: ColumnElement[int] = table.c.seq
    found = select(seq.label("seq"))
    if by_label and rest:
        found = found.join(jobs, jobs.c.seq == labels.c.seq)
    if dialect == "postgresql" and pinned:
        return _by_rows(found, pinned, rest, seq)
    return found.where(*(a == b for a, b in pinned), seq < _BEFORE, *rest).order_by(seq.desc()).limit(_LIMIT)


def _by_rows(
    found: Select[Any], pinned: Sequence[Pin], rest: Sequence[ColumnElement[bool]], seq: ColumnElement[int]
) -> Select[Any]:
    """For PostgreSQL, which with `user = x` may walk the primary key and skip a million jobs of other users. Only one
    index provides an order by `user, seq` below `(x, before)`; SQLite would not use an index for such a range."""
    # Explicit, because a row comparison does not prove to the planner that a sparse index contains all rows.
    found = found.where(*(column.is_not(None) for column, _ in pinned if column in _SPARSE))
    if rest:
        # The scan must stop by itself, and stops only at the first compared column.
        found = found.where(*(column == value for column, value in pinned[:-1]), *rest)
        (column, value) = pinned[-1]
        low, high = tuple_(value, literal_column("0")), tuple_(value, _BEFORE)
        found = found.where(tuple_(column, seq) >= low, tuple_(column, seq) < high)
        return found.order_by(column.desc(), seq.desc()).limit(_LIMIT)
    # The next `n` entries of the index; entries beyond the end of the list are dropped afterwards.
    columns = [column for column, _ in pinned]
    high = tuple_(*(value for _, value in pinned), _BEFORE)
    below = found.add_columns(*columns).where(tuple_(*columns, seq) < high)
    some = below.order_by(*(column.desc() for column in columns), seq.desc()).limit(_LIMIT).subquery()
    return select(some.c.seq).where(*(some.c[str(column.key)] == value for column, value in pinned))
