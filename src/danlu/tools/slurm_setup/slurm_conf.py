"""slurm.conf: its lines, each with a reason. Slurm 22.05 and later can read the file. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from textwrap import wrap

from danlu.tools.slurm_setup.blueprint import Blueprint, Machines, Partition
from danlu.tools.slurm_setup.hostlist import folded

PORT = 6817
# The largest array of Danlu, plus one.
MOST_JOBS = 100_001
_LONGEST_WINDOW = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, with its reason. Empty: obvious."""

    name: str
    value: str
    why: str = ""


def render_slurm_conf(plan: Blueprint) -> str:
    head = [
        f"# slurm.conf of the cluster {plan.cluster}: the same file on every machine, in /etc/slurm.",
        "# Written by `danlu slurm init`: change its input file, and run the command again.",
    ]
    if plan.place.is_here:
        head[0] = f"# slurm.conf of {plan.cluster} played by this machine. Not for real machines."
    blocks = [
        ("Identity", _identity(plan)),
        ("Resources of jobs, and their limits", _confinement(plan)),
        ("Order", _order(plan)),
        ("Failures", _trouble(plan)),
        ("Records", _memory(plan)),
    ]
    text = "\n".join(head) + "\n"
    for title, lines in blocks:
        text += f"\n### {title}\n" + render_lines(lines)
    text += "\n### Machines\n" + "".join(f"# {line}\n" for line in wrap(_MACHINES_WHY, 110))
    text += "".join(f"{line}\n" for line in _nodes(plan))
    text += "\n### Queues\n" + "".join(f"{_partition(one)}\n" for one in plan.partitions)
    return text


def decisions(plan: Blueprint) -> Iterator[Line]:
    """Every line with a reason."""
    for part in (_identity, _confinement, _order, _trouble, _memory):
        yield from (line for line in part(plan) if line.why)


def render_lines(lines: list[Line]) -> str:
    return "".join(
        "".join(f"# {part}\n" for part in wrap(line.why, 110)) + f"{line.name}={line.value}\n" for line in lines
    )


_MACHINES_WHY = (
    "RealMemory is 5 % (at least 1 GiB) less than the file says: the system needs some, and Slurm refuses a machine "
    "with less than its RealMemory. `slurmd -C` on a machine prints its real size."
)


def _identity(plan: Blueprint) -> list[Line]:
    place = plan.place
    address = f"{plan.controller}(127.0.0.1)" if place.is_here else plan.controller
    lines = [
        Line("ClusterName", plan.cluster),
        Line("SlurmctldHost", address, "The machine that queues and places. Nodes and commands find it by this name."),
        Line("SlurmctldPort", str(place.port or PORT)),
        Line("SlurmUser", place.user, "The controller needs no root; slurmd does, to start jobs as their owners."),
        Line(
            "AuthType", "auth/munge", "Requests are authenticated with one key, /etc/munge/munge.key, on all machines."
        ),
    ]
    if place.is_here:
        lines += [Line("SlurmdUser", place.user), Line("AuthInfo", f"socket={place.run}/munge.socket")]
    name = ".%n" if place.is_here else ""
    return [
        *lines,
        Line(
            "StateSaveLocation", place.state, "On a disk of the controller that survives a restart: the queue is here."
        ),
        Line("SlurmdSpoolDir", place.spool),
        Line("SlurmctldPidFile", f"{place.run}/slurmctld.pid"),
        Line("SlurmdPidFile", f"{place.run}/slurmd{name}.pid"),
        Line("SlurmctldLogFile", f"{place.log}/slurmctld.log"),
        Line("SlurmdLogFile", f"{place.log}/slurmd{name}.log"),
    ]


def _confinement(plan: Blueprint) -> list[Line]:
    lines = [
        Line(
            "SelectType",
            "select/cons_tres",
            "Cores, memory and cards are allocated individually, so that several jobs share a machine.",
        ),
        Line(
            "SelectTypeParameters", "CR_Core_Memory", "A core belongs to one job at a time, and memory is counted too."
        ),
        Line(
            "DefMemPerCPU",
            str(min(one.memory_per_cpu_mib for one in plan.partitions)),
            "For jobs without a memory request: the machine's memory per core. Otherwise such a job would take all the "
            "memory of its machine, and no other job could run there.",
        ),
    ]
    if plan.place.is_here:
        return [
            *lines,
            *_gres(plan),
            Line("ProctrackType", "proctrack/linuxproc", "No cgroups: the nodes are larger than the machine."),
            Line("TaskPlugin", "task/none"),
            Line("SlurmdParameters", "config_overrides", "Believe this file, not the hardware."),
            Line("MpiDefault", "none"),
        ]
    return [
        *lines,
        *_gres(plan),
        Line("ProctrackType", "proctrack/cgroup", "A job's processes are tracked by cgroup: none stays behind."),
        Line(
            "TaskPlugin",
            "task/affinity,task/cgroup",
            "Jobs stay on their cores, within their memory and (cgroup.conf) on their cards.",
        ),
        Line(
            "MpiDefault",
            "none",
            "torchrun and the like need no MPI support of Slurm; `srun --mpi=pmi2` is for MPI programs.",
        ),
    ]


def _gres(plan: Blueprint) -> list[Line]:
    if not plan.has_cards:
        return []
    if not plan.shards_per_gpu:
        return [Line("GresTypes", "gpu", "Whole cards: `--gres=gpu:1`, `--gres=gpu:MODEL:2`.")]
    why = (
        f"Whole cards (`--gres=gpu:1`) and shares of one (`--gres=shard:N` of {plan.shards_per_gpu}). A shared card "
        "is not given to a job for whole cards, and the other way round."
    )
    return [Line("GresTypes", "gpu,shard", why)]


