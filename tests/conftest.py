"""What several kinds of tests need."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test ever meets the real installation of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("DANLU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DANLU_HOME", str(home / "danlu"))
    return home
