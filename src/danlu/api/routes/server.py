"""Routes of the installation: status, nodes, stopping the server."""

import logging
import os
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from danlu import __version__
from danlu.actions.audit import note_server_stop
from danlu.actions.installation import Installation
from danlu.actions.jobs import views
from danlu.api.answers import Health, NodeList, Status, Stopping
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import Json, counts_out, node_out, time_out
from danlu.domain.people import Actor
from danlu.errors import StoreDown

log = logging.getLogger(__name__)
router = APIRouter(default_response_class=Json)
health = APIRouter(default_response_class=Json)  # no version in the path, and no login


@health.get("/healthz", response_model=Health, responses={503: {"model": Health}})
async def healthz(desk: TheDesk) -> Response:
    """For monitoring, without a token: only a code, because strangers may read the answer too."""
    trouble = desk.trouble()
    return Json({"ok": not trouble, "code": trouble.code if trouble else None}, status_code=503 if trouble else 200)


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
            "trouble": desk.trouble_text,
            "jobs": counts_out(desk.cache.active_jobs.counts()),
            "nodes": nodes,
            "cards": [{"node": node["name"], **card} for node in nodes for card in node["gpus"]],
        }
    )


def _nodes(desk: Installation, actor: Actor) -> list[dict[str, Any]]:
    found = views.node_views(desk.cache, desk.rules.inventory, actor, now=datetime.now(UTC))
    return [node_out(view) for view in found]


@router.get("/nodes", response_model=NodeList)
async def list_nodes(desk: TheDesk, actor: TheActor) -> Response:
    return Json({"items": _nodes(desk, actor), "trouble": desk.trouble_text})


@router.post("/server/stop", response_model=Stopping)
async def stop_server(desk: TheDesk, actor: TheActor) -> Response:
    try:
        await note_server_stop(desk.context.store, actor, now=datetime.now(UTC))
    except StoreDown as error:  # a server with a full disk must be stoppable, too
        log.warning("%s stops the server; that is not in the audit log: %s", actor.name, error.text)
    desk.stop_server()
    return Json({"stopping": True})
