"""Bad days of a real Slurm: nothing is concluded in the dark, nothing accepted is lost, nothing runs twice."""

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import Site, cluster_of, site_on
from tests.e2e.terminal import Terminal
from tests.e2e.test_full_or_locked import fill
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


def test_a_controller_that_hangs_and_takes_a_job_after_all_runs_it_once(site: Site) -> None:
    runs = site.submit_traced(then=site.waits_for("ends"), code=7)
    site.until(runs, "RUNNING")
    site.until_saved()
    site.cluster.hang_controller()
    # Its `sbatch` gets no answer in time; the job is in Slurm's hands all the same.
    during = [site.submit_at_once(code=code) for code in (4, 5)]
    eventually(lambda: "waits to be submitted" in site.server_log(), "a client gave up")
    told = site.until_down()
    assert told in site.danlu("why", during[0]).text
    late = site.submit_traced(code=6)
    site.open("ends")
    assert {site.state(runs), *map(site.state, during)} <= {"RUNNING", "QUEUED", "STARTING", "PENDING"}

    site.cluster.continue_controller()
    assert [site.ended(one)["exit_code"] for one in (runs, *during, late)] == [7, 4, 5, 6]
    site.until_up()
    assert site.times() == dict.fromkeys((runs, *during, late), 1)


def test_a_server_that_starts_without_a_controller_keeps_what_it_is_given(site: Site) -> None:
    site.cluster.stop_controller()
    begun = site.begin("run", "--", "sh", "-c", "echo at last; exit 3")
    told = site.until_down()
    assert "controller of Slurm cannot be reached (since " in told
    jobs = [site.submit_traced("--gpus", "1", code=code) for code in (0, 4)]
    nonsense = site.submit_traced("--queue", "nosuch")  # nobody knows yet which there are
    shown = site.show(nonsense)
    assert (shown["state"], shown["reason"]["text"]) == ("QUEUED", told)
    assert site.danlu("nodes").code == 0
    site.kill_server()
    assert site.show(jobs[0])["state"] == "QUEUED"
    assert site.until_down() == told, "it is down for as long as it was"
    assert f"which queues there are is not known: {told}" in site.danlu("queues").talk

    site.cluster.start_controller()
    assert [site.ended(job)["exit_code"] for job in jobs] == [0, 4]
    assert begun.communicate(timeout=60)[0] == b"at last\n"
    assert begun.returncode == 3
    assert "queue nosuch does not exist" in site.danlu("why", nonsense).text
    assert site.state(nonsense) == "QUEUED"
    assert site.times() == dict.fromkeys(jobs, 1)


def test_an_answer_that_is_lost_with_the_server_is_found_again(site: Site) -> None:
    site.danlu("ps")
    site.cluster.hang_controller()
    job = site.submit_at_once(code=4)
    eventually(lambda: site.marked(f":{job}.1"), "sbatch waits for an answer")
    site.kill_server()
    site.cluster.continue_controller()
    eventually(lambda: not site.marked(f":{job}.1"), "sbatch has ended, and told nobody")
    site.danlu("up", "--detach")
    assert site.ended(job)["exit_code"] == 4
    assert site.times() == {job: 1}
    numbers = site.cluster.ask("squeue", "--noheader", "--states=all", "--format=%i %k").splitlines()
    assert len([line for line in numbers if f":{job}.1" in line]) == 1


