"""People over REST: logins, tokens, requests for accounts, teams, and what is written down about it."""

import asyncio
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from danlu.actions.people import login as login_actions
from danlu.actions.people import passwords, requests, tokens
from danlu.actions.people.context import PeopleRules
from danlu.domain.people import Membership, Person, Role, Team
from danlu.domain.quota import Quota
from danlu.errors import TooMany, Unauthorized
from danlu.store.people_protocol import Member
from tests.app.rig import Rig, on_rig

NOW = datetime.now(UTC)
PASSWORD = "sesame-open"
NOBODY = 65534  # a Unix user that every machine knows


async def open_account(rig: Rig, name: str, **given: Any) -> None:
    answer = await rig.client(0).post("/users", json={"name": name, "password": PASSWORD, **given})
    assert answer.status_code == 201, answer.text


async def login(rig: Rig, name: str, password: str = PASSWORD) -> httpx.AsyncClient:
    answer = await rig.client().post("/login", json={"user": name, "password": password})
    assert answer.status_code == 201, answer.text
    return rig.client(token=answer.json()["token"])


async def team_with(rig: Rig, team: str, leader: str, *members: str) -> None:
    """A team, and people who need no password."""
    missing = [name for name in (leader, *members) if name not in rig.desk.roster.persons]
    joined = [Member(name, team, Membership(team, name == leader)) for name in (leader, *members)]
    await rig.desk.roster.record([Team(team, NOW), *(Person(name, NOW) for name in missing), *joined])


async def come(rig: Rig, name: str, role: Role = Role.MEMBER) -> httpx.AsyncClient:
    token, secret = tokens.new_token(name, "test", role, days=1, now=NOW)
    await rig.desk.context.store.add_token(token)
    return rig.client(token=secret)


async def audit_of(rig: Rig, **wanted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await rig.client(0).get("/audit", params=wanted)).json()["items"]
    return found


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["detail"]


# Logins


