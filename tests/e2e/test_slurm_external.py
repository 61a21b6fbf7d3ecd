"""Plain `sbatch`, `srun` and `salloc` beside Danlu, on a real cluster: seen, counted, and stopped by their owners."""

import os
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import FIRST_UID, Site, cluster_of, site_on
from tests.e2e.test_shared_server import People, Shared, as_user
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = pytest.mark.slurm
# Users who are on every machine.
LI, WANG = "games", "daemon"


@pytest.fixture(params=[OLDER, NEWER])
def site(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(request.param, Layout()), monkeypatch) as made:
        yield made


@pytest.fixture(params=[OLDER])
def older(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(request.param, Layout()), monkeypatch) as made:
        yield made


def others(site: Site, *options: str) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in site.danlu("ps", "--all", *options, "--json").json()["others"]}


def until_seen(site: Site, *numbers: str) -> dict[str, dict[str, Any]]:
    """Exactly these run; those with cards are known to sit on them."""

    def seen() -> dict[str, dict[str, Any]] | None:
        found = others(site, "--state", "RUNNING")
        has_all = {one.removeprefix("slurm:") for one in found} == {*numbers}
        return found if has_all and all(_is_seated(one) for one in found.values()) else None

    found: dict[str, dict[str, Any]] = eventually(seen, f"{numbers} are seen") if numbers else {}
    return found


def _is_seated(other: dict[str, Any]) -> bool:
    asks = other["ask"]["gpus"] or other["ask"]["shards"]
    return not asks or all(seat["gpus"] or seat["shared_gpu"] is not None for seat in other["seats"])


def until_gone(site: Site, number: str) -> None:
    eventually(lambda: f"slurm:{number}" not in others(site), f"{number} is gone")


def cards(site: Site, node: str) -> list[tuple[str, int, list[str]]]:
    """Of each card of the node: its use, how many shards are taken, the runs that have it."""
    return [
        (card["use"], card["shards"] - card["shards_free"], sorted(holder["id"] for holder in card["holders"]))
        for card in site.danlu("gpus", "--json").json()["items"]
        if card["node"] == node
    ]


def running(site: Site, script: str, *options: str, user: str | None = None) -> str:
    number = site.cluster.submit(script, *options, "--output=/dev/null", user=user)
    site.cluster.wait_for(number, "RUNNING")
    return number


def test_cards_and_nodes_name_everybody(site: Site) -> None:
    """The reading of `sinfo --Format=Gres,GresUsed`, done for people."""
    site.danlu("up", "--detach")
    long = ("sleep 1000", "--time=60")
    two = running(site, *long, "--nodelist=gn1", "--gres=gpu:2", "--cpus-per-task=3", "--job-name=bert", user=LI)
    # Asked for by job and not by node: its line in Slurm's queue says nothing of cards.
    unsaid = running(site, *long, "--nodelist=gn1", "--gpus=1", user=WANG)
    half = running(site, *long, "--nodelist=gn2", "--gres=shard:32", user=LI)
    more = running(site, *long, "--nodelist=gn2", "--gres=shard:16", user=WANG)
    site.cluster.ask("salloc", "--no-shell", "--nodelist=gn2", "--gres=gpu:1", "--job-name=sat-at", user=LI)
    (sat_at,) = site.cluster.ask("squeue", "--noheader", "--name=sat-at", "--format=%i").split()
    mine = site.submit("--gpus", "1", "--", "sleep", "1000")
    site.until(mine, "RUNNING")
    found = until_seen(site, two, unsaid, half, more, sat_at)

    one = found[f"slurm:{two}"]
    assert (one["user"], one["name"], one["queue"], one["ask"]["gpus"]) == (LI, "bert", "gpu", 2)
    assert one["seats"] == [{"node": "gn1", "gpus": [0, 1], "shared_gpu": None, "shards": 0}]
    eventually(
        lambda: (
            cards(site, "gn1")[:3]
            == [("exclusive", 64, [f"slurm:{two}"])] * 2 + [("exclusive", 64, [f"slurm:{unsaid}"])]
        ),
        "cards that were asked for by job have a holder",
    )
    assert found[f"slurm:{unsaid}"]["user"] == WANG
    seen = cards(site, "gn2")
    assert ("shared", 48, sorted([f"slurm:{half}", f"slurm:{more}"])) in seen
    assert ("exclusive", 64, [f"slurm:{sat_at}"]) in seen
    free = [use for node in ("gn1", "gn2") for use, _, _ in cards(site, node)].count("free")
    assert free == 8 - 2 - 1 - 1 - 1 - 1
    shown = site.danlu("gpus").text
    assert re.search(rf"slurm:{more} \({WANG}, 16 shards, 5\dm left\)", shown), shown

    first = next(node for node in site.danlu("nodes", "--json").json()["items"] if node["name"] == "gn1")
    assert {(one["id"], one["user"]) for one in first["holders"] if one["is_other"]} == {
        (f"slurm:{two}", LI), (f"slurm:{unsaid}", WANG),
    }  # fmt: skip
    with_mine = mine in {one["id"] for one in first["holders"]}
    assert first["cpus_free"] == 32 - 3 - 1 - with_mine
    site.cluster.ask("scontrol", "update", "nodename=gn2", "state=drain", "reason=bad fan, card 2")
    eventually(lambda: "bad fan, card 2 (MIXED+DRAIN" in site.danlu("nodes").text, "why a node is closed")
    site.cluster.ask("scontrol", "update", "nodename=gn2", "state=resume")
    (queue,) = (one for one in site.danlu("queues", "--json").json()["items"] if one["name"] == "gpu")
    assert queue["running"] == 6

    # What is let go is free again, and nobody has it.
    site.cluster.ask("scancel", two, unsaid, half, more, sat_at)
    left = [(use, ids) for use, _, ids in [("exclusive", 64, [mine])]]
    eventually(
        lambda: [(use, ids) for node in ("gn1", "gn2") for use, _, ids in cards(site, node) if use != "free"] == left,
        "only mine is left",
    )
    assert others(site) == {}


