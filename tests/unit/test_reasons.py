"""What strangers are told about a job: why, and nothing that only its owner may know."""

from pathlib import Path

import pytest

from danlu.actions.jobs.views import reason_for
from danlu.domain.job import Reason
from danlu.domain.people import Actor, Role
from danlu.engines.slurm.text.messages import explain_refusal, last_words
from tests.builders import job

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
OWNER, STRANGER, ADMIN = Actor("li"), Actor("wang"), Actor("chief", Role.ADMIN)


def refusals() -> list[str]:
    """What `sbatch` of both releases said, and what a plugin of a site might."""
    said = ["sbatch: error: policy: nothing from /home/li/secret-plan"]
    for path in GOLDEN.glob("engine-sbatch-refusals-*.txt"):
        parts = [part.partition("\n")[2] for part in path.read_text().split("== ")[1:]]
        said += [part for part in parts if "error" in part]
    return said


@pytest.mark.parametrize("said", refusals())
def test_what_slurm_said_is_for_who_may_see_the_command(said: str) -> None:
    why = explain_refusal(said)
    mine = job("a", user="li")
    for actor in (OWNER, ADMIN):
        assert reason_for(actor, mine, why) == why
    theirs = reason_for(STRANGER, mine, why)
    assert theirs.code == why.code
    assert theirs.text
    assert last_words(said) not in theirs.text


def test_other_reasons_are_no_secret() -> None:
    for why in (Reason("quota", "team nlp holds 8 of its 8 GPUs"), Reason("slurm_user", "this machine has no user li")):
        assert reason_for(STRANGER, job("a", user="li"), why) == why
    folder = Reason("not_started", "the working folder does not exist: /home/li/secret-plan")
    assert "secret" not in reason_for(STRANGER, job("a", user="li"), folder).text
