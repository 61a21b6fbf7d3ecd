"""The route of queues: rules, and free resources now."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from danlu.actions.cluster.queue_views import QueueView, queue_views
from danlu.api.answers import QueueList
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import Json

router = APIRouter(default_response_class=Json)


@router.get("/queues", response_model=QueueList)
async def list_queues(desk: TheDesk, actor: TheActor) -> Response:
    views = queue_views(desk.cache, desk.rules.inventory, actor, now=datetime.now(UTC))
    return Json({"items": [queue_out(view) for view in views], "trouble": desk.trouble_text})


def queue_out(view: QueueView) -> dict[str, Any]:
    queue = view.queue
    return {
        "name": queue.name,
        "default": queue.is_default,
        "interactive": queue.is_interactive,
        "may_use": not view.why_not,
        "why_not": view.why_not,
        "closed": queue.closed,
        "takes_jobs": queue.takes_jobs,
        "users": sorted(queue.users),
        "teams": sorted(queue.teams),
        "groups": sorted(queue.groups),
        "besides": queue.besides,
        "nodes": list(view.nodes),
        "cards": [
            {"model": cards.model, "total": cards.total, "free": cards.free, "shards_free": cards.shards_free}
            for cards in view.cards
        ],
        "cpus": view.cpus,
        "cpus_free": view.cpus_free,
        "running": view.running,
        "waiting": view.waiting,
        "max_gpus": queue.max_gpus,
        "max_shards": queue.max_shards,
        "max_cpus": queue.max_cpus,
        "max_memory_mib": queue.max_memory_mib,
        "max_time_s": _seconds(queue.max_time),
        "default_time_s": _seconds(queue.default_time),
        "default_priority": queue.default_priority,
        "max_priority": queue.max_priority,
    }


def _seconds(time: timedelta | None) -> int | None:
    return int(time.total_seconds()) if time else None
