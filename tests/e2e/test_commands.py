"""Every command and option on a real installation, as the documentation promises them."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Settings
from tests.e2e.installation import DANLU, WAITING, Installation

WAITS = "while [ ! -e door ]; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def roomy(settings: Settings) -> None:
    settings(ENGINE_CPUS=4, ENGINE_GRACE="1s")


def begun(here: Installation, *words: str) -> str:
    job_id = here.submit(*words)
    here.until(job_id, "RUNNING")
    return job_id


def test_every_command_that_prints_data_prints_json(here: Installation) -> None:
    job_id = here.danlu("submit", "--json", "--", "sleep", "600").json()["id"]
    here.until(job_id, "RUNNING")
    assert here.danlu("ps", "--json").json()["items"][0]["id"] == job_id
    assert here.danlu("show", job_id, "--json").json()["id"] == job_id
    assert here.danlu("why", job_id, "--json").json()["state"] == "RUNNING"
    assert here.danlu("wait", "--timeout", "0", job_id, "--json", code=124).json()["items"][0]["id"] == job_id
    clone = here.danlu("clone", job_id, "--name", "again", "--json").json()["jobs"][0]
    assert clone["name"] == "again"
    stopped = here.danlu("stop", "--kill", job_id, clone["id"], "--json").json()["items"]
    assert {job["id"] for job in stopped} == {job_id, clone["id"]}
    assert here.danlu("wait", job_id, "--json", code=1).json()["items"][0]["state"] == "CANCELLED"
    assert here.danlu("rm", job_id, "--json").json() == {"removed": 1}
    ran = here.danlu("run", "--json", "--", "echo", "log")
    assert ran.json()["state"] == "SUCCEEDED"
    assert b"log\n" in ran.err, "with --json the log goes beside the data"
    assert here.danlu("run", "--dry-run", "--json", "--", "true").json()["fits_now"] is True
    assert here.danlu("run", "--detach", "--json", "--", "true").json()["count"] == 1
    status = here.danlu("status", "--json").json()
    assert {"version", "pid", "address", "engine", "state_dir"} <= set(status)
    assert status["state_dir"] == str(here.home)
    assert here.danlu("nodes", "--json").json()["items"][0]["cpus"] == 4
    assert here.danlu("gpus", "--json").json() == {"items": []}
    assert "has no account" in here.danlu("token", "create", "ci", code=2).talk
    assert here.danlu("user", "create", "li", "--json").json()["name"] == "li"
    token = here.danlu("token", "create", "ci", "--user", "li", "--json").json()
    assert token["id"] in json.dumps(here.danlu("token", "list", "--all", "--json").json())
    assert token["token"] not in here.danlu("token", "list", "--user", "li").text
    assert here.danlu("whoami", "--json").json()["is_own_server"] is True
    assert here.danlu("version", "--json").json()["version"] == status["version"]


def test_jobs_are_found_by_name_by_prefix_and_by_how_long_ago(here: Installation) -> None:
    here.danlu("run", "--", "true")
    client = here.client()
    ids = [client.submit(["true"], name=f"n{number}").id for number in range(20)]
    assert here.show("@")["id"] == ids[-1]
    assert here.show("@~1")["id"] == ids[-2]
    assert here.show("@~19")["id"] == ids[0]
    assert here.show(ids[3][:7])["id"] == ids[3]
    # Ids begin with one of 19 letters, so two of twenty share theirs.
    shared = next(one[0] for one in ids if [other[0] for other in ids].count(one[0]) > 1)
    refused = here.danlu("show", shared, code=2).talk
    assert f"`{shared}` fits several jobs" in refused
    assert "no job `zzzz`" in here.danlu("show", "zzzz", code=2).talk
    assert "fewer than 1000 jobs" in here.danlu("show", "@~999", code=2).talk
    found = here.danlu("ps", "--name", "n7", "--all", "--json").json()["items"]
    assert [job["id"] for job in found] == [ids[7]]


def test_an_array_keeps_its_limit_of_tasks_at_once(here: Installation) -> None:
    script = "n=$DANLU_ARRAY_INDEX; echo + >> trace; echo $n >> done; sleep 0.1; echo - >> trace; exit $((n == 4))"
    array = here.submit("--array", "1-10%2", "--", "sh", "-c", script)
    assert here.danlu("wait", array, code=1).text == f"{array}  9 succeeded, 1 failed of 10"
    at_once = most = 0
    for line in (here.work / "trace").read_text().split():
        at_once += 1 if line == "+" else -1
        most = max(most, at_once)
    assert most <= 2
    assert sorted(map(int, (here.work / "done").read_text().split())) == list(range(1, 11))
    shown = here.show(array)
    assert (shown["array"], shown["count"], shown["states"]) == (True, 10, {"SUCCEEDED": 9, "FAILED": 1})
    assert here.show(f"{array}_4")["exit_code"] == 1
    again = here.danlu("clone", f"{array}_4").text
    assert here.ended(f"{again}_4")["state"] == "FAILED"
    here.danlu("rm", array)
    assert "no job" in here.danlu("show", array, code=2).talk


def test_jobs_wait_for_others(here: Installation) -> None:
    first = begun(here, "--", "sh", "-c", f"{WAITS}; exit 1")
    good = here.submit("--after", first, "--", "true")
    any_end = here.submit("--after", f"{first}:any", "--", "echo", "after all")
    chained = here.submit("--after", good, "--", "true")
    third = here.submit("--after", any_end, "--after", f"{first}:any", "--", "true")
    assert first in here.danlu("why", good).text
    assert {here.state(one) for one in (good, any_end, chained, third)} == {"QUEUED"}
    (here.work / "door").touch()
    ended = here.ended(good)
    assert (ended["state"], ended["reason"]["code"]) == ("CANCELLED", "dependency_failed")
    assert first in ended["reason"]["text"]
    assert here.ended(chained)["state"] == "CANCELLED"
    assert here.ended(any_end)["state"] == "SUCCEEDED"
    assert here.ended(third)["state"] == "SUCCEEDED"
    assert "would never run" in here.danlu("submit", "--after", first, "--", "true", code=3).talk


def test_a_job_is_tried_again_as_often_as_it_asked(here: Installation) -> None:
    script = "echo attempt $DANLU_ATTEMPT; [ $DANLU_ATTEMPT = 3 ]"
    done = here.danlu("run", "--retries", "5", "--", "sh", "-c", script)
    assert b"attempt 3\n" in done.out
    shown = here.show("@")
    assert (shown["state"], shown["attempt"], len(shown["runs"])) == ("SUCCEEDED", 3, 2)
    assert here.danlu("logs", "--attempt", "1", "@").out == b"attempt 1\n"
    assert here.danlu("logs", "@").out == b"attempt 3\n"
    here.danlu("run", "--retries", "1", "--", "false", code=1)
    assert here.show("@")["attempt"] == 2


def test_wait_and_rm(here: Installation) -> None:
    waits = begun(here, "--", "sh", "-c", WAITS)
    assert here.danlu("wait", "--timeout", "1", waits, code=124).text == f"{waits}  RUNNING"
    assert "has not ended" in here.danlu("rm", waits, code=3).talk
    waiting = here.begin("wait", waits)
    (here.work / "door").touch()
    assert waiting.communicate(timeout=60)[0].decode().split()[:2] == [waits, "SUCCEEDED"]
    log = here.log_path(waits)
    assert log.exists()
    here.danlu("rm", waits)
    assert not log.exists()
    assert "no job" in here.danlu("show", waits, code=2).talk
    here.danlu("run", "--", "true")
    here.danlu("rm", "--ended", "--yes")
    assert here.danlu("ps", "--all", "--json").json()["items"] == []


def test_a_clone_takes_changes(here: Installation) -> None:
    here.danlu(
        "run", "--name", "first", "--env", "A=1", "--cpus", "2", "--", "sh", "-c", "echo $A $DANLU_CPUS $#", "sh", "x"
    )
    clone = here.danlu("clone", "@", "--env", "A=2", "--priority", "9").text
    here.danlu("wait", clone)
    assert here.danlu("logs", clone).text == "2 2 1"
    assert here.show(clone)["priority"] == 9
    other = here.danlu("clone", clone, "--", "echo", "another command").text
    here.danlu("wait", other)
    assert here.danlu("logs", other).text == "another command"


def test_a_job_sees_its_ask_and_inherits_what_it_should(here: Installation) -> None:
    wanted = ("DANLU_CPUS", "DANLU_MEMORY_MIB", "DANLU_TIME_LIMIT_S", "CUDA_VISIBLE_DEVICES", "MINE", "OWN")
    script = " ".join(f"{name}=${{{name}-unset}}" for name in wanted)
    options = ("--cpus", "2", "--mem", "1G", "--time", "90", "--env", "OWN=1")
    done = here.danlu("run", *options, "--", "sh", "-c", f'echo "{script}"', env={"MINE": "yes"})
    told = "DANLU_CPUS=2 DANLU_MEMORY_MIB=1024 DANLU_TIME_LIMIT_S=5400 CUDA_VISIBLE_DEVICES= MINE=yes OWN=1"
    assert done.out.decode().strip() == told
    assert b"yes" not in here.danlu("show", "@", "--json").out, "what it inherited is shown to nobody"
    clean = here.danlu("run", "--no-inherit-env", "--", "sh", "-c", "echo ${MINE-unset}", env={"MINE": "yes"})
    assert clean.out == b"unset\n"


def test_a_job_file_says_the_same_as_options(here: Installation) -> None:
    (here.work / "job.yaml").write_text(
        "name: from-file\ncpus: 2\ntime: 1:30:00\npriority: 7\nenv:\n  SEED: 1\nlabel:\n  exp: a\n"
        'command: [sh, -c, "echo $SEED $DANLU_CPUS"]\n'
    )
    job_id = here.danlu("submit", "job.yaml", "--priority", "8").text
    here.danlu("wait", job_id)
    assert here.danlu("logs", job_id).text == "1 2"
    shown = here.show(job_id)
    assert (shown["name"], shown["time_limit_s"], shown["priority"]) == ("from-file", 5400, 8)
    assert here.danlu("ps", "--label", "exp=a", "--json").json()["items"][0]["id"] == job_id


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("run", "--gpu", "1", "--", "true"), 2, "--gpu"),
        (("frobnicate",), 2, "frobnicate"),
        (("submit", "wrong.yaml"), 2, "`wrong.yaml` has an unknown name `gpsu`"),
        (("submit", "missing.yaml"), 2, "cannot read the job file `missing.yaml`"),
        (("run", "--time", "soon", "--", "true"), 2, "--time takes a duration, not `soon`"),
        (("run", "--array", "x", "--", "true"), 2, "--array takes numbers such as 1-10%2, not `x`"),
        (("run", "--signal", "FOO@3", "--", "true"), 2, "--signal does not know the signal `FOO`"),
        (("run", "--priority", "11", "--", "true"), 2, "--priority goes from 1 to 9"),
        (("run", "--after", "zzzz", "--", "true"), 2, "no job `zzzz`"),
        (("run", "--cpus", "5", "--", "true"), 3, "5"),
        (("run", "--gpus", "1", "--", "true"), 3, "GPU"),
        (("run",), 2, "--"),
        (("up", "--config", "wrong.toml"), 2, "unknown key in [engine]: `gpus`"),
        (("up", "--config", "missing.toml"), 2, "no configuration file `missing.toml`"),
    ],
)
def test_what_is_wrong_is_refused_by_name(here: Installation, words: tuple[str, ...], code: int, sentence: str) -> None:
    (here.work / "wrong.yaml").write_text("command: true\ngpsu: 2\n")
    (here.work / "wrong.toml").write_text("[engine]\ngpus = 4\n")
    done = here.danlu(*words, code=code)
    assert done.out == b""
    assert done.talk.startswith("error: ")
    assert sentence in done.talk


def test_exec_runs_a_command_inside_the_job(here: Installation) -> None:
    job_id = begun(here, "--env", "COLOUR=blue", "--", "sleep", "600")
    script = 'echo "$COLOUR $DANLU_JOB_ID"; pwd >&2; cat; exit 4'
    done = here.danlu("exec", job_id, "--", "sh", "-c", script, code=4, stdin=b"typed \xff in")
    assert done.out == f"blue {job_id}\n".encode() + b"typed \xff in"
    assert done.err.decode().strip() == str(here.work)
    assert here.client().exec(job_id, ["sh", "-c", "echo out; echo err >&2; exit 5"]) == (5, b"out\n", b"err\n")
    missing = here.danlu("exec", job_id, "--", "no-such-command", code=127)
    assert "command not found" in missing.talk
    flood = here.danlu("exec", job_id, "--", "sh", "-c", "yes | head -c 20000000")
    assert flood.out == b"y\n" * 10_000_000
    here.danlu("stop", job_id)
    here.ended(job_id)
    assert "one can only enter a running job" in here.danlu("exec", job_id, "--", "true", code=3).talk


@pytest.fixture
def project(here: Installation) -> Path:
    """A project under git, with something ignored, something new and something deep."""
    folder = here.work / "project"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "main.sh").write_text("#!/bin/sh\necho version one; cat deep/er/data; ls -A\n")
    (folder / "main.sh").chmod(0o755)
    (folder / "deep" / "er" / "data").write_text("data one\n")
    (folder / ".gitignore").write_text("*.ckpt\nbig/\n")
    (folder / "model.ckpt").write_text("ignored")
    (folder / "big").mkdir()
    (folder / "big" / "file").write_text("ignored")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "new.txt").write_text("not added, not ignored")
    return folder


def test_a_snapshot_is_not_changed_by_later_edits(here: Installation, project: Path) -> None:
    holders = [begun(here, "--", "sh", "-c", WAITS) for _ in range(4)]
    job_id = here.submit("--snapshot", "--", "./main.sh", cwd=project)
    plain = here.submit("--", "./main.sh", cwd=project)
    here.until(job_id, *WAITING)
    (project / "main.sh").write_text("#!/bin/sh\necho version two\n")
    (project / "deep" / "er" / "data").unlink()
    (here.work / "door").touch()
    here.danlu("wait", job_id, plain, *holders)
    assert here.danlu("logs", job_id).text.splitlines() == [
        "version one", "data one", ".gitignore", "deep", "main.sh", "new.txt",
    ]  # fmt: skip
    assert here.danlu("logs", plain).text == "version two"
    shown = here.show(job_id)
    assert shown["run_folder"].startswith(str(here.home))
    assert not (project / "output").exists()


def test_a_snapshot_that_is_too_large_is_refused(here: Installation, project: Path) -> None:
    (project / "data.bin").write_bytes(b"\0" * 3_000_000)
    refused = here.danlu("run", "--snapshot", "--snapshot-limit", "1M", "--", "true", cwd=project, code=3).talk
    assert "a snapshot may have 1 MiB, the folder has 2.9; largest: data.bin" in refused
    (project / ".gitignore").write_text("*.bin\n")
    assert here.danlu("run", "--snapshot", "--snapshot-limit", "1M", "--", "true", cwd=project).code == 0


def test_priority_goes_first(here: Installation, settings: Settings) -> None:
    settings(ENGINE_CPUS=1)
    holder = begun(here, "--", "sh", "-c", WAITS)
    order = {}
    for name, priority in (("low", "1"), ("usual", "5"), ("high", "9"), ("usual2", "5")):
        order[name] = here.submit("--priority", priority, "--", "sh", "-c", f"echo {name} >> order")
        here.until_in_line(order[name])
    here.until_first(order["high"])
    (here.work / "door").touch()
    here.danlu("wait", holder, *order.values())
    assert (here.work / "order").read_text().split() == ["high", "usual", "usual2", "low"]


def test_a_reader_that_leaves_early_is_fine(here: Installation) -> None:
    here.danlu("run", "--quiet", "--detach", "--", "seq", "200000")
    here.danlu("wait", "@")
    piped = subprocess.run(
        ["sh", "-c", 'danlu() { "$DANLU" "$@"; }; danlu logs @ | head -n 1; danlu ps | head -n 1'],
        env=here.environ() | {"DANLU": str(DANLU)},
        capture_output=True,
        timeout=60,
    )
    assert piped.stdout.splitlines()[0] == b"1"
    assert piped.stderr == b""


def test_files_of_a_job_are_for_whom_the_submitter_wants(here: Installation) -> None:
    for umask in ("0027", "0002"):
        prefix = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
        told = here.danlu("run", "-q", "--", "sh", "-c", "umask", prefix=prefix)
        assert told.text == umask


def test_a_personal_server_has_one_limit_for_all_jobs(here: Installation, settings: Settings) -> None:
    settings(POLICY_MAX_ACTIVE=1, POLICY_MAX_ACTIVE_IN_ALL=4)
    here.submit("--array", "1-3", "--", "sleep", "600")
    refused = here.danlu("submit", "--array", "1-2", "--", "true", code=3).talk
    assert "you have 3 jobs that have not ended; 2 more jobs would exceed the limit of 4" in refused
    assert "1 more fit now" in refused
