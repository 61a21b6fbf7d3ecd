"""Slurm's words for why a job waits, ended or was refused, as our reasons. Pure."""

import re

from danlu.domain.job import Reason
from danlu.engines.base import Ending

# What `squeue` says of a waiting job -> our code, what a person reads, what would help.
_WAITS: dict[str, tuple[str, str, str]] = {
    "None": ("slurm_new", "Slurm has taken it and not looked at it yet", ""),
    "Resources": ("no_room", "waits for cards, cores or memory to become free", ""),
    "Priority": ("behind", "others in its queue are before it", ""),
    "Dependency": ("dependency", "waits for another job of Slurm", ""),
    "DependencyNeverSatisfied": ("dependency_failed", "the job that it waits for cannot end as it should", "stop it"),
    "BeginTime": ("begin_time", "Slurm does not start it before a time that is set for it", ""),
    "JobHeldUser": ("held", "it is held", "`scontrol release`, or stop it"),
    "JobHeldAdmin": ("held", "an administrator of Slurm holds it", "ask them"),
    "JobHoldMaxRequeue": ("held", "Slurm began it too often without success, and holds it", "see its log, and stop it"),
    "JobArrayTaskLimit": ("array_limit", "as many tasks of its array run as the limit allows", ""),
    "Licenses": ("no_licenses", "waits for a licence", ""),
    "Reservation": ("reservation", "waits for its reservation to begin", ""),
    "ReservationDeleted": ("reservation", "its reservation is gone", "stop it, and submit it without"),
    "Cleaning": ("slurm_new", "Slurm clears up behind its run before", ""),
    "Prolog": ("starting", "the node is being made ready for it", ""),
    "NonZeroExitCode": ("failed", "it ended without success", ""),
    "InvalidAccount": ("slurm_account", "Slurm knows no such account for this person", "ask who administers Slurm"),
    "InvalidQOS": ("slurm_account", "its quality of service is not allowed here", "ask who administers Slurm"),
    "AccountNotAllowed": ("slurm_account", "the account of its team may not use this queue", "try another `--queue`"),
    "QOSNotAllowed": ("slurm_account", "its quality of service may not use this queue", "try another `--queue`"),
    "BadConstraints": ("too_big", "no node has what it asks for", "ask for less: `danlu nodes` shows what there is"),
    "PartitionConfig": ("too_big", "no node of its queue has what it asks for", "ask for less, or another `--queue`"),
    "PartitionNodeLimit": ("too_big", "asks for more nodes than its queue allows", "ask for fewer `--nodes`"),
    "PartitionTimeLimit": ("time_limit", "its time limit is longer than its queue allows", "use a shorter `--time`"),
    "PartitionDown": ("closed", "its queue is switched off", "try another `--queue`"),
    "PartitionInactive": ("closed", "its queue takes jobs but starts none at present", "try another `--queue`"),
    "NodeDown": ("closed", "a node that it needs is down", ""),
    "ReqNodeNotAvail": ("closed", "nodes that it needs take no new jobs at present", "`danlu nodes` shows which"),
    "Nodes_required_for_job_are_DOWN": (
        "closed", "all nodes that could run it are down, drained or kept for others", "`danlu nodes` shows which",
    ),
    "FrontEndDown": ("closed", "the nodes that it needs are down", ""),
    "launch_failed_requeued_held": (
        "held", "its node could not start it, and Slurm holds it", "an administrator finds why in the log of slurmd",
    ),
    "job_requeued_in_held_state": ("held", "Slurm began it again and holds it", "`scontrol release`, or stop it"),
    "MaxCpuPerAccount": ("quota", "its account has as many cores as Slurm allows", ""),
}  # fmt: skip
_COUNTED = {
    "GRES": "cards", "Gres": "cards", "Cpu": "cores", "CPU": "cores", "Mem": "memory", "Memory": "memory",
    "Node": "nodes", "Jobs": "jobs", "Job": "jobs", "Submit": "jobs", "Wall": "time", "TRES": "of its share",
    "Billing": "of its budget",
}  # fmt: skip
# What `sbatch` says when it refuses -> our code, what a person reads, what would help.
_REFUSALS: tuple[tuple[str, str, str, str], ...] = (
    ("invalid partition", "no_queue", "Slurm has no such queue", "`danlu queues` lists them"),
    ("generic resource", "no_cards", "Slurm knows no such cards", "`danlu gpus` shows which models there are"),
    ("memory specification", "too_big", "no node has so much memory", "ask for less `--mem`"),
    ("partition configuration not available", "too_big", "its queue gives no job so much, or so long",
     "ask for less, a shorter `--time`, or another `--queue`"),
    ("node configuration is not available", "too_big", "no node has what it asks for", "ask for less: `danlu nodes`"),
    ("node count", "too_big", "asks for more nodes than there are", "ask for fewer `--nodes`"),
    ("more processors requested", "too_big", "no node has so many cores", "ask for fewer `--cpus`"),
    ("cpu count", "too_big", "no node has so many cores", "ask for fewer `--cpus`"),
    ("time limit", "time_limit", "its time limit is longer than its queue allows", "use a shorter `--time`"),
    ("account/partition combination", "slurm_account", "Slurm knows no such account of this person in this queue",
     "`sacctmgr` makes one: ask who administers Slurm"),
    ("invalid account", "slurm_account", "Slurm knows no such account", "ask who administers Slurm"),
    ("policy", "quota", "it is more than Slurm's own limits allow", "ask for less, or a shorter `--time`"),
    ("qos", "slurm_account", "its quality of service is not allowed here", "ask who administers Slurm"),
    ("violates", "quota", "it is more than Slurm's own limits allow", "ask for less, or a shorter `--time`"),
    ("job size", "quota", "it is more than Slurm's own limits allow", "ask for less, or a shorter `--time`"),
    ("node name", "no_nodes", "Slurm has no such node", "`danlu nodes` lists them"),
    ("feature", "no_nodes", "no node has this feature", "`sinfo -o '%N %f'` shows which there are"),
    ("user id", "slurm_user", "Slurm does not know this person", "the account must exist on every node"),
    ("not in group", "slurm_user", "this person's groups may not use this queue", "try another `--queue`"),
    ("access/permission denied", "slurm_user", "Slurm does not allow it to this person", "ask who administers Slurm"),
    ("partition", "closed", "its queue takes no such job at present", "try another `--queue`"),
    ("dependency", "dependency_failed", "what it waits for does not exist", ""),
    ("batch script", "not_started", "Slurm did not take its script", ""),
)  # fmt: skip
# The controller or what stands before it does not work: nothing may be concluded from these.
_UNREACHABLE = re.compile(
    r"unable to contact|timed out|connection (refused|reset|failure)|connect failure|communication|authentication"
    r"|munge|slurm_load|zero bytes|message (receive|send)|resource temporarily unavailable|in standby|not active"
    r"|configuration|temporarily unable|job limit|slurm backup|too many|parse_config|internal error|dns|resolve",
    re.IGNORECASE,
)
_ENDS: dict[str, tuple[Ending, str, str]] = {
    "TIMEOUT": (Ending.TIMED_OUT, "timed_out", "stopped at its time limit"),
    "DEADLINE": (Ending.TIMED_OUT, "timed_out", "stopped at its deadline"),
    "CANCELLED": (Ending.STOPPED, "stopped", "stopped with Slurm's own command"),
    "NODE_FAIL": (Ending.LOST, "lost", "its node failed"),
    "BOOT_FAIL": (Ending.LOST, "lost", "its node did not come up"),
    "PREEMPTED": (Ending.LOST, "preempted", "Slurm stopped it for a more urgent job"),
    "REVOKED": (Ending.LOST, "lost", "Slurm gave it to another cluster"),
    "OUT_OF_MEMORY": (Ending.EXITED, "out_of_memory", "was stopped because it used more memory than it asked for"),
}


