"""An engine is a leaf: settings, startup and assembly know it by its line in the table alone."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from danlu.assembly import engine_of
from danlu.config import fake_cluster
from danlu.config.settings import Settings, load_settings
from danlu.engines.base import Abilities, Engine, EngineKind, EngineSetup
from danlu.engines.kinds import KINDS
from danlu.engines.settings import EngineSettings
from danlu.errors import Refused
from danlu.startup.process import Place, told_of
from tests.fakes.engine import FakeCluster

THIRD = Settings(engine=EngineSettings(kind="third", shared_dir="/mnt/third"))
CLUSTER = Abilities(places=True, live_nodes=True, many_nodes=True, runs_as_submitter=True)


def a_third_engine(monkeypatch: pytest.MonkeyPatch, **particulars: Any) -> list[EngineSetup]:
    """One line in the table. Gives what its engines are built from."""
    built: list[EngineSetup] = []

    def build(setup: EngineSetup) -> Engine:
        built.append(setup)
        return FakeCluster()

    monkeypatch.setitem(KINDS, "third", EngineKind("Third", CLUSTER, build, **particulars))
    return built


def test_a_line_in_the_table_is_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = a_third_engine(monkeypatch, shared_dir=lambda settings, section: settings.shared_dir)
    assert (THIRD.abilities, THIRD.shared_dir) == (CLUSTER, "/mnt/third")
    fake_cluster.refuse_unplayed(THIRD, "danlu.toml")
    engine, inventory = engine_of(THIRD, Place(str(tmp_path), "", shared_dir=THIRD.shared_dir))
    assert isinstance(engine, FakeCluster)
    assert (built[0].settings, built[0].files_dir, built[0].nodes) == (THIRD.engine, "/mnt/third", ())
    assert not inventory.is_known, "its nodes are heard of later"


@pytest.mark.parametrize("is_root", [True, False])
def test_whom_jobs_run_as_follows_from_its_abilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_root: bool
) -> None:
    a_third_engine(monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: 0 if is_root else 1000)
    assert (THIRD.runs_as_submitter, THIRD.runs_for_itself) == (is_root, not is_root)
    told = told_of(Place(str(tmp_path), "", "/run/danlu.sock"), THIRD)
    assert ("submits jobs to Third as" in told) is not is_root


def test_its_own_section_is_checked_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    a_third_engine(monkeypatch, check_section=seen.append)
    config = tmp_path / "danlu.toml"
    config.write_text("[engine]\nkind = 'local'\n")
    load_settings(str(config), {})
    assert seen == [None], "the file has no section of that name"


def test_a_cluster_without_an_engine_is_refused_with_those_that_there_are() -> None:
    unplayed = replace(THIRD, engine=EngineSettings(kind="kubernetes"))
    assert not unplayed.abilities.places
    with pytest.raises(Refused, match='"kubernetes", and this version runs jobs with "local" and "slurm" only'):
        fake_cluster.refuse_unplayed(unplayed, "danlu.toml")
