"""Slurm's words, as a person reads them."""

import json
from pathlib import Path

import pytest

from danlu.domain.job import Reason
from danlu.engines.base import Ending
from danlu.engines.slurm.text.messages import (
    explain_end,
    explain_full,
    explain_refusal,
    explain_wait,
    is_out_of_reach,
    last_words,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"


def refusals(version: str) -> dict[str, str]:
    parts = (GOLDEN / f"engine-sbatch-refusals-{version}.txt").read_text().split("== ")[1:]
    return {option.strip(): said for option, _, said in (part.partition("\n") for part in parts)}


def waits(name: str) -> str:
    return (GOLDEN / f"squeue-{name}.txt").read_text().strip()


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
@pytest.mark.parametrize(
    ("option", "code", "hint"),
    [
        ("-p nosuch", "no_queue", "danlu queues"),
        ("--gres=gpu:9", "too_big", "danlu nodes"),
        ("--gres=foo:1", "no_cards", "danlu gpus"),
        ("--mem=900G", "too_big", "--mem"),
        ("-w gn9", "no_nodes", "danlu nodes"),
        ("-C foo", "no_nodes", "sinfo"),
    ],
)
def test_a_refusal_is_translated(version: str, option: str, code: str, hint: str) -> None:
    said = refusals(version)[option]
    reason = explain_refusal(said)
    assert reason.code == code
    assert hint in reason.full_text
    assert last_words(said) in reason.full_text
    assert not is_out_of_reach(said)


def captured(name: str, version: str) -> list[str]:
    return [one["stderr"] for one in json.loads((GOLDEN / f"{name}-{version}.json").read_text())]


@pytest.mark.parametrize(
    ("name", "code", "shown"),
    [
        ("refusals-MaxWall-22.05.8", "quota", "too much time for one job"),
        ("refusals-MaxWall-24.11.5", "quota", "; use a shorter `--time`"),
        ("refusals-AllowGroups-22.05.8", "slurm_user", "groups may not use this queue (Slurm: User's group not"),
        ("refusals-RootOnly-22.05.8", "slurm_user", "; try another `--queue`, or ask the administrators of Slurm"),
        ("refusals-RootOnly-24.11.5", "slurm_user", "does not permit this to the user"),
    ],
)
def test_who_may_not_is_told_so(name: str, code: str, shown: str) -> None:
    (said,) = captured(*name.rsplit("-", 1))
    reason = explain_refusal(said)
    assert reason.code == code
    assert shown in reason.full_text
    assert not is_out_of_reach(said)
    assert explain_full(said) is None, "it would be refused again"


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_who_has_enough_jobs_may_have_another_later(version: str) -> None:
    (said,) = captured("refusals-MaxSubmitJobs", version)
    full = explain_full(said)
    assert full is not None
    assert full.code == "quota"
    said_of_it = "has reached its limit of jobs (Slurm: AssocMaxSubmitJobLimit); Danlu submits the job when"
    assert said_of_it in full.full_text
    assert not is_out_of_reach(said)


def test_the_limit_of_submits_is_none_of_time() -> None:
    policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    assert explain_refusal(f"sbatch: error: Batch job submission failed: {policy}").code == "quota"


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_the_words_of_a_site_are_its_own(version: str) -> None:
    many, queue, mute = captured("refusals-site", version)
    assert not any(map(is_out_of_reach, (many, queue, mute)))
    theirs = "You requested too many GPUs.; Read our page about configuration."
    assert explain_refusal(many) == Reason("not_started", f"Slurm refused the job: {theirs}")
    assert last_words(many) == theirs
    reason = explain_refusal(queue)
    assert reason.code == "no_queue"
    assert "(Slurm: Not on a Monday; Invalid partition name specified)" in reason.full_text
    assert explain_refusal(mute).text == "Slurm refused the job: Unspecified error"


@pytest.mark.parametrize(
    "words",
    [
        "Too many jobs of the configuration dns",
        "Your time limit is too long for this partition",
        "policy: ask for communication with the authentication group",
        "Unable to contact slurm controller (connect failure) is what you get for asking twice",
    ],
)
def test_a_site_may_use_any_words(words: str) -> None:
    said = f"sbatch: error: {words}\nsbatch: error: Batch job submission failed: Unspecified error\n"
    assert not is_out_of_reach(said)
    assert explain_refusal(said) == Reason("not_started", f"Slurm refused the job: {words}")


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
@pytest.mark.parametrize("name", ["controller-down", "controller-hung", "update-controller-down"])
def test_every_command_without_a_controller_is_in_trouble(name: str, version: str) -> None:
    told = [said for said in captured(name, version) if said]
    assert told
    for said in told:
        assert is_out_of_reach(said), said


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_no_refusal_is_trouble(version: str) -> None:
    for said in captured("refusals", version):
        assert not is_out_of_reach(said), said


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Protocol authentication error",
        'squeue: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        "sbatch: error: Batch job submission failed: Slurm temporarily unable to accept job, sleeping and retrying",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
        "sbatch: error: Batch job submission failed: Unable to create job record, try again",
        "sbatch: error: Batch job submission failed: I/O error writing script/environment to file",
        "sbatch: error: Batch job submission failed: Rate limit exceeded, please retry later",
        "sbatch: error: ClusterName needs to be specified\nsbatch: fatal: Unable to process configuration file",
        "sbatch: fatal: Could not establish a configuration source",
        "scancel: error: Kill job error on job id 7: Zero Bytes were transmitted or received",
    ],
)
def test_trouble_of_the_controller_is_no_refusal(said: str) -> None:
    assert is_out_of_reach(said)


