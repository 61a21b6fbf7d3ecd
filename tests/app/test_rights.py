"""Every route with every kind of person, compared with the one table of rights. A route without a row fails."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import WebSocketRoute

from danlu.actions import tokens
from danlu.api.server import ROUTERS, make_app
from danlu.domain.account import OWNER, RIGHTS, STRANGER, Actor, Role
from tests.app.rig import BASE, Rig, on_rig

ADMIN = Actor("root", Role.ADMIN)
NOW = datetime.now(UTC)

# route: the right it needs, and how to call it. JOB becomes the id of li's running job.
ROUTES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("POST", "/jobs"): ("job.submit", {"json": {"command": ["true"], "workdir": "/"}}),
    ("GET", "/jobs"): ("job.list", {}),
    ("GET", "/jobs/{ref}"): ("job.show", {}),
    ("GET", "/jobs/{ref}/why"): ("job.why", {}),
    ("GET", "/jobs/{ref}/wait"): ("job.show", {"params": {"timeout": 0}}),
    ("GET", "/jobs/{ref}/logs"): ("job.logs", {}),
    ("GET", "/jobs/{ref}/follow"): ("job.logs", {}),
    ("POST", "/jobs/{ref}/clone"): ("job.clone", {}),
    ("POST", "/jobs/{ref}/stop"): ("job.stop", {}),
    ("DELETE", "/jobs/{ref}"): ("job.remove", {}),
    ("WS", "/jobs/{ref}/exec"): ("job.exec", {}),
    ("POST", "/snapshots"): ("job.submit", {"json": {"files": []}}),
    ("PUT", "/blobs/{sha256}"): ("job.submit", {"content": b"x"}),
    ("GET", "/status"): ("server.status", {}),
    ("GET", "/nodes"): ("node.list", {}),
    ("POST", "/tokens"): ("token.create", {"json": {"user": "li"}}),
    ("GET", "/tokens"): ("token.list", {}),
    ("DELETE", "/tokens/{token_id}"): ("token.revoke", {}),
    ("POST", "/server/stop"): ("server.stop", {}),
}
BLOB = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # sha256 of "x"
PEOPLE = ["owner", "stranger", "admin", "nobody", "expired", "revoked", "forged"]


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
    assert {right for right, _ in ROUTES.values()} == set(RIGHTS) - {"job.show_command"}


async def secret_of(rig: Rig, person: str) -> str:
    if person == "nobody":
        return ""
    if person == "forged":
        return tokens.PREFIX + "0" * 64
    name = {"owner": "li", "admin": "chief"}.get(person, "wang")
    role = "admin" if person == "admin" else "member"
    made_at = NOW - timedelta(days=2) if person == "expired" else NOW
    store = rig.desk.book.store
    token, secret = await tokens.create(store, ADMIN, user=name, name="", role=role, days=1, now=made_at)
    if person == "revoked":
        await tokens.revoke(store, ADMIN, token.id)
    return secret


async def li_runs_a_job(rig: Rig) -> str:
    client = rig.client(token=await secret_of(rig, "owner"))
    body = {"command": ["sh", "-c", "secret-command"], "workdir": "/", "env": {"KEY": "hush"}}
    answer = await client.post("/jobs", json=body)
    job_id: str = answer.json()["id"]
    await rig.state(client, job_id, "RUNNING")
    rig.write_log(f"{job_id}.1", b"secret output\n")
    return job_id


def expected(person: str, right: str) -> bool:
    if person in ("nobody", "expired", "revoked", "forged"):
        return False
    if person == "admin":
        return True
    kind = OWNER if person == "owner" else STRANGER
    acts_for_oneself = right in ("job.submit", "job.list", "server.status", "node.list")
    return kind in RIGHTS[right] or (acts_for_oneself and OWNER in RIGHTS[right])


@pytest.mark.parametrize("person", PEOPLE)
def test_who_may_what(tmp_path: Path, person: str) -> None:
    async def scenario(rig: Rig) -> None:
        job_id = await li_runs_a_job(rig)
        secret = await secret_of(rig, person)
        client = rig.client(token=secret)
        last = ["GET /jobs/{ref}/follow", "POST /jobs/{ref}/stop", "DELETE /jobs/{ref}"]  # these end or need an end
        rows = sorted(ROUTES.items(), key=lambda row: last.index(name) if (name := " ".join(row[0])) in last else -1)
        for (method, route), (right, call) in rows:
            if method == "WS":
                continue
            if method == "GET" and route.endswith("/follow"):
                rig.engine.finish(f"{job_id}.1")
                await rig.until(lambda: job_id not in rig.desk.book.live.jobs)
            path = route.format(ref=job_id, sha256=BLOB, token_id="none")
            answer = await client.request(method, path, **call)
            refused = answer.status_code in (401, 403)
            assert refused != expected(person, right), f"{person}: {method} {route}: {answer.status_code}"
            if person in ("nobody", "expired", "revoked", "forged"):
                assert answer.status_code == 401
            if refused:
                assert "secret" not in answer.text

    on_rig(scenario, tmp_path)


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
        job_id = await li_runs_a_job(rig)
        answer = await first_word(rig, job_id, await secret_of(rig, person))
        assert bool(answer.get("bytes")) == expected(person, "job.exec"), answer

    on_rig(scenario, tmp_path)


def test_a_stranger_sees_that_a_job_exists_but_not_what_it_does(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        job_id = await li_runs_a_job(rig)
        stranger = rig.client(token=await secret_of(rig, "stranger"))
        shown = (await stranger.get(f"/jobs/{job_id}")).json()
        assert (shown["user"], shown["state"], shown["ask"]["cpus"]) == ("li", "RUNNING", 1)
        assert [shown[name] for name in ("command", "workdir", "env", "log_path", "run_folder")] == [None] * 5
        listed = (await stranger.get("/jobs")).text
        assert "secret-command" not in listed
        assert "hush" not in listed

    on_rig(scenario, tmp_path)


def test_a_token_in_a_url_is_refused(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        secret = await secret_of(rig, "admin")
        answer = await rig.client(token=secret).get("/status", params={"token": secret})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert secret not in answer.text

    on_rig(scenario, tmp_path)


def test_tokens_are_hashed_at_rest(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        secret = await secret_of(rig, "admin")
        listed = (await rig.client(token=secret).get("/tokens")).text
        assert secret not in listed
        for path in Path(rig.desk.state_dir).rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes()

    on_rig(scenario, tmp_path)
