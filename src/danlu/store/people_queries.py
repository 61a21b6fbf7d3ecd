"""What is asked of the database about people and use. Reading only, each on a reader's connection."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Select, Table, cast, func, select

from danlu.domain.account import AuditEntry
from danlu.domain.ledger import Charge
from danlu.store import people_rows, tables
from danlu.store.people import People, Use, UseFilter
from danlu.store.rows import micros, restored, stored

_MICROS_PER_HOUR = 3_600_000_000.0
_MICROS_PER_SECOND = 1_000_000.0


def people(connection: Connection) -> People:
    def ordered(table: Table, *by: ColumnElement[Any]) -> Any:
        return (tuple(row) for row in connection.execute(select(table).order_by(*(by or table.primary_key))))

    return People(
        persons=tuple(map(people_rows.person_of, ordered(tables.people))),
        teams=tuple(map(people_rows.team_of, ordered(tables.teams))),
        members=tuple(map(people_rows.member_of, ordered(tables.members))),
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
    table = tables.audit
    wanted = select(table).order_by(table.c.seq.desc()).limit(max(limit, 1))
    if before is not None:
        wanted = wanted.where(table.c.seq < before)
    if who:
        wanted = wanted.where(table.c.who == stored(who))
    if what:
        verb = stored(what)
        # `/` comes right behind `.`: everything that begins with `quota.`.
        wanted = wanted.where((table.c.what == verb) | ((table.c.what > f"{verb}.") & (table.c.what < f"{verb}/")))
    if target:
        wanted = wanted.where(table.c.target == stored(target))
    return tuple(people_rows.audit_of(tuple(row)) for row in connection.execute(wanted))


def use(connection: Connection, wanted: UseFilter) -> tuple[Use, ...]:
    """Summed by the database: years of charges are not read into memory."""
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
    """As a 64-bit float: whole numbers would be divided into whole numbers."""
    return cast(value, Float(53))


def charges_wanted(since: datetime, *, with_gpus: bool) -> Select[Any]:
    table = tables.charges
    wanted = select(table).where(table.c.ended_at >= micros(since)).order_by(table.c.ended_at, table.c.run_id)
    return wanted.where(tables.HELD_GPUS) if with_gpus else wanted


def charges(connection: Connection, since: datetime, with_gpus: bool) -> tuple[Charge, ...]:
    found = connection.execute(charges_wanted(since, with_gpus=with_gpus))
    return people_rows.charges_of(tuple(row) for row in found)
