"""One installation a test, and what a test needs of the machine."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.installation import Installation, made_and_removed

Settings = Callable[..., None]


@pytest.fixture
def here(own_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """A fresh installation; commands and clients of this test mean it."""
    with made_and_removed() as made:
        monkeypatch.setenv("DANLU_HOME", str(made.home))
        for name in ("PYTHONDONTWRITEBYTECODE", "PWD", "OLDPWD"):
            monkeypatch.delenv(name, raising=False)
        yield made


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """`settings(ENGINE_CPUS=8)`: as in the configuration file, for servers that start from now on."""

    def put(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"DANLU_{name}", str(value))

    return put


@pytest.fixture
def as_root() -> None:
    """For tests that mount or change users: loudly skipped elsewhere, and a failure where CI is set."""
    if os.getuid() != 0:
        missing = "only root can mount and change users, so this was NOT TESTED"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
