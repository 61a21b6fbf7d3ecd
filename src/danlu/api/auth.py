"""Identifies the client by the Unix socket or a token, and checks the rights of long streams again."""

import asyncio
import contextlib
import os
import pwd
import time
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from danlu.actions.installation import Installation
from danlu.actions.people import tokens
from danlu.actions.people.users import unix_actor
from danlu.api.connections import LINE, PEER
from danlu.domain.people import Actor
from danlu.errors import DanluError, Invalid, Unauthorized
from danlu.store.protocol import Token


async def desk_of(connection: HTTPConnection) -> Installation:
    desk: Installation = connection.app.state.desk
    return desk


ON_THE_SOCKET = "unix socket"
LOOK_AGAIN_S, LOOK_S = 15.0, 1.0


async def actor_of(connection: HTTPConnection) -> Actor:
    """The person behind a request: on the Unix socket from the kernel, elsewhere from a token."""
    actor, _ = await recognized(connection)
    return actor


async def recognized(connection: HTTPConnection) -> tuple[Actor, Token | None]:
    """The person behind a request, and the identifying token. None: the kernel identified the person."""
    if {"token", "access_token", "api_key"} & set(connection.query_params):
        raise Invalid("a token does not belong in a URL: it ends up in logs", "send `Authorization: Bearer TOKEN`")
    desk = await desk_of(connection)
    uid = _uid_of(connection)
    if uid is not None:
        is_owner = uid in (0, os.getuid())
        return unix_actor(desk.context, _unix_name(uid), is_owner=is_owner, origin=ON_THE_SOCKET), None
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.casefold() != "bearer" or not secret:
        raise Unauthorized("this server wants to know who you are", "`danlu login`, or set DANLU_TOKEN")
    now = datetime.now(UTC)
    actor, token = await tokens.bearer(desk.context, secret.strip(), origin=origin_of(connection), now=now)
    if line := connection.scope.get(LINE):
        line.recognize(actor.name)
    return actor, token


def origin_of(connection: HTTPConnection) -> str:
    """The origin of a request, for the audit log and the rate limit of logins."""
    client = connection.scope.get("client")
    if not client:
        return ""
    if client[0].startswith(PEER):
        return ON_THE_SOCKET
    origin = str(client[0])
    if origin in connection.app.state.desk.proxies:
        # The proxy itself wrote the last address; any client may have written the addresses before.
        said = ",".join(connection.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
        with contextlib.suppress(ValueError):
            return str(ip_address(said))
    return origin


def _uid_of(connection: HTTPConnection) -> int | None:
    client = connection.scope.get("client")
    return int(client[0].removeprefix(PEER)) if client and client[0].startswith(PEER) else None


def _unix_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid{uid}"


TheDesk = Annotated[Installation, Depends(desk_of)]
TheActor = Annotated[Actor, Depends(actor_of)]


class Welcome:
    """Whether a person may continue an open stream: rights may change while the stream lasts. Checked again after
    each change of people or tokens, and every `LOOK_AGAIN_S` because tokens expire."""

    def __init__(self, desk: Installation, connection: HTTPConnection, check: Callable[[Actor], None]) -> None:
        self._desk, self._connection, self._check = desk, connection, check
        self._seen = (desk.context.stamp, time.monotonic())

    async def lasts(self) -> bool:
        stamp, now = self._desk.context.stamp, time.monotonic()
        if stamp == self._seen[0] and now - self._seen[1] < LOOK_AGAIN_S:
            return True
        try:
            self._check(await actor_of(self._connection))
        except DanluError:
            return False
        self._seen = (stamp, now)
        return True

    async def over(self) -> None:
        """Return when the person may no longer continue."""
        while await self.lasts():  # noqa: ASYNC110 - tokens expire by the clock, without an event
            await asyncio.sleep(LOOK_S)
