"""Every route with every kind of person, compared with the one table of rights. A route without a row fails."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import WebSocketRoute

from danlu.actions.people import passwords, tokens
from danlu.actions.people.context import PeopleRules
from danlu.api.app import ROUTERS, make_app
from danlu.domain.people import (
    ANYBODY,
    LEADER,
    OWNER,
    RIGHTS,
    STRANGER,
    TEAMMATE,
    TRUSTED_LEADER,
    AccountRequest,
    Actor,
    AuditEntry,
    Boost,
    Membership,
    Person,
    Role,
    Team,
)
from danlu.domain.resources import Ask
from danlu.engines.base import ExternalRun, Handle, RunState
from danlu.store.people_protocol import Member
from tests.app.rig import BASE, Rig, on_rig

ADMIN = Actor("root", Role.ADMIN)
NOW = datetime.now(UTC)
PASSWORD = "sesame-open"


@dataclass(frozen=True)
class Row:
    """The right that a route needs, and how to call it. What is acted on is li's, who is in team nlp."""

    right: str
    call: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # what stands for the {names} of the route
    is_own: bool = False  # whoever calls it acts on what is their own
    is_filtered: bool = False  # whoever has an account is answered, with what they may see
    also: tuple[str, ...] = ()  # kinds of people who get in for a reason of their own


