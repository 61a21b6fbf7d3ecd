"""Requests for accounts, asked by strangers: what they learn, and how many there may be."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from danlu.actions.people import login as login_actions
from danlu.actions.people import requests
from danlu.actions.people.rate_limit import Pace
from danlu.domain.people import AccountRequest, AuditEntry, RequestState
from danlu.errors import DanluError
from tests.app.rig import Rig, on_rig
from tests.app.test_people import NOW, PASSWORD, audit_of, come, login, open_account, problem, team_with


def test_strangers_do_not_learn_which_names_exist(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        await open_account(rig, "li")
        first = {"user": "wanted", "team": "nlp", "password": "another-password"}
        assert (await rig.client().post("/requests", json=first)).status_code == 201
        shapes = []
        for name in ("free", "li", "zhao", "wanted", "daemon"):
            rig.desk.context.asks = Pace(free=5)
            body = {"user": name, "team": "nlp", "password": "of-a-stranger"}
            answer = await rig.client().post("/requests", json=body)
            shapes.append((answer.status_code, {**answer.json(), "id": "", "user": "", "asked_at": ""}))
            told = problem(await rig.client().post("/login", json={"user": name, "password": "of-a-stranger"}))
            assert told == (403, f"your request for the account `{name}` waits for a leader of nlp")
        assert all(shape == shapes[0] for shape in shapes), shapes

        zhao = await come(rig, "zhao")
        listed = (await zhao.get("/requests")).json()["items"]
        shown = {one["user"]: one["conflict"] for one in listed}
        twice = "2 requests for this name: ask the person for the id of theirs"
        assert shown == {
            "free": "",
            "li": "there is an account `li` already",
            "zhao": "there is an account `zhao` already",
            "wanted": twice,
            "daemon": "the name `daemon` is taken by the machine",
        }
        for one in listed:
            if one["conflict"] not in ("", twice):
                for client, verb in ((zhao, "approve"), (rig.client(0), "open")):
                    refused = await client.post(f"/requests/{one['id']}/{verb}")
                    assert problem(refused) == (409, one["conflict"])
        await login(rig, "li")

    on_rig(scenario, tmp_path)


def test_a_request_for_a_taken_name_gives_no_more_guesses_at_its_password(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        await open_account(rig, "li")
        context, origin, seen = rig.desk.context, "192.0.2.1", []
        await requests.ask(context, name="li", team="nlp", password="of-a-stranger", origin=origin, now=NOW)
        for number in range(6):
            for password in ("of-a-stranger", f"guess-{number}"):
                with pytest.raises(DanluError) as refused:
                    await login_actions.login(context, user="li", password=password, origin=origin, now=NOW)
                seen.append(refused.value.code)
        assert seen == ["not_open", "unauthorized"] * 5 + ["too_many"] * 2

    on_rig(scenario, tmp_path)


def a_flood(count: int, origin: str, *, at: datetime = NOW) -> tuple[list[AccountRequest], list[AuditEntry]]:
    asked = [AccountRequest(f"{origin[-3:]}-{n}", f"flood{n}", "nlp", at, password="x") for n in range(count)]
    said = [AuditEntry(at, "", "request.ask", one.name, f"request {one.id}, team nlp", origin) for one in asked]
    return asked, said


def test_a_flood_of_requests_keeps_nobody_from_asking(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        roster = rig.desk.roster
        await team_with(rig, "nlp", "zhao")
        await roster.record(*a_flood(3, "198.51.100.001", at=NOW - timedelta(days=1)))
        await roster.record(*a_flood(requests.MOST_WAITING - 3, "203.0.113.200"))
        for number in range(3):
            made = await requests.ask(
                rig.desk.context,
                name=f"new{number}",
                team="nlp",
                password=PASSWORD,
                origin=f"192.0.2.{number}",
                now=NOW + timedelta(hours=1),
            )
            assert roster.requests[made.id].state == "ASKED"
        gone = [one.id for one in roster.requests.values() if one.state == "REFUSED"]
        assert gone == ["200-0", "200-1", "200-2"], "the oldest of the address with the most"
        assert not any(roster.requests[one].password for one in gone)
        (said, *_) = await audit_of(rig, what="request.refuse")
        assert said["detail"].endswith("gave way: 500 requests wait, 495 of them from one address")

    on_rig(scenario, tmp_path)


def test_a_request_without_an_answer_ends(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await team_with(rig, "nlp", "zhao")
        old, said = a_flood(4, "203.0.113.200", at=NOW - requests.ANSWER_WITHIN)
        approved = replace(old[1], state=RequestState.APPROVED, decided_by="zhao")
        by_signon = replace(old[2], password="")
        young = replace(old[3], asked_at=NOW)
        await rig.desk.roster.record([old[0], approved, by_signon, young], said)
        await requests.ask(rig.desk.context, name="new", team="nlp", password=PASSWORD, origin="192.0.2.1", now=NOW)
        assert [one.state for one in rig.desk.roster.requests.values()] == ["REFUSED", "APPROVED", *["ASKED"] * 3]

    on_rig(scenario, tmp_path)
