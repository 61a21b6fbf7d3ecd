"""Routes of the installation: status, nodes, tokens, stopping the server."""

import os
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from danlu import __version__
from danlu.actions import tokens, views
from danlu.api.answers import NewToken, NodeList, Removed, Status, Stopping, TokenList
from danlu.api.desk import Desk, TheActor, TheDesk
from danlu.api.wire import Json, TokenIn, counts_out, node_out, read_body, time_out, token_out
from danlu.domain.account import demand

router = APIRouter(default_response_class=Json)


@router.get("/status", response_model=Status)
async def status(desk: TheDesk, actor: TheActor) -> Response:
    demand(actor, "server.status", actor.name, "the status")
    trouble = desk.trouble()
    nodes = _nodes(desk)
    return Json(
        {
            "version": __version__,
            "pid": os.getpid(),
            "address": desk.addresses[0],
            "addresses": list(desk.addresses),
            "engine": desk.engine.name,
            "state_dir": desk.state_dir,
            "pretends": desk.rules.pretends or None,
            "started_at": time_out(desk.started_at),
            "user": actor.name,
            "role": actor.role,
            "trouble": trouble.text if trouble else None,
            "jobs": counts_out(desk.book.live.counts()),
            "nodes": nodes,
            "cards": [{"node": node["name"], **card} for node in nodes for card in node["gpus"]],
        }
    )


def _nodes(desk: Desk) -> list[dict[str, Any]]:
    return [node_out(view) for view in views.node_views(desk.book, desk.rules.nodes, now=datetime.now(UTC))]


@router.get("/nodes", response_model=NodeList)
async def list_nodes(desk: TheDesk, actor: TheActor) -> Response:
    demand(actor, "node.list", actor.name, "the list of nodes")
    return Json(
        {"items": [node_out(view) for view in views.node_views(desk.book, desk.rules.nodes, now=datetime.now(UTC))]}
    )


@router.post("/tokens", status_code=201, response_model=NewToken)
async def create_token(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    wanted = read_body(TokenIn, await request.body())
    token, secret = await tokens.create(
        desk.book.store,
        actor,
        user=wanted.user,
        name=wanted.name,
        role=wanted.role,
        days=wanted.days,
        now=datetime.now(UTC),
    )
    return Json({**token_out(token), "token": secret}, status_code=201)


@router.get("/tokens", response_model=TokenList)
async def list_tokens(desk: TheDesk, actor: TheActor) -> Response:
    return Json({"items": [token_out(token) for token in await tokens.everyone(desk.book.store, actor)]})


@router.delete("/tokens/{token_id}", response_model=Removed)
async def revoke_token(desk: TheDesk, actor: TheActor, token_id: str) -> Response:
    await tokens.revoke(desk.book.store, actor, token_id)
    return Json({"removed": 1})


@router.post("/server/stop", response_model=Stopping)
async def stop_server(desk: TheDesk, actor: TheActor) -> Response:
    demand(actor, "server.stop", "the administrator", "the server")
    desk.stop_server()
    return Json({"stopping": True})
