"""Quotas through the REST door: who may set them, what they say, and what stays when something is refused."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from danlu.domain.quota import Quota
from tests.app.rig import Rig, on_rig
from tests.app.shares import come, move_in
from tests.app.test_openapi import shape_of


def test_a_team_gets_a_quota_and_named_fields_change(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        chief = await come(rig, "chief")
        first = await chief.put("/quotas/team:nlp", json={"gpus": 8, "mem": "256G", "borrow": True})
        assert first.json()["written"] == "gpus=8 mem=256G borrow=yes"
        second = (await chief.put("/quotas/team:nlp", json={"gpus": 4, "mem": None})).json()
        assert second["written"] == "gpus=4 borrow=yes"
        assert rig.desk.roster.quotas == {"team:nlp": Quota(gpus=4, borrow=True)}
        assert (await chief.delete("/quotas/team:nlp")).json() == {"removed": 1}
        assert (await chief.delete("/quotas/team:nlp")).json() == {"removed": 0}
        assert rig.desk.roster.quotas == {}

    on_rig(scenario, tmp_path)


def test_a_quota_outlives_the_server(tmp_path: Path) -> None:
    async def before(rig: Rig) -> None:
        await move_in(rig)
        await (await come(rig, "chief")).put("/quotas/user:li", json={"gpus": 2, "gpu_hours": 10, "period": "week"})

    async def after(rig: Rig) -> None:
        shown = (await (await come(rig, "li")).get("/quotas")).json()["items"][0]
        assert (shown["holder"], shown["written"]) == ("user:li", "gpus=2 gpu_hours=10 period=week")

    on_rig(before, tmp_path)
    on_rig(after, tmp_path)


@pytest.mark.parametrize(
    ("who", "holder", "status"),
    [
        ("chief", "team:nlp", 200),
        ("chief", "user:stranger", 200),
        ("chief", "member:li@nlp", 200),
        ("prof", "member:li@nlp", 200),
        ("prof", "member:wang@nlp", 200),
        ("prof", "member:wang@cv", 403),  # prof does not lead cv
        ("prof", "member:prof@nlp", 403),  # nobody's own
        ("prof", "member:dean@nlp", 404),  # dean is not in nlp
        ("li", "member:wang@nlp", 403),
        ("chief", "member:li", 422),
        ("prof", "user:li", 403),  # it would limit what li submits for no team, too
        ("both", "user:wang", 403),
        ("prof", "user:dean", 403),  # a leader acting on another team
        ("prof", "team:nlp", 403),
        ("prof", "team:cv", 403),
        ("prof", "user:stranger", 403),  # in no team at all
        ("li", "user:li", 403),
        ("li", "team:nlp", 403),
        ("wang", "user:li", 403),
        ("stranger", "user:li", 403),
        ("chief", "team:nobody", 404),
        ("chief", "user:nobody", 404),
        ("prof", "user:nobody", 403),
        ("chief", "nlp", 422),
        ("chief", "user:../etc", 404),  # no such route
        ("chief", "user:..", 422),
    ],
)
def test_who_may_set_whose_quota(tmp_path: Path, who: str, holder: str, status: int) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        client = await come(rig, who)
        answer = await client.put(f"/quotas/{holder}", json={"gpus": 1})
        assert answer.status_code == status, answer.text
        assert set(rig.desk.roster.quotas) == ({holder} if status == 200 else set())
        cleared = await client.delete(f"/quotas/{holder}")
        assert cleared.status_code == status, cleared.text

    on_rig(scenario, tmp_path)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "what should the quota be"),
        ({"gpus": -1}, "`gpus`"),
        ({"gpus": 1.5}, "`gpus`"),
        ({"gpus": []}, "`gpus`"),
        ({"gpus": "many"}, "`gpus`"),
        ({"gpu": 1}, "unknown option `gpu`"),
        ({"borrow": "perhaps"}, "`borrow`"),
        ({"period": None}, "`period`"),
        ({"gpus": 1, "mem": "lots"}, "`mem`"),
        ({"gpus": True}, "`gpus`"),
    ],
)
def test_nonsense_is_refused_by_name_and_changes_nothing(tmp_path: Path, body: Any, says: str) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        answer = await (await come(rig, "chief")).put("/quotas/team:nlp", json=body)
        assert answer.status_code == 422
        assert says in answer.json()["detail"]
        assert not rig.desk.roster.quotas
        assert not await rig.desk.context.store.audit(limit=10, what="quota")

    on_rig(scenario, tmp_path)


def test_a_name_that_is_nearly_right_is_guessed(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        answer = await (await come(rig, "chief")).put("/quotas/user:wan", json={"gpus": 1})
        assert (answer.status_code, answer.json()["hint"]) == (404, "did you mean `wang`?")

    on_rig(scenario, tmp_path)


def test_every_change_is_in_the_audit_log_with_what_was_before(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        prof = await come(rig, "prof")
        await prof.put("/quotas/member:li@nlp", json={"gpus": 2})
        await prof.put("/quotas/member:li@nlp", json={"gpus": 2})  # changes nothing
        await prof.put("/quotas/member:li@nlp", json={"jobs": 9})
        await prof.delete("/quotas/member:li@nlp")
        log = await rig.desk.context.store.audit(limit=10, what="quota.set")
        assert [(one.who, one.target, one.detail) for one in reversed(log)] == [
            ("prof", "member:li@nlp", "gpus=2 (was none)"),
            ("prof", "member:li@nlp", "gpus=2 jobs=9 (was gpus=2)"),
            ("prof", "member:li@nlp", "none (was gpus=2 jobs=9)"),
        ]
        assert all(one.origin for one in log)

    on_rig(scenario, tmp_path)


def test_a_raised_quota_lets_who_waited_for_it_start(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        chief, li = await come(rig, "chief"), await come(rig, "li")
        await chief.put("/quotas/team:nlp", json={"gpus": 1})
        jobs = [
            (await li.post("/jobs", json={"command": ["true"], "workdir": "/", "gpus": 1})).json()["id"] for _ in "ab"
        ]
        await rig.state(li, jobs[0], "RUNNING")
        why = (await li.get(f"/jobs/{jobs[1]}/why")).json()
        assert (why["state"], why["reason"]["code"]) == ("QUEUED", "quota")
        await chief.put("/quotas/team:nlp", json={"gpus": 2})
        await rig.state(li, jobs[1], "RUNNING")

    on_rig(scenario, tmp_path)


def test_everybody_sees_the_own_standing_and_may_look_at_others(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        await (await come(rig, "chief")).put("/quotas/team:nlp", json={"gpus": 2})
        wang = await come(rig, "wang")
        mine = (await wang.get("/quotas")).json()["items"]
        assert [one["holder"] for one in mine] == ["user:wang", "team:cv", "team:nlp"]
        assert [one["written"] for one in mine] == ["", "", "gpus=2"]
        stranger = await come(rig, "stranger")
        assert (await stranger.get("/quotas?holder=nlp")).json()["items"][0]["limits"]["gpus"] == 2
        assert (await stranger.get("/quotas?holder=user:li")).json()["items"][0]["holder"] == "user:li"
        assert (await stranger.get("/quotas?every=true")).json()["items"][0]["holder"] == "team:nlp"
        assert (await stranger.get("/quotas?holder=nothing")).status_code == 404

    on_rig(scenario, tmp_path)


def test_what_is_held_and_what_waits_for_it(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        li, wang = await come(rig, "li"), await come(rig, "wang")
        body = {"command": ["true"], "workdir": "/", "cpus": 1}
        first = (await li.post("/jobs", json={**body, "gpus": 1, "time": "1h", "mem": "1G"})).json()["id"]
        second = (await wang.post("/jobs", json={**body, "shards": 16, "team": "nlp"})).json()["id"]
        for client, job in ((li, first), (wang, second)):
            await rig.state(client, job, "RUNNING")
        await li.post("/jobs", json={**body, "gpus": 2, "array": "1-3"})
        team = (await li.get("/quotas?holder=team:nlp")).json()["items"][0]
        assert team["held"] == {"gpus": 1.25, "shards": 16, "cpus": 2, "memory_mib": 1024, "jobs": 2}
        assert (team["waiting"]["gpus"], team["waiting"]["jobs"]) == (6, 3)
        assert [one["user"] for one in team["holders"]] == ["li", "wang"]  # the next to end first
        assert team["spent_gpu_hours"] is None  # no quota, no period
        await (await come(rig, "chief")).put("/quotas/team:nlp", json={"gpus": 9, "period": "day"})
        team = (await li.get("/quotas?holder=team:nlp")).json()["items"][0]
        assert 0 <= team["spent_gpu_hours"] < 1
        cv = (await wang.get("/quotas?holder=cv")).json()["items"][0]
        assert (cv["held"]["jobs"], cv["holders"]) == (0, [])

    on_rig(scenario, tmp_path)


def test_answers_have_the_documented_shape(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        chief = await come(rig, "chief")

        async def checked(method: str, path: str, route: str = "", **call: Any) -> Any:
            answer = await chief.request(method, path, **call)
            assert answer.is_success, answer.text
            TypeAdapter(shape_of(method, route or path)).validate_python(answer.json())
            return answer.json()

        job = await chief.post("/jobs", json={"command": ["true"], "workdir": "/", "gpus": 1, "time": "1h"})
        await rig.state(chief, job.json()["id"], "RUNNING")
        await checked("PUT", "/quotas/user:chief", "/quotas/{holder}", json={"gpu_hours": 5, "period": "day"})
        await checked("GET", "/quotas")
        await checked("DELETE", "/quotas/user:chief", "/quotas/{holder}")
        await checked("GET", "/usage")
        boost = await checked("POST", "/boosts", json={"user": "li", "until": "1d", "why": "late"})
        await checked("GET", "/boosts")
        await checked("DELETE", f"/boosts/{boost['id']}", "/boosts/{boost_id}")

    on_rig(scenario, tmp_path)
