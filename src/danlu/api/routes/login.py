"""Routes of a person's own account: login, logout, whoami, password, tokens."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import Response

from danlu.actions.people import login as login_actions
from danlu.actions.people import tokens
from danlu.api.answers import Removed
from danlu.api.auth import TheActor, TheDesk, origin_of, recognized
from danlu.api.bodies import Json, read_body, schema_of
from danlu.api.present_people import (
    Ended,
    FirstIn,
    LoginIn,
    Me,
    NewToken,
    PasswordIn,
    TokenIn,
    TokenList,
    invitations_out,
    my_teams_out,
    token_out,
)

router = APIRouter(default_response_class=Json)


@router.post("/login", status_code=201, response_model=NewToken, openapi_extra=schema_of(LoginIn))
async def login(desk: TheDesk, request: Request) -> Response:
    given = await read_body(LoginIn, request)
    _, token, secret = await login_actions.login(
        desk.context,
        user=given.user,
        password=given.password,
        is_hashed=given.is_hashed,
        origin=origin_of(request),
        now=datetime.now(UTC),
    )
    return Json({**token_out(token, desk.roster), "token": secret}, status_code=201)


@router.post("/login/first", status_code=201, response_model=NewToken, openapi_extra=schema_of(FirstIn))
async def first_admin(desk: TheDesk, request: Request) -> Response:
    given = await read_body(FirstIn, request)
    _, token, secret = await login_actions.first_admin(
        desk.context,
        code=given.code,
        user=given.user,
        password=given.password,
        origin=origin_of(request),
        now=datetime.now(UTC),
    )
    return Json({**token_out(token, desk.roster), "token": secret}, status_code=201)


@router.post("/logout", response_model=Removed)
async def logout(desk: TheDesk, request: Request) -> Response:
    actor, token = await recognized(request)
    if token is None:
        return Json({"removed": 0})
    await login_actions.logout(desk.context, actor, token, now=datetime.now(UTC))
    return Json({"removed": 1})


@router.get("/me", response_model=Me)
async def whoami(desk: TheDesk, request: Request) -> Response:
    actor, token = await recognized(request)
    login_actions.check_own(actor)
    person = desk.roster.persons.get(actor.name)
    return Json(
        {
            "user": actor.name,
            "role": actor.role,
            "full_name": person.full_name if person else "",
            "email": person.email if person else "",
            "has_account": person is not None,
            "teams": my_teams_out(actor.teams, desk.roster),
            "invitations": invitations_out(desk.roster.invitations(user=actor.name)),
            "by": actor.origin if token is None else "login" if token.name == tokens.LOGIN else "token",
            "token": token_out(token, desk.roster) if token else None,
            "server": desk.addresses[-1],
        }
    )


@router.post("/users/{name}/password", response_model=Ended, openapi_extra=schema_of(PasswordIn))
async def change_password(desk: TheDesk, request: Request, name: str) -> Response:
    actor, token = await recognized(request)
    given = await read_body(PasswordIn, request)
    ended = await login_actions.change_password(
        desk.context,
        actor,
        user=name,
        old=given.old,
        new=given.new,
        is_hashed=given.is_hashed,
        token=token,
        now=datetime.now(UTC),
    )
    return Json({"ended": ended})


@router.post("/tokens", status_code=201, response_model=NewToken, openapi_extra=schema_of(TokenIn))
async def create_token(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    given = await read_body(TokenIn, request)
    token, secret = await tokens.create(
        desk.context,
        actor,
        user=given.user,
        name=given.name,
        role=given.role,
        days=given.days,
        now=datetime.now(UTC),
    )
    return Json({**token_out(token, desk.roster), "token": secret}, status_code=201)


@router.get("/tokens", response_model=TokenList)
async def list_tokens(desk: TheDesk, actor: TheActor, user: str = "", everybody: bool = False) -> Response:
    found = await tokens.listed(desk.context, actor, user=user, everybody=everybody)
    return Json({"items": [token_out(token, desk.roster) for token in found]})


@router.delete("/tokens/{token_id}", response_model=Removed)
async def revoke_token(desk: TheDesk, actor: TheActor, token_id: str) -> Response:
    await tokens.revoke(desk.context, actor, token_id, now=datetime.now(UTC))
    return Json({"removed": 1})
