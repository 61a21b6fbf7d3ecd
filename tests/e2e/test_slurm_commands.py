"""What people do with the commands, on a real Slurm: the same tests as on a machine of one's own."""

from collections.abc import Iterator

import pytest

from tests.e2e.installation import Installation, eventually
from tests.e2e.slurm_site import SMALL, Settings, Site, cluster_of, settings_of, site_on
from tests.e2e.test_commands import (  # noqa: F401
    project,
    roomy,
    test_a_clone_takes_changes,
    test_a_job_file_says_the_same_as_options,
    test_a_job_is_tried_again_as_often_as_it_asked,
    test_a_job_sees_its_ask_and_inherits_what_it_should,
    test_a_reader_that_leaves_early_is_fine,
    test_a_snapshot_is_not_changed_by_later_edits,
    test_an_array_keeps_its_limit_of_tasks_at_once,
    test_every_command_that_prints_data_prints_json,
    test_exec_runs_a_command_inside_the_job,
    test_files_of_a_job_are_for_whom_the_submitter_wants,
    test_jobs_are_found_by_name_by_prefix_and_by_how_long_ago,
    test_jobs_wait_for_others,
    test_priority_goes_first,
    test_wait_and_rm,
)
from tests.slurm.releases import OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-commands")]
# What a shell would make something of, if one ever saw it.
HORRORS = (
    "", " ", "a b", "'", '"', "`id`", "$(id)", "$HOME", "\\", "\\n", "a\nb", "\t", "*", "~", "!!", "#x", "--", "-n",
    "%j %A", "|&;<>(){}[]", "\x01\x7f", "丹炉 é", "a'b\"c`d$e\\f",
)  # fmt: skip


@pytest.fixture
def here(own_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(OLDER, SMALL), monkeypatch) as made:
        yield made


@pytest.fixture
def settings(here: Site, settings: Settings) -> Settings:
    return settings_of(here, settings)


def test_nothing_that_is_written_is_read_by_a_shell(here: Installation) -> None:
    script = 'printf "%s\\0" "$0" "$@" "$ODD"; pwd'
    odd = "".join(word for word in HORRORS)
    folder = here.work / "a 'b\" $(id) %j `c` \\ 丹"
    folder.mkdir()
    name = "n'a\"m`e $(id) %j \\ #|& 丹"
    done = here.danlu("run", "--name", name, "--env", f"ODD={odd}", "--", "sh", "-c", script, *HORRORS, cwd=folder)
    assert done.out.decode().split("\0") == [*HORRORS, odd, f"{folder}\n"]
    assert here.show("@")["name"] == name
    job_id = here.submit("--env", f"ODD={odd}", "--", "sleep", "600", cwd=folder)
    here.until(job_id, "RUNNING")
    inside = here.danlu("exec", job_id, "--", "sh", "-c", script, *HORRORS)
    assert inside.out.decode().split("\0") == [*HORRORS, odd, f"{folder}\n"]
    here.danlu("stop", "--kill", job_id)


SEE = "see what it has: `danlu queues gpu`"


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        (("--cpus", "5"), 3, "asks for 5 CPUs, the largest node of queue gpu has 4", SEE),
        (("--mem", "1T"), 3, "asks for 1024 GiB of memory, the largest node of queue gpu has 62.50 GiB", SEE),
        (("--gpus", "1"), 3, "asks for 1 GPU, no node of queue gpu has a GPU", SEE),
        (("--queue", "nosuch"), 2, "there is no queue `nosuch`", "there is gpu, debug and closed"),
        (
            ("--queue", "debug", "--time", "31m"),
            3,
            "queue `debug` runs one job for at most 30m, this one asks for 31m",
            "`--time 30m` or use `--queue gpu`",
        ),
    ],
)
def test_what_the_cluster_does_not_give_is_refused_with_what_it_does(
    refusing: Site, words: tuple[str, ...], code: int, error: str, hint: str
) -> None:
    done = refusing.danlu("run", *words, "--", "true", code=code)
    assert done.talk == f"error: {error}\n\nhint: {hint}"
    assert refusing.danlu("ps", "--all", "--json").json()["items"] == []


@pytest.fixture(scope="module")
def refusing() -> Iterator[Site]:
    """One for all that leave nothing behind."""
    with pytest.MonkeyPatch.context() as monkeypatch, site_on(cluster_of(OLDER, SMALL), monkeypatch) as made:
        made.danlu("up", "--detach")
        yield made


def test_in_a_queue_that_is_down_jobs_wait_until_it_opens(here: Site) -> None:
    job = here.submit("--queue", "closed", "--", "true")
    why = "queue closed starts no jobs at present: it is DOWN in Slurm"
    eventually(lambda: here.show(job)["reason"]["text"] == why, "it waits, and knows why")
    assert (here.state(job), here.cluster.ask("squeue", "--noheader")) == ("QUEUED", "")
    assert "closed: it is DOWN in Slurm (jobs may wait)" in here.danlu("queues").text
    assert why in here.danlu("run", "--queue", "closed", "--dry-run", "--", "true", code=None).text
    change = ("scontrol", "update", "partitionname=closed")
    here.cluster.ask(*change, "State=UP")
    try:
        assert here.ended(job)["state"] == "SUCCEEDED"
    finally:
        here.cluster.ask(*change, "State=DOWN")
