"""Queues and teams through the REST door: what is chosen, filled in, refused, and shown."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from danlu.actions.cluster.queue_rules import check_sitting, closed_to
from danlu.config.cluster import QueueSettings, queues_with
from danlu.domain.people import Actor, Membership, Person, Team
from danlu.domain.queue import Queue
from danlu.errors import Refused
from danlu.store.people_protocol import Member, PeopleChange
from tests.app.rig import Rig, on_rig
from tests.builders import node, spec

ADMIN, LI, WANG, GUEST = 0, 40001, 40002, 40003  # Unix users that no machine has: their names are uid40001…
AT = datetime(2026, 1, 1, tzinfo=UTC)
NODES = (
    node("p100", models=["Tesla P100"], cpus=8),
    node("big", models=["RTX 3090"] * 4 + ["GTX 1080 Ti"], cpus=16, memory_mib=65536),
)
DEV = Queue("dev", frozenset({"p100"}), max_gpus=1, max_cpus=4, max_time=timedelta(hours=12), max_priority=6)
TRAIN = Queue(
    "train",
    frozenset({"big"}),
    ("3090",),
    max_gpus=3,
    max_shards=32,
    max_memory_mib=32768,
    max_time=timedelta(days=3),
    default_time=timedelta(hours=6),
    default_priority=3,
    is_interactive=False,
    is_default=True,
)
OF_GROUPS = Queue("daemons", groups=frozenset({"daemon", "adm"}), besides="in Slurm: accounts a")
NLP = Queue("nlp-only", teams=frozenset({"nlp"}), users=frozenset({f"uid{GUEST}"}))


def queues(*given: Queue) -> dict[str, Queue]:
    return {queue.name: queue for queue in given}


ALL = queues(DEV, TRAIN, NLP)


def people(**teams: tuple[int, ...]) -> list[PeopleChange]:
    """`people(nlp=(LI, WANG))`: accounts and teams."""
    changes: list[PeopleChange] = [
        Person(f"uid{uid}", AT) for uid in sorted({one for of in teams.values() for one in of})
    ]
    changes += [Team(team, AT) for team in teams]
    changes += [Member(f"uid{uid}", team, Membership(team)) for team, of in teams.items() for uid in of]
    return changes


async def ask(client: httpx.AsyncClient, **options: Any) -> httpx.Response:
    return await client.post("/jobs", json={"command": ["true"], "workdir": "/", **options})


async def accepted(client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    answer = await ask(client, **options)
    assert answer.status_code == 201, answer.text
    job: dict[str, Any] = answer.json()["jobs"][0]
    return job


def problem(answer: httpx.Response) -> tuple[int, str, str, str]:
    said = answer.json()
    return answer.status_code, said["code"], said["detail"], said["hint"]


def test_without_queues_and_teams_nothing_changes(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ADMIN)
        job = await accepted(client)
        assert (job["queue"], job["team"], job["preemptible"], job["interactive"]) == ("", "", False, False)
        assert (job["priority"], job["time_limit_s"]) == (5, None)
        assert (await client.get("/queues")).json() == {"items": [], "trouble": None}
        assert problem(await ask(client, queue="train"))[1:3] == (
            "invalid",
            "there is no queue `train`: this installation has none",
        )
        assert problem(await ask(client, team="nlp"))[:3] == (403, "forbidden", "root is not in the team `nlp`")

    on_rig(scenario, tmp_path)


def test_the_defaults_of_a_queue_are_filled_in(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ADMIN)
        job = await accepted(client, gpus=1, preemptible=True)
        assert (job["queue"], job["priority"], job["time_limit_s"]) == ("train", 3, 6 * 3600)
        assert job["preemptible"]
        job = await accepted(client, queue="dev", interactive=True)
        assert (job["queue"], job["priority"], job["time_limit_s"]) == ("dev", 5, 12 * 3600), "the longest, if no other"
        assert job["interactive"]
        job = await accepted(client, queue="train", priority=9, time="1h")
        assert (job["priority"], job["time_limit_s"]) == (9, 3600)
        clone = (await client.post(f"/jobs/{job['id']}/clone", json={"priority": 2})).json()["jobs"][0]
        assert (clone["queue"], clone["priority"], clone["time_limit_s"]) == ("train", 2, 3600)

    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(DEV, TRAIN))


def test_a_clone_takes_no_defaults_of_its_old_queue_along(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ADMIN)

        async def moved(**asked: Any) -> tuple[int, int]:
            job = await accepted(client, gpus=1, **asked)
            answer = await client.post(f"/jobs/{job['id']}/clone", json={"queue": "dev"})
            clone = answer.json()["jobs"][0]
            assert clone["queue"] == "dev"
            return clone["priority"], clone["time_limit_s"]

        assert await moved() == (5, 12 * 3600)
        assert await moved(priority=2, time="1h") == (2, 3600)

    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(DEV, TRAIN))


def test_another_queue_is_named_if_it_takes_the_job_with_its_own_defaults(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        refused = await ask(rig.client(ADMIN), gpus=1, interactive=True)
        assert problem(refused)[3] == "use `--queue dev`"

    train = replace(TRAIN, default_time=timedelta(days=2))  # longer than dev lets anything run
    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(DEV, train))


def test_jobs_of_one_queue_are_listed(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(ADMIN)
        for queue in ("dev", "train", "dev"):
            await accepted(client, queue=queue)
        for query, count in (
            ("queue=dev", 2),
            ("queue=dev&state=active", 2),
            ("queue=train&user=me", 1),
            ("queue=x", 0),
        ):
            assert len((await client.get(f"/jobs?{query}")).json()["items"]) == count, query

    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(DEV, TRAIN))


@pytest.mark.parametrize(
    ("options", "code", "text", "hint"),
    [
        ({"queue": "trian"}, "unknown_queue", "there is no queue `trian`", "did you mean `--queue train`?"),
        ({"queue": "zzz"}, "unknown_queue", "there is no queue `zzz`", "there is dev, train and nlp-only"),
        ({"queue": "nlp-only"}, "forbidden", "is for the team nlp, and uid40003; uid40001 is not", "`--queue dev` or"),
        ({"gpus": 4}, "queue_limit", "queue `train` gives one job at most 3 GPUs, this one asks for 4", "`--gpus 3`"),
        ({"gpus": 2, "queue": "dev"}, "queue_limit", "at most 1 GPU, this one asks for 2", "or use `--queue train`"),
        ({"shards": 40}, "queue_limit", "at most 32 shards", "`--shards 32`"),
        ({"cpus": 5, "queue": "dev"}, "queue_limit", "at most 4 CPUs", "`--cpus 4` or use `--queue train`"),
        ({"mem": "64G"}, "queue_limit", "at most 32 GiB of memory, this one asks for 64 GiB", "`--mem 32768M`"),
        ({"time": "4d"}, "queue_limit", "for at most 3d, this one asks for 4d", "`--time 3d`"),
        ({"priority": 7, "queue": "dev"}, "queue_limit", "highest priority in queue `dev` is 6", "`--priority 6`"),
        ({"interactive": True}, "queue_limit", "takes no interactive work", "use `--queue dev`"),
        (
            {"gpus": "1080ti:1"},
            "too_big",
            "asks for 1 GPU of 1080ti, in queue train is only RTX 3090",
            "danlu queues train",
        ),
        ({"gpus": "P100:1"}, "too_big", "asks for 1 GPU of P100, in queue train is only RTX 3090", "`--queue dev`"),
        ({"cpus": 17}, "too_big", "asks for 17 CPUs, the largest node of queue train has 16", "danlu queues train"),
        ({"preemptible": "yes"}, "invalid", "`preemptible`: must be true or false", ""),
        ({"queue": 7}, "invalid", "`queue`: must be a text", ""),
    ],
)
def test_what_a_queue_does_not_give_is_refused_with_what_would_work(
    tmp_path: Path, options: Mapping[str, Any], code: str, text: str, hint: str
) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(LI)
        said = problem(await ask(client, **options))
        assert said[1] == code
        assert text in said[2]
        assert hint in said[3]
        body = {"command": ["true"], "workdir": "/", **options}
        assert problem(await client.post("/jobs?dry_run=true", json=body)) == said, "a dry run says the same"
        assert (await client.get("/jobs")).json()["items"] == []

    on_rig(scenario, tmp_path, nodes=NODES, queues=ALL)


def test_a_queue_without_cards(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(LI)
        assert "takes no jobs with GPUs, this one asks for 1" in problem(await ask(client, gpus=1))[2]
        assert "takes no jobs with shards" in problem(await ask(client, shards=1))[2]
        assert (await accepted(client))["queue"] == "cpu", "the only queue needs no name"

    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(Queue("cpu", max_gpus=0, max_shards=0)))


def test_which_queue_is_meant(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record(people(nlp=(LI,), cv=(WANG,)))
        li, wang, guest = rig.client(LI), rig.client(WANG), rig.client(GUEST)
        assert problem(await ask(li)) == (
            422,
            "queue_needed",
            "which queue is it for?",
            "name one: `--queue a` or `--queue b`",
        )
        assert (await accepted(wang))["queue"] == "b", "the only one that is open to them"
        assert problem(await ask(guest))[1:3] == ("forbidden", f"uid{GUEST} may use none of the queues here")

    on_rig(
        scenario,
        tmp_path,
        nodes=NODES,
        queues=queues(Queue("a", teams=frozenset({"nlp"})), Queue("b", teams=frozenset({"nlp", "cv"}))),
    )


def test_which_team_is_meant(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record(people(nlp=(LI, WANG), cv=(WANG,), ops=(GUEST,)))
        li, wang, guest, stranger = (rig.client(uid) for uid in (LI, WANG, GUEST, 40009))
        assert (await accepted(li))["team"] == "nlp", "the only one"
        assert (await accepted(stranger))["team"] == "", "who has none needs none"
        assert problem(await ask(wang))[1:] == (
            "team_needed",
            f"uid{WANG} is in several teams: for which one is this?",
            "say `--team cv` or `--team nlp`",
        )
        assert (await accepted(wang, team="cv"))["team"] == "cv"
        assert (await accepted(wang, queue="nlp-only"))["team"] == "nlp", "the only one that the queue is for"
        assert "not for the team `cv`" in problem(await ask(wang, queue="nlp-only", team="cv"))[2]
        assert problem(await ask(li, team="cv"))[1:] == (
            "forbidden",
            f"uid{LI} is not in the team `cv`",
            "your team is nlp",
        )
        assert (await accepted(guest, queue="nlp-only"))["team"] == "ops", "named in the queue, of any team"
        job = await accepted(wang, team="cv")
        clone = (await wang.post(f"/jobs/{job['id']}/clone", json={})).json()["jobs"][0]
        assert clone["team"] == "cv"

    on_rig(scenario, tmp_path, nodes=NODES, queues=ALL)


def test_jobs_of_a_team_can_be_listed(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record(people(nlp=(LI, WANG), cv=(GUEST,)))
        made = [await accepted(rig.client(uid), gpus=1) for uid in (LI, WANG, GUEST)]
        for query in ("team=nlp", "team=nlp&state=active", "team=nlp&state=ended&state=active"):
            shown = (await rig.client(GUEST).get(f"/jobs?{query}")).json()["items"]
            assert {job["id"] for job in shown} == {job["id"] for job in made[:2]}, query

    on_rig(scenario, tmp_path)


def test_no_terminal_in_a_queue_that_is_not_for_sitting_at() -> None:
    with pytest.raises(Refused) as refused:
        check_sitting(ALL, "k3fz82aw", spec(queue="train"))
    assert refused.value.text == "k3fz82aw runs in queue `train`, which takes no interactive work"
    assert refused.value.hint == "for a shell on a card use `--queue dev` or `--queue nlp-only`"
    check_sitting(ALL, "k3fz82aw", spec(queue="dev"))
    check_sitting({}, "k3fz82aw", spec())


def test_queues_show_what_is_free_and_who_may(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(LI)
        first = await accepted(client, gpus=3)
        await rig.state(client, first["id"], "RUNNING")
        second = await accepted(client, gpus=3)
        await rig.state(client, second["id"], "QUEUED")
        shown = {queue["name"]: queue for queue in (await client.get("/queues")).json()["items"]}
        assert list(shown) == ["dev", "train", "nlp-only"]
        train = shown["train"]
        assert train["cards"] == [{"model": "RTX 3090", "total": 4, "free": 1, "shards_free": 64}]
        assert (train["running"], train["waiting"], train["nodes"]) == (1, 1, ["big"])
        assert (train["max_gpus"], train["max_time_s"], train["default_time_s"]) == (3, 3 * 86400, 6 * 3600)
        assert (train["may_use"], train["default"], train["interactive"]) == (True, True, False)
        assert not shown["nlp-only"]["may_use"]
        assert "is for the team nlp" in shown["nlp-only"]["why_not"]
        assert len(shown["nlp-only"]["nodes"]) == 2, "no nodes named: all of them"

    on_rig(scenario, tmp_path, nodes=NODES, queues=ALL)


def test_queues_that_are_closed_for_now(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(LI)
        (_, down, drained) = (await client.get("/queues")).json()["items"]
        assert (down["may_use"], down["closed"], down["takes_jobs"]) == (True, "it is DOWN", True)
        assert (drained["closed"], drained["takes_jobs"]) == ("it is DRAIN", False)
        refusal = "queue `drained` takes no jobs at present: it is DRAIN"
        for options in ({"queue": "drained"}, {}):
            assert problem(await ask(client, **options)) == (409, "closed", refusal, "use `--queue dev`")
        waits = await accepted(client, queue="down")
        later = await accepted(client, queue="dev")
        await rig.state(client, later["id"], "RUNNING")
        shown = (await client.get(f"/jobs/{waits['id']}")).json()
        assert (shown["state"], shown["reason"]["code"]) == ("QUEUED", "closed")
        why = (await client.get(f"/jobs/{waits['id']}/why")).json()
        assert why["holders"] == [], "those who run are not in its way"

    down = replace(DEV, name="down", closed="it is DOWN")
    drained = Queue("drained", closed="it is DRAIN", takes_jobs=False, is_default=True)
    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(DEV, down, drained))


def test_a_queue_of_unix_groups(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        client = rig.client(LI)
        shown = (await client.get("/queues")).json()["items"][-1]
        assert (shown["groups"], shown["besides"]) == (["adm", "daemon"], "in Slurm: accounts a")
        why = "queue `daemons` is for the Unix groups adm and daemon; uid40001 is not in any"
        assert (shown["may_use"], shown["why_not"]) == (False, why)
        assert problem(await ask(client, queue="daemons"))[1:3] == ("forbidden", why)
        assert (await accepted(client))["queue"] == "dev", "the only one that is open"
        assert (await rig.client(ADMIN).get("/queues")).json()["items"][-1]["may_use"], "root needs no group"

    on_rig(scenario, tmp_path, nodes=NODES, queues=queues(DEV, OF_GROUPS))


def test_who_is_in_a_group_may_use_its_queue() -> None:
    assert not closed_to(OF_GROUPS, Actor("daemon"))
    assert closed_to(OF_GROUPS, Actor("games"))
    assert closed_to(OF_GROUPS, Actor("nobody-of-this-name"))


def test_whom_a_partition_is_for_is_not_widened_by_a_file() -> None:
    of_root = Queue("admin", users=frozenset({"root"}))
    written = [QueueSettings("daemons", max_gpus=1), QueueSettings("admin", teams=("nlp",), users=("li",))]
    merged = queues_with(written, [OF_GROUPS, of_root])
    assert (merged["daemons"].groups, merged["daemons"].besides) == (OF_GROUPS.groups, OF_GROUPS.besides)
    assert merged["daemons"].max_gpus == 1
    assert (merged["admin"].users, merged["admin"].teams) == (frozenset({"root"}), frozenset())


def test_nothing_can_wait_for_itself(tmp_path: Path) -> None:
    """A job waits only for jobs that exist already, so no circle of them can be made."""

    async def scenario(rig: Rig) -> None:
        client = rig.client(ADMIN)
        answer = await ask(client, after=["@"])
        assert answer.status_code == 404, "`@` is the last job, not this one"
        first = await accepted(client, gpus=2)
        array = await ask(client, array="1-3", after=[first["id"]])
        assert array.status_code == 201
        tasks = array.json()
        assert [job["after"] for job in tasks["jobs"]] == [[f"{first['id']}:ok"]] * 3
        clone = (await client.post(f"/jobs/{first['id']}/clone", json={"after": [first["id"]]})).json()["jobs"][0]
        assert clone["id"] != first["id"]
        assert (await client.get(f"/jobs/{first['id']}")).json()["after"] == [], "what was submitted never changes"

    on_rig(scenario, tmp_path)
