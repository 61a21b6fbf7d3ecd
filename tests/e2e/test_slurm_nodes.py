"""Several nodes for one job, with the real commands on a real Slurm; and a real training over them."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import Site, cluster_of, site_on
from tests.pytorch import pytorch
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
once = pytest.mark.parametrize("here", [OLDER], indirect=True)  # trainings take their time
EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp"
TRAINING_S = 120.0  # on a machine that has other things to do


@pytest.fixture(params=[OLDER, NEWER])
def here(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(request.param, Layout()), monkeypatch) as made:
        yield made


@pytest.fixture
def ddp(here: Site) -> Site:
    """In the folder of the example."""
    shutil.copy(EXAMPLE / "train.py", here.work)
    return here


def weights(said: str) -> dict[str, str]:
    """Of each rank: what its weights sum up to in the end."""
    return dict(re.findall(r"rank (\d+) is done, and its weights sum up to (\S+)", said))


def test_a_training_on_two_nodes(ddp: Site) -> None:
    done = ddp.danlu("run", "--nodes", "2", "--", pytorch() / "python", "train.py", within=TRAINING_S)
    assert {("0", "gn1"), ("1", "gn2")} == set(re.findall(r"rank (\d) of 2 on (\w+), with gloo", done.text))
    found = weights(done.text)
    assert set(found) == {"0", "1"}
    assert len(set(found.values())) == 1, "both have learnt the same"
    assert float(re.findall(r"epoch 8/8  accuracy +(\S+)%", done.text)[0]) > 90
    shown = ddp.show("@")
    assert (shown["ask"]["nodes"], [seat["node"] for seat in shown["seats"]]) == (2, ["gn1", "gn2"])


@once
def test_several_processes_on_each_node_with_torchrun(ddp: Site) -> None:
    shutil.copy(EXAMPLE / "job.yaml", ddp.work)
    path = {"PATH": f"{pytorch()}:{ddp.environ()['PATH']}"}
    for options, ranks in (((), 4), (("--nodes", "1"), 2)):
        job = ddp.danlu("submit", "job.yaml", *options, env=path).text
        assert ddp.ended(job, within=TRAINING_S)["state"] == "SUCCEEDED", ddp.danlu("logs", job).text
        found = weights(ddp.danlu("logs", job).text)
        assert set(found) == {str(rank) for rank in range(ranks)}
        assert len(set(found.values())) == 1
        (ddp.work / "spirals.pt").unlink()


@once
def test_a_training_is_asked_to_stop_and_goes_on_later(ddp: Site) -> None:
    command = (pytorch() / "python", "train.py", "--epochs")
    job = ddp.submit("--nodes", "2", "--signal", "USR1@300", "--", *command, "1000000")
    ddp.until(job, "RUNNING")
    log = ddp.log_path(job)
    eventually(lambda: b"epoch 2/" in log.read_bytes() or ddp.state(job) != "RUNNING", "it trains", within=TRAINING_S)
    ddp.danlu("stop", job)
    ended = ddp.ended(job, within=TRAINING_S)
    said = log.read_text()
    assert (ended["state"], ended["exit_code"]) == ("CANCELLED", 0), said[-2000:]
    assert len(re.findall(r"rank \d was asked to stop: the checkpoint is written", said)) == 2
    last = int(re.findall(r"epoch (\d+)/", said)[-1])
    more = ddp.danlu("run", "--nodes", "2", "--", *command, str(last + 1), within=TRAINING_S)
    assert re.findall(r"epoch (\d+)/", more.text) == [str(last + 1)]


def test_the_exit_code_is_that_of_the_rank_that_failed(here: Site) -> None:
    done = here.danlu("run", "--nodes", "2", "--", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; exit 7", code=7)
    assert "exited with code 7 (rank 1 on gn2)" in done.talk
    assert here.show("@")["reason"]["text"] == "exited with code 7 (rank 1 on gn2)"


def test_what_the_cluster_does_not_have_is_refused_at_once(here: Site) -> None:
    here.ended(here.submit("--", "true"))  # by now the cluster is known
    for nodes, code, error, hint in (
        ("3", 3, "asks for 3 nodes with 1 CPU each, 2 of queue gpu have them", "see what it has: `danlu queues gpu`"),
        ("0", 2, "a job needs at least one node, not 0", "use `--nodes 1` or more, or leave it out"),
    ):
        refused = here.danlu("submit", "--nodes", nodes, "--", "true", code=code).talk
        assert refused == f"error: {error}\n\nhint: {hint}"