def test_what_is_said_of_one(older: Site) -> None:
    site = older
    site.danlu("up", "--detach")
    name = "a\x1b[2Jb\nslurm:1 root"
    number = running(site, "sleep 1000", "--gres=shard:8", f"--job-name={name}", "--time=30", user=LI)
    waits = site.cluster.submit("true", "--gres=gpu:4", "--nodes=2", "--array=1-3", "--output=/dev/null", user=LI)
    until_seen(site, number)
    eventually(lambda: f"slurm:{waits}_[1-3]" in others(site), "the array that waits is seen")
    assert others(site)[f"slurm:{number}"]["name"] == name
    listed = site.danlu("ps", "--all")
    assert b"\x1b" not in listed.out
    title, *lines = listed.text.splitlines()
    assert title == "not through Danlu:"
    assert any(f"slurm:{number}" in line and r"a\x1b[2Jb\nslurm:1 root" in line for line in lines)
    assert any(f"slurm:{waits}_[1-3]" in line and "3 x " in line and "4 gpu" in line for line in lines)
    assert others(site, "--user", WANG) == {}
    assert set(others(site, "--user", LI, "--name", name)) == {f"slurm:{number}"}
    assert "others" not in site.danlu("ps", "--json").json()

    shown = site.danlu("show", f"slurm:{number}").text
    assert "did not come through Danlu" in shown
    assert "8 shards of GPU" in shown
    assert "\x1b" not in shown
    assert site.danlu("why", f"slurm:{number}").text.startswith(f"slurm:{number} runs on gn")
    why = f"slurm:{waits}_[1-3] waits: not enough cards"
    eventually(lambda: site.danlu("why", f"slurm:{waits}").text.startswith(why), "why an array waits")
    for words in (("logs",), ("exec",), ("clone",), ("wait",), ("rm",)):
        rest = ("--", "true") if words == ("exec",) else ()
        refused = site.danlu(*words, f"slurm:{number}", *rest, code=3)
        assert f"slurm:{number} did not come through Danlu" in refused.talk, words
    assert "no run `slurm:9999` is known" in site.danlu("show", "slurm:9999", code=2).talk
    # They are in the way of mine.
    job = site.submit("--nodes", "2", "--gpus", "4", "--", "true")
    site.until(job, "PENDING")
    held = eventually(lambda: site.danlu("why", job, "--json").json()["holders"], "who is in the way")
    assert [one["id"] for one in held] == [f"slurm:{number}"]
    # One of those that wait together.
    assert site.danlu("show", f"slurm:{waits}_2", "--json").json()["items"][0]["tasks"] == 1
    assert site.danlu("stop", f"slurm:{waits}_2").text == f"slurm:{waits}_2  stopping"
    eventually(lambda: f"slurm:{waits}_[1,3]" in others(site), "the others wait on")


