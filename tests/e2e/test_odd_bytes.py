"""Output, names and folders that are no text, and commands that cannot be run."""

import os
import shutil
import subprocess

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import DANLU, Installation, eventually

# Latin-1, a lone continuation byte, and what Python writes for it: none of it is UTF-8.
ODD = b"caf\xe9 \xff\xfe\x80\xed\xb3\xbf \xf0\x9f\x98"
WAITS = "{says}; while [ ! -e door ]; do sleep 0.05; done"


def read_until(begun: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    assert begun.stdout
    seen = b""
    while wanted not in seen:
        piece = os.read(begun.stdout.fileno(), 1 << 16)
        assert piece, f"it ended after {seen!r}"
        seen += piece
    return seen


def test_output_without_a_newline_shows_at_once(here: Installation) -> None:
    watching = here.begin("run", "--", "sh", "-c", WAITS.format(says="printf '50 %%'"))
    assert read_until(watching, b"50 %") == b"50 %"
    following = here.begin("logs", "-f", "@")
    assert read_until(following, b"50 %") == b"50 %"
    here.until("@", "RUNNING")  # it was shown before its end
    assert watching.poll() is None
    (here.work / "door").touch()
    assert watching.communicate(timeout=60)[0] == b""
    assert following.communicate(timeout=60)[0] == b""
    assert (watching.returncode, following.returncode) == (0, 0)


def test_every_byte_of_the_output_arrives_unharmed(here: Installation) -> None:
    every = bytes(range(256)) * 300 + ODD
    (here.work / "bytes").write_bytes(every)
    assert here.danlu("run", "--", "cat", "bytes").out == every
    assert here.danlu("logs", "@").out == every
    assert here.client().logs("@").bytes() == every


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_arguments_names_and_folders_that_are_no_text(here: Installation, locale: str) -> None:
    folder = os.fsencode(here.work) + b"/" + ODD
    os.mkdir(folder)
    with open(folder + b"/" + ODD, "wb") as file:
        file.write(b"inside")
    env = {"LC_ALL": locale}
    words = [b"sh", b"-c", b'printf "%s|" "$@"; pwd; cat "$1"; printf "|%s" "$ODD"', b"sh", ODD, b""]
    done = here.danlu("run", "--name", ODD, "--env", b"ODD=" + ODD, "--", *words, cwd=folder, env=env)
    assert done.out == ODD + b"||" + folder + b"\ninside|" + ODD
    chosen = here.danlu("run", "--workdir", ODD, "--", "pwd", env=env)
    assert chosen.out == folder + b"\n"
    for command in ("ps", "show", "why"):
        refs = [] if command == "ps" else ["@~1"]
        assert here.danlu(command, *refs, env=env).out
    shown = here.danlu("show", "@~1", "--json", env=env).json()
    assert os.fsencode(shown["workdir"]) == folder
    assert os.fsencode(shown["command"][4]) == ODD
    assert os.fsencode(shown["name"]) == ODD
    clone = here.danlu("clone", "@~1", env=env).text
    here.danlu("wait", clone, "--quiet", env=env)
    assert here.danlu("logs", clone, env=env).out == done.out


def test_a_snapshot_keeps_names_that_are_no_text(here: Installation) -> None:
    with open(os.fsencode(here.work) + b"/" + ODD, "wb") as file:
        file.write(ODD)
    assert here.danlu("run", "--snapshot", "--", "cat", ODD).out == ODD


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("no-such-command-anywhere", 127, "command not found on the job's PATH: no-such-command-anywhere"),
        ("./missing", 127, "command not found: ./missing"),
        ("./plain", 126, "the command is not executable: ./plain"),
        ("./folder", 126, "the command is a folder: ./folder"),
        ("./bad-interpreter", 126, "the interpreter named in the first line of ./bad-interpreter does not exist"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(here: Installation, command: str, code: int, sentence: str) -> None:
    (here.work / "plain").write_text("#!/bin/sh\n")
    (here.work / "folder").mkdir()
    (here.work / "bad-interpreter").write_text("#!/no/such/thing\n")
    (here.work / "bad-interpreter").chmod(0o755)
    done = here.danlu("run", "--", command, "--option", code=code)
    assert sentence in done.talk
    assert sentence.encode() in done.out, "the log says it too"
    shown = here.show("@")
    assert (shown["state"], shown["exit_code"]) == ("FAILED", code)
    assert sentence in shown["reason"]["text"]
    assert here.danlu("run", "--", "echo", "well").out == b"well\n"


def test_a_folder_that_goes_away_while_the_job_waits(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=1)
    folder = here.work / "project"
    folder.mkdir()
    first = here.submit("--", "sh", "-c", "while [ ! -e door ]; do sleep 0.05; done")
    here.until(first, "RUNNING")
    gone = here.submit("--", "true", cwd=folder)
    other = here.submit("--", "echo", "fine")
    shutil.rmtree(folder)
    (here.work / "door").touch()
    ended = here.ended(gone)
    for told in (ended["reason"]["text"], here.danlu("logs", gone).text):
        assert "the working folder does not exist" in told
        assert str(folder) in told
    assert ended["state"] == "FAILED"
    assert here.ended(other)["state"] == "SUCCEEDED"
    assert here.ended(first)["state"] == "SUCCEEDED"


def test_a_folder_that_goes_away_under_a_running_job(here: Installation) -> None:
    folder = here.work / "project"
    folder.mkdir()
    script = f"touch {here.work}/begun; while [ ! -e {here.work}/door ]; do sleep 0.05; done; echo on"
    job_id = here.submit("--", "sh", "-c", script, cwd=folder)
    here.until(job_id, "RUNNING")
    eventually((here.work / "begun").exists, "it runs")
    shutil.rmtree(folder)
    done = here.danlu("exec", job_id, "--", "true", code=None)
    assert done.code in (0, 126), done.talk
    (here.work / "door").touch()
    assert here.ended(job_id)["state"] == "SUCCEEDED"
    assert here.danlu("logs", job_id).out == b"on\n"


def test_submitting_from_a_folder_that_is_gone(here: Installation) -> None:
    folder = here.work / "gone"
    folder.mkdir()
    done = subprocess.run(
        ["sh", "-c", f'rmdir "{folder}"; exec "{DANLU}" run -- true'],
        cwd=folder,
        capture_output=True,
        timeout=60,
        env=here.environ(),
    )
    assert done.returncode == 2
    assert b"the current folder no longer exists" in done.stderr
    refused = here.danlu("run", "--workdir", folder, "--", "true", code=2)
    assert f"the folder `{folder}` does not exist" in refused.talk
