"""What the routes are given, and who is asking."""

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from danlu.actions import tokens
from danlu.actions.jobs import Rules
from danlu.actions.planning import Outlook
from danlu.api.wire import job_out
from danlu.domain.account import Actor, Role
from danlu.domain.job import Job
from danlu.engines.base import Engine
from danlu.engines.logfiles import LogFiles
from danlu.errors import DanluError, Invalid, Unauthorized
from danlu.store.book import Book


@dataclass(frozen=True, slots=True)
class Desk:
    """Everything behind the door that a route may need."""

    book: Book
    engine: Engine
    files: LogFiles
    outlook: Outlook
    rules: Rules
    state_dir: str
    addresses: tuple[str, ...]
    trouble: Callable[[], DanluError | None]
    stop_server: Callable[[], None]
    snapshot_limit_bytes: int = 100 * 2**20
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))


async def desk_of(connection: HTTPConnection) -> Desk:
    desk: Desk = connection.app.state.desk
    return desk


async def actor_of(connection: HTTPConnection) -> Actor:
    """Who asks: on the Unix socket the kernel says so, elsewhere a token does."""
    if {"token", "access_token", "api_key"} & set(connection.query_params):
        raise Invalid("a token does not belong in a URL: it ends up in logs", "send `Authorization: Bearer TOKEN`")
    desk = await desk_of(connection)
    client = connection.scope.get("client")
    if client and client[0].startswith(PEER):
        return actor_of_uid(int(client[0].removeprefix(PEER)))
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.casefold() != "bearer" or not secret:
        raise Unauthorized("this server wants a token", "set DANLU_TOKEN, or ask an administrator for one")
    return await tokens.bearer(desk.book.store, secret.strip(), now=datetime.now(UTC))


# How `api.peers` writes the Unix user at the other end into the place of a client address.
PEER = "uid:"


def actor_of_uid(uid: int) -> Actor:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid{uid}"
    return Actor(name, Role.ADMIN if uid in (0, os.getuid()) else Role.MEMBER)


TheDesk = Annotated[Desk, Depends(desk_of)]
TheActor = Annotated[Actor, Depends(actor_of)]


def job_json(desk: Desk, actor: Actor, job: Job) -> dict[str, Any]:
    return job_out(job, actor, desk.outlook.plan, desk.state_dir)
