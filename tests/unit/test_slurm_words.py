"""Slurm's words, as a person reads them."""

from pathlib import Path

import pytest

from danlu.engines.base import Ending
from danlu.engines.slurm_words import explain_end, explain_refusal, explain_wait, is_out_of_reach, last_words

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"


def refusals(version: str) -> dict[str, str]:
    parts = (GOLDEN / f"engine-sbatch-refusals-{version}.txt").read_text().split("== ")[1:]
    return {option.strip(): said for option, _, said in (part.partition("\n") for part in parts)}


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
    assert hint in reason.text
    assert last_words(said) in reason.text
    assert not is_out_of_reach(said)


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
    ],
)
def test_trouble_of_the_controller_is_no_refusal(said: str) -> None:
    assert is_out_of_reach(said)


@pytest.mark.parametrize(
    ("word", "code", "shown"),
    [
        ("Resources", "no_room", "become free"),
        ("Priority", "behind", "before it"),
        ("PartitionTimeLimit", "time_limit", "--time"),
        ("AssocGrpGRES", "quota", "cards"),
        ("AssocGrpCpuLimit", "quota", "cores"),
        ("AssocMaxJobsLimit", "quota", "jobs"),
        ("QOSMaxGRESPerUser", "quota", "each person"),
        ("QOSMaxWallDurationPerJobLimit", "quota", "one job"),
        ("BadConstraints", "too_big", "no node"),
        ("ReqNodeNotAvail, UnavailableNodes:gn[1-2]", "closed", "gn[1-2]"),
        ("BeginTime", "begin_time", "time that is set"),
        ("launch failed requeued held", "held", "slurmd"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs", "closed", "down"),
        ("NewWordsOfSlurm", "slurm", "NewWordsOfSlurm"),
        ("launch_failed_requeued_held", "held", "slurmd"),
        ("SomethingNew", "slurm", "SomethingNew"),
    ],
)
def test_a_wait_is_translated(word: str, code: str, shown: str) -> None:
    reason = explain_wait(word)
    assert reason.code == code
    assert shown in reason.text


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
