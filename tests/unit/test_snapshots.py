"""Code snapshots: kept once, laid out whole, never outside their folder."""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from danlu.errors import Invalid, NotFound, Refused, TooBig
from danlu.provision.paths import remove_run_folders, run_folder_of
from danlu.provision.snapshots import SnapshotFile, SnapshotShelf, check_manifest
from tests.builders import job

REGULAR, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120777


def file(path: str, content: bytes = b"x", mode: int = REGULAR) -> SnapshotFile:
    return SnapshotFile(path, mode, len(content), hashlib.sha256(content).hexdigest())


def test_files_links_and_modes_come_out_as_they_went_in(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path / "shelf"))
    files = [file("a/b.py", b"print(1)"), file("run.sh", b"#!/bin/sh", EXECUTABLE), file("link", b"a/b.py", LINK)]
    snapshot_id, missing = shelf.add(files)
    assert len(missing) == 3
    for content in (b"print(1)", b"#!/bin/sh", b"a/b.py"):
        shelf.put_blob(hashlib.sha256(content).hexdigest(), [content])
    shelf.check(snapshot_id)
    target = tmp_path / "run"
    shelf.lay_out(snapshot_id, str(target))
    assert (target / "a/b.py").read_bytes() == b"print(1)"
    assert os.access(target / "run.sh", os.X_OK)
    assert os.readlink(target / "link") == "a/b.py"


def test_the_same_content_is_sent_once(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path))
    shelf.put_blob(hashlib.sha256(b"same").hexdigest(), [b"same"])
    first, missing = shelf.add([file("a", b"same"), file("b", b"same")])
    assert missing == []
    assert shelf.add([file("b", b"same"), file("a", b"same")])[0] == first


def test_bytes_that_lie_about_their_checksum_are_refused(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path))
    with pytest.raises(Invalid):
        shelf.put_blob("0" * 64, [b"not zero"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_incomplete_snapshot_is_refused_with_the_name_of_what_is_missing(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path))
    snapshot_id, _ = shelf.add([file("train.py")])
    with pytest.raises(NotFound, match=r"train\.py"):
        shelf.check(snapshot_id)
    with pytest.raises(NotFound):
        shelf.check("../../etc/passwd")


@pytest.mark.parametrize(
    "files",
    [
        [file("/etc/passwd")],
        [file("../up")],
        [file("a/../../up")],
        [file("")],
        [file("a\0b")],
        [file("dir", mode=0o040755)],
        [file("device", mode=0o060644)],
        [file("a"), file("a", b"other")],
        [file("a", b"/etc", LINK), file("a/passwd")],
        [SnapshotFile("a", REGULAR, 1, "../../x")],
        [file("a", mode=1 << 70)],
        [file("a", mode=-1)],
        [file("n" * 256)],
        [file("\u5c71" * 86)],
        [file("/".join(["deep"] * 700))],
        [file("half-\ud800")],
        [file("link", b"x" * 5000, LINK)],
        [file("link", b"", LINK)],
    ],
)
def test_whatever_could_leave_its_folder_is_refused(files: list[SnapshotFile]) -> None:
    with pytest.raises(Invalid):
        check_manifest(files, limit_bytes=10**6)


def test_what_is_too_big_is_refused_with_its_size() -> None:
    with pytest.raises(TooBig, match="954 MiB, at most 1 MiB"):
        check_manifest([SnapshotFile("a", REGULAR, 10**9, "0" * 64)], limit_bytes=2**20)
    with pytest.raises(TooBig):
        check_manifest([SnapshotFile("a", REGULAR, 10**400, "0" * 64)], limit_bytes=2**20)


def test_a_half_made_folder_is_begun_again(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path / "shelf"))
    snapshot_id, _ = shelf.add([file("a")])
    shelf.put_blob(hashlib.sha256(b"x").hexdigest(), [b"x"])
    (tmp_path / "run.making").mkdir()
    (tmp_path / "run.making" / "rubbish").touch()
    shelf.lay_out(snapshot_id, str(tmp_path / "run"))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["a"]