def test_a_controller_that_forgets_a_job_and_gives_its_number_to_another(site: Site) -> None:
    """An old one that is killed before it saved what it has acknowledged."""
    site.leave_free(1)
    site.until_saved()
    state = site.cluster.folder / "state"
    kept = {path: path.read_bytes() for path in state.iterdir() if path.name in ("job_state", "job_state.old")}
    forgotten = site.submit_traced("--cpus", "2", code=4)
    site.until(forgotten, "PENDING")
    number = site.cluster.ask("squeue", "--noheader", "--states=PENDING", "--format=%i")
    site.kill_server()
    site.cluster.kill_controller()
    for path, content in kept.items():
        path.write_bytes(content)
    site.cluster.start_controller()
    other = site.cluster.submit(f"echo other >> {site.trace}; sleep 1000", "--cpus-per-task=2", "--output=/dev/null")
    assert other == number

    site.danlu("up", "--detach")
    site.until(forgotten, "PENDING")
    eventually(lambda: len(waiting_numbers(site, forgotten)) == 1, "it is in Slurm's queue again")
    assert waiting_numbers(site, forgotten) != [number]
    for line in site.cluster.ask("squeue", "--noheader", "--states=RUNNING", "--format=%i").split():
        site.cluster.ask("scancel", line)  # there is room
    assert site.ended(forgotten)["exit_code"] == 4
    assert site.cluster.state(other) == "RUNNING"
    assert site.times() == {forgotten: 1, "other": 1}
    site.danlu("stop", forgotten)
    assert site.cluster.state(other) == "RUNNING", "what has the number now is left alone"


def waiting_numbers(site: Site, job: str) -> list[str]:
    lines = site.cluster.ask("squeue", "--noheader", "--states=PENDING", "--format=%i %k").splitlines()
    return [line.split()[0] for line in lines if f":{job}.1" in line]


def test_a_job_whose_node_is_lost_begins_again_elsewhere_and_counts_it(site: Site) -> None:
    then = f"echo begins $DANLU_ATTEMPT on $DANLU_NODE; {site.waits_for('ends')}; echo ends"
    job = site.submit_traced("--gpus", "1", then=then, code=3)
    first = site.until(job, "RUNNING")["node"]
    follows = site.begin("logs", "-f", job)
    eventually(lambda: b"begins" in site.danlu("logs", job).out, "it has begun")
    site.until_saved()
    site.cluster.cut_power(first)  # what runs there is gone too
    again = eventually(lambda: (found := site.show(job))["attempt"] == 2 and found, "Slurm gives it up", within=90)
    assert again["state"] in ("PENDING", "RUNNING")
    second = site.until(job, "RUNNING", within=90)["node"]
    assert second != first
    eventually(lambda: site.times()[job] == 2, "it has begun again")
    site.open("ends")
    ended = site.ended(job)
    assert (ended["state"], ended["exit_code"], ended["attempt"]) == ("FAILED", 3, 2)
    told = f"begins 1 on {first}\nbegins 2 on {second}\nends\n".encode()
    assert site.danlu("logs", job).out == told
    assert follows.communicate(timeout=60)[0] == told
    (before,) = site.show(job)["runs"]
    assert (before["state"], before["node"]) == ("LOST", first)
    assert "node was lost" in before["reason"]["text"]
    assert site.times() == {job: 2}
    closed = [node["name"] for node in site.danlu("nodes", "--json").json()["items"] if not node["accepts_jobs"]]
    assert closed == [first]