ROUTES: dict[tuple[str, str], Row] = {
    ("POST", "/jobs"): Row("job.submit", {"json": {"command": ["true"], "workdir": "/"}}, is_own=True),
    ("GET", "/jobs"): Row("job.list"),
    ("GET", "/jobs/{ref}"): Row("job.show"),
    ("GET", "/jobs/{ref}/why"): Row("job.why"),
    ("GET", "/jobs/{ref}/wait"): Row("job.show", {"params": {"timeout": 0}}),
    ("GET", "/jobs/{ref}/logs"): Row("job.logs"),
    ("POST", "/jobs/{ref}/clone"): Row("job.clone"),
    ("WS", "/jobs/{ref}/exec"): Row("job.exec"),
    ("POST", "/snapshots"): Row("job.submit", {"json": {"files": []}}, is_own=True),
    ("PUT", "/blobs/{sha256}"): Row("job.submit", {"content": b"x"}, is_own=True),
    ("GET", "/others"): Row("other.list"),
    ("GET", "/others/{ref}"): Row("other.show", names={"ref": "slurm:17"}),
    ("POST", "/others/{ref}/stop"): Row("other.stop", names={"ref": "slurm:17"}),
    ("GET", "/status"): Row("server.status"),
    ("GET", "/nodes"): Row("node.list"),
    ("GET", "/queues"): Row("queue.list"),
    ("POST", "/login"): Row("account.login", {"json": {"user": "li", "password": PASSWORD}}),
    ("POST", "/login/first"): Row("account.login", {"json": {"code": "CODE", "user": "x", "password": PASSWORD}}),
    ("GET", "/me"): Row("account.whoami", is_own=True),
    ("POST", "/users/{name}/password"): Row("account.passwd", {"json": {"old": PASSWORD, "new": PASSWORD}}),
    ("GET", "/signon"): Row("account.login"),
    ("GET", "/signon/start"): Row("account.login"),
    ("POST", "/signon/start"): Row("account.login"),
    ("GET", "/signon/callback"): Row("account.login"),
    ("POST", "/signon/finish"): Row("account.login", {"json": {"code": "x", "verifier": "y"}}),
    ("POST", "/tokens"): Row("token.create", {"json": {"user": "li", "name": "laptop"}}),
    ("GET", "/tokens"): Row("token.list", {"params": {"user": "li"}}),
    ("DELETE", "/tokens/{token_id}"): Row("token.revoke", names={"token_id": "TOKEN"}),
    ("POST", "/requests"): Row("request.ask", {"json": {"user": "new", "team": "nlp", "password": PASSWORD}}),
    ("GET", "/requests"): Row("request.list", also=("leader of another team",)),
    ("POST", "/requests/{request_id}/approve"): Row("request.approve", names={"request_id": "r1"}),
    ("POST", "/requests/{request_id}/refuse"): Row("request.refuse", names={"request_id": "r2"}),
    ("POST", "/requests/{request_id}/open"): Row("request.open", names={"request_id": "r3"}),
    ("GET", "/users"): Row("user.list"),
    ("GET", "/users/{name}"): Row("user.show"),
    ("POST", "/users"): Row("user.create", {"json": {"name": "created"}}),
    ("POST", "/users/{name}/disable"): Row("user.disable"),
    ("POST", "/users/{name}/enable"): Row("user.enable"),
    ("POST", "/users/{name}/role"): Row("user.role", {"json": {"role": "member"}}),
    ("PUT", "/users/{name}/subject"): Row("user.link", {"json": {"subject": ""}}),
    ("GET", "/teams"): Row("team.list"),
    ("GET", "/teams/{team}"): Row("team.show"),
    ("POST", "/teams"): Row("team.create", {"json": {"name": "fresh"}}),
    ("PUT", "/teams/{team}/members/{user}"): Row("team.add", names={"user": "sun"}),
    ("POST", "/teams/{team}/join"): Row("team.join", names={"team": "cv"}, is_own=True),
    ("POST", "/teams/{team}/leave"): Row("team.leave", names={"team": "cv"}, is_own=True),
    ("DELETE", "/teams/{team}/members/{user}"): Row("team.remove", names={"user": "gao"}),
    ("PUT", "/teams/{team}/leaders/{user}"): Row("team.leader", names={"user": "wang"}),
    ("DELETE", "/teams/{team}/leaders/{user}"): Row("team.leader", names={"user": "wang"}),
    ("GET", "/quotas"): Row("quota.show"),
    ("PUT", "/quotas/{holder}"): Row("quota.set", {"json": {"gpus": 1}}, {"holder": "member:li@nlp"}),
    ("DELETE", "/quotas/{holder}"): Row("quota.set", names={"holder": "member:li@nlp"}),
    ("GET", "/usage"): Row("usage.show", {"params": {"user": "li"}}),
    ("GET", "/boosts"): Row("boost.list", is_filtered=True),
    ("POST", "/boosts"): Row("boost.set", {"json": {"user": "li", "until": "2099-01-01", "why": "deadline"}}),
    ("DELETE", "/boosts/{boost_id}"): Row("boost.set", names={"boost_id": "b1"}),
    ("GET", "/audit"): Row("audit.list"),
    # What comes last ends something, or needs its end.
    ("GET", "/jobs/{ref}/follow"): Row("job.logs"),
    ("POST", "/jobs/{ref}/stop"): Row("job.stop"),
    ("DELETE", "/jobs/{ref}"): Row("job.remove"),
    ("POST", "/server/stop"): Row("server.stop"),
    ("POST", "/logout"): Row("account.logout", is_own=True),
}
BLOB = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # sha256 of "x"
# person: their name, and what they are to li
KINDS: dict[str, tuple[str, frozenset[str]]] = {
    "owner": ("li", frozenset({OWNER, TEAMMATE})),
    "team-mate": ("wang", frozenset({TEAMMATE})),
    "leader": ("zhao", frozenset({TEAMMATE, LEADER})),
    "trusted leader": ("zhao", frozenset({TEAMMATE, LEADER, TRUSTED_LEADER})),
    "leader of another team": ("dean", frozenset({STRANGER})),
    "stranger": ("sun", frozenset({STRANGER})),
}
SHUT_OUT = ("disabled", "nobody", "expired", "revoked", "forged", "of no account")
PEOPLE = [*KINDS, "admin", *SHUT_OUT]


def test_every_route_has_a_row() -> None:
    found = set()
    for route in (route for router in ROUTERS for route in router.routes):
        if isinstance(route, APIRoute):
            found |= {(method, route.path) for method in route.methods or ()}
        else:
            assert isinstance(route, WebSocketRoute)
            found.add(("WS", route.path))
    assert found == set(ROUTES)


def test_every_right_is_used() -> None:
    # `job.show_command` decides what is inside an answer, not whether there is one.
    assert {row.right for row in ROUTES.values()} == set(RIGHTS) - {"job.show_command"}


