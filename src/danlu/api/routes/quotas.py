"""Routes of shares: quotas, usage, boosts."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import Response

from danlu.actions.installation import Installation
from danlu.actions.shares import boosts, quotas
from danlu.actions.shares import usage as used
from danlu.api.answers import Removed
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import Json, read_body, schema_of
from danlu.api.present_quotas import (
    BoostIn,
    BoostList,
    BoostOut,
    QuotaIn,
    QuotaList,
    QuotaOut,
    UsageOut,
    boost_out,
    quota_out,
    usage_out,
)
from danlu.domain.people import Actor

router = APIRouter(default_response_class=Json)


@router.get("/quotas", response_model=QuotaList)
async def list_quotas(desk: TheDesk, actor: TheActor, holder: str = "", every: bool = False) -> Response:
    return Json({"items": [quota_out(one) for one in _standings(desk, actor, holder, every=every)]})


@router.put("/quotas/{holder}", response_model=QuotaOut, openapi_extra=schema_of(QuotaIn))
async def set_quota(desk: TheDesk, actor: TheActor, holder: str, request: Request) -> Response:
    words = (await read_body(QuotaIn, request)).words()
    await quotas.set_quota(desk.context, actor, holder, words, now=datetime.now(UTC))
    return Json(quota_out(_standings(desk, actor, holder)[0]))


@router.delete("/quotas/{holder}", response_model=Removed)
async def clear_quota(desk: TheDesk, actor: TheActor, holder: str) -> Response:
    was_there = await quotas.clear_quota(desk.context, actor, holder, now=datetime.now(UTC))
    return Json({"removed": int(was_there)})


def _standings(desk: Installation, actor: Actor, holder: str, *, every: bool = False) -> list[quotas.Standing]:
    active_jobs, now = desk.cache.active_jobs, datetime.now(UTC)
    seen = desk.outlook.snapshot(active_jobs, now)
    others = desk.rules.inventory.others
    return quotas.standings(desk.roster, seen, active_jobs.holding(), others, actor, holder, every=every)


@router.get("/usage", response_model=UsageOut)
async def usage(
    desk: TheDesk,
    actor: TheActor,
    user: str = "",
    team: str = "",
    since: str = "",
    until: str = "",
    by: str = "user",
) -> Response:
    found = await used.usage(
        desk.context.store,
        desk.roster,
        desk.cache.active_jobs.holding(),
        desk.rules.inventory.others,
        actor,
        user=actor.name if user == "me" else user,
        team=team,
        since=since,
        until=until,
        by=by,
        shards_per_gpu=desk.rules.inventory.shards_per_gpu,
        now=datetime.now(UTC),
    )
    return Json(usage_out(found))


@router.get("/boosts", response_model=BoostList)
async def list_boosts(desk: TheDesk, actor: TheActor) -> Response:
    return Json({"items": [boost_out(one) for one in boosts.listed(desk.roster, actor, now=datetime.now(UTC))]})


@router.post("/boosts", status_code=201, response_model=BoostOut, openapi_extra=schema_of(BoostIn))
async def boost(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    given = await read_body(BoostIn, request)
    made = await boosts.boost(
        desk.context,
        actor,
        given.user,
        until=given.until,
        why=given.why,
        team=given.team,
        now=datetime.now(UTC),
    )
    return Json(boost_out(made), status_code=201)


@router.delete("/boosts/{boost_id}", response_model=Removed)
async def end_boost(desk: TheDesk, actor: TheActor, boost_id: str) -> Response:
    await boosts.end_boost(desk.context, actor, boost_id, now=datetime.now(UTC))
    return Json({"removed": 1})
