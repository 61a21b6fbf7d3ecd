"""Tokens for access over the network: named, expiring, shown once, stored as a hash.
A token never gives more rights than its person has now: role and teams come from the roster at each request."""

import hashlib
import os
from collections.abc import Sequence
from datetime import datetime, timedelta

from danlu.actions.audit import entry
from danlu.actions.people.context import FullStore, PeopleContext
from danlu.actions.people.users import actor_for, find_person, refuse_disabled
from danlu.domain.people import Actor, Role, demand
from danlu.errors import Forbidden, Invalid, NotFound, Refused, Unauthorized
from danlu.store.protocol import Token

PREFIX = "danlu_"
LOGIN = "login"  # the name of each token made by a login
DEFAULT_DAYS = 90
MOST_DAYS = 366
MOST_DAYS_OF_ADMINS = 3660


def digest_of(secret: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def new_token(user: str, name: str, role: Role, *, days: int, now: datetime) -> tuple[Token, str]:
    """A token with its secret, which is never shown again. `role` is the upper limit of the token's rights; with 0
    days the token does not expire."""
    secret = PREFIX + os.urandom(32).hex()
    expires_at = now + timedelta(days=days) if days else None
    return Token(os.urandom(4).hex(), digest_of(secret), user, role, name, now, expires_at), secret


async def create(
    context: PeopleContext,
    actor: Actor,
    *,
    user: str = "",
    name: str = "",
    role: str = Role.MEMBER,
    days: int | None = None,
    now: datetime,
) -> tuple[Token, str]:
    """Create a token for the actor, or as an administrator for any account. The secret is never shown again."""
    user = user or actor.name
    demand(actor, "token.create", user, f"a token of {user}")
    if role not in set(Role):
        raise Invalid(f"no role `{role}`", f"one of: {', '.join(Role)}")
    if not name or name == LOGIN or len(name) > 60 or not name.isprintable():
        raise Invalid("a token needs a name of its own, of at most 60 characters", "what will use it? `laptop`, `ci`")
    if user not in context.roster.persons:
        raise NotFound(f"{user[:40]} has no account, and tokens are of accounts", "make it first: `danlu user create`")
    person = find_person(context.roster, user)
    refuse_disabled(person)
    if role == Role.ADMIN and person.role is not Role.ADMIN:
        raise Refused(f"{user} is no administrator, so no token of {user} can be one's", "leave `--role` out")
    if role == Role.ADMIN and not actor.is_admin:
        # An administrator's token for scripts, limited to a member's rights, must not create a stronger token.
        raise Forbidden("this token gives a member's rights, and makes no administrator's", "log in, and make it then")
    days = DEFAULT_DAYS if days is None else days
    most = MOST_DAYS_OF_ADMINS if actor.is_admin else MOST_DAYS
    if not (0 if actor.is_admin else 1) <= days <= most:
        raise Invalid(f"a token is valid for 1 to {most} days, not {days}", "administrators may give 0: for ever")
    token, secret = new_token(user, name, Role(role), days=days, now=now)
    detail = f"token {token.id} ({name}), role {role}, {f'{days} days' if days else 'for ever'}"
    await context.store.add_token(token, [entry(actor, "token.create", user, detail, now=now)])
    return token, secret


async def listed(context: PeopleContext, actor: Actor, *, user: str = "", everybody: bool = False) -> Sequence[Token]:
    """The actor's own tokens; an administrator may list another person's or all tokens."""
    wanted = "" if everybody else user or actor.name
    demand(actor, "token.list", wanted, f"tokens of {wanted or 'everybody'}")
    return [token for token in await context.store.tokens() if wanted in ("", token.user)]


async def revoke(context: PeopleContext, actor: Actor, token_id: str, *, now: datetime) -> Token:
    found = next((token for token in await context.store.tokens() if token.id == token_id), None)
    if found is None:
        raise NotFound(f"no token `{token_id}`", "`danlu token list` shows them")
    demand(actor, "token.revoke", found.user, f"token {token_id}")
    await context.keyring.drop(found, entry(actor, "token.revoke", found.user, f"token {token_id}", now=now))
    return found


async def bearer(context: PeopleContext, secret: str, *, origin: str, now: datetime) -> tuple[Actor, Token]:
    """The token of this secret, and its person as an actor with present role and teams."""
    token = await context.keyring.find(digest_of(secret)) if secret.startswith(PREFIX) else None
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        raise Unauthorized(
            "the token is unknown, revoked or expired", "`danlu login` makes a new one, or ask an administrator"
        )
    person = context.roster.persons.get(token.user)
    if person is None:
        raise Unauthorized(
            f"the token is of {token.user}, who has no account here", "ask an administrator to create the account"
        )
    refuse_disabled(person)
    return actor_for(context, person, origin=origin, most=token.role), token


async def end_logins(context: PeopleContext, user: str, *, but: str = "") -> int:
    """Revoke the login tokens of this person, except the token with the digest `but`. Returns the number revoked."""
    logins = [t for t in await context.store.tokens() if t.user == user and t.name == LOGIN and t.digest != but]
    for token in logins:
        await context.keyring.drop(token)
    return len(logins)


async def drop_expired(store: FullStore, user: str, now: datetime) -> None:
    for token in await store.tokens():
        if token.user == user and token.expires_at is not None and token.expires_at <= now:
            await store.drop_token(token.id)
