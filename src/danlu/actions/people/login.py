"""Logging in and out, the actor's own account, and the first administrator."""

import logging
from dataclasses import replace
from datetime import datetime

from danlu.actions.audit import entry
from danlu.actions.people import passwords, tokens
from danlu.actions.people.context import FullStore, PeopleContext
from danlu.actions.people.requests import not_open, undecided_of
from danlu.actions.people.users import check_new_name, find_person, refuse_disabled
from danlu.domain.people import Actor, Person, Role, check_name, demand
from danlu.errors import Forbidden, Refused, Unauthorized
from danlu.store.protocol import Token

log = logging.getLogger(__name__)


async def login(
    context: PeopleContext, *, user: str, password: str, is_hashed: bool = False, origin: str, now: datetime
) -> tuple[Person, Token, str]:
    """Exchange a password for a token. Unknown names and wrong passwords get the same answer, after the same work.
    The answer to the password of an undecided request does not show whether an account of this name exists."""
    context.limiter.enter(user[:64], origin, now)
    asked = undecided_of(context.roster, user)
    found = context.roster.persons.get(user)
    kept, value = found.password if found else "", passwords.given_value(password, is_hashed=is_hashed)
    if not await passwords.is_right(kept, value):
        if await passwords.is_right(asked.password if asked else "", value) and asked:
            context.limiter.was_no_guess(user[:64], origin, now)
            raise not_open(asked)
        # An unknown name stays out of the log: people sometimes type the password there.
        log.info("a login%s from %s was refused", f" as {user}" if found else "", origin)
        raise Unauthorized(
            "the name or the password is wrong",
            "an administrator can reset it: `danlu passwd NAME`; who has no account asks for one: `danlu account ask`",
        )
    person = context.roster.persons.get(user)
    if person is None or person.password != kept:
        raise Unauthorized("the password was changed at this moment", "log in again")
    refuse_disabled(person)
    context.limiter.passed(user[:64], origin)
    token, secret = await issue_login(context.store, person, origin=origin, now=now, days=context.rules.login_days)
    return person, token, secret


async def issue_login(store: FullStore, person: Person, *, origin: str, now: datetime, days: int) -> tuple[Token, str]:
    """Make a token named `login` for a person with a proven identity."""
    token, secret = tokens.new_token(person.name, tokens.LOGIN, Role.ADMIN, days=days, now=now)
    await tokens.drop_expired(store, person.name, now)
    actor = Actor(person.name, origin=origin)
    await store.add_token(token, [entry(actor, "account.login", person.name, f"token {token.id}", now=now)])
    return token, secret


def check_own(actor: Actor) -> None:
    demand(actor, "account.whoami", actor.name, "this account")


async def logout(context: PeopleContext, actor: Actor, token: Token, *, now: datetime) -> None:
    demand(actor, "account.logout", token.user, "a login")
    await context.keyring.drop(token, entry(actor, "account.logout", token.user, f"token {token.id}", now=now))


async def first_admin(
    context: PeopleContext, *, code: str, user: str, password: str, origin: str, now: datetime
) -> tuple[Person, Token, str]:
    """Make the holder of the code printed by the server the first administrator."""
    context.limiter.enter_place(origin, now)
    if not context.first.is_right(code):
        raise Unauthorized(
            "the code is wrong, was used, or is of an earlier start of the server", "restart it to get a new one"
        )
    kept = await passwords.hashed(passwords.new_value(password))
    async with context.changing:
        if not context.first.is_right(code) or has_admin(context):
            raise Refused("there is an administrator already", "ask them for an account")
        known = context.roster.persons.get(check_name(user, "an account"))
        if known is None:
            check_new_name(context.roster, user, by_admin=True, as_submitter=context.rules.as_submitter)
        person = replace(known or Person(user, now), role=Role.ADMIN, is_enabled=True, password=kept)
        actor = Actor(user, origin=origin)
        await context.roster.record([person], [entry(actor, "user.create", user, "the first administrator", now=now)])
        context.first.end()
    context.limiter.passed_place(origin)
    token, secret = await issue_login(context.store, person, origin=origin, now=now, days=context.rules.login_days)
    return person, token, secret


def has_admin(context: PeopleContext) -> bool:
    return any(one.role is Role.ADMIN and one.is_enabled for one in context.roster.persons.values())


async def change_password(
    context: PeopleContext,
    actor: Actor,
    *,
    user: str,
    old: str = "",
    new: str,
    is_hashed: bool = False,
    token: Token | None,
    now: datetime,
) -> int:
    """Change the actor's own password with the old password, or any password as an administrator. Ends the person's
    logins, except the login behind this request, and returns the number of ended logins."""
    demand(actor, "account.passwd", user, f"the password of {user[:40]}")
    person = find_person(context.roster, user)
    value = passwords.new_value(new, is_hashed=is_hashed)
    if actor.name == user:
        if not person.password:
            raise Refused("your account has no password", "an administrator can give you one: `danlu passwd NAME`")
        context.limiter.enter(user, actor.origin, now)
        if not await passwords.is_right(person.password, passwords.given_value(old, is_hashed=is_hashed)):
            raise Forbidden("the old password is wrong", "an administrator can reset it")
        context.limiter.passed(user, actor.origin)
    kept = await passwords.hashed(value)
    async with context.changing:
        if find_person(context.roster, user).password != person.password and actor.name == user:
            raise Refused("the password was changed at this moment", "an administrator can reset it")
        person = replace(find_person(context.roster, user), password=kept)
        detail = "" if actor.name == user else "reset"
        await context.roster.record([person], [entry(actor, "account.passwd", user, detail, now=now)])
    return await tokens.end_logins(context, user, but=token.digest if token else "")