@pytest.fixture
def small(own_home: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shared folder on a disk of 4 MB. Processes of a cluster see what was mounted before it came up."""
    tmp_path.chmod(0o755)
    words = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "danlu-test"]
    subprocess.run([*words, tmp_path], check=True)
    monkeypatch.setenv("DANLU_ENGINE_SHARED_DIR", str(tmp_path))
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_full_shared_folder_is_said_and_nothing_is_lost(small: Path, site: Site) -> None:
    goes_on, ends = (site.submit_traced(then=site.waits_for(door), code=6) for door in ("goes_on", "ends"))
    for job in (goes_on, ends):
        site.until(job, "RUNNING")
    eventually(lambda: site.times() == {goes_on: 1, ends: 1}, "their scripts have written their start files")
    ballast = fill(small)
    late = site.submit_traced(code=4)
    eventually(lambda: "No space left" in site.danlu("why", late).text, "it says why it does not start")
    assert site.state(goes_on) == "RUNNING"
    site.open("ends")  # it cannot write down how it ended
    eventually(lambda: not site.marked(f"DANLU_RUN_ID={ends}.1"), "it has ended")
    ballast.unlink()
    assert site.ended(late)["exit_code"] == 4
    assert site.ended(ends)["exit_code"] == 6
    site.open("goes_on")
    assert site.ended(goes_on)["exit_code"] == 6
    assert site.times() == {goes_on: 1, ends: 1, late: 1}


@pytest.fixture(params=[False, True], ids=["no books", "books"])
def forgetful(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A controller that lists what is over for two seconds only."""
    layout = Layout(nodes=1, cards=0, cpus=4, accounting=request.param, settings={"MinJobAge": "2"})
    with site_on(cluster_of(OLDER, layout), monkeypatch) as made:
        yield made


def test_what_slurm_forgot_before_anybody_saw_it_is_known_all_the_same(forgetful: Site) -> None:
    site, has_books = forgetful, forgetful.cluster.layout.accounting
    ends, ended = site.submit_traced("--cpus", "3", then=site.waits_for("ends"), code=5), site.submit_traced(code=3)
    site.until(ends, "RUNNING")
    assert site.ended(ended)["exit_code"] == 3
    never = site.submit_traced("--cpus", "4")
    site.until(never, "PENDING")
    site.kill_server()
    site.cluster.ask("scancel", "--state=PENDING", "--user=root")
    site.open("ends")
    listed = ("squeue", "--noheader", "--states=all", "--format=%i")
    eventually(lambda: not site.cluster.ask(*listed), "Slurm lists none of them any more")

    site.danlu("up", "--detach")
    assert site.ended(ends)["exit_code"] == 5
    gone = site.ended(never)
    if has_books:
        assert (gone["state"], gone["reason"]["text"]) == ("CANCELLED", "cancelled in Slurm")
    else:
        assert (gone["state"], gone["exit_code"]) == ("LOST", None)
        assert "left no exit status" in gone["reason"]["text"]
    assert site.times() == {ends: 1, ended: 1}
    assert site.danlu("run", "--", "echo", "goes on").out == b"goes on\n"


def test_a_run_that_has_ended_is_not_begun_again_whatever_slurm_does(site: Site) -> None:
    """As a controller does that was killed and missed the end, and so thinks that its node lost it."""
    job = site.submit_traced(then=site.waits_for("ends"), code=5)
    site.until(job, "RUNNING")
    number = site.cluster.ask("squeue", "--noheader", "--states=RUNNING", "--format=%i")
    site.kill_server()
    site.open("ends")
    site.cluster.wait_for(number, "FAILED")
    site.cluster.ask("scontrol", "requeue", number)
    told = ("scontrol", "--oneliner", "show", "job", number)
    eventually(lambda: re.search(r"JobState=FAILED .* Restarts=1 ", site.cluster.ask(*told)), "Slurm began it again")
    assert site.times() == {job: 1}
    site.danlu("up", "--detach")
    ended = site.ended(job)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 5)


def test_a_slow_controller_is_waited_for(site: Site) -> None:
    stays = site.submit_traced(then=site.waits_for("ends"), code=7)
    site.until(stays, "RUNNING")
    over = threading.Event()

    def slows_down() -> None:
        while not over.is_set():
            site.cluster.hang_controller()
            over.wait(2)
            site.cluster.continue_controller()
            over.wait(0.3)

    slow = threading.Thread(target=slows_down)
    slow.start()
    try:
        jobs = [site.submit_traced(code=code) for code in (0, 4, 5)]
        pending = site.submit_traced("--cpus", "4", "--time", "10m")
        site.danlu("stop", pending)
        assert site.state(stays) == "RUNNING"
        assert [site.ended(job)["exit_code"] for job in jobs] == [0, 4, 5]
        assert site.ended(pending)["state"] in ("CANCELLED", "SUCCEEDED")
        site.danlu("stop", stays)
        assert site.ended(stays)["state"] == "CANCELLED"
    finally:
        over.set()
        slow.join()
    times = site.times()
    assert {job: times[job] for job in (stays, *jobs)} == dict.fromkeys((stays, *jobs), 1)
    assert times[pending] <= 1
