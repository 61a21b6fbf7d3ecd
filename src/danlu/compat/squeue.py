"""`squeue`: its options, and jobs of Danlu in its columns."""

from __future__ import annotations

from danlu.compat.columns import parse_fields, parse_format, ranges, render, span
from danlu.compat.getopt import on_command_line, parse, read_options
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from danlu.compat.columns import Column, Field

NO_QUEUE = "danlu"  # the partition of a server without queues
PLAIN = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %.20Y %R"
OPTIONS = read_options(
    "array.r Format=O format=o all.a help. jobs?j job?  long.l me. name=n noheader.h nodelist=w partition=p start. "
    "states=t user=u users= account=A usage. verbose.v version.V"
)
# States of Slurm: short name, and the states of Danlu.
STATES = {
    "PENDING": ("PD", ("QUEUED", "PENDING")), "CONFIGURING": ("CF", ("STARTING",)), "RUNNING": ("R", ("RUNNING",)),
    "COMPLETED": ("CD", ("SUCCEEDED",)), "FAILED": ("F", ("FAILED",)), "CANCELLED": ("CA", ("CANCELLED",)),
    "TIMEOUT": ("TO", ("TIMED_OUT",)), "NODE_FAIL": ("NF", ("LOST",)), "SUSPENDED": ("S", ()),
    "COMPLETING": ("CG", ()), "PREEMPTED": ("PR", ()), "OUT_OF_MEMORY": ("OOM", ()), "BOOT_FAIL": ("BF", ()),
    "DEADLINE": ("DL", ()),
}  # fmt: skip
_OURS = {ours: (name, short) for name, (short, all_ours) in STATES.items() for ours in all_ours}
_REASONS = {
    "behind": "Priority", "array_limit": "JobArrayTaskLimit", "waiting_for": "Dependency", "dependency": "Dependency",
    "quota": "AssocGrpGRES", "closed": "ReqNodeNotAvail", "queued": "None", "no_queue": "PartitionDown",
    "engine_down": "ReqNodeNotAvail",
}  # fmt: skip


class Asked:
    """The selection and the format of a command line."""

    def __init__(self) -> None:
        self.users: list[str] | None = None
        self.jobs: list[str] | None = None
        self.names: list[str] | None = None
        self.queues: list[str] | None = None
        self.accounts: list[str] | None = None
        self.states: list[str] | None = None  # states of Danlu
        self.is_mine = self.with_tasks = False
        self.with_heading = True
        self.is_long = False
        self.only_waiting = False
        self.layout: tuple[str, list[Column]] = parse_format(PLAIN, FIELDS)


def is_selected(asked: Any, job: dict[str, Any]) -> bool:
    """True if a job passes the filters of the command line."""
    return (
        (asked.users is None or job["user"] in asked.users)
        and (asked.names is None or job["name"] in asked.names)
        and (asked.queues is None or (job["queue"] or NO_QUEUE) in asked.queues)
        and (asked.accounts is None or job["team"] in asked.accounts)
        and (asked.states is None or job["state"] in asked.states)
    )


def read_words(words: Iterable[str]) -> tuple[Asked, set[str]]:
    """The request; and `help` or `version` for these two options."""
    given, rest = parse(on_command_line(words), OPTIONS, anywhere=True)
    by_number = [one for one in given if one.name in ("jobs", "job") and not one.value]
    if by_number and rest:
        by_number[-1].value = rest.pop(0)[0]  # `-j 7`: an optional value, after a blank
    if rest:
        raise Invalid(f"Unrecognized option: {rest[0][0]}", "jobs are named with `-j 7,8`")
    asked = Asked()
    other: set[str] = set()
    for one in given:
        listed = [item.strip() for item in one.value.split(",") if item.strip()]
        match one.name:
            case "user" | "users":
                asked.users = listed
            case "jobs" | "job":
                asked.jobs = listed or None
            case "name":
                asked.names = listed
            case "partition":
                asked.queues = listed
            case "account":
                asked.accounts = listed
            case "states":
                asked.states = states_of(listed)
            case "me":
                asked.is_mine = True
            case "array":
                asked.with_tasks = True
            case "noheader":
                asked.with_heading = False
            case "long":
                asked.layout, asked.is_long = parse_format(LONG, FIELDS), True
            case "start":
                asked.layout, asked.only_waiting = parse_format(START, FIELDS), True
            case "format":
                asked.layout = parse_format(one.value, FIELDS)
            case "Format":
                asked.layout = parse_fields(one.value, NAMES)
            case "nodelist":
                raise one.invalid("not supported yet")
            case _:
                other.add(one.name)
    return asked, other