def test_owners_and_administrators_stop_them(site: Site) -> None:
    people = People(site)
    reached = site.danlu("version", prefix=as_user(LI), code=None, cwd="/")
    if reached.code:
        untested = f"this Python cannot be run by other users, so NOBODY ELSE WAS TESTED: {reached.talk}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(untested)
    Shared(site, server=f'socket = "{people.socket}"\n')
    theirs = running(site, "sleep 1000", "--gres=gpu:1", user=LI)
    again = running(site, "sleep 1000", user=LI)
    array = site.cluster.submit("sleep 1000", "--array=1-9%2", "--output=/dev/null", user=LI)
    sat_at = begin(site, "srun", "--gres=shard:4", "--job-name=sat-at", "sleep", "1000")
    (number,) = eventually(
        lambda: site.cluster.ask("squeue", "--noheader", "--name=sat-at", "--states=R", "--format=%i").split(),
        "srun runs",
    )
    until_seen(site, theirs, again, number, f"{array}_1", f"{array}_2")
    for which in (theirs, array):
        refused = people.danlu(WANG, "stop", f"slurm:{which}", code=3)
        assert f"belongs to {LI}" in refused.talk
    assert site.cluster.state(theirs) == "RUNNING"
    assert people.danlu(LI, "stop", f"slurm:{theirs}").text == f"slurm:{theirs}  stopping"
    site.cluster.wait_for(theirs, "CANCELLED")
    people.danlu(LI, "stop", f"slurm:{array}_1")
    site.cluster.wait_for(f"{array}_1", "CANCELLED")
    eventually(lambda: f"slurm:{array}_3" in others(site), "the next task runs")
    people.danlu(LI, "stop", f"slurm:{array}")
    for task in (2, 3):
        site.cluster.wait_for(f"{array}_{task}", "CANCELLED")
    until_gone(site, f"{array}_[4-9%2]")
    assert site.cluster.state(again) == "RUNNING"
    assert "belongs to root" in people.danlu(LI, "stop", f"slurm:{number}", code=3).talk
    # Root comes by the Unix socket, and is an administrator.
    site.danlu("stop", f"slurm:{again}", f"slurm:{number}")
    site.cluster.wait_for(again, "CANCELLED")
    assert sat_at.wait(60) != 0
    noted = site.danlu("audit", "--what", "other.stop", "--json").json()["items"]
    assert {(one["who"], one["target"], one["detail"]) for one in noted} == {
        (LI, f"slurm:{theirs}", ""), (LI, f"slurm:{array}_1", ""), (LI, f"slurm:{array}", ""),
        ("root", f"slurm:{again}", f"of {LI}"), ("root", f"slurm:{number}", ""),
    }  # fmt: skip


def test_they_count_against_the_quota_of_their_owner(older: Site) -> None:
    site, sun = older, "sun"
    site.root.chmod(0o711)
    site.has_people(sun)
    shared = Shared(site)
    token = shared.token(sun)
    site.danlu("quota", "set", f"user:{sun}", "gpus=1")
    theirs = sbatch_as(site, FIRST_UID, "--gres=gpu:1")
    assert until_seen(site, theirs)[f"slurm:{theirs}"]["user"] == sun
    job = shared.danlu(token, "submit", "--gpus", "1", "--", "true").text
    reason = f"{sun} holds 1 of their 1 GPU, this asks for 1 more"

    def why() -> dict[str, Any]:
        told: dict[str, Any] = shared.danlu(token, "why", job, "--json").json()
        return told

    eventually(lambda: why()["reason"] == {"code": "quota", "text": reason}, "it waits for the quota")
    now = why()
    assert (now["state"], [one["id"] for one in now["holders"]]) == ("QUEUED", [f"slurm:{theirs}"])
    text = shared.danlu(token, "why", job).text
    assert text.startswith(f"{job} waits: {reason}\n"), text
    assert f"slurm:{theirs}" in text
    assert site.cluster.ask("squeue", "--noheader", "--format=%i").split() == [theirs], "Slurm knows of one only"
    assert site.danlu("run", "--gpus", "1", "--", "echo", "mine").out == b"mine\n", "others get cards"
    site.cluster.ask("scancel", theirs)
    assert site.ended(job)["state"] == "SUCCEEDED"


