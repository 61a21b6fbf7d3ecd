"""The OpenAPI document says what the answers really look like."""

from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from danlu.api.app import ROUTERS
from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Seat
from danlu.engines.base import ExternalRun, Handle, RunState
from tests.app.rig import BASE, Rig, on_rig
from tests.builders import NOW

BODY = {"command": ["true"], "workdir": "/"}


def shape_of(method: str, path: str, status: int = 0) -> Any:
    for route in (route for router in ROUTERS for route in router.routes):
        if isinstance(route, APIRoute) and route.path == path and method in (route.methods or ()):
            # With `dry_run`, the answer is another.
            return (
                route.response_model if status == route.status_code or not status else route.responses[status]["model"]
            )
    raise LookupError(path)


def test_the_document_names_every_route_and_the_shape_of_errors(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        document = (await rig.client(0).get("/openapi.json")).json()
        routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
        assert set(document["paths"]) == {f"{BASE}{route.path}" for route in routes} | {"/healthz"}
        submit = document["paths"][f"{BASE}/jobs"]["post"]
        assert "gpus" in submit["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert "ProblemOut" in document["components"]["schemas"]

    on_rig(scenario, tmp_path)


def test_the_document_has_a_shape_for_each_answer_and_problem(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        document = (await rig.client(0).get("/openapi.json")).json()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for status, response in operation["responses"].items():
                    content = response.get("content", {})
                    where = f"{method} {path} {status}"
                    if status == "default":
                        assert set(content) - {"text/html"} == {"application/problem+json"}, where
                    if "application/json" in content:
                        found = content["application/json"]["schema"]
                        assert "$ref" in found or "anyOf" in found, where

    on_rig(scenario, tmp_path)


def test_a_wrong_method_learns_the_right_ones(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        for path, allowed in (
            ("/jobs/x", "DELETE, GET"),
            ("/jobs", "GET, POST"),
            ("/teams/a/members/b", "DELETE, PUT"),
            ("/openapi.json", "GET"),
            ("http://danlu/healthz", "GET"),
        ):
            answer = await client.patch(path)
            assert (answer.status_code, answer.headers.get("allow")) == (405, allowed), path
            assert answer.headers["content-type"] == "application/problem+json"
            assert (answer.json()["code"], allowed in answer.json()["hint"]) == ("no_method", True)

    on_rig(scenario, tmp_path)


def test_answers_about_people_have_the_documented_shape(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)

        async def checked(method: str, route: str, path: str = "", **call: Any) -> Any:
            answer = await client.request(method, path or route, **call)
            assert answer.is_success, answer.text
            TypeAdapter(shape_of(method, route)).validate_python(answer.json())
            return answer.json()

        secret = {"password": "sesame-open"}
        await checked("POST", "/teams", json={"name": "nlp"})
        await checked("POST", "/users", json={"name": "li", "teams": ["nlp"], **secret})
        login = await checked("POST", "/login", json={"user": "li", **secret})
        await checked("GET", "/me")
        client.headers["Authorization"] = f"Bearer {login['token']}"
        await checked("POST", "/users/{name}/password", "/users/li/password", json={"new": "open-sesame"})
        token = await checked("POST", "/tokens", json={"user": "li", "name": "laptop"})
        await checked("GET", "/tokens", "/tokens?everybody=true")
        await checked("DELETE", "/tokens/{token_id}", f"/tokens/{token['id']}")
        await checked("GET", "/users")
        await checked("GET", "/users/{name}", "/users/li")
        for verb in ("disable", "enable"):
            await checked("POST", f"/users/{{name}}/{verb}", f"/users/li/{verb}")
        await checked("POST", "/users/{name}/role", "/users/li/role", json={"role": "admin"})
        await checked("GET", "/teams")
        await checked("GET", "/teams/{team}", "/teams/nlp")
        for what in ("members", "leaders"):
            for method in ("PUT", "DELETE"):
                await client.put("/teams/nlp/members/li")
                await checked(method, f"/teams/{{team}}/{what}/{{user}}", f"/teams/nlp/{what}/li")
        for name, verb in (("a", "approve"), ("b", "open"), ("c", "refuse")):
            asked = await checked("POST", "/requests", json={"user": name, "team": "nlp", **secret})
            await checked("POST", f"/requests/{{request_id}}/{verb}", f"/requests/{asked['id']}/{verb}")
        await checked("GET", "/requests", "/requests?decided=true")
        assert (await checked("GET", "/audit", "/audit?limit=5"))["next"]
        await checked("POST", "/logout")

    on_rig(scenario, tmp_path)


def test_answers_have_the_documented_shape(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)

        async def checked(method: str, route: str, ref: str = "", query: str = "", **call: Any) -> Any:
            answer = await client.request(method, route.format(ref=ref, token_id=ref) + query, **call)
            assert answer.is_success, answer.text
            TypeAdapter(shape_of(method, route, 200 if "dry_run" in query else 0)).validate_python(answer.json())
            return answer.json()

        options = {"gpus": 1, "retries": 1, "time": "1h", "signal": "USR1@9", "label": {"a": "b"}}
        job = (await checked("POST", "/jobs", json={**BODY, **options}))["id"]
        await rig.state(client, job, "RUNNING")
        await checked("POST", "/jobs", query="?dry_run=true", json=BODY)
        await checked("POST", "/jobs", query="?dry_run=true", json={**BODY, "gpus": 2})
        waiting = (await checked("POST", "/jobs", json={**BODY, "gpus": 2}))["id"]
        await checked("GET", "/jobs/{ref}/why", waiting)
        await checked("GET", "/jobs/{ref}/wait", waiting, "?timeout=0")
        array = (await checked("POST", "/jobs", json={**BODY, "array": "1-3"}))["id"]
        await checked("GET", "/jobs/{ref}", array)
        rig.engine.finish(f"{job}.1", 1)
        await rig.until(lambda: any(launch.run_id == f"{job}.2" for launch in rig.engine.launches.values()))
        await checked("GET", "/jobs/{ref}", job)
        await checked("GET", "/jobs")
        seat = Seat("desk", 1, gpus=(1,))
        other = ExternalRun("slurm:17", Handle("x"), "li", "bert", RunState.RUNNING, Ask(gpus=1), seats=(seat,))
        why = Reason("no_room", "waits")
        queued = ExternalRun(
            "slurm:18", Handle("y"), "li", "bert", RunState.PENDING, Ask(), submitted_at=NOW, reason=why
        )
        rig.desk.rules.inventory.others = (other, queued)
        await checked("GET", "/others")
        await checked("GET", "/others/{ref}", "slurm:18")
        await checked("POST", "/others/{ref}/stop", "slurm:17")
        await checked("GET", "/nodes")
        await checked("GET", "/status")
        await checked("POST", "/jobs/{ref}/clone", job)
        await checked("POST", "/jobs/{ref}/stop", waiting)
        await checked("DELETE", "/jobs/{ref}", waiting)
        await checked("POST", "/snapshots", json={"files": []})
        await checked("POST", "/server/stop")

    on_rig(scenario, tmp_path)