def states_of(listed: Iterable[str]) -> list[str] | None:
    """States of Danlu for states of Slurm, long or short, in any case; None means every state."""
    found: list[str] = []
    for word in listed:
        name = word.upper()
        if name == "ALL":
            return list(_OURS)
        fitting = [ours for long, (short, ours) in STATES.items() if name in (long, short)]
        if not fitting:
            known = ",".join(long.lower() for long in STATES)
            raise Invalid(f"Invalid job state specified: {word[:40]}", f"valid job states include: {known}")
        found += fitting[0]
    return found


def rows_of(
    jobs: Sequence[dict[str, Any]],
    asked: Asked,
    numbers: Mapping[str, str],
    now: float,
    seconds: Callable[[str], float],
    local: Callable[[str], str],
) -> list[dict[str, Any]]:
    """A row for each job; the waiting tasks of an array are one row. In Slurm's order: partition, state, number.
    `numbers` maps ids of awaited jobs to their numbers."""
    rows: dict[str, dict[str, Any]] = {}
    for job in jobs:
        array, underscore, index = job["number"].partition("_")
        is_waiting = job["state"] in ("QUEUED", "PENDING")
        if asked.only_waiting and not is_waiting:
            continue
        is_joined = bool(underscore) and is_waiting and not asked.with_tasks
        row = rows.setdefault(f"{array}_" if is_joined else job["number"], {**job, "indices": []})
        row |= {"array_number": array, "is_joined": is_joined, "now": now, "seconds": seconds, "local": local}
        row["numbers"] = numbers
        row["indices"].append(int(index) if index else None)
    order = list(STATES)
    return sorted(
        rows.values(),
        key=lambda row: (row["queue"], order.index(_OURS[row["state"]][0]), -row["priority"], row["seq"]),
    )


def render_rows(rows: Sequence[dict[str, Any]], asked: Asked) -> list[str]:
    return render(asked.layout, FIELDS, rows, with_heading=asked.with_heading)


def _tasks(row: dict[str, Any]) -> str:
    """`2-3%1` for the waiting tasks."""
    percent = row["array"].partition("%")[2]
    return ranges(row["indices"]) + (f"%{percent}" if percent else "")


def _id(row: dict[str, Any]) -> str:
    return f"{row['array_number']}_[{_tasks(row)}]" if row["is_joined"] else str(row["number"])


def _plain_id(row: dict[str, Any]) -> str:
    return str(row["array_number"] if row["is_joined"] else row["seq"])


def _task_id(row: dict[str, Any]) -> str:
    if row["is_joined"]:
        return _tasks(row)
    return "N/A" if row["array_index"] is None else str(row["array_index"])


def _used(row: dict[str, Any]) -> float:
    if not row["started_at"]:
        return 0.0
    seconds = row["seconds"]
    return float((seconds(row["ended_at"]) if row["ended_at"] else row["now"]) - seconds(row["started_at"]))


def _limit(row: dict[str, Any]) -> str:
    return span(row["time_limit_s"]) if row["time_limit_s"] else "UNLIMITED"


def _left(row: dict[str, Any]) -> str:
    return span(row["time_limit_s"] - _used(row)) if row["time_limit_s"] else "UNLIMITED"


def _start(row: dict[str, Any]) -> str:
    found = row["started_at"] or row["estimated_at"]
    return str(row["local"](found)) if found else "N/A"


def _end(row: dict[str, Any]) -> str:
    return str(row["local"](row["ended_at"])) if row["ended_at"] else "N/A"


def reason_of(row: dict[str, Any]) -> str:
    if row["state"] not in ("QUEUED", "PENDING"):
        return "None"
    return _REASONS.get(row["reason"]["code"], "Resources")


def _nodes(row: dict[str, Any]) -> str:
    return ",".join(seat["node"] for seat in row["seats"])


