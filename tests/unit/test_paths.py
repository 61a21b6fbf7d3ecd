"""Folders of sockets, where others may have made them first."""

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from danlu import paths
from danlu.client.session import Wire
from danlu.errors import Refused

OTHER = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make folders of others")


@pytest.fixture
def long_state() -> Iterator[str]:
    """A state folder with a path too long for a socket. The fixture removes its socket folder in /tmp, too."""
    state = f"/nowhere/{uuid.uuid4().hex}/" + "x" * 100
    first = paths.runtime_dir(state)
    yield state
    for name in (first, *(f"{first}-{number}" for number in range(1, paths.MOST_TRIES))):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name) if os.path.islink(name) else os.rmdir(name)


def test_the_same_folder_is_found_again(long_state: str) -> None:
    made = paths.make_private(paths.runtime_dir(long_state))
    assert made.startswith(f"/tmp/danlu-{os.getuid()}-")
    assert os.stat(made).st_mode & 0o777 == 0o700
    assert paths.runtime_dir(long_state) == made


@needs_root
@pytest.mark.parametrize("trap", ["folder", "link", "file"])
def test_what_another_user_made_first_is_passed_by(long_state: str, tmp_path: Path, trap: str) -> None:
    first = paths.runtime_dir(long_state)
    if trap == "folder":
        os.mkdir(first, 0o700)
    elif trap == "link":
        os.symlink(tmp_path, first)
    else:
        os.close(os.open(first, os.O_CREAT))
    os.chown(first, OTHER, OTHER, follow_symlinks=False)
    made = paths.make_private(paths.runtime_dir(long_state))
    assert made == f"{first}-1"
    (os.rmdir if trap == "folder" else os.unlink)(first)
    assert paths.runtime_dir(long_state) == made, "also when the other one is gone again"


@needs_root
def test_if_others_made_them_all_nothing_is_trusted(long_state: str) -> None:
    first = paths.runtime_dir(long_state)
    for name in (first, *(f"{first}-{number}" for number in range(1, paths.MOST_TRIES))):
        os.mkdir(name, 0o700)
        os.chown(name, OTHER, OTHER)
    assert paths.runtime_dir(long_state) == first
    with pytest.raises(PermissionError, match="belongs to another user"):
        paths.make_private(first)
    with pytest.raises(PermissionError, match="uid 65534 has made it"):
        paths.check_owned(first)


@needs_root
def test_a_command_says_nothing_to_a_socket_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DANLU_HOME", str(tmp_path))
    for name in ("DANLU_SERVER", "DANLU_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "run").mkdir(mode=0o755)
    os.chown(tmp_path / "run", OTHER, OTHER)
    with socket.socket(socket.AF_UNIX) as trap:
        monkeypatch.chdir(tmp_path / "run")
        trap.bind("server.sock")
        trap.listen()
        trap.setblocking(False)
        for server in ("", f"unix://{tmp_path}/run/server.sock"):
            with Wire(server) as wire, pytest.raises(Refused, match="your server's socket cannot be trusted"):
                wire.ask("GET", "/jobs")
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(PermissionError, match="only you may write to"):
        paths.check_owned(str(tmp_path))
    tmp_path.chmod(0o750)
    paths.check_owned(str(tmp_path))
    paths.check_owned(str(tmp_path / "missing"))