async def move_in(rig: Rig, person: str = "") -> None:
    """The people of nlp and of elsewhere; what is asked for, and what is set."""
    kept = await passwords.hashed(passwords.new_value(PASSWORD))
    persons = [Person(name, NOW) for name in ("wang", "zhao", "gao", "dean", "sun")]
    persons += [Person("li", NOW, password=kept), Person("chief", NOW, Role.ADMIN), Person("gone", NOW)]
    leads = {("zhao", "nlp"), ("dean", "cv")}
    places = {"nlp": ("li", "wang", "zhao", "gao", "gone"), "cv": ("dean",)}
    members = [Member(who, team, Membership(team, (who, team) in leads)) for team in places for who in places[team]]
    requests = [AccountRequest(name, f"asker{name}", "nlp", NOW) for name in ("r1", "r2", "r3")]
    boost = Boost("b1", "li", "nlp", "zhao", "deadline", NOW, NOW + timedelta(days=1))
    teams = [Team(name, NOW) for name in places]
    await rig.desk.roster.record([*persons, *teams, *members, *requests, boost])
    rig.desk.context.rules = PeopleRules(leads_see_all=person == "trusted leader", as_submitter=True)
    rig.desk.rules.inventory.others = (
        ExternalRun("slurm:17", Handle("x"), "li", "secret name", RunState.RUNNING, Ask()),
    )


async def secret_of(rig: Rig, person: str) -> str:
    if person == "nobody":
        return ""
    if person == "forged":
        return tokens.PREFIX + "0" * 64
    name = {"admin": "chief", "disabled": "gone", "of no account": "ghost"}.get(person) or KINDS.get(person, ("sun",))[
        0
    ]
    role = Role.ADMIN if person == "admin" else Role.MEMBER
    made_at = NOW - timedelta(days=2) if person == "expired" else NOW
    token, secret = tokens.new_token(name, "test", role, days=1, now=made_at)
    await rig.desk.cache.store.add_token(token)
    if person == "revoked":
        assert (await rig.client(token=secret).get("/me")).status_code == 200, "it is known, and then revoked"
        await tokens.revoke(rig.desk.context, ADMIN, token.id, now=NOW)
    if person == "disabled":
        assert (await rig.client(token=secret).get("/me")).status_code == 200
        assert (await rig.client(0).post("/users/gone/disable")).status_code == 200
    return secret


async def li_runs_a_job(rig: Rig) -> str:
    client = rig.client(token=await secret_of(rig, "owner"))
    body = {"command": ["sh", "-c", "secret-command"], "workdir": "/", "env": {"KEY": "hush"}, "team": "nlp"}
    answer = await client.post("/jobs", json=body)
    job_id: str = answer.json()["id"]
    await rig.state(client, job_id, "RUNNING")
    rig.write_log(f"{job_id}.1", b"secret output\n")
    return job_id


def expected(person: str, row: Row) -> bool:
    rights = RIGHTS[row.right]
    if ANYBODY in rights:
        return True
    if person in SHUT_OUT:
        return False
    if person == "admin" or row.is_filtered or person in row.also:
        return True
    kinds = KINDS[person][1] | ({OWNER} if row.is_own else set())
    return not rights.isdisjoint(kinds)


@pytest.mark.parametrize("person", PEOPLE)
def test_who_may_what(tmp_path: Path, person: str) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig, person)
        job_id = await li_runs_a_job(rig)
        client = rig.client(token=await secret_of(rig, person))
        token, _ = tokens.new_token("li", "laptop", Role.MEMBER, days=1, now=NOW)
        await rig.desk.cache.store.add_token(token)
        fixed = {"ref": job_id, "sha256": BLOB, "name": "li", "team": "nlp", "token_id": token.id}
        for (method, route), row in ROUTES.items():
            if method == "WS":
                continue
            if route.endswith("/follow"):
                rig.engine.finish(f"{job_id}.1")
                await rig.until(lambda: job_id not in rig.desk.cache.active_jobs.jobs)
            names = {name: token.id if value == "TOKEN" else value for name, value in row.names.items()}
            call = row.call
            if route == "/login/first":
                call = {"json": call["json"] | {"code": rig.desk.context.first.new_code()}}
            before = await newest_line(rig)
            answer = await client.request(method, route.format(**(fixed | names)), **call)
            refused = answer.status_code in (401, 403)
            if refused or method == "GET":
                assert await newest_line(rig) == before, f"{person}: {method} {route} is in the audit log"
            elif row.right in ("job.submit", "job.clone", "job.remove") and route.startswith("/jobs"):
                line = await newest_line(rig)
                assert line is not None
                assert (line.who, line.what) == (client_name(person), row.right)
                assert line.seq > (before.seq if before else 0)
            assert refused != expected(person, row), f"{person}: {method} {route}: {answer.status_code} {answer.text}"
            assert answer.status_code < 500, f"{method} {route}"
            if person in SHUT_OUT and refused:
                assert answer.status_code == (403 if person == "disabled" else 401)
            if refused:
                assert "secret" not in answer.text
            elif person == "leader of another team" and route == "/requests" and method == "GET":
                assert answer.json() == {"items": []}

    on_rig(scenario, tmp_path)


