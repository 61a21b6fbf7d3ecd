"""The JSON of the REST API: checks request bodies, and makes answers."""

import difflib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, WithJsonSchema, create_model
from starlette.requests import Request
from starlette.responses import JSONResponse

from danlu.actions.jobs.alternatives import Alternative, render_options
from danlu.actions.jobs.views import Holder, JobView, NodeView, PastRunView
from danlu.actions.jobs.why import DryRun, Why
from danlu.api.fields import Flag, Folder, Pairs, Text, Texts, Words, Written, string
from danlu.domain.job import JobSpec
from danlu.domain.options import AMOUNT, COUNT, LIST, OPTIONS, PAIRS, SWITCH, TEXT
from danlu.domain.request import REQUEST_NAMES, JobRequest
from danlu.domain.resources import Ask, Seat
from danlu.domain.texts import LONGEST_PATH
from danlu.errors import DanluError, Invalid, TooLong
from danlu.provision.snapshots import MAX_FILES

M = TypeVar("M", bound=BaseModel)
# A job with its environment. Parsing takes thirty times the memory, and blocks all other requests.
MOST_BODY = 8 * 2**20
MOST_LISTED = 16 * 2**20  # the list of a snapshot's files
SMALL = 64 * 2**10  # all other requests
MOST_SHOWN = 1_000  # characters of a command and its variables in a list of jobs


_KINDS: dict[str, Any] = {COUNT: Written, AMOUNT: Written, TEXT: Text, SWITCH: Flag, PAIRS: Pairs, LIST: Texts}
# Fields of a client besides the options written by people.
_BESIDES: dict[str, Any] = {"command": Words, "workdir": Folder, "snapshot": Text, "umask": Text, "environ": Pairs}
_FIELDS: dict[str, Any] = {one.name: _KINDS[one.kind] for one in OPTIONS} | _BESIDES
_OPTIONAL: Any = {name: (kind | None, None) for name, kind in _FIELDS.items()}
# Options of a submit; each option may be left out.
ChangesIn: type[BaseModel] = create_model("ChangesIn", __config__=ConfigDict(extra="forbid"), **_OPTIONAL)


class StopIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    now: bool = False
    kill: bool = False


_FILE = {"type": "array", "maxItems": 4, "items": {"anyOf": [string(LONGEST_PATH), {"type": "integer"}]}}
_FILES = {"type": "array", "maxItems": MAX_FILES, "items": _FILE}


class SnapshotIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    files: Annotated[list[Any], WithJsonSchema(_FILES)]


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """A body for OpenAPI. The routes read bodies by hand: text may not be UTF-8, and errors name the option."""
    is_needed = any(field.is_required() for field in model.model_fields.values())
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"content": content, "required": is_needed}}


async def body_of(request: Request, *, most: int = MOST_BODY) -> bytes:
    """The whole body. The server refuses a body over `most` bytes and does not read the rest."""
    declared = request.headers.get("content-length", "")
    parts, size = [], int(declared) if declared.isdecimal() else 0
    if size <= most:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            parts.append(part)
    if size > most:
        raise TooLong(f"the body is longer than {most:,} bytes", "send less at once")
    return b"".join(parts)


