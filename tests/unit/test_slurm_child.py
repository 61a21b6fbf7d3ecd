"""Commands that belong to somebody who may mean harm: they end, and little of what they say is kept."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from danlu.engines.slurm.child import MOST_BYTES, run_child
from danlu.engines.slurm.commands import USUAL_PATH, Commands, Person, become
from danlu.engines.slurm.streams import CHUNK, open_stream
from danlu.unix import become as unix_become
from danlu.unix.become import Trash, as_user, remove

ENV = {"PATH": "/usr/bin:/bin"}
LONG_S = 60.0
REMOVAL_STOPPER = 54330  # as STOPPER
STOPPER = 54329  # no other test has processes of this user: whatever is theirs is stopped
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")


def run(script: str, stdin: bytes = b"", patience_s: float = LONG_S) -> tuple[int, bytes, bytes]:
    return run_child("/bin/sh", ["/bin/sh", "-c", script], ENV, stdin, patience_s)


def test_what_it_reads_and_says() -> None:
    assert run("cat; echo bad >&2; exit 3", b"in") == (3, b"in", b"bad\n")
    assert run("kill -9 $$")[0] == -9
    big = os.urandom(1 << 20)
    assert run("sha256sum", big)[1].split()[0].decode() == hashlib.sha256(big).hexdigest()
    assert run("exec true", big) == (0, b"", b""), "one that does not read its input"


def test_it_is_over_when_its_process_is() -> None:
    """Its user may open its pipes, and keep them."""
    began = time.monotonic()
    code, out, _ = run(f"echo 17; sleep {LONG_S:.0f} & exit 0")
    assert (code, out) == (0, b"17\n")
    assert time.monotonic() - began < LONG_S


def test_a_flood_is_not_kept() -> None:
    code, out, said = run("head -c 50000000 /dev/zero & yes >&2 & sleep 1; kill $!; exit 0")
    assert (code, len(out), len(said)) == (0, MOST_BYTES, MOST_BYTES)


def test_one_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(f"echo $$ > {tmp_path}/pid; kill -STOP $$", patience_s=1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("path", ["", ".", ":", "bin:./bin", "::"])
def test_root_runs_nothing_from_where_it_happens_to_be(path: str) -> None:
    assert Commands(path=f"{path}:/usr/bin" if path else "/usr/bin").path == "/usr/bin"
    assert Commands(path=path or "bin").path == USUAL_PATH


def test_a_command_gets_nothing_of_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_PARTITION", "SLURM_JOB_NAME", "LD_PRELOAD", "DANLU_STORE_URL", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "x")
    person = Person("li", 1001, 1001, "/home/li", "/bin/sh")
    assert set(Commands(path="/usr/bin", conf="/etc/slurm/slurm.conf").env(person)) == {
        "PATH", "LANG", "SLURM_CONF", "HOME", "USER", "LOGNAME", "SHELL",
    }  # fmt: skip


def test_nobody_but_root_becomes_another() -> None:
    me = Person("me", os.getuid(), os.getgid(), "/", "/bin/sh")
    other = Person("games", os.getuid() + 1, 60, "/", "/bin/sh")
    assert become(me, "/bin/true", ["true"]) == ("/bin/true", ["true"])
    with pytest.raises(FileNotFoundError):
        become(me, "sbatch", ["sbatch"])
    if os.getuid() != 0:
        with pytest.raises(PermissionError, match="only a server with root rights"):
            become(other, "/bin/true", ["true"])


@needs_root
@pytest.mark.parametrize("name", ["called", "/bin/sh"])  # only our own program gives another name, setpriv does not
def test_who_becomes_another_has_no_right_of_ours_left(name: str) -> None:
    shown = "id -u; id -g; id -G; echo $0; sed -n 's/^\\(Cap[PE]..\\|SigIgn\\):\\s*//p' /proc/self/status"
    words = as_user(54320, 54322, [54322, 54323], "/bin/sh", [name, "-c", shown])
    code, out, said = run_child(*words, ENV, b"", LONG_S)
    assert (code, said) == (0, b"")
    *who, ignored, permitted, effective = out.decode().split()
    assert who == ["54320", "54322", "54322", "54323", name]
    assert (int(permitted, 16), int(effective, 16)) == (0, 0)
    pythons_own = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert not int(ignored, 16) & pythons_own, "what else is ignored may be the habit of whoever started us"


@needs_root
def test_a_child_that_its_user_stops_before_it_is_the_command_holds_nobody_up(tmp_path: Path) -> None:
    """They stop whatever is theirs as soon as it is: a `Popen(user=…)` would soon not come back."""
    script = f"echo > {tmp_path}/ready; while :; do kill -STOP -1; done"
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:-2]:
        folder.chmod(folder.stat().st_mode | 0o711)
    program, words = as_user(STOPPER, STOPPER, (), "/bin/sh", ["sh", "-c", script])
    with subprocess.Popen(words, executable=program, env=ENV, stderr=subprocess.DEVNULL) as stopper:
        try:
            while not (tmp_path / "ready").exists():
                time.sleep(0.01)
            for _ in range(5):
                began = time.monotonic()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run_child(*as_user(STOPPER, STOPPER, (), "/bin/sleep", ["sleep", "60"]), ENV, b"", 0.3)
                assert time.monotonic() - began < LONG_S / 2
        finally:
            stopper.kill()


@needs_root
def test_nothing_is_removed_that_its_owner_could_not_remove(tmp_path: Path) -> None:
    left = tmp_path / "left"
    (left / "mine/theirs").mkdir(parents=True)
    (left / "mine/theirs/kept").touch()
    for path, uid in ((left, 54321), (left / "mine", 54321), (left / "mine/theirs", 54322)):
        os.chown(path, uid, uid)
    with pytest.raises(OSError, match="mine"):
        remove(str(left))
    assert (left / "mine/theirs/kept").exists()


def test_what_a_run_left_is_removed_however_deep(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (left / "link").symlink_to(outside)
    (left / "closed").mkdir()
    (left / "closed/file").touch()
    (left / "closed").chmod(0)
    for at in range(200):
        (left / f"file{at}").touch()
    # Deeper than a path may be long, and than Python may call itself.
    here = os.open(left, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    left.chmod(0)
    remove(str(left))
    assert not left.exists()
    assert (outside / "kept").exists()


def test_trash_is_emptied_behind_everybodys_back(tmp_path: Path) -> None:
    trash = Trash(str(tmp_path / "trash"))
    trash.open()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        trash.take(str(tmp_path / name))
    trash.take(str(tmp_path / "gone"))
    assert not (tmp_path / "a").exists()
    trash.empty()
    limit = time.monotonic() + LONG_S
    while any((tmp_path / "trash").iterdir()):
        assert time.monotonic() < limit
        trash.empty()
        time.sleep(0.01)


def test_a_word_that_has_no_end_is_not_kept_either() -> None:
    """Somebody inside a run speaks under the name that only its srun should have."""
    endless = f"printf '%s: ' \"$0\" >&2; head -c {4 * CHUNK} /dev/zero | tr '\\0' x >&2; sleep {LONG_S:.0f}"

    async def scenario() -> None:
        stream = open_stream(["/bin/sh", "-c", endless], ENV, Person.named(""), 2.0, tty=False, rows=0, columns=0)
        try:
            heard = 0
            async with asyncio.timeout(LONG_S / 4):
                while heard < 2 * CHUNK:
                    said = await stream.read()
                    assert said
                    heard += len(said[1])
        finally:
            await stream.close()

    asyncio.run(scenario())


@needs_root
def test_a_removal_that_its_owner_stops_is_killed_within_seconds(tmp_path: Path) -> None:
    """With what it has started: the owner can stop each process that has the owner's rights."""
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:-2]:
        folder.chmod(folder.stat().st_mode | 0o711)
    left = tmp_path / "left"
    (left / "deep").mkdir(parents=True)
    for path in (left, left / "deep"):
        os.chown(path, REMOVAL_STOPPER, REMOVAL_STOPPER)
    script = f"echo > {tmp_path}/ready; while :; do kill -STOP -1; done"
    program, words = as_user(REMOVAL_STOPPER, REMOVAL_STOPPER, (), "/bin/sh", ["sh", "-c", script])
    with subprocess.Popen(words, executable=program, env=ENV, stderr=subprocess.DEVNULL) as stopper:
        try:
            while not (tmp_path / "ready").exists():
                time.sleep(0.01)
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                remove(str(left), patience_s=1.0)
            alive = subprocess.run(["pgrep", "-u", str(REMOVAL_STOPPER)], capture_output=True, check=False).stdout
            assert alive.split() == [str(stopper.pid).encode()]
        finally:
            stopper.kill()


def test_what_a_person_holds_up_delays_nobody_elses_removal_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that took too long is tried again by itself, and its owner has one turn in each round."""
    trash = Trash(str(tmp_path / "trash"), retry_s=0.05)
    trash.open()
    turns: list[str] = []

    def removal(path: str) -> None:
        turns.append(path)
        if len(turns) == 1:
            raise subprocess.TimeoutExpired("find", 20)
        shutil.rmtree(path)

    monkeypatch.setattr(unix_become, "remove", removal)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        trash.take(str(tmp_path / name))
    trash.empty()
    until = time.monotonic() + LONG_S
    while any((tmp_path / "trash").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(turns) == 3