def test_a_password_lets_in_and_det_may_send_it_its_own_way(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        for body in (
            {"user": "li", "password": PASSWORD},
            {"user": "li", "password": passwords.wire_value(PASSWORD), "is_hashed": True},
        ):
            answer = await rig.client().post("/login", json=body)
            assert answer.status_code == 201
            me = (await rig.client(token=answer.json()["token"]).get("/me")).json()
            assert (me["user"], me["role"], me["by"]) == ("li", "member", "login")
            days = datetime.fromisoformat(answer.json()["expires_at"]) - datetime.now(UTC)
            assert timedelta(days=29) < days < timedelta(days=31)

    on_rig(scenario, tmp_path)


def test_a_wrong_password_an_unknown_name_and_a_disabled_account_are_told_alike(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        await open_account(rig, "gone")
        await rig.client(0).post("/users/gone/disable")
        answers = [
            await rig.client().post("/login", json={"user": name, "password": password})
            for name, password in (("li", "wrong-one"), ("ghost", PASSWORD), ("gone", "wrong-one"), ("root", ""))
        ]
        assert {answer.text for answer in answers} == {answers[0].text}
        assert problem(answers[0]) == (401, "the name or the password is wrong")
        # Only who knows the password learns that the account is disabled.
        refused = await rig.client().post("/login", json={"user": "gone", "password": PASSWORD})
        assert problem(refused) == (403, "the account of gone is disabled")

    on_rig(scenario, tmp_path)


def test_unknown_names_cost_as_much_work(tmp_path: Path) -> None:
    """Counted in processor time of the same hash, not by a stopwatch."""

    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        kept = rig.desk.roster.persons["li"].password
        # `$argon2id$v=19$m=65536,t=3,p=4$salt$hash`: the same parameters are the same work.
        assert passwords._nobody().split("$")[1:4] == kept.split("$")[1:4]

    on_rig(scenario, tmp_path)


def test_many_wrong_logins_have_to_wait_and_the_right_one_too(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")

        async def knock(password: str, now: datetime) -> None:
            await login_actions.login(rig.desk.context, user="li", password=password, origin="203.0.113.9", now=now)

        for _ in range(5):
            with pytest.raises(Unauthorized):
                await knock("wrong-one", NOW)
        for password in ("wrong-one", PASSWORD):
            with pytest.raises(TooMany) as refused:
                await knock(password, NOW)
            assert refused.value.retry_after_s == 1
        with pytest.raises(Unauthorized):
            await knock("wrong-one", NOW + timedelta(seconds=1))
        with pytest.raises(TooMany) as refused:
            await knock(PASSWORD, NOW + timedelta(seconds=1))
        assert refused.value.retry_after_s == 2
        await knock(PASSWORD, NOW + timedelta(seconds=3))
        await knock(PASSWORD, NOW + timedelta(seconds=3))

    on_rig(scenario, tmp_path)


def test_too_many_is_429_with_the_time_to_wait(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        body = {"user": "li", "password": "wrong-one"}
        assert (await rig.client().post("/login", json=body)).status_code == 401
        at = datetime.now(UTC)
        for _ in range(12):  # wrong tries of the next minutes, each as soon as it may be
            try:
                rig.desk.context.limiter.enter("li", "203.0.113.7", at)
            except TooMany as error:
                at += timedelta(seconds=error.retry_after_s)
        slow = await rig.client().post("/login", json=body)
        assert (slow.status_code, slow.json()["code"]) == (429, "too_many")
        assert int(slow.headers["Retry-After"]) > 10

    on_rig(scenario, tmp_path)


def test_who_logs_out_is_out_and_old_logins_go(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        first, second = await login(rig, "li"), await login(rig, "li")
        assert (await first.post("/logout")).json() == {"removed": 1}
        assert (await first.get("/me")).status_code == 401
        assert (await second.get("/me")).status_code == 200
        old, _ = tokens.new_token("li", tokens.LOGIN, Role.ADMIN, days=1, now=NOW - timedelta(days=9))
        await rig.desk.context.store.add_token(old)
        await login(rig, "li")
        assert old.id not in [token.id for token in await rig.desk.context.store.tokens()]
        assert [one["what"] for one in await audit_of(rig, what="account")] == [
            "account.login", "account.logout", "account.login", "account.login",
        ]  # fmt: skip

    on_rig(scenario, tmp_path)


def test_a_password_is_changed_with_the_old_one_and_ends_other_logins(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        here, elsewhere = await login(rig, "li"), await login(rig, "li")
        named = await come(rig, "li")
        wrong = await here.post("/users/li/password", json={"old": "not this", "new": "new-sesame"})
        assert problem(wrong) == (403, "the old password is wrong")
        short = await here.post("/users/li/password", json={"old": PASSWORD, "new": "short"})
        assert problem(short) == (422, "the password is too short: 5 characters")
        assert (await here.post("/users/li/password", json={"old": PASSWORD, "new": "new-sesame"})).json() == {
            "ended": 1
        }
        assert [(await one.get("/me")).status_code for one in (here, elsewhere, named)] == [200, 401, 200]
        await login(rig, "li", "new-sesame")
        assert (await rig.client().post("/login", json={"user": "li", "password": PASSWORD})).status_code == 401

        reset = await rig.client(0).post("/users/li/password", json={"new": "reset-sesame"})
        assert reset.json() == {"ended": 2}
        assert (await here.get("/me")).status_code == 401
        assert [(one["who"], one["detail"]) for one in await audit_of(rig, what="account.passwd")] == [
            ("root", "reset"), ("li", ""),
        ]  # fmt: skip

    on_rig(scenario, tmp_path)


def test_a_change_during_another_is_not_lost(tmp_path: Path) -> None:
    """Hashing takes a while: who is disabled meanwhile stays disabled."""

    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        root = rig.client(0)
        await asyncio.gather(
            root.post("/users/li/password", json={"new": "new-sesame"}),
            root.post("/users/li/disable"),
            root.post("/users/li/role", json={"role": "admin"}),
        )
        person = (await rig.desk.context.store.people()).persons[0]
        assert (person.is_enabled, person.role) == (False, Role.ADMIN)
        assert await passwords.is_right(person.password, passwords.given_value("new-sesame"))
        assert rig.desk.roster.persons["li"] == person

    on_rig(scenario, tmp_path)


def test_the_first_administrator_comes_with_a_code_once(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        code = rig.desk.context.first.new_code()
        client = rig.client()
        wrong = await client.post("/login/first", json={"code": "0" * 20, "user": "chief", "password": PASSWORD})
        assert wrong.status_code == 401
        made = await client.post("/login/first", json={"code": code, "user": "chief", "password": PASSWORD})
        assert made.status_code == 201
        assert (await rig.client(token=made.json()["token"]).get("/me")).json()["role"] == "admin"
        again = await client.post("/login/first", json={"code": code, "user": "other", "password": PASSWORD})
        assert again.status_code == 401
        code = rig.desk.context.first.new_code()
        late = await client.post("/login/first", json={"code": code, "user": "other", "password": PASSWORD})
        assert problem(late) == (409, "there is an administrator already")
        assert list(rig.desk.roster.persons) == ["chief"]

    on_rig(scenario, tmp_path)


# Tokens


def test_a_token_gives_what_its_person_has_now_and_never_more_than_itself(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "boss", role="admin")
        await open_account(rig, "chief", role="admin")
        named = await (await come(rig, "boss", Role.ADMIN)).post("/tokens", json={"name": "ci"})
        limited = rig.client(token=named.json()["token"])
        assert (await limited.get("/audit")).status_code == 403, "a token is a member's unless said otherwise"
        full = await come(rig, "boss", Role.ADMIN)
        assert (await full.get("/audit")).status_code == 200
        await rig.client(0).post("/users/boss/role", json={"role": "member"})
        assert (await full.get("/audit")).status_code == 403
        await team_with(rig, "nlp", "boss")
        assert (await full.get("/me")).json()["teams"] == [{"team": "nlp", "is_leader": True, "leaders": ["boss"]}]
        await rig.client(0).post("/users/boss/disable")
        assert problem(await full.get("/me")) == (403, "the account of boss is disabled")
        await rig.client(0).post("/users/boss/enable")
        assert (await full.get("/me")).status_code == 200

    on_rig(scenario, tmp_path)


def test_a_token_of_somebody_without_an_account_says_so(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await (await come(rig, "ghost")).get("/me")
        assert problem(answer) == (401, "the token is of ghost, who has no account here")

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"name": ""}, 422, "a token needs a name"),
        ({"name": "login"}, 422, "a token needs a name of its own"),
        ({"name": "x" * 61}, 422, "at most 60"),
        ({"name": "a\nb"}, 422, "a token needs a name"),
        ({"name": "ci", "days": 0}, 422, "1 to 366 days, not 0"),
        ({"name": "ci", "days": -5}, 422, "not -5"),
        ({"name": "ci", "days": 10**9}, 422, "1 to 366 days"),
        ({"name": "ci", "role": "admin"}, 409, "li is no administrator"),
        ({"name": "ci", "role": "king"}, 422, "no role `king`"),
        ({"name": "ci", "user": "wang"}, 403, "belongs to wang"),
    ],
)
def test_tokens_that_one_may_not_have(tmp_path: Path, body: dict[str, Any], status: int, text: str) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "li", "wang")
        answer = await (await come(rig, "li")).post("/tokens", json=body)
        assert answer.status_code == status
        assert text in answer.json()["detail"]

    on_rig(scenario, tmp_path)


def test_own_tokens_are_revoked_by_their_owner_and_at_once(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "wang", "li")
        li, wang = await come(rig, "li"), await come(rig, "wang")
        made = (await li.post("/tokens", json={"name": "laptop", "days": 7})).json()
        laptop = rig.client(token=made["token"])
        assert (await laptop.get("/me")).json()["token"]["name"] == "laptop"
        assert [one["name"] for one in (await li.get("/tokens")).json()["items"]] == ["test", "laptop"]
        assert (await wang.delete(f"/tokens/{made['id']}")).status_code == 403, "leading is no right to tokens"
        assert (await wang.get("/tokens", params={"user": "li"})).status_code == 403
        assert (await li.get("/tokens", params={"everybody": True})).status_code == 403
        assert (await li.delete(f"/tokens/{made['id']}")).status_code == 200
        assert (await laptop.get("/me")).status_code == 401
        assert (await li.delete(f"/tokens/{made['id']}")).status_code == 404
        said = await audit_of(rig, what="token", target="li")
        assert [(one["who"], one["what"]) for one in said] == [("li", "token.revoke"), ("li", "token.create")]
        assert made["token"] not in json.dumps(said)

    on_rig(scenario, tmp_path)


# The Unix socket


def test_who_comes_by_the_unix_socket_is_looked_up(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(NOBODY)
        me = (await client.get("/me")).json()
        name = me["user"]
        assert (me["role"], me["has_account"], me["by"]) == ("member", False, "unix socket")
        rig.desk.context.rules = PeopleRules(needs_account=True)
        refused = await client.get("/me")
        assert problem(refused) == (403, f"{name} has no account here")
        assert "danlu account ask" in refused.json()["hint"]
        await rig.desk.roster.record([Person(name, NOW, Role.ADMIN)])
        assert (await client.get("/audit")).status_code == 200
        await rig.desk.roster.record([Person("chief", NOW, Role.ADMIN), Person(name, NOW, is_enabled=False)])
        assert problem(await client.get("/me")) == (403, f"the account of {name} is disabled")
        assert (await client.post("/jobs", json={"command": ["true"], "workdir": "/"})).status_code == 403
        # Root, and the server's own user, get in whatever the roster says.
        await rig.desk.roster.record([Person("root", NOW, is_enabled=False)])
        for uid in (0, os.getuid()):
            assert (await rig.client(uid).get("/audit")).status_code == 200

    on_rig(scenario, tmp_path)


def test_on_the_unix_socket_a_token_does_not_say_who_one_is(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "chief", role="admin")
        client = rig.client(NOBODY)
        client.headers.update((await come(rig, "chief", Role.ADMIN)).headers)
        assert (await client.get("/me")).json()["user"] != "chief"

    on_rig(scenario, tmp_path)


# Requests for accounts


def test_ask_approve_open(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        homes = tmp_path / "homes"
        homes.mkdir()
        rig.desk.context.rules = PeopleRules(
            default_quota=Quota(gpus=2), home=f"{homes}/{{user}}", team_folder=f"{homes}/nowhere/{{team}}"
        )
        await team_with(rig, "nlp", "zhao", "li")
        await team_with(rig, "cv", "dean")
        body = {"user": "new", "team": "nlp", "password": PASSWORD, "full_name": "新人", "why": "thesis"}
        asked = (await rig.client().post("/requests", json=body)).json()
        assert (asked["state"], asked["full_name"]) == ("ASKED", "新人")
        assert PASSWORD not in json.dumps(asked)
        assert "password" not in asked
        assert (await rig.client().post("/login", json={"user": "new", "password": PASSWORD})).status_code == 403

        zhao, dean, li = await come(rig, "zhao"), await come(rig, "dean"), await come(rig, "li")
        assert [one["id"] for one in (await zhao.get("/requests")).json()["items"]] == [asked["id"]]
        assert (await dean.get("/requests")).json()["items"] == []
        assert (await li.get("/requests")).status_code == 403
        for client in (dean, li):
            for verb in ("approve", "refuse", "open"):
                assert (await client.post(f"/requests/{asked['id']}/{verb}")).status_code == 403
        assert (await zhao.post(f"/requests/{asked['id']}/approve")).json()["state"] == "APPROVED"
        assert (await zhao.post(f"/requests/{asked['id']}/open")).status_code == 403
        assert "new" not in rig.desk.roster.persons

        opened = (await rig.client(0).post(f"/requests/{asked['id']}/open")).json()
        assert opened["state"] == "OPENED"
        home, share = opened["folders"]
        assert home == {"path": str(homes / "new"), "made": True, "said": ""}
        assert (share["made"], share["said"]) == (False, "not made: No such file or directory")
        assert rig.desk.roster.quotas["user:new"] == Quota(gpus=2)
        me = (await (await login(rig, "new")).get("/me")).json()
        assert (me["teams"], me["full_name"]) == ([{"team": "nlp", "is_leader": False, "leaders": ["zhao"]}], "新人")
        assert not any(one.password for one in rig.desk.roster.requests.values()), "it is the account's now"
        again = (await rig.client(0).post(f"/requests/{asked['id']}/open")).json()
        assert (again["state"], again["folders"][0]["said"]) == ("OPENED", "it was there already")
        refused = await rig.client(0).post(f"/requests/{asked['id']}/refuse", json={})
        assert problem(refused) == (409, f"request {asked['id']} is opened already, by root")
        said = [(one["who"], one["what"], one["origin"]) for one in await audit_of(rig, what="request")]
        assert said == [
            ("root", "request.open", "unix socket"),
            ("zhao", "request.approve", "203.0.113.7"),
            ("", "request.ask", "203.0.113.7"),
        ]

    on_rig(scenario, tmp_path)


def test_where_a_leaders_word_is_enough_it_opens(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        rig.desk.context.rules = PeopleRules(leaders_open=True)
        await team_with(rig, "nlp", "zhao")
        await team_with(rig, "cv", "dean")
        body = {"user": "new", "team": "nlp", "password": PASSWORD}
        asked = (await rig.client().post("/requests", json=body)).json()
        assert (await (await come(rig, "dean")).post(f"/requests/{asked['id']}/approve")).status_code == 403
        assert (await (await come(rig, "zhao")).post(f"/requests/{asked['id']}/approve")).json()["state"] == "OPENED"
        await login(rig, "new")

    on_rig(scenario, tmp_path)


def test_who_asked_learns_by_a_login_how_it_stands(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        body = {"user": "new", "team": "nlp", "password": PASSWORD}
        asked = (await rig.client().post("/requests", json=body)).json()

        async def told(password: str = PASSWORD) -> tuple[int, str]:
            return problem(await rig.client().post("/login", json={"user": "new", "password": password}))

        for _ in range(7):  # a right password is no try too many
            assert await told() == (403, "your request for the account `new` waits for a leader of nlp")
        assert await told("wrong-one") == (401, "the name or the password is wrong")
        await (await come(rig, "zhao")).post(f"/requests/{asked['id']}/approve")
        assert await told() == (403, "your account `new` is approved by zhao and not open yet")
        await rig.client(0).post(f"/requests/{asked['id']}/open")
        await login(rig, "new")

    on_rig(scenario, tmp_path)


def test_a_refused_request_stays_refused_and_its_name_is_free_again(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        body = {"user": "new", "team": "nlp", "password": PASSWORD}
        asked = (await rig.client().post("/requests", json=body)).json()
        zhao = await come(rig, "zhao")
        refused = await zhao.post(f"/requests/{asked['id']}/refuse", json={"why": "left the lab"})
        assert refused.json()["state"] == "REFUSED"
        assert (await rig.client(0).post(f"/requests/{asked['id']}/open")).status_code == 409
        assert not rig.desk.roster.requests[asked["id"]].password
        assert (await rig.client().post("/requests", json=body)).status_code == 201
        assert (await audit_of(rig, what="request.refuse"))[0]["detail"].endswith("left the lab")

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Li",
        "li hua",
        "../etc",
        "li/..",
        "-rf",
        "1li",
        "l" * 33,
        "li\n",
        "李",
        "root",
        "daemon",
        "all",
        "me",
        "$(id)",
    ],
)
def test_names_that_nobody_may_have(tmp_path: Path, name: str) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        answer = await rig.client().post("/requests", json={"user": name, "team": "nlp", "password": PASSWORD})
        if name in ("root", "daemon"):  # a stranger does not learn which users a machine has
            assert answer.status_code == 201
            opened = await rig.client(0).post(f"/requests/{answer.json()['id']}/open")
            assert problem(opened) == (409, f"the name `{name}` is taken by the machine")
        else:
            assert answer.status_code in (409, 422), answer.text
            assert not rig.desk.roster.requests
        if name != "daemon":  # an administrator may know why
            made = await rig.client(0).post("/users", json={"name": name})
            assert made.status_code in (409, 422)
        assert set(rig.desk.roster.persons) == {"zhao"}

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"team": "nowhere"}, "no team `nowhere`"),
        ({"password": "short"}, "too short"),
        ({"full_name": "x" * 101}, "`name` is one line"),
        ({"why": "a\x1b[2Jb"}, "`why` is one line"),
        ({"email": "a\nb"}, "`email` is one line"),
        ({"user": "all"}, "the name `all` is taken by the machine"),
        ({"role": "admin"}, "unknown option `role`"),
    ],
)
def test_requests_that_make_no_sense(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        body = {"user": "new", "team": "nlp", "password": PASSWORD} | change
        answer = await rig.client().post("/requests", json=body)
        assert answer.status_code in (404, 409, 422)
        assert text in answer.json()["detail"]
        assert not rig.desk.roster.requests

    on_rig(scenario, tmp_path)


def test_nobody_asks_all_day(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")

        async def ask(name: str, now: datetime) -> None:
            await requests.ask(
                rig.desk.context, name=name, team="nlp", password=PASSWORD, origin="203.0.113.9", now=now
            )

        for number in range(5):
            await ask(f"new{number}", NOW)
        with pytest.raises(TooMany):
            await ask("new5", NOW)
        await ask("new5", NOW + timedelta(seconds=1))

    on_rig(scenario, tmp_path)


# Users and teams


def test_disabling_stops_new_work_keeps_the_rest_and_says_what_runs(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await open_account(rig, "li")
        li = await login(rig, "li")
        body = {"command": ["true"], "workdir": "/", "gpus": 2}
        running = (await li.post("/jobs", json=body)).json()["id"]
        await rig.state(li, running, "RUNNING")
        waiting = (await li.post("/jobs", json=body)).json()["id"]
        told = (await rig.client(0).post("/users/li/disable")).json()
        assert (told["is_enabled"], told["running"], told["queued"]) == (False, [running], [waiting])
        assert problem(await li.post("/jobs", json=body)) == (403, "the account of li is disabled")
        assert (await rig.client(0).get(f"/jobs/{running}")).json()["state"] == "RUNNING"
        await rig.client(0).post("/users/li/disable")
        assert len(await audit_of(rig, what="user.disable")) == 1, "nothing changed the second time"
        await rig.client(0).post("/users/li/enable")
        assert (await li.post("/jobs", json=body)).status_code == 201

    on_rig(scenario, tmp_path)


def test_the_last_administrator_stays(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record(
            [Person("chief", NOW, Role.ADMIN), Person("old", NOW, Role.ADMIN, is_enabled=False)]
        )
        root = rig.client(0)
        for path, body in (("disable", {}), ("role", {"role": "member"})):
            refused = await root.post(f"/users/chief/{path}", json=body)
            assert problem(refused) == (409, "chief is the last administrator")
        await rig.desk.roster.record([Person("second", NOW, Role.ADMIN)])
        # Both at once: one of them stays.
        answers = await asyncio.gather(*(root.post(f"/users/{name}/disable") for name in ("chief", "second")))
        assert sorted(answer.status_code for answer in answers) == [200, 409]

    on_rig(scenario, tmp_path)


def test_teams_are_led_by_whom_an_administrator_names(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        root = rig.client(0)
        for name in ("li", "zhao", "co"):
            await rig.desk.roster.record([Person(name, NOW)])
        made = (await root.post("/teams", json={"name": "nlp"})).json()
        assert made["warning"] == "nobody leads nlp: `danlu team leader nlp USER`"
        assert (await root.post("/teams", json={"name": "nlp"})).status_code == 409
        assert (await root.post("/teams", json={"name": "N LP"})).status_code == 422
        led = (await root.put("/teams/nlp/leaders/zhao")).json()
        assert (led["leaders"], led["warning"]) == (["zhao"], "")
        await root.put("/teams/nlp/leaders/co")
        zhao = await come(rig, "zhao")
        assert [one["user"] for one in (await zhao.put("/teams/nlp/members/li")).json()["invited"]] == ["li"]
        team = (await (await come(rig, "li")).post("/teams/nlp/join")).json()
        assert [one["user"] for one in team["members"]] == ["co", "li", "zhao"]
        assert (await zhao.put("/teams/nlp/members/ghost")).status_code == 404
        assert (await zhao.put("/teams/nlp/leaders/li")).status_code == 403
        refused = await zhao.delete("/teams/nlp/members/co")
        assert problem(refused) == (403, "zhao may not do this with co, who leads nlp")
        await zhao.put("/teams/nlp/members/zhao")
        assert (await zhao.get("/me")).json()["teams"][0]["is_leader"], "who is in it already stays as they are"
        await zhao.delete("/teams/nlp/members/li")
        assert (await zhao.delete("/teams/nlp/members/li")).status_code == 404
        await root.delete("/teams/nlp/leaders/co")
        left = (await zhao.delete("/teams/nlp/members/zhao")).json()
        assert left["warning"] == "nobody leads nlp: `danlu team leader nlp USER`"

    on_rig(scenario, tmp_path)


def test_a_leader_has_no_say_in_another_team(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao", "li")
        await team_with(rig, "cv", "dean")
        dean, li = await come(rig, "dean"), await come(rig, "li")
        job = (await li.post("/jobs", json={"command": ["sleep"], "workdir": "/", "team": "nlp"})).json()["id"]
        for method, path in (
            ("PUT", "/teams/nlp/members/dean"),
            ("DELETE", "/teams/nlp/members/li"),
            ("PUT", "/teams/nlp/leaders/dean"),
            ("POST", f"/jobs/{job}/stop"),
            ("GET", f"/jobs/{job}/logs"),
            ("GET", "/users/li"),
        ):
            assert (await dean.request(method, path)).status_code == 403, path
        assert (await (await come(rig, "zhao")).post(f"/jobs/{job}/stop")).status_code == 200
        assert [(one["who"], one["target"], one["detail"]) for one in await audit_of(rig, what="job.stop")] == [
            ("zhao", job, "of li")
        ]

    on_rig(scenario, tmp_path)


def test_the_audit_log_is_read_page_by_page(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for number in range(7):
            await open_account(rig, f"u{number}", password="")
        root = rig.client(0)
        seen, cursor = [], None
        while True:
            page = (await root.get("/audit", params={"limit": 3} | ({"before": cursor} if cursor else {}))).json()
            seen += [one["target"] for one in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == [f"u{number}" for number in reversed(range(7))]
        assert len(await audit_of(rig, who="root", what="user", target="u3")) == 1
        assert problem(await root.get("/audit", params={"what": "users"}))[0] == 422

    on_rig(scenario, tmp_path)


def test_people_are_there_after_a_restart(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await open_account(rig, "li", full_name="李华", email="li@lab")
        await rig.client(0).post("/teams", json={"name": "nlp"})
        await rig.client(0).put("/teams/nlp/leaders/li")
        await rig.client().post("/requests", json={"user": "new", "team": "nlp", "password": PASSWORD})

    async def second(rig: Rig) -> None:
        li = await login(rig, "li")
        me = (await li.get("/me")).json()
        assert (me["full_name"], me["teams"]) == ("李华", [{"team": "nlp", "is_leader": True, "leaders": ["li"]}])
        assert [one["user"] for one in (await li.get("/requests")).json()["items"]] == ["new"]

    on_rig(first, tmp_path)
    on_rig(second, tmp_path)


def test_a_login_goes_with_the_person_as_they_are(tmp_path: Path) -> None:
    """What sign-on uses too: a token for somebody who has proved who they are."""

    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record([Person("li", NOW)])
        person = rig.desk.roster.persons["li"]
        _, secret = await login_actions.issue_login(rig.desk.context.store, person, origin="browser", now=NOW, days=1)
        client = rig.client(token=secret)
        assert (await client.get("/me")).json()["role"] == "member"
        await rig.desk.roster.record([replace(person, role=Role.ADMIN)])
        assert (await client.get("/me")).json()["role"] == "admin"

    on_rig(scenario, tmp_path)
