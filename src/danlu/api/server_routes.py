"""Routes of the installation: status, nodes, stopping the server."""

import os
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from danlu import __version__
from danlu.actions import views
from danlu.actions.audit import note_server_stop
from danlu.api.answers import NodeList, Status, Stopping
from danlu.api.desk import Desk, TheActor, TheDesk, trouble_of
from danlu.api.wire import Json, counts_out, node_out, time_out
from danlu.domain.account import Actor

router = APIRouter(default_response_class=Json)


@router.get("/status", response_model=Status)
async def status(desk: TheDesk, actor: TheActor) -> Response:
    views.check_status(actor)
    nodes = _nodes(desk, actor)
    return Json(
        {
            "version": __version__,
            "pid": os.getpid(),
            "address": desk.addresses[0],
            "addresses": list(desk.addresses),
            "engine": desk.engine.name,
            "pretends": desk.rules.pretends or None,
            "runs_as": "submitter" if desk.rules.run_as.as_submitter else desk.rules.run_as.server,
            "is_shut": desk.rules.run_as.is_shut,
            "state_dir": desk.state_dir,
            "started_at": time_out(desk.started_at),
            "user": actor.name,
            "role": actor.role,
            "trouble": trouble_of(desk),
            "jobs": counts_out(desk.book.live.counts()),
            "nodes": nodes,
            "cards": [{"node": node["name"], **card} for node in nodes for card in node["gpus"]],
        }
    )


def _nodes(desk: Desk, actor: Actor) -> list[dict[str, Any]]:
    found = views.node_views(desk.book, desk.rules.inventory, actor, now=datetime.now(UTC))
    return [node_out(view) for view in found]


@router.get("/nodes", response_model=NodeList)
async def list_nodes(desk: TheDesk, actor: TheActor) -> Response:
    return Json({"items": _nodes(desk, actor), "trouble": trouble_of(desk)})


@router.post("/server/stop", response_model=Stopping)
async def stop_server(desk: TheDesk, actor: TheActor) -> Response:
    await note_server_stop(desk.office.store, actor, now=datetime.now(UTC))
    desk.stop_server()
    return Json({"stopping": True})
