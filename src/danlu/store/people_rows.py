"""Conversion between people, quotas, charges and rows: pure, and the same for both databases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, bindparam, select

from danlu.domain.charge import Charge
from danlu.domain.people import (
    AccountRequest,
    AuditEntry,
    Boost,
    Invitation,
    Membership,
    Person,
    RequestState,
    Role,
    Team,
)
from danlu.domain.quota import Period, Quota
from danlu.store import tables
from danlu.store.job_rows import Row, maybe_moment, micros, moment, restored, stored
from danlu.store.people_protocol import Limit, Member, NoBoost, NoInvitation, PeopleChange

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a change: the row at `key` is deleted, and `row` is inserted if present."""

    table: Table
    key: Mapping[str, str]
    row: Mapping[str, Any] | None

    @property
    def is_there(self) -> list[ColumnElement[bool]]:
        return [self.table.c[name] == value for name, value in self.key.items()]


def place_of(change: PeopleChange) -> Place:
    match change:
        case Person():
            return Place(tables.people, {"name": stored(change.name)}, _row(change))
        case Team():
            return Place(tables.teams, {"name": stored(change.name)}, _row(change))
        case Member(user, team, membership):
            key = {"user": stored(user), "team": stored(team)}
            if membership is None:
                return Place(tables.members, key, None)
            standing = {"is_leader": int(membership.is_leader), "is_mapped": int(membership.is_mapped)}
            return Place(tables.members, key, {**key, **standing})
        case Invitation(user, team):
            return Place(tables.invitations, {"user": stored(user), "team": stored(team)}, _row(change))
        case NoInvitation(user, team):
            return Place(tables.invitations, {"user": stored(user), "team": stored(team)}, None)
        case AccountRequest():
            return Place(tables.account_requests, {"id": stored(change.id)}, _row(change))
        case Limit(holder, quota):
            key = {"holder": stored(holder)}
            return Place(tables.quotas, key, None if quota is None else key | _row(quota))
        case Boost():
            return Place(tables.boosts, {"id": stored(change.id)}, _row(change))
        case NoBoost(boost_id):
            return Place(tables.boosts, {"id": stored(boost_id)}, None)


def _row(thing: Any) -> dict[str, Any]:
    """A row by field names, which equal the column names."""
    return {field.name: _kept(getattr(thing, field.name)) for field in fields(thing)}


def _kept(value: object) -> str | int | None:
    match value:
        case None:
            return None
        case StrEnum():
            return value.value
        case str():
            return stored(value)
        case datetime():
            return micros(value)
        case int():
            return int(value)
    raise TypeError(f"no column keeps a {type(value).__name__}")


def person_of(row: Row) -> Person:
    name, created, role, is_enabled, *rest = row
    full_name, email, password, subject = map(restored, rest)
    return Person(restored(name), moment(created), Role(role), bool(is_enabled), full_name, email, password, subject)


def team_of(row: Row) -> Team:
    name, created = row
    return Team(restored(name), moment(created))


def member_of(row: Row) -> Member:
    user, team, is_leader, is_mapped = row
    return Member(restored(user), restored(team), Membership(restored(team), bool(is_leader), bool(is_mapped)))


def invitation_of(row: Row) -> Invitation:
    *texts, invited_at = row
    user, team, by = map(restored, texts)
    return Invitation(user, team, by, moment(invited_at))


def request_of(row: Row) -> AccountRequest:
    request_id, name, team, asked, state, *texts, decided_at = row
    full_name, email, why, password, decided_by = map(restored, texts)
    return AccountRequest(
        restored(request_id),
        restored(name),
        restored(team),
        moment(asked),
        RequestState(state),
        full_name,
        email,
        why,
        password,
        decided_by,
        maybe_moment(decided_at),
    )


def limit_of(row: Row) -> Limit:
    holder, gpus, shards, cpus, memory_mib, jobs, gpu_hours, period, borrow = row
    quota = Quota(gpus, shards, cpus, memory_mib, jobs, gpu_hours, Period(period), bool(borrow))
    return Limit(restored(holder), quota)


def boost_of(row: Row) -> Boost:
    *texts, created, until = row
    boost_id, user, team, by, why = map(restored, texts)
    return Boost(boost_id, user, team, by, why, moment(created), moment(until))


# The columns of `audit_row` in a statement: all but the number.
AUDIT_VALUES = {
    column.name: bindparam(column.name, type_=column.type) for column in tables.audit.c if column.name != "seq"
}


def audit_row(entry: AuditEntry) -> Row:
    texts = (entry.who, entry.what, entry.target, entry.detail, entry.origin)
    return (micros(entry.at), *map(stored, texts))


def audit_of(row: Row) -> AuditEntry:
    seq, at, *texts = row
    who, what, target, detail, origin = map(restored, texts)
    return AuditEntry(moment(at), who, what, target, detail, origin, seq)


def sign_of(entry: AuditEntry) -> Select[Any]:
    """A query for exactly this entry: two entries never share the same microsecond."""
    columns = [column for column in tables.audit.c if column.name != "seq"]
    alike = [column == value for column, value in zip(columns, audit_row(entry), strict=True)]
    return select(tables.audit.c.seq).where(*alike)


def charge_row(charge: Charge) -> Row:
    """In the column order of `charges`."""
    limit = charge.time_limit
    return (
        stored(charge.run_id),
        stored(charge.user),
        stored(charge.team) if charge.team else None,
        stored(charge.queue) if charge.queue else None,
        micros(charge.submitted_at),
        micros(charge.started_at),
        micros(charge.ended_at),
        charge.gpus,
        charge.shards,
        charge.shards_per_gpu,
        charge.cpus,
        charge.memory_mib,
        None if limit is None else limit // _MICROSECOND,
    )


def charges_of(found: Iterable[Row]) -> tuple[Charge, ...]:
    made: list[Charge] = []
    for row in found:
        run_id, user, team, queue, submitted, started, ended, gpus, shards, per_gpu, cpus, memory_mib, limit = row
        made.append(
            Charge(
                restored(run_id),
                restored(user),
                "" if team is None else restored(team),
                "" if queue is None else restored(queue),
                moment(submitted),
                moment(started),
                moment(ended),
                gpus,
                shards,
                per_gpu,
                cpus,
                memory_mib,
                None if limit is None else timedelta(microseconds=limit),
            )
        )
    return tuple(made)
