"""What people read about people, and what their words become: the command line against a server of canned answers."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from danlu.cli.text import epoch
from danlu.cli.views import people as views_people
from danlu.client import credentials
from danlu.client.http import Address
from tests.app.fake_server import FakeServer
from tests.e2e.installation import DANLU

WHEN = "2026-11-15T10:00:00.000000Z"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = FakeServer(tmp_path / "s.sock").start()
    monkeypatch.setenv("DANLU_SERVER", made.url)
    yield made
    made.stop()


def danlu(*words: str, stdin: str = "") -> tuple[int, str, str]:
    done = subprocess.run([DANLU, *words], input=stdin, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    evil = "\x1b[2Jevil\n"
    request = {
        "id": "r1", "user": "li", "team": "nlp", "state": "ASKED", "decided_by": "", "asked_at": WHEN,
        "full_name": evil, "email": evil, "why": evil,
    }  # fmt: skip
    entry = {"at": WHEN, "who": evil, "what": "user.create", "target": evil, "origin": "", "detail": evil}
    for shown in (views_people.render_requests([request], 0, None), views_people.render_audit([entry], None)):
        assert "\x1b" not in shown
        assert len(shown.splitlines()) == 2


def test_requests_fit_a_terminal_of_80_columns() -> None:
    request = {
        "id": "k3fz82aw", "user": "liming", "team": "nlp", "state": "APPROVED", "decided_by": "zhao",
        "asked_at": "2026-11-15T10:00:00Z", "full_name": "Li Ming", "email": "", "why": "thesis",
    }  # fmt: skip
    line = views_people.render_requests([request], epoch("2026-11-15T12:30:00Z"), 80).splitlines()[1]
    assert "2h30m ago  Li Ming" in line
    assert line.endswith("thesis")


def test_whoami_says_whom_to_ask() -> None:
    me = {
        "user": "li", "role": "member", "full_name": "", "server": "https://gpu.lab:7411", "is_own_server": False,
        "has_account": True, "by": "token", "token": {"id": "t1", "name": "laptop", "expires_at": None},
        "teams": [
            {"team": "cv", "is_leader": False, "leaders": []},
            {"team": "nlp", "is_leader": False, "leaders": ["zhao", "qian"]},
            {"team": "ml", "is_leader": True, "leaders": ["li"]},
        ],
    }  # fmt: skip
    shown = views_people.render_me(me, 0)
    assert "cv (led by nobody), nlp (led by zhao, qian), ml (you lead it)" in shown
    assert "with token laptop (t1)" in shown


def test_names_are_one_part_of_a_path(server: FakeServer) -> None:
    assert danlu("user", "show", "../teams?x=1")[0] != 0
    assert [request.path for request in server.requests] == ["/users/..%2Fteams%3Fx%3D1"]


def test_several_members_are_several_requests(server: FakeServer) -> None:
    team = {"name": "nlp", "members": [], "leaders": [], "warning": "nobody leads nlp"}
    server.on("PUT /teams/nlp/members/li", team)
    server.on("PUT /teams/nlp/members/wang", team)
    code, out, err = danlu("team", "add", "nlp", "li", "wang")
    assert (code, out, err) == (0, "nobody is in nlp\n", "warning: nobody leads nlp\n")
    assert [request.path for request in server.requests] == ["/teams/nlp/members/li", "/teams/nlp/members/wang"]


def test_a_leader_is_told_how_an_invitation_is_accepted(server: FakeServer) -> None:
    invited = {"user": "li", "team": "nlp", "by": "zhao", "invited_at": WHEN}
    team = {"name": "nlp", "members": [], "leaders": ["zhao"], "warning": "", "invited": [invited]}
    server.on("PUT /teams/nlp/members/li", team)
    code, out, err = danlu("team", "add", "nlp", "li")
    assert (code, "invited by zhao" in out) == (0, True)
    assert err == "invited: li; each accepts with `danlu team join nlp`\n"
    server.on("POST /teams/nlp/join", team)
    server.on("POST /teams/nlp/leave", team)
    assert danlu("team", "join", "nlp")[:2] == (0, "you are in team nlp\n")
    assert danlu("team", "leave", "nlp")[:2] == (0, "you are not in team nlp\n")


def test_a_password_comes_from_stdin_as_it_is(server: FakeServer) -> None:
    made = {"id": "r1", "user": "li", "team": "nlp", "state": "ASKED"}
    server.on("POST /requests", made)
    code, _, _ = danlu("account", "ask", "--team", "nlp", "--user", "li", "--password-stdin", stdin=" two words \r\n")
    assert (code, server.requests[0].json["password"]) == (0, " two words ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("account", "ask", "--password-stdin"), "in which team?"),
        (("login", "--password", "x"), "has no option `--password`"),
        (("login", "--user", "li"), "on a Unix socket the machine says who you are"),
        (("user", "role", "li"), "`danlu user role` needs USER ROLE"),
        (("user", "role", "li", "admin", "x"), "`danlu user role` takes USER ROLE, not 3"),
        (("team", "add", "nlp"), "`danlu team add` needs TEAM USER"),
        (("user", "remove", "li"), "no command `user remove`"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(server: FakeServer, words: tuple[str, ...], text: str) -> None:
    code, _, err = danlu(*words)
    assert code in (2, 3)
    assert text in err
    assert server.requests == []


def test_login_without_a_server_says_what_to_write() -> None:
    code, _, err = danlu("login")
    assert (code, "danlu login --server https://" in err) == (2, True)


def test_logout_forgets_also_what_the_server_no_longer_knows(server: FakeServer) -> None:
    credentials.remember(Address(server.url), "li", "danlu_old")
    server.on("POST /logout", lambda _, talk: talk.problem(401, "unauthorized", "the token is unknown"))
    code, out, _ = danlu("logout")
    assert (code, out) == (0, f"logged out of {server.url}\n")
    assert credentials.token_for(Address(server.url)) == ""
    assert server.requests[0].headers.get("authorization") == "Bearer danlu_old"
