"""`danlu slurm init`: the files of a cluster, as text, and the command that writes them."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from danlu.config.cluster import nodes_of, queues_of, written_out
from danlu.config.settings import load_settings
from danlu.errors import Invalid
from danlu.tools.slurm_setup.blueprint import Blueprint, blueprint_of, card_type, usable_memory_mib
from danlu.tools.slurm_setup.hostlist import folded
from danlu.tools.slurm_setup.rollout import render_check, render_install, render_readme, render_rollout
from danlu.tools.slurm_setup.side_files import render_cgroup_conf, render_gres_conf, render_slurmdbd_conf
from danlu.tools.slurm_setup.slurm_conf import decisions, render_slurm_conf
from danlu.tools.slurm_setup.tryout import place_below, render_try

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "clusters").glob("*.toml"))
LAB = """
[slurm]
cluster = "lab"
controller = "mgmt"
[engine]
shards_per_gpu = 8
grace = "45s"
[[nodes]]
name = "n[08-11]"
cpus = 64
memory = "256G"
gpus = "2xRTX 3090,1xA100"
[[nodes]]
name = "cpu"
cpus = 10
memory = "10G"
[[queues]]
name = "train"
nodes = ["n*"]
max_time = "7d"
[[queues]]
name = "small"
default = true
max_time = "90s"
default_time = "30s"
max_mem = "4G"
max_cpus = 2
"""


def plan_of(tmp_path: Path, text: str = LAB) -> Blueprint:
    path = tmp_path / "nodes.toml"
    path.write_text(text)
    return plan_from(path)


def plan_from(path: Path) -> Blueprint:
    settings = load_settings(str(path), {})
    nodes = nodes_of(settings.nodes, shards_per_gpu=settings.engine.shards_per_gpu)
    return blueprint_of(settings, nodes, queues_of(settings.queues, nodes))


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def value(text: str, name: str) -> str:
    (found,) = re.findall(rf"(?m)^{name}=(.*)$", text)
    return str(found)


@pytest.mark.parametrize("names", [
    ("n1", "n2", "n3"), ("a", "b"), ("n01", "n02", "n10", "n9"), ("n09", "n10", "n11"), ("n99", "n100"), ("n0", "n00"),
    ("p100-1", "p100-2", "v100-7"), ("n1x", "n2x"), ("n5",), ("n007",), ("n099", "n100", "n101"), ("1", "2"),
    ("x12345678901",),
])  # fmt: skip
def test_folded_names_are_the_same_names(names: tuple[str, ...]) -> None:
    parts = re.findall(r"[^,\[]+(?:\[[^\]]*\])?", folded(names))
    assert sorted(name for part in parts for name in written_out(part, "")) == sorted(names)


def test_names_are_folded_as_people_write_them() -> None:
    assert folded(["n1", "n2", "n3", "n7", "x"]) == "n[1-3,7],x"
    assert folded(["makkapakka01", "makkapakka02"]) == "makkapakka[01-02]"


def test_machines_cards_and_shards(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    conf, gres = lines_of(render_slurm_conf(plan)), lines_of(render_gres_conf(plan))
    assert "NodeName=n[08-11] CPUs=64 RealMemory=249037 Gres=gpu:RTX_3090:2,gpu:A100:1,shard:24 State=UNKNOWN" in conf
    assert "NodeName=cpu CPUs=10 RealMemory=9216 State=UNKNOWN" in conf
    assert gres == [
        "AutoDetect=off",
        "NodeName=n[08-11] Name=gpu Type=RTX_3090 File=/dev/nvidia[0-1]",
        "NodeName=n[08-11] Name=gpu Type=A100 File=/dev/nvidia2",
        "NodeName=n[08-11] Name=shard Count=24",
    ]


def test_queues_are_partitions(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert lines_of(render_slurm_conf(plan))[-2:] == [
        "PartitionName=train Nodes=n[08-11] Default=NO MaxTime=7-00:00:00 DefMemPerCPU=3891 State=UP",
        "PartitionName=small Nodes=n[08-11],cpu Default=YES MaxTime=0-00:02:00 DefaultTime=0-00:01:00 DefMemPerCPU=921 "
        "MaxMemPerNode=4096 State=UP",
    ]
    assert plan.notes == ("queue `small`: Danlu keeps these rules, plain `sbatch` does not: cores per job",)


def test_a_file_without_queues_has_one_partition(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, '[[nodes]]\nname = "n1"\n')
    assert "PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE" in render_slurm_conf(plan)
    assert plan.controller == "n1"


def test_without_a_default_the_first_queue_is_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, '[[nodes]]\nname = "n1"\n[[queues]]\nname = "a"\n[[queues]]\nname = "b"\n')
    assert [(one.name, one.is_default) for one in plan.partitions] == [("a", True), ("b", False)]
    assert "goes to `a`" in plan.notes[0]


def test_a_queue_of_a_model_has_the_nodes_with_it(tmp_path: Path) -> None:
    text = (
        '[[nodes]]\nname = "a"\ngpus = "1xP100"\n[[nodes]]\nname = "b"\ngpus = "1xV100"\n'
        '[[queues]]\nname = "q"\nmodels = ["v100"]\n'
    )
    assert plan_of(tmp_path, text).partitions[0].nodes == ("b",)


def test_settings_reach_their_lines(tmp_path: Path) -> None:
    conf = render_slurm_conf(plan_of(tmp_path))
    assert value(conf, "ClusterName") == "lab"
    assert value(conf, "SlurmctldHost") == "mgmt"
    assert value(conf, "KillWait") == "45"
    assert value(conf, "DefMemPerCPU") == "921"
    assert value(conf, "SchedulerParameters").endswith("bf_window=10080")
    names = [line.partition("=")[0] for line in lines_of(conf)]
    once = [name for name in names if name not in ("NodeName", "PartitionName")]
    assert len(once) == len(set(once))


def test_machines_without_cards_need_no_gres(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, '[slurm]\naccounting = true\n[[nodes]]\nname = "n1"\n')
    assert "GresTypes" not in render_slurm_conf(plan)
    assert "AccountingStorageTRES" not in render_slurm_conf(plan)
    assert lines_of(render_gres_conf(plan)) == ["AutoDetect=off"]
    assert "srun hostname" in render_readme(plan, ["slurm.conf"])


def test_undivided_cards_have_no_shards(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, '[engine]\nshards_per_gpu = 1\n[[nodes]]\nname = "n1"\ngpus = "2xA100"\n')
    assert value(render_slurm_conf(plan), "GresTypes") == "gpu"
    assert "shard" not in render_gres_conf(plan)


def test_resources_are_counted_only_where_there_is_a_database(tmp_path: Path) -> None:
    """slurmctld ends at once if told to count cards without one."""
    assert "AccountingStorageTRES" not in render_slurm_conf(plan_of(tmp_path))
    with_books = render_slurm_conf(plan_of(tmp_path, LAB.replace('"mgmt"', '"mgmt"\naccounting = true')))
    assert value(with_books, "AccountingStorageTRES") == "gres/gpu,gres/shard"
    assert value(with_books, "AccountingStorageHost") == "mgmt"
    assert "JobCompType" not in with_books


def test_what_was_decided_has_reasons(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    found = {line.name: line for line in decisions(plan)}
    for name in (
        "SelectType",
        "SelectTypeParameters",
        "DefMemPerCPU",
        "ReturnToService",
        "PriorityType",
        "PreemptType",
    ):
        assert len(found[name].why) > 20
        assert f"`{name}={found[name].value}`" in render_readme(plan, [])
    assert "ConstrainDevices=yes" in render_cgroup_conf(plan)


def test_a_model_has_one_spelling(tmp_path: Path) -> None:
    text = "".join(
        f"[[nodes]]\nname = '{name}'\ngpus = '2x{model}'\n" for name, model in (("a", "RTX3090"), ("b", "rtx 3090"))
    )
    plan = plan_of(tmp_path, text)
    assert [one.cards for one in plan.machines] == [(("RTX3090", 2),)]
    assert "`rtx_3090` is written `RTX3090`" in plan.notes[0]


def test_models_and_memory() -> None:
    assert card_type("Quadro RTX 4000") == "Quadro_RTX_4000"
    assert card_type("A100-SXM4-80GB") == "A100-SXM4-80GB"
    assert (usable_memory_mib(100_000), usable_memory_mib(4096)) == (95_000, 3072)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[slurm]\ncluster = 'a b'\n[[nodes]]\nname = 'n1'\n", "a cluster called `a b`"),
        ("[slurm]\ncontroller = 'localhost'\n[[nodes]]\nname = 'n1'\n", "a machine called `localhost`"),
        ("[[nodes]]\nname = 'n1'\n[[queues]]\nname = 'default'\n", "a queue called `default`"),
        ("[[nodes]]\nname = 'n1'\n[[queues]]\nname = '训练'\n", "a queue called `训练`"),
        ("[engine]\ncpus = 4\n", "describes no machines"),
        ("[[nodes]]\nname = 'n1'\nmemory = '512M'\n", "node `n1`: the system keeps 1024 MiB"),
        ("[slurm]\nshared = 'nas'\n[[nodes]]\nname = 'n1'\n", "`slurm.shared` is an absolute path"),
        ("[slurm]\nshard = 'nas'\n", "unknown key in [slurm]: `shard`"),
    ],
)
def test_what_slurm_cannot_be_told_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan_of(tmp_path, text)
    assert message in refused.value.text


@pytest.mark.parametrize("folder", ["/tmp/a b", "/tmp/" + "x" * 90, "/tmp/丹炉", "/tmp/a#b"])
def test_folders_that_slurm_cannot_use_are_refused(folder: str) -> None:
    with pytest.raises(Invalid):
        place_below(folder, "root", 16817)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_scripts_of_the_examples_are_shell(path: Path) -> None:
    plan = plan_from(path)
    scripts = (render_install(plan), render_check(), render_rollout(plan), render_try(plan, "/tmp/x"))
    for script in scripts:
        done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


# The command.


def danlu(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DANLU_")}
    argv = [sys.executable, "-m", "danlu.cli.main", "slurm", "init", *words]
    return subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True, timeout=60)


def test_the_command_writes_everything_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "nodes.toml").write_text(LAB.replace('"mgmt"', '"mgmt"\naccounting = true'))
    done = danlu(tmp_path, "nodes.toml", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["cluster"], data["controller"], data["queues"]) == ("lab", "mgmt", ["train", "small"])
    assert sorted(data["files"]) == sorted(path.name for path in (tmp_path / "slurm").iterdir())
    assert {"slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf", "install.sh", "README.md"} < set(data["files"])
    assert all(each["why"] for each in data["decisions"])
    secret = tmp_path / "slurm" / "slurmdbd.conf"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    plain = danlu(tmp_path, "nodes.toml")
    assert plain.returncode == 0, "the same files, the same password: nothing is overwritten"
    assert "SelectType=select/cons_tres" in plain.stdout


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    (tmp_path / "nodes.toml").write_text(LAB)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "gres.conf").write_text("mine")
    refused = danlu(tmp_path, "nodes.toml")
    assert refused.returncode == 3
    assert "gres.conf exists with other content" in refused.stderr
    assert [path.name for path in (tmp_path / "slurm").iterdir()] == ["gres.conf"]
    assert danlu(tmp_path, "nodes.toml", "--out", "other").returncode == 0
    assert danlu(tmp_path, "nodes.toml", "--force").returncode == 0
    assert (tmp_path / "slurm" / "gres.conf").read_text() != "mine"


def test_a_server_on_what_is_played_keeps_everything_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "nodes.toml").write_text(LAB.replace('"mgmt"', '"mgmt"\nshared = "/lamport"'))
    done = danlu(tmp_path, "nodes.toml", "--try-here", "--out", "try", "--json")
    assert done.returncode == 0, done.stderr
    given = [step.split()[1:] for step in json.loads(done.stdout)["next"] if step.startswith("export ")]
    environ = dict(word.split("=") for words in given for word in words)
    wanted = load_settings(str(tmp_path / "nodes.toml"), environ)
    assert (wanted.engine.kind, wanted.shared_dir) == ("slurm", str(tmp_path / "try" / "shared"))
    assert environ["DANLU_HOME"] == str(tmp_path / "try" / "danlu")


REFUSED = {
    (): "needs FILE",
    ("none.toml",): "cannot read the configuration none.toml",
    ("nodes.toml", "--port", "5"): "`--port` is for `--try-here`",
    ("nodes.toml", "--try-here", "--port", "5"): "--port takes the first of 6 free ports",
    ("nodes.toml", "--out", "nodes.toml"): "nodes.toml",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_wrong_usage_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "nodes.toml").write_text(LAB)
    done = danlu(tmp_path, *words)
    assert (done.returncode, done.stdout) in ((2, ""), (3, ""))
    assert REFUSED[words] in done.stderr


def test_the_password_of_a_database_is_random(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert "StoragePass=abc\n" in render_slurmdbd_conf(plan, "abc")