def explain_wait(reason: str) -> Reason:
    """`Resources` -> why it waits, for a person. Words that nobody has translated are shown as they are."""
    word = re.match(r"[A-Za-z_]*", reason.replace(" ", "_"))
    known = _WAITS.get(reason) or _WAITS.get(word[0] if word else "")
    if known is None and (limit := re.match(r"(Assoc|QOS)(Grp|Max)([A-Za-z]*)", reason)):
        return _explain_limit(*limit.groups())
    if known is None:
        return Reason("slurm", f"Slurm says: {reason}")
    code, text, hint = known
    names = re.search(r"UnavailableNodes:(\S+?)\)?$", reason)
    return Reason(code, _joined(f"{text} ({names[1]})" if names else text, hint))


def _explain_limit(whose: str, kind: str, what: str) -> Reason:
    """`AssocGrpGRES`, `QOSMaxJobsPerUserLimit`: limits that administrators set inside Slurm."""
    of = "its account in Slurm" if whose == "Assoc" else "its quality of service in Slurm"
    counted = next((word for key, word in _COUNTED.items() if key in what), "resources")
    if "PerJob" in what or "PerNode" in what or (kind == "Max" and "Wall" in what):
        return Reason("quota", f"one job may not ask for so much {counted} ({of})")
    each = " for each person" if "PerUser" in what else ""
    return Reason("quota", f"{of} has as many {counted} as its limit allows{each}")


def is_out_of_reach(said: str) -> bool:
    """Did a command fail because the controller cannot be asked?"""
    return bool(_UNREACHABLE.search(said)) and not any(words in said.lower() for words, *_ in _REFUSALS[:5])


def explain_refusal(said: str) -> Reason:
    """What `sbatch` printed -> why it was refused, for a person, with what would work."""
    lowered = said.lower()
    for words, code, text, hint in _REFUSALS:
        if words in lowered:
            return Reason(code, _joined(f"{text} (Slurm: {last_words(said)})", hint))
    return Reason("not_started", f"Slurm refused it: {last_words(said) or 'without a word'}")


def last_words(said: str) -> str:
    """The last line of what a command said, without its own name before it."""
    lines = [
        re.sub(r"^(\w+: )?(error: |fatal: )?(Batch job submission failed: )?", "", line).strip()
        for line in said.splitlines()
    ]
    return next((line for line in reversed(lines) if line), "")[:300]


def explain_end(state: str) -> tuple[Ending, Reason] | None:
    """What Slurm itself did to a job; None where it only watched the job end."""
    if state not in _ENDS:
        return None
    ending, code, text = _ENDS[state]
    return ending, Reason(code, text)


def _joined(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text
