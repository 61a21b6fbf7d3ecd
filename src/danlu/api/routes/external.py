"""Routes of runs that did not come through Danlu: list, show, stop."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from danlu.actions.jobs import external
from danlu.api.answers import OtherList
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import Json, ask_out, seat_out, time_out
from danlu.engines.base import ExternalRun, RunState
from danlu.errors import Invalid

router = APIRouter(default_response_class=Json)


@router.get("/others", response_model=OtherList)
async def list_others(
    desk: TheDesk,
    actor: TheActor,
    state: Annotated[list[str] | None, Query()] = None,
    user: str = "",
    queue: str = "",
    name: str = "",
) -> Response:
    user = actor.name if user == "me" else user
    wanted = external.ExternalFilter(user, queue, name, _states(state or []))
    return _listed(external.list_others(desk.rules.inventory, actor, wanted))


@router.get("/others/{ref}", response_model=OtherList)
async def show_others(desk: TheDesk, actor: TheActor, ref: str) -> Response:
    return _listed(external.find_others(desk.rules.inventory, desk.engine, actor, ref))


@router.post("/others/{ref}/stop", response_model=OtherList)
async def stop_others(desk: TheDesk, actor: TheActor, ref: str) -> Response:
    now = datetime.now(UTC)
    return _listed(await external.stop_others(desk.rules.inventory, desk.context, desk.engine, actor, ref, now=now))


def _states(names: Sequence[str]) -> frozenset[RunState]:
    """Parse the wanted states. No names: an empty set, which means both states."""
    found = set()
    for name in names:
        if name.casefold() == "active":
            found |= {RunState.RUNNING, RunState.PENDING}
        elif name.upper() in (RunState.RUNNING, RunState.PENDING):
            found.add(RunState[name.upper()])
        else:
            raise Invalid(f"none of them can be `{name[:40]}`", "they run or wait: running, pending, active")
    return frozenset(found)


def _listed(found: Sequence[ExternalRun]) -> Response:
    return Json({"items": [other_out(one) for one in found]})


def other_out(other: ExternalRun) -> dict[str, Any]:
    reason = other.reason
    return {
        "id": other.id,
        "user": other.user,
        "name": other.name,
        "state": other.state,
        "reason": {"code": reason.code, "text": reason.full_text} if reason else None,
        "estimated_at": time_out(other.estimated_at),
        "ask": ask_out(other.ask),
        "tasks": other.tasks,
        "queue": other.queue,
        "submitted_at": time_out(other.submitted_at),
        "started_at": time_out(other.started_at),
        "ends_at": time_out(other.ends_at),
        "seats": [seat_out(seat) for seat in other.seats],
    }
