"""Bad days of a real Slurm: nothing is concluded in the dark, nothing accepted is lost, nothing runs twice."""

from collections.abc import Iterator

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import Site, cluster_of, site_on
from tests.e2e.terminal import Terminal
from tests.slurm.layout import IMPATIENT, Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-bad-days")]
# A client gives up on a controller that hangs after three seconds and not after ten.
LAB = Layout(nodes=2, cards=2, cpus=4, settings=IMPATIENT)


@pytest.fixture(params=[OLDER])
def site(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(request.param, LAB), monkeypatch) as made:
        monkeypatch.setenv("DANLU_ENGINE_GRACE", "2s")
        yield made


@pytest.mark.parametrize("site", [OLDER, NEWER], indirect=True)
def test_a_controller_that_is_gone_changes_nothing_and_loses_nothing(site: Site) -> None:
    runs = site.submit_traced("--cpus", "4", then=f"echo on; {site.waits_for('ends')}; echo off", code=7)
    stays = site.submit_traced("--cpus", "3", then=site.waits_for("stays"), code=3)
    for job in (runs, stays):
        site.until(job, "RUNNING")
    pends = site.submit_traced("--cpus", "2", code=4)
    site.until(pends, "PENDING")
    later = site.submit_traced("--after", f"{pends}:any", code=5)
    follows = site.begin("logs", "-f", runs)
    site.until_saved()
    site.cluster.kill_controller()

    told = site.until_down()
    assert "controller of Slurm cannot be reached (since 20" in told
    before = {job: site.state(job) for job in (runs, stays, pends, later)}
    assert before == {runs: "RUNNING", stays: "RUNNING", pends: "PENDING", later: "QUEUED"}
    new = site.submit_traced(code=6)
    array = site.submit("--array", "1-3", "--", "sh", "-c", f"echo array >> {site.trace}")
    unwanted = site.submit_traced()
    site.danlu("stop", unwanted)
    assert told in site.danlu("status").text
    for words in (("ps",), ("nodes",), ("gpus",), ("queues",)):
        assert told in site.danlu(*words).talk
    assert told in site.danlu("why", new).text
    assert told in site.danlu("why", runs).text
    assert site.danlu("ps", "--json").json()["trouble"] == told
    assert site.show(new)["reason"]["text"] == told
    terminal = Terminal(site, "run", "--", "echo", "my turn")
    terminal.see(f"waiting: {told}")

    site.open("ends")  # it ends while nobody watches, and somebody is asked to end
    eventually(lambda: b"off" in site.danlu("logs", runs).out, "the log is read all the same")
    site.danlu("stop", stays)
    assert site.state(runs) == "RUNNING", "what is not known is not concluded"

    site.cluster.start_controller()
    site.until_up()
    assert [site.ended(one)["exit_code"] for one in (runs, pends, later, new)] == [7, 4, 5, 6]
    assert site.ended(stays)["state"] == "CANCELLED"
    assert site.state(unwanted) == "CANCELLED"
    site.danlu("wait", array)
    terminal.see("my turn")
    assert terminal.end()[0] == 0
    assert follows.communicate(timeout=60)[0] == b"on\noff\n"
    assert site.times() == {runs: 1, stays: 1, pends: 1, later: 1, new: 1, "array": 3}
    assert site.danlu("status", "--json").json()["trouble"] is None
