"""Cards and shards, queues and quotas, what is borrowed and why one waits, on a real Slurm: it places, Danlu admits and
explains."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import eventually
from tests.e2e.slurm_site import Site, cluster_of, settings_of, site_on
from tests.e2e.test_cards import (  # noqa: F401
    test_shards_share_one_card_and_a_whole_card_is_another,
    test_too_much_is_refused_and_a_dry_run_says_where,
)
from tests.e2e.test_giving_back import (  # noqa: F401
    test_a_borrower_is_asked_to_checkpoint_and_goes_on_later,
    test_a_server_killed_while_a_borrower_leaves_finishes_what_it_began,
)
from tests.e2e.test_shared_server import Shared
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-cards")]
TWO_CARDS = Layout(nodes=1, cards=2, cpus=16)


@pytest.fixture(params=[NEWER])
def here(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(request.param, TWO_CARDS), monkeypatch) as made:
        made.has_people("li", "dean")
        yield made


@pytest.fixture
def cards(here: Site, settings: Settings) -> Site:
    settings(ENGINE_GRACE="1s")
    return here


@pytest.fixture
def settings(here: Site, settings: Settings) -> Settings:
    return settings_of(here, settings)


@pytest.mark.parametrize("here", [OLDER, NEWER], indirect=True)
def test_why_one_waits_and_what_would_start_really_does(cards: Site) -> None:
    site = cards
    holder = site.until(site.submit("--gpus", "1", "--time", "20m", "--", "sleep", "600"), "RUNNING")
    waits = site.submit("--gpus", "rtx3090:2", "--time", "20m", "--", "true")

    def explained() -> dict[str, object] | None:
        why: dict[str, object] = site.danlu("why", waits, "--json").json()
        return why if "cards, cores or memory" in str(why["reason"]) and not why["is_guess"] else None

    why = eventually(explained, "Slurm has looked at it")
    assert (why["state"], why["reason"]["code"]) == ("PENDING", "no_room")
    assert "needs 2 GPUs" in why["reason"]["text"]
    assert [one["id"] for one in why["holders"]] == [holder["id"]]
    starts = datetime.fromisoformat(why["estimated_at"]) - datetime.now(UTC)
    assert timedelta(minutes=10) < starts < timedelta(minutes=40)
    assert waits in site.cluster.ask("squeue", "--noheader", "--states=PENDING", "--format=%k")
    (one,) = [one for one in why["alternatives"] if one["changes"] == {"gpus": "rtx3090:1"}]
    assert "danlu clone" in one["command"]
    text = site.danlu("why", waits).text
    assert "waits: not enough cards, cores or memory are free" in text
    assert holder["id"] in text
    (queue, debug, _) = site.danlu("queues", "--json").json()["items"]
    assert (queue["name"], queue["default"], queue["nodes"], queue["waiting"]) == ("gpu", True, ["gn1"], 1)
    assert (queue["cards"][0]["model"], queue["cards"][0]["total"]) == ("rtx3090", 2)
    assert (debug["name"], debug["max_time_s"]) == ("debug", 1800)

    instead = site.danlu(*one["command"].split()[1:]).text
    site.danlu("stop", waits)  # as it says: only one of the two is to run
    assert site.ended(waits)["reason"]["text"] == "stopped before it started"
    assert site.ended(instead)["state"] == "SUCCEEDED"
    assert site.state(holder["id"]) == "RUNNING"


def test_who_is_over_the_quota_waits_at_danlu_and_not_in_slurm(here: Site) -> None:
    here.root.chmod(0o711)
    shared = Shared(here)
    li, other = shared.token("li"), shared.token("dean")
    here.danlu("quota", "set", "user:li", "gpus=1")
    first = shared.danlu(li, "submit", "--gpus", "1", "--", "sleep", "600").text
    here.until(first, "RUNNING")
    array = shared.danlu(li, "submit", "--gpus", "1", "--array", "1-2", "--", "true").text
    why = eventually(lambda: quota_reason(shared, li, f"{array}_1"), "it is held back")
    assert why == "li holds 1 of their 1 GPU, this asks for 1 more"
    assert here.cluster.ask("squeue", "--noheader", "--format=%T").split() == ["RUNNING"], "Slurm knows of one only"
    assert first in shared.danlu(li, "why", f"{array}_1").text
    assert shared.danlu(other, "run", "--gpus", "1", "--", "echo", "mine").out == b"mine\n"
    here.danlu("quota", "set", "user:li", "gpus=2")
    shared.danlu(li, "wait", array)
    assert here.state(first) == "RUNNING"
    shared.danlu(li, "stop", "--kill", first)


def quota_reason(shared: Shared, token: str, job: str) -> str:
    why = shared.danlu(token, "why", job, "--json").json()
    return str(why["reason"]["text"]) if (why["state"], why["reason"]["code"]) == ("QUEUED", "quota") else ""
