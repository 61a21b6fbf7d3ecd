"""Into a team by an own yes or an administrator's word, and out of it; what its leaders then may."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from danlu.actions.people import tokens
from danlu.actions.people.context import PeopleRules
from danlu.domain.people import Membership, Person, Role, Team
from danlu.store.people_protocol import Member
from tests.app.rig import Rig, on_rig

NOW = datetime.now(UTC)


async def move_in(rig: Rig) -> None:
    """zhao leads nlp, where leaders see all; li and the administrator chief are in no team."""
    people = [Person("zhao", NOW), Person("li", NOW), Person("chief", NOW, Role.ADMIN)]
    leads = Member("zhao", "nlp", Membership("nlp", is_leader=True))
    await rig.desk.roster.record([*people, Team("nlp", NOW), leads])
    rig.desk.context.rules = PeopleRules(leads_see_all=True)


async def client_of(rig: Rig, name: str) -> Any:
    token, secret = tokens.new_token(name, "test", Role.ADMIN, days=1, now=NOW)
    await rig.desk.cache.store.add_token(token)
    return rig.client(token=secret)


async def running_job(rig: Rig, client: Any, **options: str) -> str:
    made = await client.post("/jobs", json={"command": ["sleep", "9"], "workdir": "/", **options})
    assert made.status_code in (200, 201), made.text
    job_id: str = made.json()["id"]
    await rig.state(client, job_id, "RUNNING")
    rig.write_log(f"{job_id}.1", b"secret output\n")
    return job_id


def test_a_leader_invites_and_the_person_decides(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        zhao, li, chief = [await client_of(rig, name) for name in ("zhao", "li", "chief")]
        assert (await li.post("/teams/nlp/join")).status_code == 404, "nobody asked li"
        team = (await zhao.put("/teams/nlp/members/li")).json()
        assert [one["user"] for one in team["members"]] == ["zhao"]
        assert [(one["user"], one["by"]) for one in team["invited"]] == [("li", "zhao")]
        me = (await li.get("/me")).json()
        assert (me["teams"], [one["team"] for one in me["invitations"]]) == ([], ["nlp"])
        # Without a team of one's own, work goes on as before.
        job_id = await running_job(rig, li)
        assert (await zhao.get(f"/jobs/{job_id}/logs")).status_code == 403
        team = (await li.post("/teams/nlp/join")).json()
        assert ([one["user"] for one in team["members"]], team["invited"]) == (["li", "zhao"], [])
        assert (await zhao.get(f"/jobs/{job_id}/logs")).status_code == 403, "submitted before, and for no team"
        of_the_team = await running_job(rig, li)
        assert (await zhao.get(f"/jobs/{of_the_team}/logs")).status_code == 200
        team = (await li.post("/teams/nlp/leave")).json()
        assert [one["user"] for one in team["members"]] == ["zhao"]
        assert (await zhao.get(f"/jobs/{of_the_team}/logs")).status_code == 403, "li has left"
        assert (await li.post("/teams/nlp/leave")).status_code == 404
        assert (await li.post("/teams/nlp/join")).status_code == 404, "an invitation is good for once"
        noted = (await chief.get("/audit", params={"what": "team"})).json()["items"]
        assert [(one["who"], one["what"], one["detail"]) for one in noted] == [
            ("li", "team.leave", "li"),
            ("li", "team.join", "li, invited by zhao"),
            ("zhao", "team.add", "li, invited"),
        ]

    on_rig(scenario, tmp_path)


def test_a_leader_does_not_become_administrator(tmp_path: Path) -> None:
    """Neither unasked nor with a yes: inside an administrator's job one is an administrator."""

    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        zhao, li, chief = [await client_of(rig, name) for name in ("zhao", "li", "chief")]
        await zhao.put("/teams/nlp/members/chief")
        unasked = await running_job(rig, chief)
        shown = (await zhao.get(f"/jobs/{unasked}")).json()
        assert (shown["team"], shown["command"]) == ("", None)
        assert (await chief.post("/teams/nlp/join")).status_code == 200
        joined = await running_job(rig, chief)
        for job_id in (unasked, joined):
            assert (await zhao.get(f"/jobs/{job_id}/logs")).status_code == 403
            assert (await zhao.get(f"/jobs/{job_id}")).json()["command"] is None
        # The rule also covers a person who becomes administrator later.
        await chief.put("/teams/nlp/members/li")
        job_id = await running_job(rig, li)
        assert (await zhao.get(f"/jobs/{job_id}/logs")).status_code == 200
        assert (await chief.post("/users/li/role", json={"role": "admin"})).status_code == 200
        assert (await zhao.get(f"/jobs/{job_id}/logs")).status_code == 403

    on_rig(scenario, tmp_path)


def test_an_invitation_ends(tmp_path: Path) -> None:
    """Declined, withdrawn, or of somebody who leads no longer; a membership by a group stays with the group."""

    async def scenario(rig: Rig) -> None:
        await move_in(rig)
        zhao, li, chief = [await client_of(rig, name) for name in ("zhao", "li", "chief")]
        for who, path in ((li.post, "/teams/nlp/leave"), (zhao.delete, "/teams/nlp/members/li")):
            assert (await zhao.put("/teams/nlp/members/li")).json()["invited"]
            assert (await who(path)).json()["invited"] == []
            assert (await li.post("/teams/nlp/join")).status_code == 404
        await zhao.put("/teams/nlp/members/li")
        await chief.delete("/teams/nlp/leaders/zhao")
        assert (await li.post("/teams/nlp/join")).status_code == 404
        assert [one["user"] for one in (await chief.put("/teams/nlp/members/li")).json()["members"]] == ["li", "zhao"]
        assert (await li.get("/me")).json()["invitations"] == []
        await rig.desk.roster.record([Member("li", "nlp", Membership("nlp", is_mapped=True))])
        assert (await li.post("/teams/nlp/leave")).status_code == 409

    on_rig(scenario, tmp_path)
