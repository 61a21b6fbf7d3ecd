"""A job's tree of processes, its notice and its memory, on a real Slurm that confines its jobs with cgroups."""

import sys
from collections.abc import Iterator

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import Settings, Site, settings_of, site_on
from tests.e2e.test_trees import (  # noqa: F401
    begun,
    forest,
    sleepers,
    test_a_stop_gives_the_notice_first_unless_it_is_in_a_hurry,
    test_the_notice_before_the_time_limit_lets_a_job_save_itself,
    test_too_much_memory_ends_the_job_where_that_can_be_enforced,
)
from tests.slurm.confined import SETTINGS, ConfinedCluster
from tests.slurm.layout import Layout
from tests.slurm.releases import OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-trees")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ConfinedCluster]:
    made = ConfinedCluster(OLDER, Layout(nodes=1, cards=0, cpus=8, settings=SETTINGS))
    yield made
    made.close()


@pytest.fixture
def here(own_home: object, cluster: ConfinedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster, monkeypatch) as made:
        yield made


@pytest.fixture
def settings(here: Site, settings: Settings) -> Settings:
    return settings_of(here, settings)


@pytest.mark.parametrize("how", [["stop"], ["stop", "--kill"]], ids=" ".join)
def test_a_stopped_job_and_who_entered_it_leave_no_process(
    here: Site,
    forest: tuple[str, str],  # noqa: F811
    how: list[str],
) -> None:
    mark, script = forest
    other = here.submit("--", "sh", "-c", "setsid sleep 600 & exec sleep 600")
    here.until(other, "RUNNING")
    job_id = begun(here, mark, script, "stays")
    inside = here.begin("exec", job_id, "--", "sh", "-c", f"echo in; exec setsid --wait sleep {mark}1")
    eventually(lambda: sleepers(here, f"{mark}1"), "somebody is in it")
    here.danlu(*how, job_id)
    assert here.ended(job_id)["state"] == "CANCELLED"
    eventually(lambda: not here.marked(mark) and not sleepers(here, mark), "Slurm has cleared up behind it")
    assert inside.communicate(timeout=60)[0] == b"in\n"
    assert here.state(other) == "RUNNING"
    assert len(here.marked(f"DANLU_RUN_ID={other}.1")) == 2, "nobody else is touched"


def test_a_job_that_ends_by_itself_leaves_no_process(here: Site, forest: tuple[str, str]) -> None:  # noqa: F811
    mark, script = forest
    assert here.danlu("run", "--env", f"MARK={mark}", "--", sys.executable, script, mark, "ends").code == 0
    eventually(lambda: not here.marked(mark) and not sleepers(here, mark), "Slurm has cleared up behind it")
