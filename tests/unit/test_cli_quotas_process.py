"""`danlu quota`, `usage` and `boost` as processes, against a server with canned answers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.app.fake_server import FakeServer, server_at
from tests.unit.test_cli_quotas import a_quota, a_usage

Danlu = Callable[..., subprocess.CompletedProcess[str]]
BOOST = {
    "id": "b1", "user": "li", "team": "nlp", "by": "prof", "why": "late", "until": "2026-11-16T12:00:00Z",
    "created_at": "2026-11-15T12:00:00Z",
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    found = server_at(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def danlu(server: FakeServer) -> Danlu:
    def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "danlu.cli.main", *words]
        settings = {**os.environ, "DANLU_SERVER": server.url, **environ}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=settings)

    return run


def test_quota_set_sends_what_is_named(server: FakeServer, danlu: Danlu) -> None:
    server.on("PUT /quotas/team:nlp", a_quota(written="gpus=8 borrow=yes"))
    done = danlu("quota", "set", "team:nlp", "GPUS=8", "borrow=yes", "jobs=none")
    assert (done.returncode, done.stdout) == (0, "team:nlp  gpus=8 borrow=yes\n")
    assert server.requests[0].json == {"gpus": "8", "borrow": "yes", "jobs": "none"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["team:nlp", "gpus=8", "gpus=9"], "`gpus` is given twice"),
        (["team:nlp", "gpu=8"], "a quota has no `gpu`"),
        (["team:nlp", "gpus=-8"], "`gpus` takes a whole number"),
        (["nlp", "gpus=8"], "user:NAME, team:NAME or member:USER@TEAM"),
        (["team:nlp"], "needs HOLDER NAME=VALUE"),
    ],
)
def test_what_is_wrong_with_a_quota_is_said_before_anybody_is_asked(
    server: FakeServer, danlu: Danlu, words: list[str], says: str
) -> None:
    done = danlu("quota", "set", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert server.requests == []


def test_quota_shows_and_clears(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /quotas", {"items": [a_quota()]})
    server.on("DELETE /quotas/user:li", {"removed": 1})
    assert "team:nlp" in danlu("quota", "nlp").stdout
    assert json.loads(danlu("quota", "--all", "--json").stdout)["items"][0]["holder"] == "team:nlp"
    assert [request.query for request in server.requests] == [[("holder", "nlp")], [("every", "true")]]
    assert danlu("quota", "clear", "user:li").stdout == "user:li  no limits\n"
    assert danlu("quota", "nlp", "--all").returncode == 2


def test_a_day_is_a_day_where_one_is(server: FakeServer, danlu: Danlu) -> None:
    server.on("GET /usage", a_usage("li"))
    done = danlu("usage", "--since", "2026-07-01", "--until", "7d", "--by", "user", "--csv", TZ="Asia/Shanghai")
    assert done.stdout.splitlines()[1].startswith("li,3,1,2.5")
    asked = dict(server.requests[0].query)
    assert (asked["since"], asked["until"], asked["by"]) == ("2026-06-30T16:00:00+00:00", "7d", "user")
    assert danlu("usage", "--csv", "--json").returncode == 2


def test_boosts_are_made_listed_and_ended_by_user_or_id(server: FakeServer, danlu: Danlu) -> None:
    server.on("POST /boosts", BOOST)
    server.on("GET /boosts", {"items": [BOOST, BOOST | {"id": "b2", "user": "wang"}]})
    server.on("DELETE /boosts/b1", {"removed": 1})
    assert danlu("boost", "li", "--until", "3d", "--why", "late").returncode == 0
    assert server.requests[0].json == {"user": "li", "until": "3d", "why": "late", "team": ""}
    assert "wang" in danlu("boost").stdout
    assert danlu("boost", "end", "li").stdout == "b1  li is no longer boosted\n"
    assert danlu("boost", "end", "b1").returncode == 0
    assert danlu("boost", "end", "nobody").returncode == 2
    assert danlu("boost", "--until", "3d").returncode == 2
    assert len(server.asked("DELETE /boosts/b1")) == 2
