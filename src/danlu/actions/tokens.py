"""Tokens for doors over the network: shown once, kept as a hash."""

import hashlib
import os
from collections.abc import Sequence
from datetime import datetime, timedelta

from danlu.domain.account import Actor, Role, demand
from danlu.errors import Invalid, NotFound, Unauthorized
from danlu.store.base import Store, Token

PREFIX = "danlu_"


def digest_of(secret: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


async def create(
    store: Store, actor: Actor, *, user: str, name: str, role: str, days: int | None, now: datetime
) -> tuple[Token, str]:
    """A new token and, this one time, its secret."""
    demand(actor, "token.create", user, "a token")
    if role not in set(Role):
        raise Invalid(f"no role `{role}`", f"one of: {', '.join(Role)}")
    if not user or not user.isprintable() or len(user) > 100:
        raise Invalid("a token needs the name of a user")
    secret = PREFIX + os.urandom(32).hex()
    token = Token(
        id=os.urandom(4).hex(),
        digest=digest_of(secret),
        user=user,
        role=Role(role),
        name=name,
        created_at=now,
        expires_at=now + timedelta(days=days) if days else None,
    )
    await store.add_token(token)
    return token, secret


async def everyone(store: Store, actor: Actor) -> Sequence[Token]:
    demand(actor, "token.list", "", "the list of tokens")
    return await store.tokens()


async def revoke(store: Store, actor: Actor, token_id: str) -> None:
    demand(actor, "token.revoke", "", f"token {token_id}")
    if not await store.drop_token(token_id):
        raise NotFound(f"no token `{token_id}`", "`danlu token list` shows them")


async def bearer(store: Store, secret: str, *, now: datetime) -> Actor:
    """Who holds this token."""
    token = await store.token(digest_of(secret)) if secret.startswith(PREFIX) else None
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        raise Unauthorized("the token is unknown, revoked or expired", "ask an administrator for a new one")
    return Actor(token.user, token.role)
