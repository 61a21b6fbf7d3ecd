"""The files beside slurm.conf: gres.conf, cgroup.conf, slurmdbd.conf. Pure."""

from collections.abc import Iterator

from danlu.tools.slurm_setup.blueprint import Blueprint, Machines
from danlu.tools.slurm_setup.hostlist import folded
from danlu.tools.slurm_setup.slurm_conf import Line, render_lines

_GRES_HEAD = """\
# gres.conf of the cluster {cluster}: which device is which card.
# The devices are named, because the Slurm of most distributions is built without NVIDIA's library and cannot find them.
# They must exist before slurmd starts (`nvidia-smi` makes them), or slurmd ends. Several models in one machine: check
# with `nvidia-smi -q | grep -E 'Product Name|Minor Number'` that the numbers are those of the models.
AutoDetect=off
"""
CONSTRAINTS = [
    Line("CgroupPlugin", "autodetect", "Version 1 or 2 of cgroups, whichever the machine has."),
    Line("ConstrainCores", "yes", "A job runs on its cores only."),
    Line(
        "ConstrainRAMSpace",
        "yes",
        "A job that takes more memory than it asked for is stopped (OUT_OF_MEMORY), its neighbours are not. Swap is "
        "not counted: switch it off on the nodes.",
    ),
    Line(
        "ConstrainDevices",
        "yes",
        "A job can open only its own cards. Its CUDA_VISIBLE_DEVICES begins at 0; the real numbers are in "
        "SLURM_JOB_GPUS.",
    ),
]


def render_gres_conf(plan: Blueprint, devices: str = "/dev/nvidia") -> str:
    lines = [line for machines in plan.machines for line in _cards(plan, machines, devices)]
    return _GRES_HEAD.format(cluster=plan.cluster) + "".join(f"{line}\n" for line in lines)


def _cards(plan: Blueprint, machines: Machines, devices: str) -> Iterator[str]:
    names, first = f"NodeName={folded(machines.names)}", 0
    for kind, count in machines.cards:
        numbers = str(first) if count == 1 else f"[{first}-{first + count - 1}]"
        yield f"{names} Name=gpu Type={kind} File={devices}{numbers}"
        first += count
    if first and plan.shards_per_gpu:
        yield f"{names} Name=shard Count={first * plan.shards_per_gpu}"


def render_cgroup_conf(plan: Blueprint) -> str:
    head = f"# cgroup.conf of the cluster {plan.cluster}: the limits that the kernel enforces on jobs.\n"
    if plan.place.is_here:
        return f"{head}# Nothing: the nodes are larger than the machine that plays them.\nCgroupPlugin=autodetect\n"
    return head + render_lines(CONSTRAINTS)


def render_slurmdbd_conf(plan: Blueprint, password: str) -> str:
    """For the controller only, readable by its `SlurmUser` only: the file contains a password."""
    return (
        f"# slurmdbd.conf of the cluster {plan.cluster}, for {plan.controller} only. Keep it secret.\n"
        + render_lines(
            [
                Line("AuthType", "auth/munge"),
                Line("DbdHost", plan.controller),
                Line("SlurmUser", plan.place.user),
                Line("LogFile", f"{plan.place.log}/slurmdbd.log"),
                Line("PidFile", f"{plan.place.run}/slurmdbd.pid"),
                Line("StorageType", "accounting_storage/mysql", "MariaDB, on the same machine."),
                Line("StorageHost", "localhost"),
                Line("StorageUser", "slurm"),
                Line("StoragePass", password),
                Line("StorageLoc", "slurm_acct_db"),
                Line("PurgeJobAfter", "24months", "Single jobs are kept for two years; sums for longer."),
                Line("PurgeStepAfter", "6months"),
            ]
        )
    )