def _dependency(row: dict[str, Any]) -> str:
    """`afterok:7(unfulfilled)`; empty once the job may run."""
    if reason_of(row) != "Dependency":
        return "(null)"
    written = [one.rpartition(":") for one in row["after"]]
    return ",".join(f"after{kind}:{row['numbers'].get(ref, ref)}(unfulfilled)" for ref, _, kind in written) or "(null)"


def _cards(row: dict[str, Any]) -> str:
    ask = row["ask"]
    model = f"{ask['gpu_model']}:" if ask["gpu_model"] else ""
    if ask["shards"]:
        return f"gres/shard:{model}{ask['shards']}"
    return f"gres/gpu:{model}{ask['gpus']}" if ask["gpus"] else "N/A"


FIELDS: dict[str, Field] = {
    "i": ("JOBID", _id),
    "A": ("JOBID", _plain_id),
    "F": ("ARRAY_JOB_ID", lambda row: str(row["array_number"])),
    "K": ("ARRAY_TASK_ID", _task_id),
    "P": ("PARTITION", lambda row: row["queue"] or NO_QUEUE),
    "j": ("NAME", lambda row: row["name"]),
    "u": ("USER", lambda row: row["user"]),
    "t": ("ST", lambda row: _OURS[row["state"]][1]),
    "T": ("STATE", lambda row: _OURS[row["state"]][0]),
    "M": ("TIME", lambda row: span(_used(row))),
    "D": ("NODES", lambda row: str(row["ask"]["nodes"])),
    "R": ("NODELIST(REASON)", lambda row: _nodes(row) or f"({reason_of(row)})"),
    "r": ("REASON", reason_of),
    "N": ("NODELIST", _nodes),
    "l": ("TIME_LIMIT", _limit),
    "L": ("TIME_LEFT", _left),
    "S": ("START_TIME", _start),
    "e": ("END_TIME", _end),
    "V": ("SUBMIT_TIME", lambda row: row["local"](row["submitted_at"])),
    "C": ("CPUS", lambda row: str(row["ask"]["cpus"] * row["ask"]["nodes"])),
    "c": ("MIN_CPUS", lambda row: str(row["ask"]["cpus"])),
    "b": ("TRES_PER_NODE", _cards),
    "m": ("MIN_MEMORY", lambda row: f"{row['ask']['memory_mib']}M" if row["ask"]["memory_mib"] else "0"),
    "E": ("DEPENDENCY", _dependency),
    "Z": ("WORK_DIR", lambda row: row["workdir"] or "(null)"),
    "a": ("ACCOUNT", lambda row: row["team"] or "(null)"),
    "B": ("EXEC_HOST", lambda row: row["node"] or "n/a"),
    "Q": ("PRIORITY", lambda row: str(row["priority"])),
    "p": ("PRIORITY", lambda row: str(row["priority"])),
    "Y": ("SCHEDNODES", lambda row: "(null)"),
    "y": ("NICE", lambda row: "0"),
    "k": ("COMMENT", lambda row: "(null)"),
    "q": ("QOS", lambda row: "(null)"),
    "f": ("FEATURES", lambda row: "(null)"),
    "v": ("RESERVATION", lambda row: "(null)"),
    "n": ("REQ_NODES", lambda row: ""),
    "x": ("EXC_NODES", lambda row: ""),
    "h": ("OVER_SUBSCRIBE", lambda row: "OK"),
    "z": ("S:C:T", lambda row: "*:*:*"),
}
NAMES = {
    "jobid": "A", "jobarrayid": "i", "arrayjobid": "F", "arraytaskid": "K", "partition": "P", "name": "j",
    "username": "u", "statecompact": "t", "state": "T", "timeused": "M", "numnodes": "D", "reasonlist": "R",
    "reason": "r", "nodelist": "N", "timelimit": "l", "timeleft": "L", "starttime": "S", "endtime": "e",
    "submittime": "V", "numcpus": "C", "mincpus": "c", "tres-per-node": "b", "gres": "b", "minmemory": "m",
    "dependency": "E", "workdir": "Z", "account": "a", "batchhost": "B", "prioritylong": "Q", "priority": "p",
    "nice": "y", "comment": "k", "qos": "q", "feature": "f", "reservation": "v",
}  # fmt: skip