def test_a_folder_is_given_away_after_all_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new owner could put a link to somebody's folder into it, and what is given next would be there."""
    shelf = SnapshotShelf(str(tmp_path / "shelf"))
    snapshot_id, _ = shelf.add([file("top"), file("a/b/c"), file("a/d")])
    shelf.put_blob(hashlib.sha256(b"x").hexdigest(), [b"x"])
    given: list[str] = []
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: given.append(path))
    shelf.lay_out(snapshot_id, str(tmp_path / "run"), owner=(1, 1))
    assert sorted(os.path.relpath(path, f"{tmp_path}/run.making") for path in given) == sorted(
        [".", "top", "a", "a/b", "a/b/c", "a/d"]
    )
    late = [(one, above) for at, one in enumerate(given) for above in given[:at] if one.startswith(f"{above}/")]
    assert not late


def test_a_snapshot_that_is_larger_than_announced_is_refused(tmp_path: Path) -> None:
    """The sizes are what its limit is about: one file of many names would fill the disk."""
    shelf = SnapshotShelf(str(tmp_path))
    content = b"x" * 1000
    digest = hashlib.sha256(content).hexdigest()
    files = [SnapshotFile(f"copy{number}", REGULAR, 1, digest) for number in range(5)]
    check_manifest(files, limit_bytes=10)
    snapshot_id, _ = shelf.add(files)
    shelf.put_blob(digest, [content])
    with pytest.raises(Invalid, match=r"announced with 1 bytes and has 1,000"):
        shelf.check(snapshot_id)


def assert_all_removed(work: Path) -> None:
    """At once from its place, and soon altogether."""
    assert {path.name for path in work.iterdir()} <= {".trash"}
    until = time.monotonic() + 60
    while list((work / ".trash").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_cannot_be_laid_out_leaves_nothing(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path / "shelf"))
    content = b"no\0where"
    snapshot_id, _ = shelf.add([file("a/b"), file("link", content, LINK)])
    for blob in (b"x", content):
        shelf.put_blob(hashlib.sha256(blob).hexdigest(), [blob])
    (tmp_path / "work").mkdir()
    with pytest.raises(ValueError, match="null"):
        shelf.lay_out(snapshot_id, str(tmp_path / "work/run"))
    assert_all_removed(tmp_path / "work")


def test_what_is_left_of_a_job_goes_however_deep_it_is(tmp_path: Path) -> None:
    gone = job("k3fz82aw")
    folder = Path(run_folder_of(str(tmp_path), gone.run_id))
    folder.mkdir(parents=True)
    folder.with_name(f"{folder.name}.making").mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_run_folders(str(tmp_path), gone)
    assert_all_removed(folder.parent)


# Room and sweeps


def kept(shelf: SnapshotShelf, **contents: bytes) -> str:
    """A whole snapshot on the shelf."""
    snapshot_id, missing = shelf.add([file(name, content) for name, content in contents.items()])
    for content in contents.values():
        if (sha := hashlib.sha256(content).hexdigest()) in missing:
            shelf.put_blob(sha, [content], size=len(content))
    shelf.check(snapshot_id)
    return snapshot_id


