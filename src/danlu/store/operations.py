"""The statements of each write, inside a transaction of the writer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Dialect, bindparam, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import Executable

from danlu.domain.charge import Charge
from danlu.domain.job import ENDED, Job, JobSpec
from danlu.domain.people import AuditEntry
from danlu.errors import Conflict
from danlu.store import job_rows, people_rows, tables
from danlu.store.people_protocol import PeopleChange
from danlu.store.protocol import PastRun, Token
from danlu.store.writer_state import Draft


def _insert_for(dialect: Dialect) -> Any:
    """The insert with `on conflict do nothing`. Importing the PostgreSQL dialect would cost a start on SQLite 25 ms."""
    if dialect.name == "sqlite":
        return sqlite.insert
    from sqlalchemy.dialects import postgresql

    return postgresql.insert


@dataclass(frozen=True, slots=True)
class Insert:
    jobs: Sequence[Job]
    key: str = ""
    environ: Mapping[str, str] | None = None
    audit: Sequence[AuditEntry] = ()  # written unless the key was known


@dataclass(frozen=True, slots=True)
class Find:
    """The jobs that a key made. No change, but in the order of the changes: an insert before it counts."""

    user: str
    key: str


@dataclass(frozen=True, slots=True)
class Update:
    jobs: Sequence[Job]
    past: Sequence[PastRun] = ()
    charges: Sequence[Charge] = ()
    audit: Sequence[AuditEntry] = ()


@dataclass(frozen=True, slots=True)
class Remove:
    ids: Sequence[str]
    audit: Sequence[AuditEntry] = ()  # written if any job was removed


@dataclass(frozen=True, slots=True)
class AddToken:
    token: Token
    audit: Sequence[AuditEntry] = ()


@dataclass(frozen=True, slots=True)
class DropToken:
    id: str
    audit: Sequence[AuditEntry] = ()  # written if the token existed


@dataclass(frozen=True, slots=True)
class Record:
    changes: Sequence[PeopleChange]
    audit: Sequence[AuditEntry] = ()


Noted = Insert | Update | Remove | AddToken | DropToken | Record
Change = Noted | Find


class Statements:
    """The text of every statement, compiled once: compiling and binding by name would cost more than the database."""

    def __init__(self, dialect: Dialect) -> None:
        jobs, specs, environs = tables.jobs, tables.specs, tables.environs

        def text(statement: Executable) -> str:
            return str(statement.compile(dialect=dialect))  # type: ignore[attr-defined]

        def every(table: Any) -> str:
            return text(table.insert())

        changed = {name: bindparam(f"new_{name}", type_=jobs.c[name].type) for name in tables.STANDING}
        self.add_spec, self.add_job, self.add_label = every(specs), every(jobs), every(tables.labels)
        self.add_past, self.add_token = every(tables.past_runs), every(tables.tokens)
        self.add_charge = text(_insert_for(dialect)(tables.charges).on_conflict_do_nothing())
        # Inline: the database assigns the number, and the caller does not need it.
        self.add_audit = text(tables.audit.insert().inline().values(people_rows.AUDIT_VALUES))
        self.add_environ = text(_insert_for(dialect)(environs).on_conflict_do_nothing())
        self.change_job = text(
            jobs.update()
            .where(jobs.c.id == bindparam("which", type_=jobs.c.id.type))
            .where(jobs.c.version == bindparam("replaced", type_=jobs.c.version.type))
            .values(changed)
        )
        user = bindparam("user", type_=jobs.c.user.type)
        of_key = (jobs.c.user == user) & (jobs.c.submit_key == bindparam("key", type_=jobs.c.submit_key.type))
        self.is_key_known = text(select(jobs.c.seq).where(of_key))
        self.by_key = text(
            select(jobs, specs.c.spec)
            .join(specs, specs.c.id == jobs.c.spec_id)
            .where(of_key)
            .order_by(jobs.c.user, jobs.c.submit_key, jobs.c.seq)
        )
        self.drop_environ = text(environs.delete().where(environs.c.id == bindparam("id", type_=environs.c.id.type)))


@dataclass(slots=True)
class Transaction:
    connection: Connection
    text: Statements
    draft: Draft
    run_many: Callable[[Connection, str, list[job_rows.Row]], int]

    def many(self, statement: str, found: list[job_rows.Row]) -> int:
        """Run a statement for each row; return the number of affected rows."""
        return self.run_many(self.connection, statement, found) if found else 0

    def by_key(self, where: tuple[str, str]) -> tuple[Job, ...]:
        """The jobs submitted by this user with this key. Nearly always none, which a cheap query detects."""
        if self.connection.exec_driver_sql(self.text.is_key_known, where).first() is None:
            return ()
        return job_rows.jobs_of(self.connection.exec_driver_sql(self.text.by_key, where))

    def perform(self, group: Sequence[Change]) -> list[Any]:
        """Perform all changes in order, adjacent changes of the same kind in bulk. Raises if any change fails."""
        answers: list[Any] = []
        for kind, run in groupby(group, type):
            answers += _VERBS[kind](self, list(run))
        return answers

    def was_committed(self, group: Sequence[Change]) -> bool | None:
        """Whether a group with a broken commit is in the database, which has all or none of it. None: cannot be
        determined."""
        jobs, tokens = tables.jobs.c, tables.tokens.c
        for change in group:
            match change:
                case Insert(jobs=[Job(id=job_id), *_]):
                    sign = select(jobs.seq).where(jobs.id == job_rows.stored(job_id))
                case Update(jobs=[Job(id=job_id, version=version), *_]):
                    sign = select(jobs.seq).where(jobs.id == job_rows.stored(job_id), jobs.version >= version)
                case Record(audit=[entry, *_]):
                    sign = people_rows.sign_of(entry)
                case AddToken(token=token):
                    sign = select(tokens.id).where(tokens.id == job_rows.stored(token.id))
                case _:
                    continue
            found = self.connection.execute(sign).first()
            self.connection.rollback()
            return found is not None
        return None

    def finish(self) -> None:
        """Drop the environments that no active job needs after this commit."""
        self.many(self.text.drop_environ, [(job_rows.stored(one),) for one in self.draft.unneeded()])


def _insert(tx: Transaction, run: list[Insert]) -> list[tuple[Job, ...]]:
    answers: list[tuple[Job, ...]] = []
    by_key: dict[tuple[str, str], tuple[Job, ...]] = {}
    new: list[Insert] = []
    pile = _Pile()
    for one in run:
        known: tuple[Job, ...] = ()
        where = (job_rows.stored(one.jobs[0].user), job_rows.indexed(one.key)) if one.jobs and one.key else None
        if where is not None:
            # Earlier changes of this group are in `by_key`: they may not be in the database yet.
            known = by_key.get(where) or tx.by_key(where)
        if not known:
            new.append(one)
        answers.append(known or pile.add(one, tx.draft))
        if where is not None:
            by_key[where] = answers[-1]
    tx.many(tx.text.add_spec, pile.specs)
    tx.many(tx.text.add_environ, pile.environs)
    tx.many(tx.text.add_job, pile.jobs)
    tx.many(tx.text.add_label, pile.labels)
    _note(tx, new)
    return answers


class _Pile:
    """The rows of many submissions, for a bulk write."""

    def __init__(self) -> None:
        self.specs: list[job_rows.Row] = []
        self.environs: list[job_rows.Row] = []
        self.jobs: list[job_rows.Row] = []
        self.labels: list[job_rows.Row] = []

    def add(self, one: Insert, draft: Draft) -> tuple[Job, ...]:
        key = job_rows.indexed(one.key) if one.key else None
        spec_ids: dict[tuple[str, JobSpec], int] = {}
        last: tuple[str, JobSpec | None, int] = ("", None, 0)
        made: list[Job] = []
        for job in one.jobs:
            seq = draft.next_seq
            draft.next_seq += 1
            # The spec of the previous task is nearly always the same object; hashing a spec is slow.
            if last[0] == job.group and last[1] is job.spec:
                spec_id = last[2]
            else:
                spec_id = spec_ids.setdefault((job.group, job.spec), seq)
                last = (job.group, job.spec, spec_id)
                if spec_id == seq:
                    self.specs.append((seq, job_rows.spec_text(job.spec)))
            self.jobs.append(job_rows.job_row(job, seq, spec_id, key))
            for name, value in dict.fromkeys(job.spec.labels):
                self.labels.append((job_rows.indexed(name), job_rows.indexed(value), seq))
            draft.hold(job)
            made.append(replace(job, seq=seq))
        if one.environ is not None and made and made[0].spec.environ:
            kept = job_rows.environ_text(one.environ)
            self.environs.append((job_rows.stored(made[0].spec.environ), kept, job_rows.micros(made[0].submitted_at)))
        return tuple(made)


def _find(tx: Transaction, run: list[Find]) -> list[tuple[Job, ...]]:
    return [tx.by_key((job_rows.stored(one.user), job_rows.indexed(one.key))) for one in run]


def _update(tx: Transaction, run: list[Update]) -> list[None]:
    changed = [job_rows.update_row(job) for one in run for job in one.jobs]
    if tx.many(tx.text.change_job, changed) != len(changed):
        raise Conflict("a job was changed by another request meanwhile", "check the job, then repeat")
    tx.many(tx.text.add_past, [job_rows.past_row(past) for one in run for past in one.past])
    tx.many(tx.text.add_charge, [people_rows.charge_row(charge) for one in run for charge in one.charges])
    _note(tx, run)
    for one in run:
        for job in one.jobs:
            tx.draft.hold(job)
    return [None] * len(run)


def _remove(tx: Transaction, run: list[Remove]) -> list[int]:
    gone = [_remove_one(tx, list(dict.fromkeys(one.ids))) for one in run]
    _note(tx, [one for one, count in zip(run, gone, strict=True) if count])
    return gone


def _remove_one(tx: Transaction, ids: list[str]) -> int:
    jobs, specs, labels, past = tables.jobs, tables.specs, tables.labels, tables.past_runs
    ended = [state.value for state in ENDED]
    gone = 0
    for start in range(0, len(ids), 500):
        some = [job_rows.stored(one) for one in ids[start : start + 500]]
        wanted = jobs.c.id.in_(some) & jobs.c.state.in_(ended)
        found = tx.connection.execute(select(jobs.c.seq, jobs.c.id, jobs.c.array_id, jobs.c.spec_id).where(wanted))
        rest = found.all()
        seqs = [row.seq for row in rest]
        tx.connection.execute(labels.delete().where(labels.c.seq.in_(seqs)))
        tx.connection.execute(past.delete().where(past.c.job_id.in_([row.id for row in rest])))
        tx.connection.execute(jobs.delete().where(jobs.c.seq.in_(seqs)))
        # Only tasks of the same array share a spec, so only these can still need the spec.
        for array_id, spec_id in dict.fromkeys((row.array_id, row.spec_id) for row in rest):
            sharing = (jobs.c.array_id == array_id) & (jobs.c.spec_id == spec_id)
            if array_id is None or tx.connection.execute(select(jobs.c.seq).where(sharing).limit(1)).first() is None:
                tx.connection.execute(specs.delete().where(specs.c.id == spec_id))
        gone += len(rest)
    return gone


def _add_token(tx: Transaction, run: list[AddToken]) -> list[None]:
    tx.many(tx.text.add_token, [job_rows.token_row(one.token) for one in run])
    _note(tx, run)
    return [None] * len(run)


def _drop_token(tx: Transaction, run: list[DropToken]) -> list[bool]:
    where = tables.tokens.c.id
    gone = [
        tx.connection.execute(tables.tokens.delete().where(where == job_rows.stored(one.id))).rowcount > 0
        for one in run
    ]
    _note(tx, [one for one, was_there in zip(run, gone, strict=True) if was_there])
    return gone


def _record(tx: Transaction, run: list[Record]) -> list[None]:
    for one in run:
        for change in one.changes:
            place = people_rows.place_of(change)
            tx.connection.execute(place.table.delete().where(*place.is_there))
            if place.row is not None:
                tx.connection.execute(place.table.insert(), place.row)
    _note(tx, run)
    return [None] * len(run)


def _note(tx: Transaction, run: Sequence[Noted]) -> None:
    tx.many(tx.text.add_audit, [people_rows.audit_row(entry) for one in run for entry in one.audit])


_VERBS: dict[type, Callable[[Transaction, list[Any]], Sequence[Any]]] = {
    Insert: _insert,
    Find: _find,
    Update: _update,
    Remove: _remove,
    AddToken: _add_token,
    DropToken: _drop_token,
    Record: _record,
}