def _order(plan: Blueprint) -> list[Line]:
    times = [one.max_time or _LONGEST_WINDOW for one in plan.partitions]
    window = max(timedelta(days=1), min(_LONGEST_WINDOW, max(times)))
    return [
        Line("SchedulerType", "sched/backfill", "Short jobs with a time limit go ahead if they delay no other job."),
        Line(
            "SchedulerParameters",
            f"batch_sched_delay=0,bf_continue,bf_interval=10,bf_resolution=300,bf_window={_minutes(window)}",
            "Batch jobs start at once instead of within 3 s; backfill looks ahead as far as the longest time limit, so "
            "that expected starts are known.",
        ),
        Line(
            "PriorityType",
            "priority/basic",
            "First come, first served, moved only by `--nice`: Danlu does fair share, quotas and priorities, and a "
            "second order would conflict. The same with and without accounting.",
        ),
        Line(
            "PreemptType",
            "preempt/none",
            "Danlu asks borrowers to checkpoint and stop; Slurm stops no job by itself.",
        ),
        Line("PreemptMode", "OFF"),
        Line(
            "EnforcePartLimits",
            "ALL",
            "A job that its queue can never run is refused at once, instead of waiting for ever.",
        ),
        Line("MaxJobCount", str(MOST_JOBS), "Room for the largest array of Danlu."),
        Line("MaxArraySize", str(MOST_JOBS)),
    ]


def _trouble(plan: Blueprint) -> list[Line]:
    return [
        Line(
            "ReturnToService",
            "2",
            "A machine that comes back is used again automatically. To drain a machine, use `scontrol update "
            "NodeName=X State=DRAIN Reason=...`: DOWN would last for a moment only.",
        ),
        Line(
            "JobRequeue",
            "1",
            "Jobs of a dead machine go back to the queue (after about 2 minutes), and start again.",
        ),
        Line("SlurmctldTimeout", "120"),
        Line(
            "SlurmdTimeout",
            "300",
            "The jobs of a silent machine are given up after this time: long enough for an update.",
        ),
        Line("InactiveLimit", "0"),
        Line("KillWait", str(max(1, int(plan.grace.total_seconds()))), "Between TERM and KILL: `engine.grace`."),
        Line(
            "UnkillableStepTimeout",
            "180",
            "A process that hangs in a slow file system gets this long before its machine is drained.",
        ),
    ]


def _memory(plan: Blueprint) -> list[Line]:
    lines = [
        Line("MinJobAge", "600", "Ended jobs stay in `squeue` for this many seconds, for late queries."),
        Line("JobAcctGatherType", "jobacct_gather/linux", "Measures the real usage of jobs, for `sstat`."),
    ]
    if not plan.has_accounting:
        return [
            *lines,
            Line(
                "AccountingStorageType", "accounting_storage/none", "No database. `slurm.accounting = true` adds one."
            ),
            Line(
                "JobCompType", "jobcomp/filetxt", "Without a database, a line for each ended job: `sacct -c` reads it."
            ),
            Line("JobCompLoc", f"{plan.place.log}/jobcomp.log"),
        ]
    counted = ["gres/gpu"] * plan.has_cards + ["gres/shard"] * (plan.shards_per_gpu > 0)
    return [
        *lines,
        Line(
            "AccountingStorageType",
            "accounting_storage/slurmdbd",
            "Every job is recorded. Accounts are not enforced (no AccountingStorageEnforce): Danlu enforces "
            "quotas, and "
            "users without an account may still work.",
        ),
        Line("AccountingStorageHost", plan.controller),
        *([Line("AccountingStorageTRES", ",".join(counted))] if counted else []),
    ]


def _nodes(plan: Blueprint) -> Iterator[str]:
    port = plan.place.port + 1
    for machines in plan.machines:
        where = ""
        if plan.place.is_here:
            last = port + len(machines.names) - 1
            ports = str(port) if last == port else f"[{port}-{last}]"
            where = f" NodeHostname={plan.controller} NodeAddr=127.0.0.1 Port={ports}"
            port = last + 1
        yield (
            f"NodeName={folded(machines.names)}{where} CPUs={machines.cpus} RealMemory={machines.memory_mib}"
            f"{_node_gres(plan, machines)} State=UNKNOWN"
        )


def _node_gres(plan: Blueprint, machines: Machines) -> str:
    held: dict[str, int] = {}
    for kind, count in machines.cards:
        held[kind] = held.get(kind, 0) + count
    listed = [f"gpu:{kind}:{count}" for kind, count in held.items()]
    if listed and plan.shards_per_gpu:
        listed.append(f"shard:{machines.card_count * plan.shards_per_gpu}")
    return f" Gres={','.join(listed)}" if listed else ""


def _partition(one: Partition) -> str:
    parts = [f"PartitionName={one.name}", f"Nodes={folded(one.nodes)}", f"Default={'YES' if one.is_default else 'NO'}"]
    parts.append(f"MaxTime={_time(one.max_time) if one.max_time else 'INFINITE'}")
    if one.default_time:
        parts.append(f"DefaultTime={_time(one.default_time)}")
    parts.append(f"DefMemPerCPU={one.memory_per_cpu_mib}")
    if one.max_memory_mib:
        parts.append(f"MaxMemPerNode={one.max_memory_mib}")
    return " ".join([*parts, "State=UP"])


def _time(time: timedelta) -> str:
    """Rounded up to minutes, the unit of Slurm."""
    days, rest = divmod(_minutes(time), 1440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def _minutes(time: timedelta) -> int:
    return -(-int(time.total_seconds()) // 60)