def parse_json(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise Invalid(f"{what} is nested too deeply", "no request needs lists in lists in lists") from None
    except ValueError as error:
        raise Invalid(f"{what} is not valid JSON: {error}") from error


async def read_body(model: type[M], request: Request, *, most: int = SMALL) -> M:
    """Check a body against its model; the error names the first wrong field."""
    document = parse_json(await body_of(request, most=most) or b"{}", "the body")
    if not isinstance(document, dict):
        raise Invalid("the body must be a JSON object")
    # Checked before the model, which would report each of a million unknown names.
    unknown = next((name for name in document if name not in model.model_fields), None)
    if unknown is not None:
        raise _unknown_option(unknown[:60], model)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "body"
        raise Invalid(f"`{name}`: {first['msg'].removeprefix('Value error, ')}") from error


def _unknown_option(name: str, model: type[BaseModel]) -> Invalid:
    near = difflib.get_close_matches(name, model.model_fields, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(model.model_fields)}"
    return Invalid(f"unknown option `{name}`", hint, code="unknown_option")


def request_in(changes: BaseModel) -> JobRequest:
    given = changes_in(changes)
    if "command" not in given:
        raise Invalid("a job needs a command", "for example `danlu run -- python train.py`")
    return JobRequest(**given)


def changes_in(changes: BaseModel) -> dict[str, Any]:
    given = {name: value for name in REQUEST_NAMES if (value := getattr(changes, name)) is not None}
    if "array" in given:
        given["array"] = str(given["array"])
    return given


class Json(JSONResponse):
    """JSON in ASCII: lone surrogates have no UTF-8 form, but an escaped form."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


class Problem(Json):
    media_type = "application/problem+json"


def problem_out(error: DanluError) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": type(error).__name__,
        "status": error.status,
        "code": error.code,
        "detail": error.text,
        "hint": error.hint,
    }


def time_out(at: datetime | None) -> str | None:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z") if at else None


def cut(spec: JobSpec) -> tuple[list[str], dict[str, str], bool]:
    """The command and the variables for a list of jobs, and whether something was left out."""
    command: list[str] = []
    env: dict[str, str] = {}
    room = MOST_SHOWN
    for word in spec.command:
        if len(word) > room:
            return [*command, word[: max(room, 0)], "…"], {}, True
        command.append(word)
        room -= len(word) + 1
    for name, value in spec.env:
        if len(name) + len(value) > room:
            return command, env, True
        env[name] = value
        room -= len(name) + len(value)
    return command, env, False


def job_out(view: JobView, *, whole: bool = False) -> dict[str, Any]:
    """`whole`: with all of a long command. Lists cut commands: a person's jobs must not fill another's lists."""
    job, reason, mine = view.job, view.reason, view.sees_command
    spec, ask, seat = job.spec, job.spec.ask, job.seat
    command, env, is_cut = (list(spec.command), dict(spec.env), False) if whole else cut(spec)
    return {
        "id": job.id,
        "seq": job.seq,
        "number": job.number,
        "user": job.user,
        "name": spec.name,
        "state": job.state,
        "reason": {"code": reason.code, "text": reason.full_text},
        "place": view.place,
        "estimated_at": time_out(view.estimated_at),
        "command": command if mine else None,
        "workdir": spec.workdir if mine else None,
        "env": env if mine else None,
        "is_cut": is_cut and mine,
        "log_path": view.log_path or None,
        "labels": dict(spec.labels),
        "ask": ask_out(ask),
        "priority": spec.priority,
        "time_limit_s": int(spec.time_limit.total_seconds()) if spec.time_limit else None,
        "signal": f"{spec.notice.signal}@{spec.notice.lead.total_seconds():.0f}" if spec.notice else None,
        "retries": spec.retries,
        "attempt": job.attempt,
        "after": [f"{dependency.on}:{dependency.kind}" for dependency in spec.after],
        "array": spec.array,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "snapshot": spec.snapshot if mine else "",  # a content hash: it would reveal equal files
        "queue": spec.queue,
        "team": spec.team,
        "preemptible": spec.is_preemptible,
        "interactive": spec.is_interactive,
        "submitted_at": time_out(job.submitted_at),
        "started_at": time_out(job.started_at),
        "ended_at": time_out(job.ended_at),
        "stop_requested_at": time_out(job.stop_requested_at),
        "exit_code": job.exit_code,
        "notes": list(job.notes) if mine else [],
        "run_id": job.run_id,
        "node": seat.node if seat else None,
        "gpus": list(seat.gpus) if seat else [],
        "shared_gpu": seat.shared_gpu if seat else None,
        "seats": [seat_out(one) for one in job.seats],
    }


def ask_out(ask: Ask) -> dict[str, Any]:
    return {
        "gpus": ask.gpus,
        "gpu_model": ask.gpu_model,
        "shards": ask.shards,
        "cpus": ask.cpus,
        "memory_mib": ask.memory_mib,
        "shm_mib": ask.shm_mib,
        "nodes": ask.nodes,
    }


def past_run_out(view: PastRunView) -> dict[str, Any]:
    run, reason = view.run, view.reason
    return {
        "attempt": run.attempt,
        "state": run.state,
        "reason": {"code": reason.code, "text": reason.full_text},
        "started_at": time_out(run.started_at),
        "ended_at": time_out(run.ended_at),
        "exit_code": run.exit_code,
        "node": run.node,
    }


def dry_run_out(made: DryRun) -> dict[str, Any]:
    answer, others = made.answer, [alternative_out(one) for one in made.alternatives]
    if isinstance(answer, Seat):
        found = {"fits_now": True, "seat": seat_out(answer), "reason": None, "estimated_at": None, "is_guess": False}
    else:
        reason = {"code": answer.reason.code, "text": answer.reason.full_text}
        estimate = {"estimated_at": time_out(answer.estimated_at), "is_guess": answer.is_guess}
        found = {"fits_now": False, "seat": None, "reason": reason, **estimate}
    return found | {"alternatives": others}


def seat_out(seat: Seat) -> dict[str, Any]:
    return {"node": seat.node, "gpus": list(seat.gpus), "shared_gpu": seat.shared_gpu, "shards": seat.shards}


def alternative_out(one: Alternative) -> dict[str, Any]:
    return {
        "changes": dict(one.changes),
        "options": render_options(one.changes),
        "text": one.text,
        "seat": seat_out(one.seat),
    }


def holder_out(holder: Holder) -> dict[str, Any]:
    return {
        "id": holder.id,
        "user": holder.user,
        "team": holder.team,
        "node": holder.node,
        "gpus": list(holder.gpus),
        "shards": holder.shards,
        "ends_at": time_out(holder.ends_at),
        "is_other": holder.is_other,
    }


def why_out(why: Why) -> dict[str, Any]:
    return {
        "id": why.job.id,
        "state": why.job.state,
        "reason": {"code": why.reason.code, "text": why.reason.full_text},
        "place": why.place,
        "estimated_at": time_out(why.estimated_at),
        "is_guess": why.is_guess,
        "holders": [holder_out(holder) for holder in why.holders],
        "alternatives": [
            alternative_out(one) | {"command": f"danlu clone {why.job.id} {render_options(one.changes)}"}
            for one in why.alternatives
        ],
    }


def node_out(view: NodeView) -> dict[str, Any]:
    node = view.node
    return {
        "name": node.name,
        "cpus": node.cpus,
        "cpus_free": view.cpus_free,
        "memory_mib": node.memory_mib,
        "memory_free_mib": view.memory_free_mib,
        "accepts_jobs": node.accepts_jobs,
        "state": view.state,
        "why_closed": view.why_closed,
        "holders": [holder_out(holder) for holder in view.holders],
        "gpus": [
            {
                "index": card.gpu.index,
                "model": card.gpu.model,
                "memory_mib": card.gpu.memory_mib,
                "use": card.use,
                "shards": card.gpu.shards,
                "shards_free": card.shards_free,
                "holders": [holder_out(holder) for holder in card.holders],
            }
            for card in view.gpus
        ],
    }


def counts_out(jobs: Mapping[Any, int]) -> dict[str, int]:
    return {str(state): count for state, count in jobs.items() if count}
