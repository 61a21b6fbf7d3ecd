"""Pretend cards: whole ones, shared ones, and never both at once."""

from collections import Counter
from typing import Any

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import WAITING, Installation, eventually

WAITS = "echo cards=$CUDA_VISIBLE_DEVICES shards=$DANLU_SHARDS order=$CUDA_DEVICE_ORDER; exec sleep 600"


@pytest.fixture
def cards(here: Installation, settings: Settings) -> Installation:
    settings(ENGINE_CPUS=16, ENGINE_GRACE="1s")
    here.danlu("up", "--detach", "--fake-gpus", "2xRTX3090")
    return here


def begun(here: Installation, *ask: str) -> dict[str, Any]:
    return here.until(here.submit(*ask, "--", "sh", "-c", WAITS), "RUNNING")


def first_words(here: Installation, job_id: str) -> str:
    return str(eventually(lambda: here.danlu("logs", job_id).text, f"{job_id} says something"))


def held_up(here: Installation, job_id: str) -> dict[str, Any]:
    """Why it waits, once it is known who is in its way."""

    def explained() -> dict[str, Any] | None:
        why: dict[str, Any] = here.danlu("why", job_id, "--json").json()
        return why if why["state"] in WAITING and why["holders"] else None

    found: dict[str, Any] = eventually(explained, f"{job_id} waits for somebody")
    return found


def test_shards_share_one_card_and_a_whole_card_is_another(cards: Installation) -> None:
    here = cards
    small = [begun(here, "--shards", "16") for _ in range(3)]
    whole = begun(here, "--gpus", "1")
    last = begun(here, "--shards", "16")
    shared = small[0]["shared_gpu"]
    assert [job["shared_gpu"] for job in [*small, last]] == [shared] * 4
    assert whole["gpus"] == [1 - shared]
    for job, said in ((small[1], f"cards={shared} shards=16"), (whole, f"cards={1 - shared} shards=0")):
        assert first_words(here, job["id"]) == f"{said} order=PCI_BUS_ID"
    listed = {card["index"]: card for card in here.danlu("gpus", "--json").json()["items"]}
    assert (listed[shared]["shards_free"], len(listed[shared]["holders"])) == (0, 4)
    assert (listed[1 - shared]["shards_free"], len(listed[1 - shared]["holders"])) == (0, 1)

    waiting = here.submit("--gpus", "1", "--", "true")
    one_more = here.submit("--shards", "1", "--", "true")
    for job_id in (waiting, one_more):
        why = held_up(here, job_id)
        assert why["reason"]["text"]
        assert {holder["id"] for holder in why["holders"]} == {job["id"] for job in [*small, whole, last]}
    here.danlu("stop", "--kill", whole["id"])
    assert here.ended(waiting)["state"] == "SUCCEEDED"
    assert here.ended(one_more)["state"] == "SUCCEEDED"
    assert here.danlu("ps").code == 0


def test_no_card_is_ever_whole_and_shared_at_once(cards: Installation) -> None:
    here = cards
    client = here.client()
    script = 'echo "+ $CUDA_VISIBLE_DEVICES $DANLU_SHARDS" >> trace; sleep 0.0$((RANDOM_ % 5)); '
    script += 'echo "- $CUDA_VISIBLE_DEVICES $DANLU_SHARDS" >> trace'
    jobs = []
    for number in range(60):
        ask: dict[str, Any] = {"gpus": 1 + number % 2} if number % 3 == 0 else {"shards": 8 * (1 + number % 8)}
        env = {"RANDOM_": str(number)}
        jobs.append(client.submit(["sh", "-c", script], workdir=str(here.work), env=env, **ask).id)
    here.danlu("wait", "--quiet", *jobs, within=120)
    whole: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    for line in (here.work / "trace").read_text().splitlines():
        sign, visible, shards = line.split()
        for card in visible.split(","):
            step = 1 if sign == "+" else -1
            if shards == "0":
                whole[card] += step
            else:
                shared[card] += step * int(shards)
            assert whole[card] <= 1, line
            assert shared[card] <= 64, line
            assert not (whole[card] and shared[card]), line
    assert not whole.total()
    assert not shared.total()


def test_too_much_is_refused_and_a_dry_run_says_where(cards: Installation) -> None:
    here = cards
    for ask, named in (
        (("--gpus", "3"), "3"),
        (("--gpus", "H100:1"), "H100"),
        (("--shards", "65"), "65"),
        (("--mem", "100T"), "memory"),
        (("--cpus", "17"), "17"),
    ):
        refused = here.danlu("run", *ask, "--", "true", code=3)
        assert named in refused.talk
        assert "hint: " in refused.talk
        assert here.danlu("run", "--dry-run", *ask, "--", "true", code=3).talk
    both = here.danlu("run", "--gpus", "1", "--shards", "1", "--", "true", code=2)
    assert "whole GPUs or for shards of one, not for both" in both.talk

    plan = here.danlu("submit", "--dry-run", "--gpus", "rtx3090:2", "--json", "--", "true").json()
    assert (plan["fits_now"], sorted(plan["seat"]["gpus"])) == (True, [0, 1])
    holder = begun(here, "--gpus", "RTX3090:2", "--time", "1h")
    plan = here.danlu("submit", "--dry-run", "--gpus", "1", "--json", "--", "true").json()
    assert (plan["fits_now"], plan["seat"]) == (False, None)
    assert plan["reason"]["text"]
    assert plan["estimated_at"] > holder["started_at"]
    assert here.danlu("submit", "--dry-run", "--gpus", "1", "--", "true").text
    assert len(here.danlu("ps", "--all", "--json").json()["items"]) == 1, "a dry run leaves nothing"


def test_a_server_that_a_command_starts_again_has_the_same_cards(cards: Installation) -> None:
    here = cards
    holder = begun(here, "--gpus", "1")
    here.kill_server()
    assert len(here.danlu("gpus", "--json").json()["items"]) == 2
    assert here.state(holder["id"]) == "RUNNING"
    other = begun(here, "--gpus", "1")
    assert {*holder["gpus"], *other["gpus"]} == {0, 1}, "a card that is held stays held"
    here.danlu("down")
    here.danlu("up", "--detach", "--fake-gpus", "1xGTX1080Ti")
    cards_now = here.danlu("gpus", "--json").json()["items"]
    assert [card["model"] for card in cards_now] == ["GTX1080Ti"]
    assert here.state(holder["id"]) == "RUNNING", "jobs on cards that are gone go on"
    here.danlu("stop", "--kill", holder["id"], other["id"])
    assert here.ended(other["id"])["state"] == "CANCELLED"
    assert here.danlu("run", "--gpus", "GTX1080Ti:1", "--", "echo", "on").out == b"on\n"
