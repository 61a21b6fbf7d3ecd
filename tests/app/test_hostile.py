"""What somebody who means ill may try over REST: to get more than the table gives, and to break things."""

import asyncio
import hashlib
import json
import pwd
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from danlu.actions.jobs.enter import Terminal
from danlu.actions.people import login as login_actions
from danlu.actions.people import requests
from danlu.actions.people.context import PeopleRules
from danlu.actions.people.rate_limit import LoginLimiter, Pace
from danlu.actions.people.sign_on_tickets import Codes, challenge_of
from danlu.actions.people.users import check_new_name
from danlu.api.app import make_app
from danlu.api.routes.exec import _read_ask
from danlu.domain.people import _NAME as NAME
from danlu.domain.people import Actor, Role
from danlu.engines.base import Ending
from danlu.errors import Invalid, Refused, TooMany, Unauthorized
from tests.app.rig import BASE, Rig, on_rig
from tests.app.test_people import NOW, PASSWORD, audit_of, come, open_account, team_with

# Rights


def test_a_members_token_of_an_administrator_cannot_make_an_administrators_token(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "chief", role="admin")
        for_scripts = await come(rig, "chief", Role.MEMBER)
        answer = await for_scripts.post("/tokens", json={"name": "more", "role": "admin"})
        assert answer.status_code == 403, answer.text
        assert (await for_scripts.post("/tokens", json={"name": "same"})).status_code == 201
        full = await come(rig, "chief", Role.ADMIN)
        assert (await full.post("/tokens", json={"name": "more", "role": "admin"})).status_code == 201

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize("retries", [0, 1])
def test_why_a_job_did_not_start_names_its_command_and_folder_to_its_owner_only(tmp_path: Path, retries: int) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li", "wang")
        owner, mate = await come(rig, "li"), await come(rig, "wang")
        text = "command not found: /home/li/secret-plan"
        body = {"command": ["/home/li/secret-plan"], "workdir": "/", "name": "x", "retries": retries}
        job_id = (await owner.post("/jobs", json=body)).json()["id"]
        await rig.state(owner, job_id, "RUNNING")
        rig.engine.finish(f"{job_id}.1", 127, Ending.NOT_STARTED, text)
        async with asyncio.timeout(20):
            while text not in (await owner.get(f"/jobs/{job_id}")).text:
                await asyncio.sleep(0.002)
        for path in (f"/jobs/{job_id}", "/jobs", f"/jobs/{job_id}/why", f"/jobs/{job_id}/wait?timeout=0"):
            assert "secret-plan" not in (await mate.get(path)).text, path
        code = (await mate.get(f"/jobs/{job_id}")).json()["reason"]["code"]
        again = ("retry", "starting", "started") if retries else ()
        assert code in ("not_started", *again), "that it did not start is no secret"

    on_rig(scenario, tmp_path)


def test_a_leaders_word_alone_opens_no_account_that_is_a_unix_users(tmp_path: Path) -> None:
    """Whoever asks over the network may be anybody; the Unix user of this name would be theirs to work as."""

    async def scenario(rig: Rig) -> None:
        rig.desk.context.rules = PeopleRules(leaders_open=True)
        await team_with(rig, "nlp", "zhao")
        zhao = await come(rig, "zhao")

        async def asked(name: str, **given: Any) -> Any:
            made = await requests.ask(
                rig.desk.context, name=name, team="nlp", password=PASSWORD, origin="203.0.113.9", now=NOW, **given
            )
            return (await zhao.post(f"/requests/{made.id}/approve")).json()

        assert (await asked("someone"))["state"] == "OPENED"
        (unix_user,) = [one.pw_name for one in pwd.getpwall() if one.pw_uid >= 1000 and NAME.fullmatch(one.pw_name)][:1]
        waits = await asked(unix_user)
        assert waits["state"] == "APPROVED"
        assert unix_user not in rig.desk.roster.persons
        assert (await rig.client(0).post(f"/requests/{waits['id']}/open")).json()["state"] == "OPENED"

    on_rig(scenario, tmp_path)


