"""Groups of runs: one is given to the next run only when nobody is left in it."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from danlu.engines.local.keeper import cgroups
from danlu.engines.local.keeper.cgroups import Group, Groups


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups(f"test{os.getpid()}", "on")
    if not made.pools:
        missing = "this user may not make groups in cgroups of version 2, so they were NOT TESTED"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    yield made
    made.close()


@contextlib.contextmanager
def inhabit(group: Group) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            Path(group.path, "cgroup.procs").write_text(str(process.pid))
            yield process
        finally:
            process.kill()


def test_a_group_with_somebody_in_it_is_not_given_again(groups: Groups) -> None:
    group = groups.take()
    assert group
    with inhabit(group) as survivor:
        groups.give_back(group)
        other = groups.take()
        assert other
        assert other.path != group.path
        groups.give_back(other)
        until = time.monotonic() + 60
        while groups.leaving:
            assert time.monotonic() < until
            groups.tidy()
            survivor.poll()
    assert not os.path.exists(group.path)


def test_without_cgroup_kill_a_group_is_frozen_and_emptied(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    write = cgroups._try_write
    monkeypatch.setattr(cgroups, "_try_write", lambda path, text: not path.endswith(".kill") and write(path, text))
    group = groups.take()
    assert group
    with inhabit(group) as survivor:
        assert not group.is_empty()
        group.kill()
        assert survivor.wait(60) == -9
    until = time.monotonic() + 60
    while not group.is_empty():
        assert time.monotonic() < until
    groups.give_back(group)
    assert groups.take() is group
    with inhabit(group):
        assert Path(group.path, "cgroup.freeze").read_text().strip() == "0"
    groups.give_back(group)
