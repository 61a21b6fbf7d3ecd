"""Routes of people: users, teams, requests for accounts, the audit log."""

import asyncio
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import Response

from danlu.actions import audit
from danlu.actions.people import requests, teams, users
from danlu.api.auth import TheActor, TheDesk, origin_of
from danlu.api.bodies import Json, read_body, schema_of, time_out
from danlu.api.fields import Cursor
from danlu.api.present_people import (
    AuditPage,
    DecidedOut,
    NewTeam,
    NewUser,
    RefuseIn,
    RequestIn,
    RequestList,
    RequestOut,
    RoleIn,
    ShownUser,
    TeamIn,
    TeamList,
    TeamOut,
    UserIn,
    UserList,
    UserOut,
    audit_out,
    folders_out,
    request_out,
    team_out,
    user_out,
)

router = APIRouter(default_response_class=Json)


@router.get("/users", response_model=UserList)
async def list_users(desk: TheDesk, actor: TheActor) -> Response:
    return Json({"items": [user_out(person, desk.roster) for person in users.listed(desk.context, actor)]})


@router.post("/users", status_code=201, response_model=NewUser, openapi_extra=schema_of(UserIn))
async def create_user(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    given = await read_body(UserIn, request)
    person, folders = await users.create(
        desk.context,
        actor,
        name=given.name,
        role=given.role,
        full_name=given.full_name,
        email=given.email,
        teams=given.teams,
        password=given.password,
        now=datetime.now(UTC),
    )
    return Json({**user_out(person, desk.roster), "folders": folders_out(folders)}, status_code=201)


@router.get("/users/{name}", response_model=ShownUser)
async def show_user(desk: TheDesk, actor: TheActor, name: str) -> Response:
    return _shown(desk, users.show(desk.context, actor, name).name)


@router.post("/users/{name}/disable", response_model=ShownUser)
async def disable_user(desk: TheDesk, actor: TheActor, name: str) -> Response:
    await users.disable(desk.context, actor, name, now=datetime.now(UTC))
    return _shown(desk, name)


@router.post("/users/{name}/enable", response_model=ShownUser)
async def enable_user(desk: TheDesk, actor: TheActor, name: str) -> Response:
    await users.enable(desk.context, actor, name, now=datetime.now(UTC))
    return _shown(desk, name)


@router.post("/users/{name}/role", response_model=UserOut, openapi_extra=schema_of(RoleIn))
async def set_role(desk: TheDesk, actor: TheActor, name: str, request: Request) -> Response:
    given = await read_body(RoleIn, request)
    person = await users.set_role(desk.context, actor, name, given.role, now=datetime.now(UTC))
    return Json(user_out(person, desk.roster))


def _shown(desk: TheDesk, name: str) -> Response:
    person = desk.roster.persons[name]
    there = users.still_there(desk.cache, name)
    return Json(
        {
            **user_out(person, desk.roster),
            "email": person.email,
            "created_at": time_out(person.created_at),
            "has_password": bool(person.password),
            "signs_on": bool(person.subject),
            "running": list(there.running),
            "queued": list(there.queued),
        }
    )


@router.get("/teams", response_model=TeamList)
async def list_teams(desk: TheDesk, actor: TheActor) -> Response:
    return Json({"items": [team_out(view, desk.roster) for view in teams.listed(desk.context, actor)]})


@router.post("/teams", status_code=201, response_model=NewTeam, openapi_extra=schema_of(TeamIn))
async def create_team(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    given = await read_body(TeamIn, request)
    view, folders = await teams.create(desk.context, actor, given.name, now=datetime.now(UTC))
    return Json({**team_out(view, desk.roster), "folders": folders_out(folders)}, status_code=201)


@router.get("/teams/{team}", response_model=TeamOut)
async def show_team(desk: TheDesk, actor: TheActor, team: str) -> Response:
    return Json(team_out(teams.show(desk.context, actor, team), desk.roster))


@router.put("/teams/{team}/members/{user}", response_model=TeamOut)
async def add_member(desk: TheDesk, actor: TheActor, team: str, user: str) -> Response:
    return Json(team_out(await teams.add(desk.context, actor, team, user, now=datetime.now(UTC)), desk.roster))


@router.delete("/teams/{team}/members/{user}", response_model=TeamOut)
async def remove_member(desk: TheDesk, actor: TheActor, team: str, user: str) -> Response:
    return Json(team_out(await teams.remove(desk.context, actor, team, user, now=datetime.now(UTC)), desk.roster))


@router.post("/teams/{team}/join", response_model=TeamOut)
async def join_team(desk: TheDesk, actor: TheActor, team: str) -> Response:
    return Json(team_out(await teams.join(desk.context, actor, team, now=datetime.now(UTC)), desk.roster))


@router.post("/teams/{team}/leave", response_model=TeamOut)
async def leave_team(desk: TheDesk, actor: TheActor, team: str) -> Response:
    return Json(team_out(await teams.leave(desk.context, actor, team, now=datetime.now(UTC)), desk.roster))


@router.put("/teams/{team}/leaders/{user}", response_model=TeamOut)
async def add_leader(desk: TheDesk, actor: TheActor, team: str, user: str) -> Response:
    now = datetime.now(UTC)
    return Json(team_out(await teams.set_leader(desk.context, actor, team, user, is_leader=True, now=now), desk.roster))


@router.delete("/teams/{team}/leaders/{user}", response_model=TeamOut)
async def remove_leader(desk: TheDesk, actor: TheActor, team: str, user: str) -> Response:
    now = datetime.now(UTC)
    return Json(
        team_out(await teams.set_leader(desk.context, actor, team, user, is_leader=False, now=now), desk.roster)
    )


@router.post("/requests", status_code=201, response_model=RequestOut, openapi_extra=schema_of(RequestIn))
async def ask_for_account(desk: TheDesk, request: Request) -> Response:
    given = await read_body(RequestIn, request)
    made = await requests.ask(
        desk.context,
        name=given.user,
        team=given.team,
        password=given.password,
        full_name=given.full_name,
        email=given.email,
        why=given.why,
        origin=origin_of(request),
        now=datetime.now(UTC),
    )
    return Json(request_out(made), status_code=201)


@router.get("/requests", response_model=RequestList)
async def list_requests(desk: TheDesk, actor: TheActor, decided: bool = False) -> Response:
    found = requests.listed(desk.context, actor, decided=decided)
    # In a thread: the directory of Unix users may be a slow remote service.
    conflicts = await asyncio.to_thread(requests.conflicts, desk.context, found)
    return Json({"items": [request_out(one, conflicts.get(one.id, "")) for one in found]})


@router.post("/requests/{request_id}/approve", response_model=DecidedOut)
async def approve_request(desk: TheDesk, actor: TheActor, request_id: str) -> Response:
    return _decided(await requests.approve(desk.context, actor, request_id, now=datetime.now(UTC)))


@router.post("/requests/{request_id}/open", response_model=DecidedOut)
async def open_request(desk: TheDesk, actor: TheActor, request_id: str) -> Response:
    return _decided(await requests.open_account(desk.context, actor, request_id, now=datetime.now(UTC)))


@router.post("/requests/{request_id}/refuse", response_model=DecidedOut, openapi_extra=schema_of(RefuseIn))
async def refuse_request(desk: TheDesk, actor: TheActor, request_id: str, request: Request) -> Response:
    given = await read_body(RefuseIn, request)
    return _decided(await requests.refuse(desk.context, actor, request_id, why=given.why, now=datetime.now(UTC)))


def _decided(made: requests.Decided) -> Response:
    return Json({**request_out(made.request), "folders": folders_out(made.folders)})


@router.get("/audit", response_model=AuditPage)
async def list_audit(
    desk: TheDesk,
    actor: TheActor,
    who: str = "",
    what: str = "",
    target: str = "",
    limit: int = 50,
    before: Cursor = None,
) -> Response:
    wanted = max(1, min(limit, audit.MAX_PAGE))
    found = await audit.listed(
        desk.context.store, actor, who=who, what=what, target=target, limit=wanted, before=before
    )
    following = found[-1].seq if len(found) == wanted else None
    return Json({"items": [audit_out(one) for one in found], "next": following})