def age(folder: Path) -> None:
    """As if nothing had been used for two days."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 2 * 86400,) * 2)


def sizes(folder: Path) -> list[int]:
    return sorted(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_one_person_keeps_has_a_limit(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path))
    with pytest.raises(Refused, match=r"your snapshots take 0 MiB; 2\.0 MiB more would exceed the limit of 1 MiB"):
        shelf.add([file("big", b"x" * (2 << 20))], most_bytes=1 << 20)
    assert sizes(tmp_path) == [], "what is refused takes no room"
    blobs = [os.urandom(4096) for _ in range(12)]
    barrier = threading.Barrier(12)

    def put(content: bytes) -> bool:
        barrier.wait(20)
        try:
            shelf.put_blob(hashlib.sha256(content).hexdigest(), [content], size=len(content), most_bytes=5 * 4096)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(put, blobs)) == 5, "also if all come at once"
    again = SnapshotShelf(str(tmp_path))  # a server that was started again
    with pytest.raises(Refused):
        again.put_blob("0" * 64, [b""], size=1, most_bytes=5 * 4096)


def test_what_is_not_kept_or_comes_twice_takes_no_room(tmp_path: Path) -> None:
    shelf, content = SnapshotShelf(str(tmp_path)), b"same"
    sha, most = hashlib.sha256(content).hexdigest(), 2 * 4096
    for _ in range(3):
        with pytest.raises(Invalid):
            shelf.put_blob("0" * 64, [content], size=len(content), most_bytes=most)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: shelf.put_blob(sha, [content], size=len(content), most_bytes=most), range(2)))
    shelf.put_blob(hashlib.sha256(b"other").hexdigest(), [b"other"], size=5, most_bytes=most)


def test_a_sweep_removes_what_no_job_needs_and_gives_its_room_back(tmp_path: Path) -> None:
    (tmp_path / "blobs" / "00").mkdir(parents=True)
    (tmp_path / "blobs" / "00" / f"{'0' * 64}.17.abcd").write_bytes(b"of an upload that was killed")
    shelf = SnapshotShelf(str(tmp_path))
    needed, _unneeded = kept(shelf, a=b"shared", b=b"needed"), kept(shelf, a=b"shared", c=b"u" * 5000)
    age(tmp_path)
    young = kept(shelf, d=b"young")
    shelf.sweep({needed}, time.time() - 86400)
    for snapshot_id in (needed, young):
        shelf.check(snapshot_id)
    assert len(sizes(tmp_path)) == 5  # two lists, three blobs
    with pytest.raises(Refused):
        shelf.put_blob("0" * 64, [b""], size=1, most_bytes=5 * 4096)
    shelf.put_blob(hashlib.sha256(b"new").hexdigest(), [b"new"], size=3, most_bytes=6 * 4096)


def test_a_sweep_leaves_what_is_submitted_or_uploaded_beside_it(tmp_path: Path) -> None:
    shelf = SnapshotShelf(str(tmp_path))
    submitted, other = kept(shelf, a=b"submitted"), kept(shelf, b=b"other")
    kept(shelf, c=b"again")
    age(tmp_path)
    steps, done = count(1), [submitted]

    def beside() -> None:
        """Between two steps of the sweep: one for each of three lists, then for each that is left."""
        step = next(steps)
        if step == 1:
            shelf.check(submitted)  # a submit, whose job the sweep does not know
        elif step == 4:
            # Two lists are left and read. The bytes of the third are still there, and an upload relies on them.
            snapshot_id, missing = shelf.add([file("d", b"again")])
            assert missing == []
            done.append(snapshot_id)

    shelf.sweep({other}, time.time() - 86400, beside)
    assert len(done) == 2
    for snapshot_id in (*done, other):
        shelf.check(snapshot_id)


def test_a_sweep_that_is_cut_off_anywhere_loses_nothing_that_a_job_needs(tmp_path: Path) -> None:
    class CutOffError(Exception):
        pass

    for steps in range(12):
        shelf = SnapshotShelf(str(tmp_path / str(steps)))
        needed = [kept(shelf, a=b"shared", b=b"%d" % number) for number in range(3)]
        for number in range(3):
            kept(shelf, a=b"shared", c=b"unneeded %d" % number)
        age(tmp_path)
        left = iter(range(steps))

        def go_on(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise CutOffError

        with contextlib.suppress(CutOffError):
            shelf.sweep(needed, time.time() - 86400, go_on)
        for snapshot_id in needed:
            shelf.check(snapshot_id)
        age(tmp_path)
        SnapshotShelf(shelf.folder).sweep(needed, time.time() - 86400)  # the next server ends what this one began
        assert len(sizes(Path(shelf.folder))) == 3 + 4
