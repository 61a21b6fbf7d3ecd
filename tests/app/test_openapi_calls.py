"""Calls that are made from the OpenAPI document: each answer is one that the document describes."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
import uvicorn
from hypothesis import given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from danlu.actions.installation import Installation
from danlu.actions.people import tokens
from danlu.api.app import make_app
from danlu.domain.people import Actor, Membership, Person, Role, Team
from danlu.store.people_protocol import Member
from tests.app.rig import Rig, rig

EXAMPLES = 6
CHECKS: Any = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NOW = datetime.now(UTC)
DOCUMENT: Any = schemathesis.openapi.from_dict(make_app(cast(Installation, None)).openapi())
FOUND = [found.ok() for found in DOCUMENT.get_all_operations()]
OPERATIONS = {f"{one.method.upper()} {one.path}": one for one in FOUND}
# Answers that go on for as long as a job does.
ENDLESS = {"follow", "timeout"}


@dataclass
class Served:
    """A server on loopback with some of everything, and who may come: an administrator, a member, nobody."""

    url: str
    callers: Mapping[str, Mapping[str, str]]
    known: Mapping[str, str]  # what stands for a parameter of a path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    ready: Future[Served] = Future()
    over: list[Callable[[], None]] = []

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(rig(tmp_path))
            config = uvicorn.Config(make_app(made.desk), port=0, log_level="error", lifespan="off")
            server = uvicorn.Server(config)
            running = asyncio.create_task(server.serve())
            await made.until(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            over.append(lambda: setattr(server, "should_exit", True))
            callers, known = await peopled(made)
            ready.set_result(Served(f"http://127.0.0.1:{port}", callers, known))
            await running

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield ready.result(60)
    over[0]()
    thread.join(60)
    assert not thread.is_alive()


async def peopled(made: Rig) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    roster, context = made.desk.roster, made.desk.context
    await roster.record(
        [
            Team("nlp", NOW),
            Person("chief", NOW, Role.ADMIN),
            Person("li", NOW),
            Member("li", "nlp", Membership("nlp", is_leader=True)),
        ]
    )
    callers: dict[str, dict[str, str]] = {"nobody": {}}
    for name, role in (("chief", "admin"), ("li", "member")):
        actor = Actor(name, Role(role))
        token, secret = await tokens.create(context, actor, user=name, name="calls", role=role, days=1, now=NOW)
        callers[name] = {"Authorization": f"Bearer {secret}"}
    async with made.client(token=callers["li"]["Authorization"].removeprefix("Bearer ")) as li:
        job = (await li.post("/jobs", json={"command": ["true"], "workdir": "/"})).json()["id"]
        await made.state(li, job, "RUNNING")
        made.engine.finish(f"{job}.1", 0)
        await made.state(li, job, "SUCCEEDED")
        made.write_log(f"{job}.1", b"done\n")
    async with made.client() as nobody:
        asked = await nobody.post("/requests", json={"user": "wang", "team": "nlp", "password": "sesame-open"})
    named = {"ref": job, "team": "nlp", "user": "li", "name": "li", "holder": "user:li"}
    return callers, {**named, "token_id": token.id, "request_id": asked.json()["id"]}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_in_the_document(name: str, served: Served) -> None:
    """Once with what the document makes up, and once about things that there are."""

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(case=OPERATIONS[name].as_strategy())
    def call(case: Any) -> None:
        for option in ENDLESS & set(case.query):
            case.query[option] = 0
        for known in ({}, served.known):
            for parameter in set(case.path_parameters) & set(known):
                case.path_parameters[parameter] = known[parameter]
            for headers in served.callers.values():
                answer = case.call(base_url=served.url, headers=dict(headers), timeout=30, allow_redirects=False)
                case.validate_response(answer, checks=CHECKS)

    call()