def test_names_that_stand_for_unix_users_without_a_name_are_taken(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for by_admin in (True, False):
            with pytest.raises(Refused):
                check_new_name(rig.desk.roster, "uid1234", by_admin=by_admin)
        check_new_name(rig.desk.roster, "uidler", by_admin=False)

    on_rig(scenario, tmp_path)


def test_a_leader_does_not_set_the_own_quota(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        zhao = await come(rig, "zhao")
        assert (await rig.client(0).put("/quotas/user:zhao", json={"gpus": 1})).status_code == 200
        for answer in (
            await zhao.put("/quotas/user:zhao", json={"gpus": 8}),
            await zhao.delete("/quotas/user:zhao"),
        ):
            assert answer.status_code == 403, answer.text
        assert (await zhao.put("/quotas/user:li", json={"gpus": 1})).status_code == 403
        assert (await zhao.put("/quotas/member:li@nlp", json={"gpus": 1})).status_code == 200

    on_rig(scenario, tmp_path)


def test_a_password_that_was_reset_meanwhile_is_not_changed_with_the_one_before(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        li, context = Actor("li"), rig.desk.context
        async with context.changing:  # somebody is changing something, so both wait
            mine = asyncio.create_task(
                login_actions.change_password(
                    context, li, user="li", old=PASSWORD, new="thief-password", token=None, now=NOW
                )
            )
            # Its old password is looked at, then it waits for the lock.
            await rig.until(lambda: bool(context.changing._waiters))
            reset = replace(rig.desk.roster.persons["li"], password="another")
            await rig.desk.roster.record([reset])
        with pytest.raises(Refused):
            await mine
        assert rig.desk.roster.persons["li"].password == "another"

    on_rig(scenario, tmp_path)


# Who is shut out while something is open


def test_following_ends_when_its_reader_is_disabled(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        owner = await come(rig, "li")
        body = {"command": ["true"], "workdir": "/"}
        for path in ("follow", "logs?follow=true"):
            job_id = (await owner.post("/jobs", json=body)).json()["id"]
            await rig.state(owner, job_id, "RUNNING")
            rig.write_log(f"{job_id}.1", b"before\n")
            heard = bytearray()
            reading = asyncio.create_task(hear(rig, owner, f"/jobs/{job_id}/{path}", heard))
            await rig.until(partial(contains, heard, b"before"))
            await rig.client(0).post("/users/li/disable")
            rig.write_log(f"{job_id}.1", b"hush-hush\n")
            async with asyncio.timeout(20):
                await reading
            assert b"hush-hush" not in heard
            await rig.client(0).post("/users/li/enable")

    on_rig(scenario, tmp_path)


def contains(heard: bytearray, words: bytes) -> bool:
    return words in heard


async def hear(rig: Rig, client: httpx.AsyncClient, path: str, heard: bytearray) -> None:
    """What a stream says until it ends. httpx's own transport would keep it all until then."""
    path, _, query = path.partition("?")
    headers = [(name.lower().encode(), value.encode()) for name, value in client.headers.items()]
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": BASE + path,
        "raw_path": (BASE + path).encode(), "query_string": query.encode(), "headers": headers,
        "client": ("203.0.113.7", 1), "server": ("danlu", 80), "root_path": "",
    }  # fmt: skip
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    asked.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def send(message: Any) -> None:
        heard.extend(message.get("body", b""))

    await make_app(rig.desk)(scope, asked.get, send)


def test_a_shell_ends_when_its_person_is_disabled(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        owner = await come(rig, "li")
        job_id = (await owner.post("/jobs", json={"command": ["true"], "workdir": "/"})).json()["id"]
        await rig.state(owner, job_id, "RUNNING")
        headers = [(b"authorization", owner.headers["authorization"].encode())]
        path = f"{BASE}/jobs/{job_id}/exec"
        scope = {"type": "websocket", "path": path, "headers": headers, "query_string": b"", "client": ("x", 1)}
        asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        said: asyncio.Queue[Any] = asyncio.Queue()
        asked.put_nowait({"type": "websocket.connect"})
        asked.put_nowait({"type": "websocket.receive", "text": '{"command": ["sh"]}'})
        route = asyncio.create_task(make_app(rig.desk)(scope, asked.get, said.put))
        async with asyncio.timeout(20):
            while (await said.get())["type"] != "websocket.send":
                pass
            await rig.client(0).post("/users/li/disable")
            while (await said.get())["type"] != "websocket.close":
                pass
            await route

    on_rig(scenario, tmp_path)


def test_queued_jobs_for_a_team_wait_when_their_owner_is_let_go(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        owner, zhao = await come(rig, "li"), await come(rig, "zhao")
        body = {"command": ["true"], "workdir": "/", "gpus": 2, "team": "nlp"}
        first, second = [(await owner.post("/jobs", json=body)).json()["id"] for _ in range(2)]
        await rig.state(owner, first, "RUNNING")
        assert (await zhao.delete("/teams/nlp/members/li")).status_code == 200
        rig.engine.finish(f"{first}.1")
        await rig.state(owner, first, "SUCCEEDED")
        why = (await owner.get(f"/jobs/{second}/why")).json()
        assert (why["state"], why["reason"]["text"]) == ("QUEUED", "li is no longer in the team nlp")
        assert (await zhao.put("/teams/nlp/members/li")).status_code == 200
        assert (await owner.post("/teams/nlp/join")).status_code == 200
        await rig.state(owner, second, "RUNNING")

    on_rig(scenario, tmp_path)


# Pace


def test_nobody_can_keep_somebody_else_out_by_wrong_logins(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")

        async def knock(password: str, origin: str, now: Any) -> None:
            await login_actions.login(rig.desk.context, user="li", password=password, origin=origin, now=now)

        now = NOW
        for _ in range(60):  # an attacker who comes back the moment it is allowed
            try:
                await knock("wrong-one", "203.0.113.66", now)
            except TooMany as error:
                now += timedelta(seconds=error.retry_after_s)
            except Unauthorized:
                pass
        with pytest.raises((Unauthorized, TooMany)):
            await knock("wrong-one", "203.0.113.66", now)
        await knock(PASSWORD, "198.51.100.1", now)

    on_rig(scenario, tmp_path)


def test_nobody_can_use_up_the_tries_of_the_first_administrator(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        code = rig.desk.context.first.new_code()

        async def redeem(code: str, origin: str) -> None:
            context = rig.desk.context
            await login_actions.first_admin(context, code=code, user="chief", password=PASSWORD, origin=origin, now=NOW)

        for number in range(100):
            with pytest.raises((Unauthorized, TooMany)):
                await redeem("0" * 20, f"203.0.113.{number % 50}")
        await redeem(code, "198.51.100.1")

    on_rig(scenario, tmp_path)


def test_answers_that_led_nowhere_do_not_fill_the_memory() -> None:
    codes = Codes()
    good = codes.give("li", challenge_of("v"), now=NOW)
    for _ in range(5000):
        codes.give(Refused("no"), challenge_of("v"), now=NOW)
    assert len(codes._kept) < 2000
    assert codes.take(good, "v", now=NOW) == "li"


@pytest.mark.parametrize(
    ("proxies", "headers", "origin"),
    [
        ((), [("x-forwarded-for", "198.51.100.1")], "203.0.113.7"),
        (("203.0.113.8",), [("x-forwarded-for", "198.51.100.1")], "203.0.113.7"),
        (("203.0.113.7",), [], "203.0.113.7"),
        (("203.0.113.7",), [("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
        (("203.0.113.7",), [("x-forwarded-for", "10.0.0.1, 198.51.100.1")], "198.51.100.1"),
        (("203.0.113.7",), [("x-forwarded-for", "10.0.0.1"), ("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
        (("203.0.113.7",), [("x-forwarded-for", "uid:0")], "203.0.113.7"),
    ],
)
def test_only_a_proxy_that_is_named_says_where_somebody_comes_from(
    tmp_path: Path, proxies: tuple[str, ...], headers: list[tuple[str, str]], origin: str
) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        rig.desk = replace(rig.desk, proxies=frozenset(proxies))
        body = {"user": "li", "password": PASSWORD}
        answer = await rig.client().post("/login", json=body, headers=headers)
        assert answer.status_code == 201
        assert [one["origin"] for one in await audit_of(rig, what="account.login")] == [origin]
        assert (await rig.client().get("/me", headers=headers)).status_code == 401

    on_rig(scenario, tmp_path)


# Requests made to break things


def test_a_stranger_cannot_send_a_body_that_fills_the_memory(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        sent = 0

        async def endless() -> Any:
            nonlocal sent
            yield b'{"user": "'
            while sent < 200_000_000:
                sent += 1_000_000
                yield b"x" * 1_000_000

        for path in ("/login", "/login/first", "/requests", "/signon/finish"):
            sent = 0
            answer = await rig.client().post(path, content=endless())
            assert answer.status_code == 413, (path, answer.text)
            assert sent < 10_000_000, path
        chief = rig.client(0)
        for path in ("/jobs", "/users", "/teams", "/snapshots"):
            sent = 0
            assert (await chief.post(path, content=endless())).status_code == 413, path

    on_rig(scenario, tmp_path)


HUGE = ["99999999999999999999999", "-99999999999999999999999", "1e5", "nan", "\x00", "\ud800", "a" * 5000, "💥", "'--"]


def test_nonsense_in_a_query_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        chief = rig.client(0)
        job_id = (await chief.post("/jobs", json={"command": ["true"], "workdir": "/"})).json()["id"]
        await rig.state(chief, job_id, "RUNNING")
        rig.write_log(f"{job_id}.1", b"words\n")
        queries = {
            "/jobs": ("state", "user", "name", "label", "array", "team", "limit", "before", "collapse"),
            f"/jobs/{job_id}/logs": ("tail", "offset", "attempt"),
            f"/jobs/{job_id}/wait": ("timeout",),
            "/audit": ("who", "what", "target", "limit", "before"),
            "/usage": ("user", "team", "since", "until", "by"),
            "/quotas": ("holder", "every"),
            "/tokens": ("user", "everybody"),
            "/requests": ("decided",),
        }
        for path, names in queries.items():
            for name in names:
                for value in [*HUGE, "a=\x00"]:
                    if name == "timeout" and value[0] in "19":
                        continue  # waits for so long
                    written = quote(value.encode("utf-8", "surrogatepass"))
                    answer = await chief.get(f"{path}?{name}={written}")
                    assert answer.status_code < 500, (path, name, value, answer.text)

    on_rig(scenario, tmp_path)


def test_nonsense_in_a_body_or_a_path_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li", teams=[])
        await rig.client(0).post("/teams", json={"name": "nlp"})
        chief = rig.client(0)
        bodies: dict[tuple[str, str], tuple[str, ...]] = {
            ("POST", "/users"): ("name", "role", "full_name", "email", "teams", "password"),
            ("POST", "/teams"): ("name",),
            ("POST", "/tokens"): ("name", "user", "role", "days"),
            ("POST", "/requests"): ("user", "team", "password", "full_name", "email", "why"),
            ("POST", "/login"): ("user", "password", "is_hashed"),
            ("POST", "/login/first"): ("code", "user", "password"),
            ("POST", "/users/li/password"): ("new", "old", "is_hashed"),
            ("POST", "/users/li/role"): ("role",),
            ("PUT", "/users/li/subject"): ("subject",),
            ("PUT", "/quotas/user:li"): ("gpus", "shards", "cpus", "mem", "jobs", "gpu_hours", "period", "borrow"),
            ("POST", "/boosts"): ("user", "until", "why", "team"),
            ("POST", "/snapshots"): ("files",),
        }
        good = {
            "/users": {"name": "fine"}, "/tokens": {"name": "fine", "user": "li"}, "/login": {"user": "li"},
            "/requests": {"user": "fine", "team": "nlp", "password": PASSWORD}, "/users/li/password": {"new": PASSWORD},
            "/boosts": {"user": "li", "until": "3d", "why": "x"},
        }  # fmt: skip
        strange: list[Any] = [*HUGE, None, 10**30, -(10**30), 1e308, True, [], {}, [[]], ["\ud800"], {"a": "\x00"}]
        strange += ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00+23:59", [["a", 10**30, 10**30, "0" * 64]]]
        for (method, path), names in bodies.items():
            for name in names:
                for value in strange:
                    body = json.dumps({**good.get(path, {}), name: value})
                    rig.desk.context.limiter, rig.desk.context.asks = LoginLimiter(), Pace(free=1000)
                    answer = await chief.request(method, path, content=body)
                    assert answer.status_code < 500, (path, name, value, answer.text)
        for value in HUGE:
            part = quote(value.encode("utf-8", "surrogatepass"))
            for method, path in (
                ("GET", f"/users/{part}"), ("POST", f"/users/{part}/disable"), ("GET", f"/teams/{part}"),
                ("PUT", f"/teams/nlp/members/{part}"), ("PUT", f"/teams/{part}/leaders/li"),
                ("DELETE", f"/tokens/{part}"), ("DELETE", f"/boosts/{part}"), ("POST", f"/requests/{part}/open"),
                ("GET", f"/jobs/{part}"), ("PUT", f"/blobs/{part}"), ("DELETE", f"/quotas/{part}"),
            ):  # fmt: skip
                answer = await chief.request(method, path)
                assert answer.status_code < 500, (method, path, answer.text)

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize("size", ["Infinity", "1e400", "-1", "99999999999", "NaN", "0"])
def test_a_terminal_of_an_impossible_size_is_refused(size: str) -> None:
    """What it is given to speaks with every run of the installation."""
    for name in ("rows", "columns"):
        with pytest.raises(Invalid):
            _read_ask(f'{{"command": ["sh"], "tty": true, "{name}": {size}}}')
    assert _read_ask('{"command": ["sh"], "tty": true, "rows": 50}')[1] == Terminal("xterm", 50, 80)


# What broke off


def test_opening_again_makes_the_folders_that_are_missing(tmp_path: Path) -> None:
    """The account is there, the server died before the folders were: the same command again makes them."""

    async def scenario(rig: Rig) -> None:
        (tmp_path / "homes").mkdir()
        rig.desk.context.rules = PeopleRules(home=f"{tmp_path}/homes/{{user}}")
        await team_with(rig, "nlp", "zhao")
        asked = {"user": "newcomer", "team": "nlp", "password": PASSWORD}
        made = (await rig.client().post("/requests", json=asked)).json()
        opening = f"/requests/{made['id']}/open"
        assert (await rig.client(0).post(opening)).status_code == 200
        (tmp_path / "homes/newcomer").rmdir()
        again = (await rig.client(0).post(opening)).json()
        assert (again["state"], again["folders"][0]["made"]) == ("OPENED", True)
        assert (tmp_path / "homes/newcomer").is_dir()
        assert len(await audit_of(rig, what="request.open")) == 1
        assert (await (await come(rig, "zhao")).post(opening)).status_code == 403

    on_rig(scenario, tmp_path)


def test_one_request_fills_no_memory_and_holds_up_nobody_for_long(tmp_path: Path) -> None:
    """An empty object is three bytes of a body, and ninety of memory."""

    async def scenario(rig: Rig) -> None:
        client = rig.client(0)
        for path, most in (("/jobs", 8 << 20), ("/snapshots", 16 << 20)):
            body = b'{"files":[' + b"{}," * (most // 3) + b"1]}"
            assert (await client.post(path, content=body)).status_code == 413, path

    on_rig(scenario, tmp_path)


def test_what_code_a_job_runs_is_no_strangers_business(tmp_path: Path) -> None:
    """The id of a snapshot is made of its content: whoever has the same code has the same id."""

    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li", "wang")
        owner, mate = await come(rig, "li"), await come(rig, "wang")
        content = b"print(1)"
        digest = hashlib.sha256(content).hexdigest()
        made = (await owner.post("/snapshots", json={"files": [["a.py", 0o100644, len(content), digest]]})).json()["id"]
        assert (await owner.put(f"/blobs/{digest}", content=content)).status_code == 204
        body = {"command": ["true"], "workdir": "/", "snapshot": made}
        job_id = (await owner.post("/jobs", json=body)).json()["id"]
        assert (await owner.get(f"/jobs/{job_id}")).json()["snapshot"] == made
        for path in (f"/jobs/{job_id}", "/jobs"):
            assert made not in (await mate.get(path)).text, path

    on_rig(scenario, tmp_path)
