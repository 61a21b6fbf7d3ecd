"""Folders of people and teams, made on a real disk."""

import os
import stat
from pathlib import Path

import pytest

from danlu.errors import Invalid
from danlu.provision.homes import make_home, make_team_folder, path_of


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_is_its_persons_alone(tmp_path: Path) -> None:
    made = make_home(f"{tmp_path}/{{user}}", "li", as_submitter=False)
    assert (made.path, made.is_made, made.said) == (str(tmp_path / "li"), True, "")
    assert mode_of(tmp_path / "li") == 0o700


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "li"
    home.mkdir(mode=0o755)
    (home / "data").write_text("kept")
    made = make_home(f"{tmp_path}/{{user}}", "li", as_submitter=False)
    assert (made.is_made, made.said) == (False, "it was there already")
    assert mode_of(home) == 0o755
    assert (home / "data").read_text() == "kept"


def test_deeper_folders_are_made_and_the_place_itself_is_not(tmp_path: Path) -> None:
    made = make_home(f"{tmp_path}/{{user}}/work/x", "li", as_submitter=False)
    assert made.is_made
    assert (tmp_path / "li" / "work" / "x").is_dir()
    missing = make_home(f"{tmp_path}/nowhere/{{user}}", "li", as_submitter=False)
    assert (missing.is_made, missing.said) == (False, "not made: No such file or directory")
    assert not (tmp_path / "nowhere").exists()


def test_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    place = tmp_path / "place"
    place.mkdir()
    (place / "li").symlink_to(target)
    made = make_home(f"{place}/{{user}}/inside", "li", as_submitter=False)
    assert not made.is_made
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    "template",
    ["/mnt/{user}/../../etc", "/mnt/../{user}", "mnt/{user}", "/mnt/./{user}", "/mnt/same", "/mnt/{user}/{nobody}", ""],
)
def test_templates_that_leave_their_place_are_refused(template: str) -> None:
    with pytest.raises(Invalid):
        path_of(template, user="li")


@pytest.mark.parametrize("name", ["..", "../etc", "a/b", "", ".", "Li", "li\n", "-rf", "{team}"])
def test_names_that_are_paths_are_refused(tmp_path: Path, name: str) -> None:
    if name:
        with pytest.raises(Invalid):
            make_home(f"{tmp_path}/{{user}}", name, as_submitter=False)
        with pytest.raises(Invalid):
            make_team_folder(f"{tmp_path}/{{team}}", name, as_submitter=False)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_an_unknown_unix_user_is_said_and_not_made(tmp_path: Path) -> None:
    made = make_home(f"{tmp_path}/{{user}}", "no-such-person", as_submitter=True)
    assert "knows no user `no-such-person`" in made.said
    made = make_team_folder(f"{tmp_path}/{{team}}", "no-such-team", as_submitter=True)
    assert "knows no group `no-such-team`" in made.said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away, so this was NOT TESTED")
def test_folders_belong_to_whom_they_are_for(tmp_path: Path) -> None:
    assert (
        make_home(f"{tmp_path}/u/{{user}}", "daemon", as_submitter=True).said == "not made: No such file or directory"
    )
    made = make_home(f"{tmp_path}/{{user}}/work", "daemon", as_submitter=True)
    assert made.said == ""
    for folder in (tmp_path / "daemon", tmp_path / "daemon" / "work"):
        assert (folder.owner(), folder.group(), mode_of(folder)) == ("daemon", "daemon", 0o700)
    (tmp_path / "bin").mkdir()
    assert "belongs to somebody else" in make_home(f"{tmp_path}/{{user}}", "bin", as_submitter=True).said
    assert (tmp_path / "bin").owner() == "root"
    team = make_team_folder(f"{tmp_path}/{{team}}-team", "users", as_submitter=True)
    assert team.said == ""
    assert ((tmp_path / "users-team").group(), mode_of(tmp_path / "users-team")) == ("users", 0o2770)
