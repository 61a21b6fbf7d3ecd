"""Bodies and queries made to hold up the server, or everybody who looks at a list."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from danlu.actions.jobs.enter import check_ask
from danlu.api.app import make_app
from danlu.api.routes.exec import _read_ask
from danlu.domain.texts import LONGEST_ARRAY, LONGEST_LABELS, LONGEST_PATH, LONGEST_START
from danlu.errors import Invalid, TooBig
from tests.app.rig import BASE, Rig, on_rig
from tests.app.test_people import come, team_with

JOB = {"command": ["true"], "workdir": "/"}
DEEP = "[" * 100_000


def bodies(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each route that takes a body, with the shape of it."""
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            # Other bodies are streams of bytes: uploads, whose sizes are limited elsewhere.
            if content := route.get("requestBody", {}).get("content", {}).get("application/json"):
                yield method.upper(), path.removeprefix(BASE), content["schema"]


def unlimited(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """What in a shape may be as long as it likes."""
    if schema.get("type") == "string" and "maxLength" not in schema and "enum" not in schema:
        yield where
    if schema.get("type") == "array" and "maxItems" not in schema:
        yield where
    if "additionalProperties" in schema and schema["additionalProperties"] and "maxProperties" not in schema:
        yield where
    if not schema.keys() & {"type", "anyOf", "properties"}:
        yield where  # anything at all
    for name, one in schema.get("properties", {}).items():
        yield from unlimited(one, f"{where}.{name}")
    for one in (
        *schema.get("anyOf", ()),
        *[schema[key] for key in ("items", "additionalProperties") if schema.get(key)],
    ):
        yield from unlimited(one, where)


def test_every_text_of_every_body_has_a_limit(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        found = list(bodies(make_app(rig.desk).openapi()))
        assert len(found) >= 15
        assert [one for method, path, schema in found for one in unlimited(schema, f"{method} {path}")] == []

    on_rig(scenario, tmp_path)


def test_a_text_beyond_its_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client, tried = rig.client(0), 0
        for method, path, schema in bodies(make_app(rig.desk).openapi()):
            for name, field in schema["properties"].items():
                for kind in field.get("anyOf", [field]):
                    if kind.get("type") != "string":
                        continue
                    body = {**dict.fromkeys(schema.get("required", ()), "x"), name: "x" * (kind["maxLength"] + 1)}
                    answer = await client.request(method, path.replace("{", "").replace("}", ""), json=body)
                    said = answer.json()["detail"]
                    assert (answer.status_code, f"at most {kind['maxLength']:,}" in said) == (422, True), (path, said)
                    tried += 1
        assert tried > 40

    on_rig(scenario, tmp_path)


def test_an_array_that_names_its_tasks_ten_thousand_times_is_refused_unread(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        for query in ("", "?dry_run=true"):
            answer = await client.post(f"/jobs{query}", json={**JOB, "array": "1-50000," * 10_000 + "1"})
            said = (answer.status_code, answer.json()["detail"])
            assert said == (422, f"`array`: has 80,001 characters, at most {LONGEST_ARRAY:,} are possible")

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        {"workdir": "/" + "x" * LONGEST_PATH},
        {"array": "1," * LONGEST_ARRAY + "1"},
        {"name": "x" * 201},
        {"gpus": "x" * 101},
        {"label": {"a": "x" * LONGEST_LABELS}},
        {"after": ["x"] * 101},
        {"command": ["true", *[""] * (LONGEST_START // 9)]},
        {"command": ["\ud800"]},
        {"command": ["true", "a\0"]},
        {"workdir": "/\udbff"},
        {"env": {"A": "\ud800"}},
        {"label": {"a": "\ud800"}},
        {"environ": {"A": "\ud800"}},
        {"environ": {"A=": "x"}},
        {"name": "\ud800"},
        {"time": 0},
        {"time": "0"},
        {"time": "0:00"},
    ],
)
def test_a_job_that_nobody_could_run_or_read_is_refused_at_the_door(tmp_path: Path, given: dict[str, Any]) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        made = (await client.post("/jobs", json=JOB)).json()["id"]
        for path in ("/jobs", "/jobs?dry_run=true", f"/jobs/{made}/clone"):
            body = given if "clone" in path else {**JOB, **given}
            answer = await client.post(path, content=json.dumps(body))
            assert answer.status_code in (409, 422), (path, answer.text[:200])
            assert len(answer.text) < 1000
        assert len((await client.get("/jobs")).json()["items"]) == 1

    on_rig(scenario, tmp_path)


def test_a_list_stays_short_whatever_people_submit(tmp_path: Path) -> None:
    """Who may see a command sees all of it where only one job is shown."""

    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        chief, owner = rig.client(0), await come(rig, "li")
        command = ["true", *["x" * 1000] * 500]
        body = {**JOB, "command": command, "env": {"A": "y" * 500_000}, "array": "1-3"}
        made = await owner.post("/jobs", json=body)
        group = made.json()["id"]
        several = [made, await owner.get(f"/jobs/{group}"), await owner.get(f"/jobs/{group}/wait?timeout=0")]
        several += [await chief.get("/jobs"), await chief.get("/jobs?collapse=true")]
        for answer in several:
            assert len(answer.content) < 20_000
        listed = several[3].json()["items"][0]
        assert (listed["is_cut"], listed["command"][0], listed["command"][-1], listed["env"]) == (True, "true", "…", {})
        shown = (await chief.get(f"/jobs/{group}_1")).json()
        assert (shown["is_cut"], shown["command"], shown["env"]) == (False, command, body["env"])
        short = (await owner.post("/jobs", json={**JOB, "env": {"A": "1"}})).json()["jobs"][0]
        assert (short["is_cut"], short["command"], short["env"]) == (False, ["true"], {"A": "1"})

    on_rig(scenario, tmp_path)


def test_a_query_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        for path in ("/jobs?name=", "/jobs?label=a%3D", "/audit?who=", "/usage?since=", "/jobs/", "/users/"):
            answer = await client.get(path + "x" * (LONGEST_PATH + 1))
            said = answer.json()["detail"]
            assert (answer.status_code, f"at most {LONGEST_PATH:,} are possible" in said) == (422, True), said
        answer = await client.get("/jobs?" + "&".join(["state=active"] * 101))
        assert (answer.status_code, answer.json()["detail"]) == (
            422,
            "the query has 101 values, at most 100 are possible",
        )

    on_rig(scenario, tmp_path)


def test_unknown_options_without_end_are_refused_by_the_first(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        body = {"a" * 1_000_000: 1, **{f"b{number}": 1 for number in range(50_000)}}
        answer = await rig.client(0).post("/jobs", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (422, f"unknown option `{'a' * 60}`")

    on_rig(scenario, tmp_path)


def test_json_without_a_bottom_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        for path, body in (("/jobs", DEEP), ("/snapshots", f'{{"files": {DEEP}'), ("/boosts", '{"user":' * 5000)):
            answer = await client.post(path, content=body)
            assert (answer.status_code, answer.json()["detail"]) == (422, "the body is nested too deeply"), path
            level = "[" * 500 + "]" * 500
            for name in ("command", "files", "env", "user", "after", "gpus"):
                assert (await client.post(path, content=f'{{"{name}": {level}}}')).status_code == 422

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        '{"command": ' + DEEP,
        json.dumps({"command": ["\ud800"]}),
        json.dumps({"command": ["a\0"]}),
        json.dumps({"command": ["a"], "tty": True, "term": "\ud800"}),
        json.dumps({"command": ["a"], "tty": True, "term": "x" * 101}),
        json.dumps({"command": [""]}),
        '{"command": ["a"], "tty": true, "term": ' + "[" * 900 + "]" * 900 + "}",
        json.dumps({"command": ["a", *[""] * 300_000]}),
        json.dumps({"command": ["a" * (3 << 20)]}),
    ],
    ids=range(10),
)
def test_a_first_message_that_no_system_could_obey_is_refused(text: str) -> None:
    with pytest.raises((Invalid, TooBig)) as refused:
        check_ask(*_read_ask(text))
    assert len(refused.value.text) < 300


def test_a_request_that_breaks_off_is_one_quiet_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rig: Rig) -> None:
        for method, path in (("POST", "/jobs"), ("POST", "/login"), ("PUT", f"/blobs/{'0' * 64}")):
            caplog.clear()
            arriving = iter(
                [{"type": "http.request", "body": b'{"comm', "more_body": True}, {"type": "http.disconnect"}]
            )
            sent: list[Any] = []

            async def receive(arriving: Iterator[Any] = arriving) -> Any:
                return next(arriving)

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            scope = {
                "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
                "path": f"{BASE}{path}", "raw_path": f"{BASE}{path}".encode(), "query_string": b"", "root_path": "",
                "headers": [], "client": ("uid:0", 0), "server": ("danlu", 80),
            }  # fmt: skip
            with caplog.at_level(logging.INFO):
                await make_app(rig.desk)(scope, receive, send)
            (line,) = [one for one in caplog.records if "hung up" in one.getMessage()]
            assert (line.levelno, line.exc_info) == (logging.INFO, None)
            assert not [one for one in caplog.records if one.levelno > logging.INFO]

    on_rig(scenario, tmp_path)
