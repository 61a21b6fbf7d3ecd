"""Code at submit: what git does not ignore, each content once."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from danlu.client import Client
from danlu.errors import Refused
from tests.app.fake_server import FakeServer, Request, Talk, server_at


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    (tmp_path / "run").mkdir()
    found = server_at(tmp_path / "run")

    def announced(request: Request, talk: Talk) -> None:
        talk.answer({"id": "snap1", "missing": sorted({digest for *_, digest in request.json["files"]})})

    found.on("POST /snapshots", announced)
    yield found
    found.stop()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "pkg/a.py").write_text("same")
    (folder / "pkg/b.py").write_text("same")
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("train.py")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/x.pyc").write_text("x")
    (folder / "data.bin").write_text("x" * 3000)
    return folder


def uploaded(server: FakeServer, client: Client, folder: Path, **options: int) -> dict[str, tuple[int, int]]:
    def stored(request: Request, talk: Talk) -> None:
        assert request.path == f"/blobs/{hashlib.sha256(request.body).hexdigest()}"
        talk.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    for path in folder.rglob("*"):
        if path.is_file() or path.is_symlink():
            content = b"train.py" if path.is_symlink() else path.read_bytes()
            server.on(f"PUT /blobs/{hashlib.sha256(content).hexdigest()}", stored)
    assert client.snapshot(str(folder), **options) == "snap1"
    return {path: (mode, size) for path, mode, size, _ in server.asked("POST /snapshots")[0].json["files"]}


def test_without_git_all_but_the_usual_rubbish_is_copied(server: FakeServer, code: Path) -> None:
    assert uploaded(server, Client(server.url), code) == {
        "train.py": (0o100644, 8),
        "pkg/a.py": (0o100644, 4),
        "pkg/b.py": (0o100644, 4),
        "run.sh": (0o100755, 9),
        "link": (0o120000, 8),
        "data.bin": (0o100644, 3000),
    }
    puts = [request.path for request in server.requests if request.method == "PUT"]
    assert len(puts) == len(set(puts)) == 5


def test_with_git_what_is_ignored_stays_behind(server: FakeServer, code: Path) -> None:
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    (code / ".gitignore").write_text("*.bin\n__pycache__\n")
    (code / "gone.py").write_text("x")
    subprocess.run(["git", "-C", str(code), "add", "train.py", "gone.py"], check=True)
    (code / "gone.py").unlink()
    found = uploaded(server, Client(server.url), code)
    assert sorted(found) == [".gitignore", "link", "pkg/a.py", "pkg/b.py", "run.sh", "train.py"]


def test_too_much_is_refused_with_the_largest_files(server: FakeServer, code: Path) -> None:
    with pytest.raises(Refused, match=r"largest: data.bin \(0.0 MiB\), run.sh") as refused:
        Client(server.url).snapshot(str(code), limit=1000)
    assert "--snapshot-limit" in refused.value.hint
    assert not server.requests


def test_only_what_the_server_lacks_is_sent(server: FakeServer, code: Path) -> None:
    server.on("POST /snapshots", {"id": "snap1", "missing": []})
    Client(server.url).snapshot(str(code))
    assert [request.method for request in server.requests] == ["POST"]
