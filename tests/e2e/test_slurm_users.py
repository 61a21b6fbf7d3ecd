"""People who share a Slurm cluster through one server: each job runs as its owner's own Unix user."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.installation import eventually
from tests.e2e.slurm_site import SMALL, Site, cluster_of, site_on
from tests.e2e.test_shared_server import (  # noqa: F401
    People,
    Shared,
    as_user,
    test_a_file_of_ones_own_is_no_way_out,
    test_a_job_as_another_user_gets_nothing_of_the_servers_rights,
    test_jobs_run_as_who_submits_them,
    test_what_a_submitter_sets_reaches_no_program_of_root,
)
from tests.slurm.releases import OLDER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-users")]


@pytest.fixture
def here(own_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(OLDER, SMALL), monkeypatch) as made:
        yield made


@pytest.fixture
def people(here: Site) -> People:
    people = People(here)
    reached = here.danlu("version", prefix=as_user("daemon"), code=None, cwd="/")
    if reached.code:
        untested = f"this Python cannot be run by other users, so NOBODY ELSE WAS TESTED: {reached.talk}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(untested)
    # Nothing says whose rights jobs get: on a cluster, of a server of root, it is their owners'.
    Shared(here, server=f'socket = "{people.socket}"\n')
    return people


def test_nobody_touches_the_job_of_another(here: Site, people: People) -> None:
    script = "echo private; id -un; exec sleep 600"
    job_id = people.danlu("daemon", "submit", "--", "sh", "-c", script).text
    eventually(lambda: b"daemon\n" in people.danlu("daemon", "logs", job_id).out, "it says who it is")
    here.until(job_id, "RUNNING")
    owners = here.cluster.ask("squeue", "--noheader", "--format=%u %k").splitlines()
    assert [line.split()[0] for line in owners] == ["daemon"]
    for words in (("logs", job_id), ("stop", job_id), ("exec", job_id, "--", "id"), ("clone", job_id), ("rm", job_id)):
        refused = people.danlu("bin", *words, code=3)
        assert "belongs to daemon; bin may not do this" in refused.talk
        assert b"private" not in refused.out
    assert people.danlu("bin", "show", job_id, "--json").json()["command"] is None
    assert people.danlu("daemon", "exec", job_id, "--", "id", "-un").out == b"daemon\n"
    people.danlu("daemon", "stop", job_id)
    assert here.ended(job_id)["state"] == "CANCELLED"
    assert here.danlu("ps", "--user", "all").code == 0


def test_somebody_whom_the_machine_does_not_know_is_told_so(here: Site) -> None:
    here.root.chmod(0o711)
    here.has_people("li")
    shared = Shared(here)
    stranger = shared.token("stranger")
    done = shared.danlu(stranger, "run", "--", "true", code=3)
    assert "stranger" in done.talk
    assert "hint: " in done.talk
    assert shared.danlu(shared.token("li"), "run", "--", "id", "-un").out == b"li\n", "nobody else is harmed"