def sbatch_as(site: Site, uid: int, *options: str) -> str:
    """Of somebody whom only the cluster knows."""
    words = [*as_user(str(uid)), site.cluster.release.program("sbatch"), "--parsable", "--output=/dev/null"]
    done = subprocess.run(
        [*words, "--wrap=sleep 1000", *options],
        env={**os.environ, **site.cluster.environment},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    site.cluster.wait_for(done.stdout.strip(), "RUNNING")
    return done.stdout.strip()


def begin(site: Site, command: str, *words: str) -> "subprocess.Popen[bytes]":
    return site.own(
        subprocess.Popen(
            [site.cluster.release.program(command), *words],
            env={**os.environ, **site.cluster.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    )


def test_usage_counts_each_once_and_through_a_restart(site: Site) -> None:
    shared = Shared(site)
    sun = "backup"  # no other test uses this one: Slurm remembers for a while what they ran
    seen = running(site, "sleep 1000", "--gres=gpu:2", "--time=60", user=sun)
    missed = running(site, "sleep 1000", "--gres=gpu:1", user=sun)
    until_seen(site, seen, missed)
    line = usage(site, sun)
    assert (line["runs"], line["running"], round(line["asked_gpu_hours"], 1)) == (2, 2, 3.0)
    site.cluster.ask("scancel", seen)
    until_gone(site, seen)
    eventually(lambda: usage(site, sun)["running"] == 1, "one is in the books")
    # The other one ends while nobody looks.
    site.kill_server()
    shared.process.wait(60)
    site.cluster.ask("scancel", missed)
    site.cluster.wait_for(missed, "CANCELLED")
    shared.serve()
    eventually(lambda: usage(site, sun)["running"] == 0 and usage(site, sun)["runs"] == 2, "both are in the books")
    lasted = 2 * seconds_of(site, seen) + seconds_of(site, missed)
    assert usage(site, sun)["gpu_hours"] == pytest.approx(lasted / 3600, abs=0.0011)


def test_what_came_through_danlu_is_nobody_elses(site: Site) -> None:
    Shared(site)
    eventually(lambda: usage(site, "root")["running"] == 0, "what others left is counted")
    before = usage(site, "root")["runs"]
    for number in range(1, 4):
        own = site.submit("--gpus", "1", "--", "sleep", "0.5")
        while site.client().job(own).data["state"] not in ("SUCCEEDED", "FAILED"):
            assert others(site) == {}
        assert usage(site, "root")["runs"] == before + number
    assert others(site) == {}
    assert usage(site, "root")["runs"] == before + 3


def test_a_job_of_danlus_has_its_number_too(site: Site) -> None:
    site.danlu("up", "--detach")
    job = site.submit("--", "sh", "-c", "echo number $SLURM_JOB_ID; sleep 1000")
    site.until(job, "RUNNING")
    name = site.show(job)["engine_id"]
    number = name.removeprefix("slurm:")
    eventually(lambda: site.danlu("logs", name).text == f"number {number}", "the log of that number")
    assert re.search(rf"^slurm job +{number}$", site.danlu("show", job).text, re.MULTILINE)
    assert f":{job}.1" in site.cluster.ask("scontrol", "show", "job", number)
    assert site.show(name)["id"] == job
    assert site.danlu("why", name).text.startswith(f"{job} runs: ")
    assert site.danlu("exec", name, "--", "echo", "inside").text == "inside"
    # Each task is a job of its own there.
    array = site.submit("--array", "1-2", "--nodes", "2", "--gpus", "4", "--", "sleep", "1000")
    site.until(f"{array}_1", "RUNNING", "PENDING")
    site.until(f"{array}_2", "RUNNING", "PENDING")
    tasks = {site.show(f"{array}_{task}")["engine_id"]: f"{array}_{task}" for task in (1, 2)}
    assert len(tasks) == 2
    assert all(site.show(each)["id"] == task for each, task in tasks.items())
    plain = running(site, "sleep 1000", user=LI)
    until_seen(site, plain)
    assert "did not come through Danlu" in site.danlu("show", f"slurm:{plain}").text
    # A server that begins anew knows them too.
    site.kill_server()
    assert site.danlu("stop", name, *tasks).text.splitlines() == [
        f"{each}  stopping" for each in (job, *tasks.values())
    ]
    assert site.ended(job)["state"] == "CANCELLED"
    assert f"no run `{name}` is known" in site.danlu("show", name, code=2).talk
    assert site.cluster.state(plain) == "RUNNING"


def usage(site: Site, user: str) -> dict[str, Any]:
    items = site.danlu("usage", "--json").json()["items"]
    found: dict[str, Any] = next((one for one in items if one["name"] == user), {"runs": 0, "running": 0})
    return found


def seconds_of(site: Site, number: str) -> int:
    """From start to end, as Slurm says."""
    listed = ("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%S %e")
    start, end = map(datetime.fromisoformat, site.cluster.ask(*listed).split())
    return int((end - start).total_seconds())
