"""What several kinds of tests need."""

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.warden import appoint


def pytest_configure() -> None:
    """Whoever was started in the background of a script is deaf to Ctrl-C, and so would be all that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    appoint()


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test ever meets the real installation of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("DANLU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DANLU_HOME", str(home / "danlu"))
    return home


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a Slurm cluster said while a test on it failed stays with the failure."""
    report = yield
    clusters = sys.modules.get("tests.slurm.cluster")
    if report.failed and clusters and item.get_closest_marker("slurm"):
        report.sections.extend(clusters.last_words().items())
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A dozen daemons on a busy machine may have a bad minute that is no fault of ours: a test whose cluster did not do
    its part is tried once more, on a new one, and the summary lists it. Whatever else fails has failed."""
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun="ClusterTrouble"))
