"""The folder that all nodes of a cluster see: one that is not mounted is not taken for a new one."""

import os
import shutil
from pathlib import Path

import pytest

from danlu.errors import Refused
from danlu.startup.process import Place, make_folders


def test_a_shared_folder_that_is_not_the_one_of_before_is_refused(tmp_path: Path) -> None:
    shared, away = tmp_path / "shared", tmp_path / "away"
    place = Place(str(tmp_path / "state"), str(tmp_path / "run/danlu.sock"), shared_dir=str(shared))
    for _ in range(2):
        make_folders(place)
    shared.rename(away)
    with pytest.raises(Refused, match="not the shared folder that this server used before") as caught:
        make_folders(place)
    assert "is it mounted?" in caught.value.hint
    assert not shared.exists(), "nothing was made where it should be mounted"
    shared.mkdir()
    with pytest.raises(Refused):
        make_folders(place)
    shutil.rmtree(shared)
    away.rename(shared)
    make_folders(place)
    (tmp_path / "state/shared.id").unlink()  # as the hint says
    shared.rename(away)
    make_folders(place)
    assert (shared / "logs").is_dir()


def test_jobs_of_others_can_pass_to_a_shared_folder_that_was_made_for_them(tmp_path: Path) -> None:
    before, state = tmp_path / "before", tmp_path / "own/state"
    before.mkdir(mode=0o700)
    shared = before / "new/deep/danlu"
    mask = os.umask(0o077)
    try:
        make_folders(Place(str(state), str(state / "run/danlu.sock"), shared_dir=str(shared)))
    finally:
        os.umask(mask)
    made = {path: path.stat().st_mode & 0o777 for path in (before, before / "new", before / "new/deep", shared)}
    assert list(made.values()) == [0o700, 0o755, 0o755, 0o700], made
    assert (state.parent.stat().st_mode & 0o777, state.stat().st_mode & 0o777) == (0o700, 0o700)