async def newest_line(rig: Rig) -> AuditEntry | None:
    lines = await rig.desk.context.store.audit(limit=1)
    return lines[0] if lines else None


def client_name(person: str) -> str:
    return "chief" if person == "admin" else KINDS[person][0]


async def first_word(rig: Rig, job_id: str, secret: str) -> dict[str, Any]:
    """What a WebSocket says first to somebody who wants a shell in the job."""
    headers = [(b"authorization", f"Bearer {secret}".encode())] if secret else []
    path = f"{BASE}/jobs/{job_id}/exec"
    scope = {"type": "websocket", "path": path, "headers": headers, "query_string": b"", "client": ("203.0.113.7", 1)}
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    asked.put_nowait({"type": "websocket.connect"})
    asked.put_nowait({"type": "websocket.receive", "text": '{"command": ["sh"]}'})
    route = asyncio.create_task(make_app(rig.desk)(scope, asked.get, said.put))
    async with asyncio.timeout(20):
        while (message := await said.get())["type"] != "websocket.send":
            pass
    asked.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await route
    found: dict[str, Any] = message
    return found


@pytest.mark.parametrize("person", PEOPLE)
def test_who_may_enter_a_job(tmp_path: Path, person: str) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig, person)
        job_id = await li_runs_a_job(rig)
        answer = await first_word(rig, job_id, await secret_of(rig, person))
        may_enter = expected(person, ROUTES["WS", "/jobs/{ref}/exec"])
        assert bool(answer.get("bytes")) == may_enter, answer
        noted = (await rig.client(0).get("/audit", params={"what": "job.exec"})).json()["items"]
        detail = "" if person == "owner" else "of li"
        assert [(one["target"], one["detail"], one["origin"]) for one in noted] == (
            [(job_id, detail, "203.0.113.7")] if may_enter else []
        )

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize("person", ["team-mate", "leader", "trusted leader", "stranger"])
def test_others_see_that_a_job_exists_but_not_what_it_does(tmp_path: Path, person: str) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig, person)
        job_id = await li_runs_a_job(rig)
        client = rig.client(token=await secret_of(rig, person))
        shown = (await client.get(f"/jobs/{job_id}")).json()
        assert (shown["user"], shown["state"], shown["ask"]["cpus"]) == ("li", "RUNNING", 1)
        hidden = [shown[name] for name in ("command", "workdir", "env", "log_path", "run_folder")]
        listed = (await client.get("/jobs")).text
        if person == "trusted leader":
            assert None not in hidden
            assert "secret-command" in listed
        else:
            assert hidden == [None] * 5
            assert "secret-command" not in listed
            assert "hush" not in listed

    on_rig(scenario, tmp_path, far_logs=True)  # logs that have a path


def test_a_token_in_a_url_is_refused(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        secret = await secret_of(rig, "admin")
        for name in ("token", "access_token", "api_key"):
            answer = await rig.client(token=secret).get("/status", params={name: secret})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
            assert secret not in answer.text

    on_rig(scenario, tmp_path)


def test_tokens_and_passwords_are_hashed_at_rest(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        secret = await secret_of(rig, "admin")
        client = rig.client(token=secret)
        login = (await client.post("/login", json={"user": "li", "password": PASSWORD})).json()["token"]
        answers = [
            (await client.get(path)).text for path in ("/tokens?everybody=true", "/users", "/users/li", "/audit")
        ]
        held = [path.read_bytes() for path in Path(rig.desk.state_dir).rglob("*") if path.is_file()]
        assert any(b"$argon2id$" in data for data in held)
        for data in [*held, *(answer.encode() for answer in answers)]:
            for hidden in (secret, login, PASSWORD, passwords.wire_value(PASSWORD)):
                assert hidden.encode() not in data
        assert not any("argon2" in answer for answer in answers)

    on_rig(scenario, tmp_path)
