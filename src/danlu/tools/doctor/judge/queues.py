"""The partitions of a Slurm cluster, which are the queues of Danlu. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from danlu.engines.slurm.text.parse_cluster import parse_limit
from danlu.tools.doctor.facts import Wishes
from danlu.tools.doctor.findings import Finding, named, note, ok, problem, warning
from danlu.tools.doctor.judge.order import RECONFIGURE

Pairs = Mapping[str, str]


def judge_queues(partitions: Sequence[Pairs], wishes: Wishes) -> Iterator[Finding]:
    if not partitions:
        costs = "no job can be submitted"
        yield problem(
            "queues.none", "Slurm has no partition", costs, RECONFIGURE, "PartitionName=gpu Nodes=ALL Default=YES"
        )
        return
    names = [one["PartitionName"] for one in partitions]
    up = [one["PartitionName"] for one in partitions if one.get("State") == "UP"]
    default = next((one["PartitionName"] for one in partitions if one.get("Default") == "YES"), "")
    if up:
        yield ok("queues.up", f"{named(up)}" + (f"; {default} is the default" if default else ""))
    else:
        yield problem("queues.closed", "no partition is up", "no job starts", "", _open(default or names[0]))
    if not default and not wishes.has_default_queue:
        yield warning(
            "queues.no_default",
            "no partition is the default",
            "jobs without `--queue` are refused",
            RECONFIGURE,
            f"PartitionName={names[0]} … Default=YES",
        )
    yield from _unknown(names, wishes)
    if up:
        yield from _closed(partitions, "" if wishes.has_default_queue else default)
    for one in partitions:
        yield from _one(one)
    yield from _endless(partitions, wishes)


def open_queues(partitions: Sequence[Pairs]) -> list[str]:
    """The partitions that start jobs: the default first, restricted partitions last."""
    up = [one for one in partitions if one.get("State") == "UP" and one.get("RootOnly") != "YES"]
    up.sort(key=lambda one: (one.get("Default") != "YES", bool(_restrictions(one))))
    return [one["PartitionName"] for one in up]


def _restrictions(one: Pairs) -> list[str]:
    return [f"{key}={one[key]}" for key in ("AllowGroups", "AllowAccounts", "AllowQos") if one.get(key, "ALL") != "ALL"]


def _unknown(names: list[str], wishes: Wishes) -> Iterator[Finding]:
    unknown = [name for name in wishes.queues if name not in names]
    if unknown:
        yield warning(
            "queues.unknown",
            f"queues in danlu.toml without a Slurm partition: {named(unknown)}",
            "Slurm refuses jobs for these queues",
            f"use the names of Slurm ({named(names)}), or add the partitions to slurm.conf",
        )


def _closed(partitions: Sequence[Pairs], default: str) -> Iterator[Finding]:
    by_state: dict[str, list[str]] = {}
    for one in partitions:
        by_state.setdefault(one.get("State", "UP"), []).append(one["PartitionName"])
    for state, names in by_state.items():
        if state != "UP":
            where = "it" if len(names) == 1 else "them"
            costs = f"jobs for {where} wait and do not start" if state == "DOWN" else f"Danlu refuses jobs for {where}"
            is_for_all = default in names
            level = warning if is_for_all else note
            yield level(
                "queues.state",
                f"{named(names)}: {state}",
                f"{costs}; {default} is the default of jobs without `--queue`" if is_for_all else costs,
                "if that is not meant:",
                *map(_open, names[:3]),
            )


def _open(name: str) -> str:
    return f"scontrol update PartitionName={name} State=UP"


def _one(one: Pairs) -> Iterator[Finding]:
    name = one["PartitionName"]
    if one.get("TotalNodes") == "0":
        yield warning("queues.empty", f"{name} has no nodes", "Danlu refuses jobs for it", "give it `Nodes=`")
    share = one.get("OverSubscribe", "NO")
    if share == "EXCLUSIVE":
        yield warning(
            "queues.exclusive",
            f"{name}: OverSubscribe=EXCLUSIVE",
            "each job holds a whole node, with all its cards",
            RECONFIGURE,
            f"PartitionName={name} … OverSubscribe=NO",
        )
    elif share.startswith("FORCE") and share != "FORCE:1":
        yield warning(
            "queues.oversubscribed",
            f"{name}: OverSubscribe={share}",
            "several jobs share the same cores, and all of them run slower",
            RECONFIGURE,
            f"PartitionName={name} … OverSubscribe=NO",
        )
    if one.get("RootOnly") == "YES":
        yield warning("queues.root_only", f"{name}: RootOnly=YES", "users' jobs are refused there")
    limits = _restrictions(one)
    if limits:
        costs = "Slurm refuses other users, after Danlu has accepted the job"
        yield note("queues.restricted", f"{name}: {', '.join(limits)}", costs)


def _endless(partitions: Sequence[Pairs], wishes: Wishes) -> Iterator[Finding]:
    endless = [
        one["PartitionName"]
        for one in partitions
        if one.get("State") == "UP"
        and not parse_limit(one.get("MaxTime", ""))
        and not parse_limit(one.get("DefaultTime", ""))
    ]
    if endless and not wishes.has_default_time:
        yield note(
            "queues.endless",
            f"jobs without a time limit in {named(endless)}",
            "while such a job runs, the next jobs have no expected start, and small jobs cannot fill gaps",
            "in danlu.toml (plain `sbatch`: DefaultTime= of the partition):",
            "[jobs]",
            'default_time = "1d"',
        )
