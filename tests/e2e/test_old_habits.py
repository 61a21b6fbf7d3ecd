"""The commands that people know by heart, on a real server: a guide's lines, word for word."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.installation import DANLU, Done, Installation, eventually

FICS = Path(__file__).parents[2] / "examples/clusters/fics.toml"
SCRIPT = """#!/bin/bash
#SBATCH --job-name=mnist   # what it is
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --output=logs/%j.out
echo "$SLURM_JOB_ID|$SLURM_SUBMIT_DIR|$SLURM_JOB_NAME|$SLURM_CPUS_PER_TASK|${SLURM_NTASKS-unset}|$1|$PWD"
while [ ! -e door ]; do sleep 0.05; done
"""


class Shell:
    """A person whose PATH begins with the folder of the shims."""

    def __init__(self, here: Installation) -> None:
        self._here, self.bin = here, here.root / "bin"

    def __call__(self, line: str, *, code: int = 0, stdin: str = "") -> Done:
        environ = {**self._here.environ(), "PATH": f"{self.bin}:{DANLU.parent}:{os.environ['PATH']}"}
        ended = subprocess.run(
            ["bash", "-c", line],
            input=stdin.encode(),
            capture_output=True,
            cwd=self._here.work,
            env=environ,
            timeout=60,
        )
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert done.code == code, f"{line}\n{done.out!r}\n{done.err!r}"
        assert b"Traceback" not in done.err
        return done


@pytest.fixture
def shell(here: Installation) -> Shell:
    """The cluster of guide 000, played by this machine, and its commands."""
    here.danlu("up", "--detach", "--config", FICS, "--fake")
    here.danlu("shims", "install", "--force", here.root / "bin")
    (here.work / "train.sh").write_text(SCRIPT)
    return Shell(here)


def test_a_script_is_submitted_seen_and_cancelled(here: Installation, shell: Shell) -> None:
    done = shell("sbatch train.sh hello")
    assert done.text == "Submitted batch job 1"
    assert "without effect: `--output` (line 6)" in done.talk
    here.until("1", "RUNNING")
    folder = here.work
    eventually(
        lambda: shell("danlu logs 1").text == f"1|{folder}|mnist|2|unset|hello|{folder}", "the script has spoken"
    )
    (line,) = shell("squeue -h -u $(whoami)").text.splitlines()
    assert line.split()[:3] == ["1", "makkapakk", "mnist"]
    assert line.split()[-1] == "makkapakka01"
    assert shell("sbatch --parsable --array=1-3%1 train.sh").text == "2"
    here.until("2_1", "RUNNING")
    eventually(lambda: "2_[2-3%1]" in shell("squeue").text, "two tasks wait")
    after = shell(
        "jid=$(sbatch train.sh | awk '{print $4}'); sbatch --dependency=afterok:$jid --parsable train.sh"
    ).text
    assert (after, here.show("6")["after"]) == ("6", [f"{here.show('5')['id']}:ok"])
    eventually(lambda: "(Dependency)" in shell("squeue -h -j 6").text, "it waits for the other")
    shell("scancel 2_3 1")
    assert here.ended("1")["state"] == here.ended("2_3")["state"] == "CANCELLED"
    shell("scancel -u $(whoami)")
    eventually(lambda: shell("squeue -h").text == "", "all are gone")
    assert shell("squeue -h -j 1").text == ""
    assert shell("squeue -h -j 1,2_[2-3] -t all -o %i,%t").text.splitlines() == ["1,CA", "2_2,CA", "2_3,CA"]
    assert shell("squeue -h -j 1 -t all -u nobody").text == ""
    assert "Invalid job id specified" in shell("squeue -j 99", code=1).talk
    shell("scancel 99")


def test_the_script_is_the_one_of_the_moment_of_submission(here: Installation, shell: Shell) -> None:
    (here.work / "a.sh").write_text("#!/bin/sh\nwhile [ ! -e door ]; do sleep 0.05; done\necho old\n")
    shell("sbatch a.sh")
    (here.work / "a.sh").write_text("#!/bin/sh\necho new\n")
    (here.work / "door").touch()
    here.ended("1")
    assert shell("danlu logs 1").text == "old"
    assert shell("sbatch --wait --wrap 'exit 3'", code=3).text == "Submitted batch job 2"
    assert shell("sbatch", stdin="#!/bin/sh\necho piped\n").text == "Submitted batch job 3"
    assert "to start at" in shell("sbatch --test-only a.sh").talk
    refused = shell("sbatch --wrap true --exclusive", code=1).talk
    assert refused.startswith("sbatch: error: command line: `--exclusive`: not supported yet")
    assert "Unable to open file /nowhere" in shell("sbatch /nowhere", code=1).talk
    assert "Unable to open file" in shell("sbatch /tmp", code=1).talk
    assert "does not look like a batch script" in shell("sbatch $(which true)", code=1).talk
    assert "empty" in shell("sbatch", code=1).talk
    assert "line 2" in shell("sbatch", stdin="#!/bin/sh\n#SBATCH --time=12h\n", code=1).talk
    assert shell("danlu ps --json --all").json()["items"][0]["number"] == "3", "what was refused was not submitted"


def test_the_lines_of_the_guides(here: Installation, shell: Shell) -> None:
    (here.work / "main.py").write_text("import os; print('cards', os.environ['CUDA_VISIBLE_DEVICES'])\n")
    (here.work / "door").touch()
    done = shell("ilaunch q makkapakka gpu 0,1,2,3 python3 main.py")
    assert done.text == "cards 0,1,2,3"
    assert shell("zlaunch -q m --gpu=5 -- python3 main.py").text == "cards 0,1,2,3,4"
    assert shell("zlaunch --list").text == "makkapakka"
    shell("sbatch --gres=gpu:1 train.sh")
    (here.work / "door").unlink()
    shell("sbatch --gres=gpu:1 --wrap 'sleep 600'")
    shell("sbatch --gres=shard:16 --wrap 'sleep 600'")
    here.until("5", "RUNNING")
    here.until("@", "RUNNING")
    shown = shell("sinfo --all --Node --Format=NodeList,Gres:60,GresUsed:100").text.splitlines()
    assert shown[0].split() == ["NODELIST", "GRES", "GRES_USED"]
    first = shown[1].split()
    assert first[:2] == ["makkapakka01", "gpu:RTX3090:5,shard:RTX3090:320"]
    assert "shard:RTX3090:16(" in first[2]
    assert "16/64" in first[2]


def test_a_converted_script_is_the_same_job(here: Installation, shell: Shell) -> None:
    text = shell("danlu convert train.sh -- hello | tee job.yaml").text
    assert "# without effect: `--output`" in text
    assert yaml.safe_load(text)["gpus"] == 1
    (here.work / "door").touch()
    direct, converted = here.submit("train.sh", "--", "hello"), here.submit("job.yaml")
    jobs = [here.ended(direct), here.ended(converted)]
    for job in jobs:
        assert job["state"] == "SUCCEEDED"
    assert jobs[0]["command"] == jobs[1]["command"]
    assert jobs[0]["ask"] == jobs[1]["ask"]


def test_shims_hide_no_real_slurm_and_overwrite_nothing(here: Installation) -> None:
    real, mine = here.root / "real", here.root / "bin"
    real.mkdir()
    (real / "sbatch").write_text("#!/bin/sh\n")
    (real / "sbatch").chmod(0o755)
    path = {"PATH": f"{real}:{os.environ['PATH']}"}
    refused = here.danlu("shims", "install", mine, code=3, env=path).talk
    assert f"{real}/sbatch would be hidden" in refused
    assert not mine.exists()
    assert "is not ours" in here.danlu("shims", "install", "--force", real, code=3, env=path).talk
    here.danlu("shims", "install", "--force", mine, env=path)
    assert sorted(os.listdir(mine)) == ["ilaunch", "sbatch", "scancel", "sinfo", "squeue", "zlaunch"]
    (mine / "other").touch()
    here.danlu("shims", "remove", mine)
    assert os.listdir(mine) == ["other"]


def test_one_s_own_server_has_no_queues_and_takes_the_script_all_the_same(here: Installation) -> None:
    shell = Shell(here)
    here.danlu("shims", "install", "--force", shell.bin)
    done = shell("sbatch -p gpu,cpu -A x@gpu --wait --wrap 'echo ran in $SLURM_JOB_ID'")
    assert done.text == "Submitted batch job 1", "the first command starts the server"
    assert "`--partition=gpu,cpu` has no effect: this server has no queues" in done.talk
    assert "`--account=x@gpu` has no effect: you are in no team of this name" in done.talk
    assert shell("danlu logs 1").text == "ran in 1"
    assert shell("squeue -h -t all -o %P").text == "danlu"
    assert shell("sinfo -h -o %P").text == "danlu*"
