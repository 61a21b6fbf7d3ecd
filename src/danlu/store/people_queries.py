"""Queries for people and usage. Read-only, each on a reader's connection."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import nlargest
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Select, Table, bindparam, cast, func, select

from danlu.domain.charge import Charge
from danlu.domain.people import AuditEntry
from danlu.store import people_rows, tables
from danlu.store.job_rows import micros, restored, stored
from danlu.store.pages import NEWEST, newest, no_index, pin
from danlu.store.people_protocol import People, Use, UseFilter

_MICROS_PER_HOUR = 3_600_000_000.0
_MICROS_PER_SECOND = 1_000_000.0


def people(connection: Connection) -> People:
    def ordered(table: Table, *by: ColumnElement[Any]) -> Any:
        return (tuple(row) for row in connection.execute(select(table).order_by(*(by or table.primary_key))))

    return People(
        persons=tuple(map(people_rows.person_of, ordered(tables.people))),
        teams=tuple(map(people_rows.team_of, ordered(tables.teams))),
        members=tuple(map(people_rows.member_of, ordered(tables.members))),
        invitations=tuple(map(people_rows.invitation_of, ordered(tables.invitations))),
        requests=tuple(
            map(
                people_rows.request_of,
                ordered(tables.account_requests, tables.account_requests.c.asked_at, tables.account_requests.c.id),
            )
        ),
        limits=tuple(map(people_rows.limit_of, ordered(tables.quotas))),
        boosts=tuple(map(people_rows.boost_of, ordered(tables.boosts, tables.boosts.c.created_at, tables.boosts.c.id))),
    )


def audit(
    connection: Connection, limit: int, before: int | None, who: str, what: str, target: str
) -> tuple[AuditEntry, ...]:
    """The cost of a page does not depend on the number of entries: first the numbers, each from an index in order; then
    only these entries."""
    table = tables.audit
    limit, below = max(limit, 1), NEWEST if before is None else before
    wanted = select(table).order_by(table.c.seq.desc()).limit(limit)
    if not (who or what or target):
        wanted = wanted.where(table.c.seq < below)
    else:
        verbs = _verbs(connection, who, what) if what or not target else []
        given = {"who": stored(who), "target": stored(target), "before": below, "n": limit}
        numbers: list[int] = []
        for found, verb in _numbers(connection.dialect.name, verbs, who=bool(who), target=bool(target)):
            numbers += connection.execute(found, given | verb).scalars()
        wanted = wanted.where(table.c.seq.in_(nlargest(limit, numbers)))
    return tuple(people_rows.audit_of(tuple(row)) for row in connection.execute(wanted))


def _verbs(connection: Connection, who: str, what: str) -> list[str]:
    """The verbs in the log, optionally of a user: the verbs of the family `what`, or all. A single step per verb,
    regardless of the number of entries."""
    column = tables.audit.c.what
    verb = stored(what)
    # `/` follows `.` in the byte order: the range is everything with the prefix `quota.`.
    found, after, end = ([verb], f"{verb}.", f"{verb}/") if verb else ([], "", "")
    step = select(column).where(column > bindparam("after", type_=column.type)).order_by(column).limit(1)
    if end:
        step = step.where(column < end)
    if who:
        step = step.where(tables.audit.c.who == stored(who))
    while (next_one := connection.execute(step, {"after": after}).scalar()) is not None:
        found.append(next_one)
        after = next_one
    return found


def _numbers(
    dialect: str, verbs: Sequence[str], *, who: bool, target: bool
) -> Iterator[tuple[Select[Any], dict[str, str]]]:
    """The queries for the newest numbers, each with its additional parameters."""
    columns = tables.audit.c
    person = [pin(columns.who, "who")] if who else []
    if not target:
        for verb in verbs:
            yield newest([*person, pin(columns.what, "what")], [], dialect), {"what": verb}
        return
    # Few entries have the same target: the remaining conditions are checked row by row.
    checks = [no_index(column) == value for column, value in person]
    if verbs:
        checks.append(no_index(columns.what).in_(verbs))
    yield newest([pin(columns.target, "target")], checks, dialect), {}


def use(connection: Connection, wanted: UseFilter) -> tuple[Use, ...]:
    """Summed by the database: years of charges are not loaded into memory."""
    table = tables.charges
    cards = _real(table.c.gpus) + _real(table.c.shards) / _real(table.c.shards_per_gpu)
    held = _real(table.c.ended_at - table.c.started_at)
    asked = _real(func.coalesce(table.c.time_limit, table.c.ended_at - table.c.started_at))
    waited = _real(table.c.started_at - table.c.submitted_at)
    summed = select(
        table.c.user,
        table.c.team,
        table.c.queue,
        func.count(),
        func.sum(cards * held) / _MICROS_PER_HOUR,
        func.sum(cards * asked) / _MICROS_PER_HOUR,
        func.sum(_real(table.c.cpus) * held) / _MICROS_PER_HOUR,
        func.sum(waited) / _MICROS_PER_SECOND,
        func.max(waited) / _MICROS_PER_SECOND,
    ).group_by(table.c.user, table.c.team, table.c.queue)
    found = (
        Use(restored(user), restored(team or ""), restored(queue or ""), *numbers)
        for user, team, queue, *numbers in connection.execute(_within(summed, wanted))
    )
    return tuple(sorted(found, key=lambda one: (one.user, one.team, one.queue)))


def _within(asked: Select[Any], wanted: UseFilter) -> Select[Any]:
    table = tables.charges
    if wanted.since is not None:
        asked = asked.where(table.c.ended_at >= micros(wanted.since))
    if wanted.until is not None:
        asked = asked.where(table.c.ended_at < micros(wanted.until))
    if wanted.user:
        asked = asked.where(table.c.user == stored(wanted.user))
    if wanted.team:
        asked = asked.where(table.c.team == stored(wanted.team))
    return asked


def _real(value: ColumnElement[Any]) -> ColumnElement[float]:
    """As a 64-bit float: otherwise the division would be an integer division."""
    return cast(value, Float(53))


def charges_wanted(since: datetime, *, with_gpus: bool) -> Select[Any]:
    table = tables.charges
    wanted = select(table).where(table.c.ended_at >= micros(since)).order_by(table.c.ended_at, table.c.run_id)
    return wanted.where(tables.HELD_GPUS) if with_gpus else wanted


def charges(connection: Connection, since: datetime, with_gpus: bool) -> tuple[Charge, ...]:
    found = connection.execute(charges_wanted(since, with_gpus=with_gpus))
    return people_rows.charges_of(tuple(row) for row in found)
