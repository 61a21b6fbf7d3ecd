"""What our parser makes of `sbatch` options, compared with what a real Slurm makes of them."""

import re
from typing import Any

import pytest

from danlu.compat.sbatch import Request, read_script
from danlu.compat.values import array_of
from danlu.errors import Invalid
from tests.slurm.cluster import SlurmCluster, shared_cluster
from tests.slurm.releases import NEWER, OLDER

pytestmark = pytest.mark.slurm

ACCEPTED = (
    "", "-J x", "--job-name='a b'", "--job-name=a#b", "-J x#y z", "--time=90", "--time=48:00", "--time=1:30",
    "--time=2-12", "--time=1-", "--time=1-2:3:4", "--time=0-55:00:00", "--time=999:00:00", "-t 5 -t 6", "--mem=500",
    "--mem=2G", "--mem=7gb", "--mem=100K", "--mem-per-cpu=200 -c4", "--mem-per-gpu=50 --gpus=2", "-n 4", "-n4 -c2",
    "-c 8", "--ntasks-per-node=3", "--tasks-per-node=2 -c2", "--gres=gpu:1", "--gres gpu:2", "--gres=gpu:rtx3090:2",
    "--gres=gpu", "--gres=shard:16", "--gres=gpu:0", "--gres=none", "--gpus=2", "-Grtx3090:1", "--gpus-per-node=3",
    "--gpus-per-task=1 -n2", "--cpus-per-gpu=2 --gpus=2", "--cpus-per-gpu=2 --gpus=2 -n3", "-N1",
    "--jo=q --ntasks-per-n=2",
    "--array=1-4%2", "-a 0-6:3", "--mail-type=ALL", "--nice", "-exclusive", "-N1 -n2 -c1", "--hint=nomultithread",
    "--no-requeue",
)  # fmt: skip
REFUSED = (
    "--time=12h", "--time=", "--time=1:2:3:4", "--time=5.5", "--mem=64gib", "--mem=1.5G", "--mem=1 --mem-per-cpu=1",
    "-n0", "-c x", "--array=1-", "--array=5-1", "--array=1-3:0", "--signal=FOO", "--gpus-per-task=1",
    "--gres=gpu:1,shard:2", "--gres=gres:gpu:1", "-c4 --cpus-per-gpu=1 -G1", "--ti=5", "--quotatype=x",
    "--kill-on-bad-exit", "-l", "--pty", "foo", ": x", "--job-name='abc", "--nice 5", "--parsable=1",
    "-d afterok:99999999:x",
)  # fmt: skip

REFUSED_BY_NEWER = {"--gres=gres:gpu:1"}
both_versions = pytest.mark.parametrize("version", [OLDER, NEWER])


def script_of(line: str) -> str:
    return f"#!/bin/sh\n#SBATCH {line}\nsleep 600\n"


def ours(line: str) -> Request:
    return read_script(script_of(line).encode(), [], [], {}, name="sbatch", folder="/")


def tasks_of(array: str) -> tuple[list[int], str]:
    return (array_of(array)[1], array.partition("%")[2]) if array else ([], "")


def facts_of_ours(request: Request) -> dict[str, Any]:
    options = request.options
    model, _, gpus = str(options.get("gpus", 0)).rpartition(":")
    return {
        "name": options.get("name", ""), "time": int(options.get("time", "60m")[:-1]), "cpus": options.get("cpus", 1),
        "mem": int(options["mem"][:-1]) if "mem" in options else None, "model": model, "gpus": int(gpus),
        "shards": options.get("shards", 0), "array": tasks_of(options.get("array", "")),
    }  # fmt: skip


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, flags=re.M)
    return match[1] if match else ""


def facts_of_slurm(cluster: SlurmCluster, number: str) -> dict[str, Any]:
    text = cluster.ask("scontrol", "show", "job", number)
    days, _, clock = found(r"TimeLimit=(\S+)", text).rpartition("-")
    hours, minutes, _ = clock.split(":")
    tres = dict(part.split("=") for part in found(r"^   (?:Req)?TRES=(\S+)", text).split(","))
    cards = re.search(
        r"TresPer(Node|Job|Task)=(?:cpu=\d+,)?gres[/:](gpu|shard)(?:[:=](\D\w*))?(?:[:=](\d+))?$", text, re.M
    )
    per, kind, model, count = cards.groups() if cards else ("", "", "", "0")
    many = int(count or 1) * (int(found(r"NumTasks=(\d+)", text)) if per == "Task" else 1)
    return {
        "name": found(r"JobName=(.*)", text), "time": int(days or 0) * 1440 + int(hours) * 60 + int(minutes),
        "cpus": int(tres["cpu"]), "mem": int(float(tres["mem"][:-1]) * (1024 if tres["mem"].endswith("G") else 1)),
        "model": model or "", "gpus": many if kind == "gpu" else 0, "shards": many if kind == "shard" else 0,
        "array": tasks_of(found(r"ArrayTaskId=(\S+)", text)),
    }  # fmt: skip


@both_versions
def test_a_real_slurm_reads_the_same(version: str) -> None:
    """Slurm gives a job without --mem its default, and a time limit of an hour here."""
    cluster = shared_cluster(version)
    different = []
    for line in ACCEPTED:
        if version == OLDER and "--cpus-per-gpu" in line:
            continue  # it counts these cores when the job starts
        number = cluster.ask("sbatch", "--parsable", "--hold", stdin=script_of(line)).split(";")[0]
        slurm, danlu = facts_of_slurm(cluster, number), facts_of_ours(ours(line))
        if danlu["mem"] is None:
            danlu["mem"] = slurm["mem"]
        if slurm != danlu:
            different.append((line, {key: (slurm[key], danlu[key]) for key in slurm if slurm[key] != danlu[key]}))
        cluster.call("scancel", number)
    assert not different


@both_versions
def test_a_real_slurm_refuses_the_same(version: str) -> None:
    cluster = shared_cluster(version)
    for line in REFUSED if version == NEWER else sorted({*REFUSED} - REFUSED_BY_NEWER):
        done = cluster.call("sbatch", "--parsable", "--hold", stdin=script_of(line))
        if done.returncode == 0:
            cluster.call("scancel", done.stdout.strip())
        assert done.returncode, line
        with pytest.raises(Invalid):
            ours(line)
