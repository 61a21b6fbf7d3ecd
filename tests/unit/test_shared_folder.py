"""The folder that all nodes of a cluster see: one that is not mounted is not taken for a new one."""

import shutil
from pathlib import Path

import pytest

from danlu.boot import Place, make_folders
from danlu.errors import Refused


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
