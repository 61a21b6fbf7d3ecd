"""Who is a person on this machine, and who is the machine."""

import os
import pwd
from pathlib import Path

import pytest

from danlu.actions.jobs.run_as import RunAs, check_inside
from danlu.domain.people import Actor, Person, Role
from danlu.errors import DanluError, Refused
from danlu.paths import make_private
from danlu.state.people import Roster
from danlu.store.people_protocol import People
from danlu.unix import safe_folders
from danlu.unix.users import is_system_user, is_unix_user, lowest_uid
from tests.builders import NOW

PERSON = next((one.pw_name for one in pwd.getpwall() if lowest_uid() <= one.pw_uid < 65534), "")


def roster(*names: str) -> Roster:
    people = People(persons=tuple(Person(name, NOW) for name in names))
    return Roster(None, people)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "lowest"),
    [
        ("UID_MIN 500\n", 500),
        ("# UID_MIN 1\nUID_MIN\t\t  2000\nUID_MAX 60000\n", 2000),
        ("UID_MIN 0\n", 1000),
        ("UID_MIN x\n", 1000),
        ("", 1000),
    ],
)
def test_people_begin_where_the_machine_says(tmp_path: Path, text: str, lowest: int) -> None:
    file = tmp_path / "login.defs"
    file.write_text(text)
    assert lowest_uid(str(file)) == lowest
    assert lowest_uid(str(tmp_path / "none")) == 1000


def test_the_users_of_the_machine_are_none_of_the_people() -> None:
    for name in ("root", "daemon", "nobody", "games"):
        assert is_system_user(name), name
    assert not is_system_user("no-such-user-here")
    assert not is_unix_user("no-such-user-here")
    assert not is_unix_user("")
    assert not is_unix_user("a\0b")
    if PERSON:
        assert not is_system_user(PERSON)


def refusal(run_as: RunAs, user: str) -> str:
    try:
        run_as.check(user)
    except DanluError as error:
        return error.code
    return ""


def test_an_account_runs_nothing_as_a_user_of_the_machine() -> None:
    """Whoever holds the account `slurm` or `daemon` is somebody else's choice, an administrator's of Danlu."""
    people = roster("daemon", "nobody", "ghost", *([PERSON] if PERSON else []))
    run_as = RunAs("root", as_submitter=True, roster=people)
    assert refusal(run_as, "daemon") == "system_user"
    assert refusal(run_as, "nobody") == "system_user"
    assert refusal(run_as, "ghost") == "no_unix_user"
    assert refusal(run_as, "games") == "", "without an account it is the kernel that says so"
    assert refusal(run_as, "root") == ""
    if PERSON:
        assert refusal(run_as, PERSON) == ""
    # Where all jobs are of the server's own user, a name is only a name.
    assert refusal(RunAs("root", roster=people), "daemon") == ""


def test_a_server_that_is_not_roots_submits_for_itself() -> None:
    run_as = RunAs("games", is_shut=True)
    assert refusal(run_as, "games") == ""
    assert refusal(run_as, "daemon") == "not_root"
    with pytest.raises(DanluError, match="only as games"):
        run_as.check("daemon")


def test_nobody_enters_a_job_of_the_machine_but_itself_and_root() -> None:
    check_inside(Actor("daemon"), "daemon")
    check_inside(Actor("root", Role.ADMIN), "daemon")
    check_inside(Actor("chief", Role.ADMIN), "li")
    for who in ("chief", "games"):
        with pytest.raises(DanluError, match="entered by that user and by root only"):
            check_inside(Actor(who, Role.ADMIN), "root")


def test_a_folder_that_another_could_replace_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "lab"
    folder = above / "danlu"
    folder.mkdir(parents=True)
    safe_folders.check_out_of_reach(str(folder))
    for mode in (0o777, 0o775):
        above.chmod(mode)
        with pytest.raises(Refused, match="others may write to") as refused:
            safe_folders.check_out_of_reach(str(folder))
        assert f"chmod +t {above}" in (refused.value.hint or "")
        above.chmod(mode | 0o1000)
        safe_folders.check_out_of_reach(str(folder))
    above.chmod(0o755)
    # What a link leads to counts as well as where it is.
    elsewhere = tmp_path / "open"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    (elsewhere / "danlu").mkdir()
    (above / "link").symlink_to(elsewhere / "danlu")
    with pytest.raises(Refused, match="others may write to"):
        safe_folders.check_out_of_reach(str(above / "link"))
    with pytest.raises(Refused, match="others may write to"):
        safe_folders.check_out_of_reach(str(elsewhere / "not-yet/danlu"))
    safe_folders.check_out_of_reach(str(above / "not-yet/danlu"))
    if os.getuid() == 0:
        os.chown(above / "link", 5, 5, follow_symlinks=False)
        elsewhere.chmod(0o755)
        with pytest.raises(Refused, match="belongs to another user"):
            safe_folders.check_out_of_reach(str(above / "link"))
        os.chown(above, 5, 5)
        with pytest.raises(Refused, match="belongs to another user"):
            safe_folders.check_out_of_reach(str(folder))


def test_root_must_be_root_in_the_shared_folder(tmp_path: Path) -> None:
    if os.getuid() != 0:
        with pytest.raises(Refused, match="give files away"):
            safe_folders.check_gives_away(str(tmp_path))
        return
    safe_folders.check_gives_away(str(tmp_path))
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link away")
def test_no_folder_is_made_private_through_somebodys_link(tmp_path: Path) -> None:
    """What root keeps in /tmp has a name that all can guess, and make first."""
    for_all, link = tmp_path / "etc", tmp_path / "danlu-0-0123456789ab"
    for_all.mkdir(mode=0o755)
    link.symlink_to(for_all)
    os.lchown(link, 54321, 54321)
    with pytest.raises(PermissionError, match="a link of another user"):
        make_private(str(link))
    assert for_all.stat().st_mode & 0o777 == 0o755
    os.lchown(link, 0, 0)
    make_private(str(link))