@pytest.mark.parametrize(
    ("word", "code", "shown"),
    [
        ("Resources", "no_room", "are free"),
        ("Priority", "behind", "higher priority"),
        ("PartitionDown", "closed", "accepts jobs, but starts none"),
        ("PartitionInactive", "closed", "switched off"),
        ("PartitionTimeLimit", "time_limit", "--time"),
        ("AssocGrpGRES", "quota", "GPUs"),
        ("AssocGrpCpuLimit", "quota", "cores"),
        ("AssocMaxJobsLimit", "quota", "jobs"),
        ("QOSMaxGRESPerUser", "quota", "per user"),
        ("QOSMaxWallDurationPerJobLimit", "quota", "too much time for one job"),
        (
            "AssocMaxGRESPerJob",
            "quota",
            "too many GPUs for one job (its account in Slurm); ask for less: waiting does not help",
        ),
        ("BadConstraints", "too_big", "no node"),
        ("ReqNodeNotAvail, UnavailableNodes:gn[1-2]", "closed", "gn[1-2]"),
        ("BeginTime", "begin_time", "begin time"),
        ("launch failed requeued held", "held", "slurmd"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs", "closed", "down"),
        ("NewWordsOfSlurm", "slurm", "NewWordsOfSlurm"),
        ("launch_failed_requeued_held", "held", "slurmd"),
        ("SomethingNew", "slurm", "SomethingNew"),
        (waits("AllowGroups-24.11.5"), "slurm_user", "groups may not use this queue; try another `--queue`"),
        (waits("AllowAccounts-22.05.8"), "slurm_account", "account of its team may not use this queue"),
        (waits("AllowQos-24.11.5"), "slurm_account", "quality of service may not use this queue"),
    ],
)
def test_a_wait_is_translated(word: str, code: str, shown: str) -> None:
    reason = explain_wait(word)
    assert reason.code == code
    assert shown in reason.full_text


def test_what_slurm_did_to_a_job() -> None:
    assert explain_end("COMPLETED") is None
    assert explain_end("FAILED") is None
    for state, ending in (
        ("TIMEOUT", Ending.TIMED_OUT),
        ("CANCELLED", Ending.STOPPED),
        ("NODE_FAIL", Ending.LOST),
        ("OUT_OF_MEMORY", Ending.EXITED),
    ):
        found = explain_end(state)
        assert found is not None
        assert found[0] is ending


def test_a_refusal_that_speaks_of_configuration_is_no_trouble_of_the_controller() -> None:
    said = "sbatch: error: Batch job submission failed: Requested partition configuration not available now"
    assert not is_out_of_reach(said)
    assert explain_refusal(said).code == "too_big"
