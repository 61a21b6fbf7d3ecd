"""Conversion between domain objects and rows: pure, and the same for both databases."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from danlu.domain.job import Dependency, Job, JobId, JobSpec, JobState, Reason
from danlu.domain.parsing import Notice
from danlu.domain.people import Role
from danlu.domain.resources import Ask, Seat
from danlu.store.protocol import PastRun, Token

Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ESCAPED = re.compile(r"\\(\\|x00|u[0-9a-f]{4})")
_STATES = {state.value: state for state in JobState}
_SPEC_FIELDS = tuple(field.name for field in fields(JobSpec))
_ASK_FIELDS = tuple(field.name for field in fields(Ask))
# PostgreSQL refuses index entries beyond about 2,700 bytes.
_MAX_INDEXED = 300


def stored(text: str) -> str:
    """Text in a form accepted by both databases: a lone surrogate, NUL or backslash becomes an escape sequence. The
    escaping works per character, so texts with a common prefix keep a common prefix."""
    if text.isascii() and "\\" not in text and "\0" not in text:
        return text
    escaped = text.replace("\\", "\\\\").replace("\0", "\\x00")
    return escaped.encode("utf-8", "backslashreplace").decode("utf-8")


def restored(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\\" if found[1] == "\\" else chr(int(found[1][1:], 16)), text)


def indexed(text: str) -> str:
    """Like `stored`, but limited to the length of an index entry: only for lookups, not for reading back."""
    plain = stored(text)
    if len(plain) <= _MAX_INDEXED:
        return plain
    return f"{plain[:100]}\\{hashlib.sha256(plain.encode()).hexdigest()}"


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def maybe_micros(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def maybe_moment(at: int | None) -> datetime | None:
    return None if at is None else _EPOCH + timedelta(microseconds=at)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def spec_text(spec: JobSpec) -> str:
    found = {name: getattr(spec, name) for name in _SPEC_FIELDS}
    found["ask"] = {name: getattr(spec.ask, name) for name in _ASK_FIELDS}
    if spec.time_limit is not None:
        found["time_limit"] = spec.time_limit // _MICROSECOND
    if spec.notice is not None:
        found["notice"] = [spec.notice.signal, spec.notice.lead // _MICROSECOND]
    found["after"] = _dependencies(spec.after)
    return _json(found)


def spec_of(text: str) -> JobSpec:
    found = json.loads(text)
    notice, limit = found["notice"], found["time_limit"]
    found |= {
        "command": tuple(found["command"]),
        "ask": Ask(**found["ask"]),
        "time_limit": None if limit is None else timedelta(microseconds=limit),
        "notice": None if notice is None else Notice(notice[0], timedelta(microseconds=notice[1])),
        "env": _pairs(found["env"]),
        "labels": _pairs(found["labels"]),
        "after": tuple(Dependency(*one) for one in found["after"]),
    }
    return JobSpec(**found)


def _dependencies(after: Iterable[Dependency]) -> list[list[str]]:
    return [[one.on, one.kind] for one in after]


def _pairs(found: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in found)


def _seats_text(seats: tuple[Seat, ...]) -> str:
    """Six values per seat, one seat after the other."""
    return _json(
        [
            value
            for seat in seats
            for value in (seat.node, seat.cpus, seat.memory_mib, seat.gpus, seat.shared_gpu, seat.shards)
        ]
    )


def _seats_of(text: str) -> tuple[Seat, ...]:
    values = json.loads(text)
    return tuple(
        Seat(node, cpus, memory_mib, tuple(gpus), shared_gpu, shards)
        for node, cpus, memory_mib, gpus, shared_gpu, shards in zip(*[iter(values)] * 6, strict=True)
    )


def job_row(job: Job, seq: int, spec_id: int, key: str | None) -> Row:
    """In the column order of `jobs`."""
    return (
        seq,
        stored(job.id),
        stored(job.array_id) if job.array_id else None,
        job.array_index,
        stored(job.user),
        stored(job.spec.name) if job.spec.name else None,
        micros(job.submitted_at),
        spec_id,
        key,
        stored(job.spec.team) if job.spec.team else None,
        stored(job.spec.queue) if job.spec.queue else None,
        *_standing(job),
    )


def update_row(job: Job) -> Row:
    """The changeable columns, then the id and the replaced version."""
    return (*_standing(job), stored(job.id), job.version - 1)


def _standing(job: Job) -> Row:
    return (
        job.state.value,
        stored(job.reason.code),
        stored(job.reason.full_text),
        job.attempt,
        maybe_micros(job.started_at),
        maybe_micros(job.ended_at),
        job.exit_code,
        _seats_text(job.seats) if job.seats else None,
        None if job.handle is None else stored(job.handle),
        _json(_dependencies(job.waiting_for)) if job.waiting_for else None,
        maybe_micros(job.stop_requested_at),
        _json(job.notes) if job.notes else None,
        job.given_back or None,
        job.requeued or None,
        job.version,
    )


def jobs_of(found: Iterable[Row]) -> tuple[Job, ...]:
    """From rows of `jobs`, each followed by the text of its spec. Equal specs and reasons become one object each: a
    server starts with a million jobs, and few of them differ."""
    specs: dict[str, JobSpec] = {}
    reasons: dict[tuple[str, str], Reason] = {}
    made: list[Job] = []
    for row in found:
        (seq, job_id, array_id, array_index, user, _name, submitted, _spec_id, _key, _team, _queue) = row[:11]
        (state, code, text, attempt, started, ended, exit_code, seat) = row[11:19]
        (handle, waiting, stopping, notes, given_back, requeued, version, written) = row[19:]
        spec = specs.get(written)
        if spec is None:
            spec = specs[written] = spec_of(written)
        reason = reasons.get((code, text))
        if reason is None:
            reason = reasons[code, text] = Reason.read(restored(code), restored(text))
        made.append(
            Job(
                id=JobId(restored(job_id)),
                user=restored(user),
                spec=spec,
                submitted_at=moment(submitted),
                seq=seq,
                state=_STATES[state],
                reason=reason,
                attempt=attempt,
                version=version,
                started_at=maybe_moment(started),
                ended_at=maybe_moment(ended),
                exit_code=exit_code,
                seats=() if seat is None else _seats_of(seat),
                handle=None if handle is None else restored(handle),
                array_id="" if array_id is None else restored(array_id),
                array_index=array_index,
                waiting_for=() if waiting is None else tuple(Dependency(*one) for one in json.loads(waiting)),
                stop_requested_at=maybe_moment(stopping),
                notes=() if notes is None else tuple(json.loads(notes)),
                given_back=given_back or 0,
                requeued=requeued or 0,
            )
        )
    return tuple(made)


def past_row(run: PastRun) -> Row:
    """In the column order of `past_runs`."""
    return (
        stored(run.job_id),
        run.attempt,
        run.state.value,
        stored(run.reason_code),
        stored(run.reason_text),
        maybe_micros(run.started_at),
        micros(run.ended_at),
        run.exit_code,
        stored(run.node),
    )


def past_of(row: Row) -> PastRun:
    job_id, attempt, state, code, text, started, ended, exit_code, node = row
    return PastRun(
        JobId(restored(job_id)),
        attempt,
        _STATES[state],
        restored(code),
        restored(text),
        maybe_moment(started),
        moment(ended),
        exit_code,
        restored(node),
    )


def environ_text(environ: Mapping[str, str]) -> str:
    return _json(dict(environ))


def environ_of(text: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(text)
    return found


def token_row(token: Token) -> Row:
    """In the column order of `tokens`."""
    return (
        stored(token.id),
        stored(token.digest),
        stored(token.user),
        token.role.value,
        stored(token.name),
        micros(token.created_at),
        maybe_micros(token.expires_at),
    )


def token_of(row: Row) -> Token:
    token_id, digest, user, role, name, created, expires = row
    return Token(
        restored(token_id),
        restored(digest),
        restored(user),
        Role(role),
        restored(name),
        moment(created),
        maybe_moment(expires),
    )
