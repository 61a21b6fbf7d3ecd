"""How Slurm shares its nodes, and how the limits of jobs are enforced. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from danlu.tools.doctor.facts import Slurm
from danlu.tools.doctor.findings import Finding, note, ok, problem, unchecked, warning
from danlu.tools.doctor.judge.nodes import RESTART
from danlu.tools.doctor.texts import NodeLine, is_set, parse_conf

IN_CGROUP_CONF = "in cgroup.conf on every node; then restart slurmd there"


def judge_sharing(
    config: Mapping[str, str], nodes: Sequence[NodeLine], partitions: Sequence[Mapping[str, str]]
) -> Iterator[Finding]:
    kind, how = config.get("SelectType", ""), config.get("SelectTypeParameters", "")
    if kind == "select/linear":
        yield problem(
            "sharing.linear",
            "SelectType=select/linear: every job gets whole nodes",
            "a job with one card blocks all cards of its node; shards cannot be given at all",
            f"{RESTART}, with no job running",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
        )
        return
    if kind == "select/cons_res":
        yield warning(
            "sharing.cons_res",
            "SelectType=select/cons_res is obsolete, and removed in newer releases",
            "it does not know shards, nor which cores are near which card",
            f"{RESTART}, with no job running",
            "SelectType=select/cons_tres",
        )
    if "MEMORY" not in how.upper():
        yield warning(
            "sharing.memory",
            f"SelectTypeParameters={how or 'nothing'}: memory is not counted",
            "Slurm overcommits memory: the kernel kills a job, often not the one with the highest usage",
            RESTART,
            "SelectTypeParameters=CR_Core_Memory",
        )
    elif lacking := [one["PartitionName"] for one in partitions if not _has_default_memory(config, one)]:
        each = _memory_per_cpu(nodes)
        yield warning(
            "sharing.default_memory",
            f"no default for memory in {', '.join(lacking)}",
            "a job without `--mem` takes all the memory of its node: no other job runs there, and cards stay idle",
            "in slurm.conf, then `scontrol reconfigure` (memory of a node, divided by its cores):",
            f"DefMemPerCPU={each}",
        )
    else:
        yield ok("sharing.parts", "cores, memory and cards are allocated individually")


def _has_default_memory(config: Mapping[str, str], partition: Mapping[str, str]) -> bool:
    for settings in (partition, config):
        for name in ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"):
            if settings.get(name, "0") not in ("0", "UNLIMITED"):
                return True
    return "DefMemPerGPU" in partition.get("JobDefaults", "") + config.get("JobDefaults", "")


def _memory_per_cpu(nodes: Sequence[NodeLine]) -> int:
    shares = [one.facts.node.memory_mib // one.facts.node.cpus for one in nodes if one.facts.node.cpus]
    return max(min(shares, default=1000), 1)


def judge_limits(slurm: Slurm, config: Mapping[str, str], *, has_cards: bool) -> Iterator[Finding]:
    if config.get("ProctrackType") == "proctrack/cgroup":
        yield ok("limits.processes", "processes are tracked by cgroup: none survives its job")
    else:
        yield warning(
            "limits.processes",
            f"ProctrackType={config.get('ProctrackType')}: processes are tracked by parent",
            "a detached process (setsid, a daemon) survives the end of its job, and keeps its card and memory",
            f"{RESTART}, with no job running",
            "ProctrackType=proctrack/cgroup",
        )
    plugins = config.get("TaskPlugin", "")
    if "task/cgroup" not in plugins:
        yield warning(
            "limits.cgroup",
            f"TaskPlugin={plugins if is_set(plugins) else 'none'}: the kernel enforces no limits on jobs",
            "a job can use all cards, memory and cores of its node, regardless of its request",
            f"{RESTART}; and in cgroup.conf on every node the last three:",
            "TaskPlugin=task/affinity,task/cgroup",
            "ConstrainDevices=yes",
            "ConstrainRAMSpace=yes",
            "ConstrainCores=yes",
        )
        return
    told = _constraints(slurm, config)
    if not told:
        yield unchecked("limits.constraints", "neither Slurm nor a readable cgroup.conf shows the constraints")
        return
    yield from _loose(told, has_cards=has_cards)


def _loose(told: Mapping[str, str], *, has_cards: bool) -> Iterator[Finding]:
    def holds(name: str) -> bool:
        return told.get(name.lower(), "no").lower() == "yes"

    if has_cards and not holds("ConstrainDevices"):
        yield warning(
            "limits.devices",
            "ConstrainDevices=no: jobs can open every card of their node",
            "a job can use or fill a card of another job; only CUDA_VISIBLE_DEVICES separates them, and "
            "anybody can change that",
            IN_CGROUP_CONF,
            "ConstrainDevices=yes",
        )
    if not holds("ConstrainRAMSpace"):
        yield warning(
            "limits.memory",
            "ConstrainRAMSpace=no: jobs can take more memory than they asked for",
            "one job can bring its node to a halt, and the kernel may kill processes of other jobs",
            IN_CGROUP_CONF,
            "ConstrainRAMSpace=yes",
        )
    if not holds("ConstrainCores"):
        yield note(
            "limits.cores",
            "ConstrainCores=no: jobs can use more cores than they asked for",
            "data loaders of one job slow down its neighbours",
            IN_CGROUP_CONF,
            "ConstrainCores=yes",
        )
    held = [
        word
        for name, word in (("ConstrainDevices", "cards"), ("ConstrainRAMSpace", "memory"), ("ConstrainCores", "cores"))
        if holds(name)
    ]
    if held:
        yield ok(
            "limits.held",
            f"the kernel limits jobs to their {' and '.join(filter(None, [', '.join(held[:-1]), held[-1]]))}",
        )


def _constraints(slurm: Slurm, config: Mapping[str, str]) -> dict[str, str]:
    """The constraints printed by the controller, or else of the file beside slurm.conf."""
    told = {name.lower(): value for name, value in config.items() if name.startswith("Constrain")}
    return told or {
        name: value for name, value in parse_conf(slurm.cgroup_conf or "").items() if name.startswith("constrain")
    }
