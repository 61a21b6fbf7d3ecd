"""Slurm's words for why a job waits, ended or was refused, as our reasons. Pure."""

import re
from collections.abc import Sequence

from danlu.domain.job import Reason
from danlu.engines.base import Ending

_NOT_IN_GROUP = ("this person's groups may not use this queue", "try another `--queue`")
# What `squeue` says of a waiting job -> our code, what a person reads, what would help.
_WAITS: dict[str, tuple[str, str, str]] = {
    "None": ("slurm_new", "Slurm has taken it and not looked at it yet", ""),
    "Resources": ("no_room", "not enough cards, cores or memory are free", ""),
    "Priority": ("behind", "others in its queue are before it", ""),
    "Dependency": ("dependency", "another job of Slurm must end first", ""),
    "DependencyNeverSatisfied": ("dependency_failed", "the job that it waits for cannot end as it should", "stop it"),
    "BeginTime": ("begin_time", "Slurm does not start it before a time that is set for it", ""),
    "JobHeldUser": ("held", "it is held", "`scontrol release`, or stop it"),
    "JobHeldAdmin": ("held", "an administrator of Slurm holds it", "ask them"),
    "JobHoldMaxRequeue": ("held", "Slurm began it too often without success, and holds it", "see its log, and stop it"),
    "JobArrayTaskLimit": ("array_limit", "as many tasks of its array run as the limit allows", ""),
    "Licenses": ("no_licenses", "no licence is free", ""),
    "Reservation": ("reservation", "its reservation has not begun", ""),
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
    "PartitionDown": ("closed", "its queue takes jobs but starts none at present", "try another `--queue`"),
    "PartitionInactive": ("closed", "its queue is switched off", "try another `--queue`"),
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
# Whole sentences that `squeue` has for some waits in place of a word, by their beginnings.
_LONG_WAITS: tuple[tuple[str, str, str, str], ...] = (
    (r"Job's account not permitted to use this partition", *_WAITS["AccountNotAllowed"]),
    (r"Job's QOS not permitted to use this partition", *_WAITS["QOSNotAllowed"]),
    (r"uid \d+ not in group permitted to use this partition", "slurm_user", *_NOT_IN_GROUP),
)
_LESS = "ask for less, or a shorter `--time`"
_ASK = "ask who administers Slurm"
# A whole line that `sbatch` says when it refuses (22.05 and 24.11) -> our code, what a person reads, what would help.
# One that is more exact comes before those that it is said together with.
_REFUSALS: tuple[tuple[str, str, str, str], ...] = (
    (r"invalid partition specified: .*|Invalid partition name specified", "no_queue", "Slurm has no such queue",
     "`danlu queues` lists them"),
    (r"No partition specified or system default partition", "no_queue", "Slurm has no queue for jobs that name none",
     "name one: `danlu queues` lists them"),
    (r"(Invalid|Duplicate) generic resource \(gres\) specification|Invalid GRES specification .*"
     r"|Insufficient GRES available in allocation|Invalid Trackable RESource \(TRES\) specification"
     r"|Requested GRES option unsupported by configured SelectType plugin|RestrictedCoresPerGPU: .*",
     "no_cards", "Slurm knows no such cards", "`danlu gpus` shows which models there are"),
    (r"Memory specification can not be satisfied|Memory required by task is not available", "too_big",
     "no node has so much memory", "ask for less `--mem`"),
    (r"CPU count per node can not be satisfied|CPU count specification invalid|More processors requested than permitted"
     r"|Requested more tasks than available processors|Task count specification invalid", "too_big",
     "no node has so many cores", "ask for fewer `--cpus`"),
    (r"Node count specification invalid", "too_big", "asks for more nodes than there are", "ask for fewer `--nodes`"),
    (r"Requested partition configuration not available now", "too_big", "its queue gives no job so much, or so long",
     "ask for less, a shorter `--time`, or another `--queue`"),
    (r"Requested (node|topology) configuration is not available|Requested nodes not in this partition", "too_big",
     "no node of its queue has what it asks for", "ask for less: `danlu nodes`"),
    (r"Job size specification needs to be provided", "too_big", "Slurm wants to be told how much it needs",
     "name `--cpus` and `--mem`"),
    (r"Requested time limit is invalid \(missing or exceeds some limit\)|Time limit specification required, .*",
     "time_limit", "it names no time limit, or one that is longer than its queue allows", "use a shorter `--time`"),
    (r"Invalid (--)?time(-min)? specifi.*", "time_limit", "Slurm does not take its time limit",
     "use another `--time`"),
    (r"Invalid account or account/partition combination specified|Invalid or unknown association"
     r"|Multiple partition job request not supported when a partition is set in the association",
     "slurm_account", "Slurm knows no such account of this person in this queue", f"`sacctmgr` makes one: {_ASK}"),
    (r"Invalid qos specification(, relative QOS .*)?|Invalid wckey specification", "slurm_account",
     "its quality of service is not allowed here", _ASK),
    (r"Job violates accounting/QOS policy .*", "quota", "it is more than Slurm's own limits allow", _LESS),
    (r"Requested account has breached requested QOS usage threshold", "quota",
     "its account has used up what its quality of service in Slurm allows", _ASK),
    (r"Invalid node name specified|Invalid node list specified", "no_nodes", "Slurm has no such node",
     "`danlu nodes` lists them"),
    (r"Invalid (preferred )?feature specification|Invalid extra constraints specification"
     r"|Active features not subset of available features", "no_nodes", "no node has this feature",
     "`sinfo -o '%N %f'` shows which there are"),
    (r"User's group not permitted to use this partition", "slurm_user", *_NOT_IN_GROUP),
    (r"Invalid (user|group) id|Unable to resolve (user|group) ID to .*|(User|Group ID) not found on host"
     r"|Missing UNIX (user|group) in the system", "slurm_user", "Slurm does not know this person",
     "the account must exist on every node"),
    (r"Access/permission denied", "slurm_user", "Slurm does not allow it to this person",
     f"try another `--queue`, or {_ASK}"),
    (r"Required partition not available \(inactive or drain\)|Partition in DOWN state", "closed",
     "its queue takes no jobs at present", "try another `--queue`"),
    (r"Required node not available \(down, drained or reserved\)|Job can not start due to maintenance reservation\.",
     "closed", "nodes that it needs take no new jobs at present", "`danlu nodes` shows which"),
    (r"(Access denied to requested|Requested) reservation( is invalid| is in use| not usable now)?", "reservation",
     "it cannot use its reservation", _ASK),
    (r"Invalid license specification|Licenses currently unavailable", "no_licenses", "Slurm has no such licence", _ASK),
    (r"Job dependency problem|Circular job dependency", "dependency_failed", "what it waits for does not exist", ""),
)  # fmt: skip
# What the controller, or what stands before it, says of itself: nothing may be concluded from these. Whole texts only:
# a plugin of the site has its own words for what it refuses, and may well speak of too many cards or a configuration.
_TROUBLES = re.compile(
    r"Unable to contact slurm controller \((connect|send|receive|shutdown) failure\)"
    r"|Socket timed out on send/recv operation|Zero Bytes were transmitted or received|Received zero length message"
    r"|Received message length < 0|Failed to send entire message|Header lengths are longer than data received"
    r"|Unexpected message received|Unexpected missing socket error|Insane message length"
    r"|Communication (connection|shutdown) failure|Message (send|receive) failure"
    r"|Incompatible versions of client and server code|Can't find an address, check slurm\.conf"
    r"|Protocol authentication error|(Invalid authentication|Authentication) credential( invalid| expired)?"
    r"|Cannot unpack credential|Failed to connect to authentication agent|Munge (en|de)code failed: .*"
    r"|Rate limit exceeded, please retry (momentarily|later)|System submissions disabled"
    r"|Slurm backup controller in standby mode|Controller is in standby mode, try a different controller"
    r"|Slurm (job queue full|temporarily unable to accept job), sleeping and retrying\.?"
    r"|Job creation temporarily disabled, retrying\.?|Unable to create job record, try again|Requested nodes are busy"
    r"|I/O error writing script/environment to file|Slurm internal error, contact system administrator"
    r"|(s_p_parse_file|resolve_ctls_from_dns_srv|fetch_config\w*): .*|ClusterName needs to be specified"
    r"|Unable to process configuration file|Could not establish a configuration source"
    r"|(\w+: )?cannot (create|find) \S+ (context|plugin) for \S+|failed to initialize \S+ plugin"
    r"|Connection (refused|reset by peer|timed out)|No route to host|Network is unreachable|Host is down|Broken pipe"
    r"|Resource temporarily unavailable|Temporary failure in name resolution|Too many open files( in system)?"
)
# What `scancel` says of a job that is over, as that of a job of several parts when another part was stopped.
ALREADY_OVER = frozenset({"Invalid job id specified", "Job/step already completing or completed"})
# Says only that there was an error: what it was stands before it.
_GENERIC = frozenset({"Unspecified error", "Generic error", "cli_filter plugin terminated with error"})
_SUBMIT_FAILED = "Batch job submission failed: "
_BEFORE = re.compile(
    rf"^(?:(?:\w+: )?(?:[Ee]rror|fatal): )?(?:{_SUBMIT_FAILED}|\w+ error: |Kill job error on job id \S+: )?(?=\S)"
)
_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max)([A-Za-z]*)")
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
    if known is None and (limit := _LIMIT.match(reason)):
        hint = f"{_less(limit[3])}: no waiting ends it" if _is_of_one(limit[2], limit[3]) else ""
        return Reason("quota", _joined(_explain_limit(*limit.groups()).text, hint))
    known = known or next((row[1:] for row in _LONG_WAITS if re.match(row[0], reason)), None)
    if known is None:
        return Reason("slurm", f"Slurm says: {reason}")
    code, text, hint = known
    names = re.search(r"UnavailableNodes:(\S+?)\)?$", reason)
    return Reason(code, _joined(f"{text} ({names[1]})" if names else text, hint))


def _explain_limit(whose: str, kind: str, what: str) -> Reason:
    """`AssocGrpGRES`, `QOSMaxJobsPerUserLimit`: limits that administrators set inside Slurm."""
    of = "its account in Slurm" if whose == "Assoc" else "its quality of service in Slurm"
    limited = what.partition("Per")[0]  # and not what it is for: one job, one person
    counted = next((word for key, word in _COUNTED.items() if key in limited), "resources")
    if _is_of_one(kind, what):
        much = "much" if counted in ("memory", "time", "of its share", "of its budget") else "many"
        return Reason("quota", f"one job may not ask for so {much} {counted} ({of})")
    each = " for each person" if "PerUser" in what else ""
    return Reason("quota", f"{of} has as many {counted} as its limit allows{each}")


def _is_of_one(kind: str, what: str) -> bool:
    """Is it about what one job asks for, and not about how much there is at a time?"""
    return "PerJob" in what or "PerNode" in what or (kind == "Max" and "Wall" in what)


def is_out_of_reach(said: str) -> bool:
    """Did a command fail because the controller cannot be asked? What `sbatch` failed for is its own last word: what
    stands before that may be the site's."""
    submits = [line for line in said.splitlines() if _SUBMIT_FAILED in line]
    return any(_TROUBLES.fullmatch(line) for line in _lines("\n".join(submits[-1:]) or said))


def explain_refusal(said: str) -> Reason:
    """What `sbatch` printed -> why it was refused, for a person, with what would work."""
    lines = _lines(said)
    if limit := _limit(lines):
        return _over_limit(limit, _less(limit[3]))
    for words, code, text, hint in _REFUSALS:
        if any(re.fullmatch(words, line, re.IGNORECASE) for line in lines):
            return Reason(code, text, _detail(_word_for_word(lines), hint))
    return Reason("not_started", f"Slurm refused it: {_word_for_word(lines) or 'without a word'}")


def explain_full(said: str) -> Reason | None:
    """If it was refused only because there are as many jobs as Slurm's books allow: one that comes later is taken."""
    limit = _limit(_lines(said))
    if limit is None or "Submit" not in limit[3]:
        return None
    return _over_limit(limit, f"it is submitted when some of them have ended; if there are none, {_ASK}")


def _limit(lines: Sequence[str]) -> re.Match[str] | None:
    return next((found for line in lines if (found := _LIMIT.fullmatch(line))), None)


def _over_limit(limit: re.Match[str], hint: str) -> Reason:
    return Reason("quota", _explain_limit(*limit.groups()).text, _detail(limit[0], hint))


def _less(what: str) -> str:
    return "use a shorter `--time`" if "Wall" in what else "ask for less"


def last_words(said: str) -> str:
    """The last line of what a command said, without its own name before it; all of them if the last says nothing."""
    lines = _lines(said)
    return _word_for_word(lines if lines and lines[-1] in _GENERIC else lines[-1:])


def _word_for_word(lines: Sequence[str]) -> str:
    telling = [line for line in dict.fromkeys(lines) if line not in _GENERIC]
    return "; ".join(telling or lines[-1:])[:500]


def _lines(said: str) -> list[str]:
    """Without what commands say before each: `sbatch: error: `, `Kill job error on job id 7: `; and ` for job 7`."""
    bare = (_BEFORE.sub("", line.strip()) for line in said.splitlines())
    return [line for line in (re.sub(r" for job \d\S*$", "", line) for line in bare) if line]


def explain_end(state: str) -> tuple[Ending, Reason] | None:
    """What Slurm itself did to a job; None where it only watched the job end."""
    if state not in _ENDS:
        return None
    ending, code, text = _ENDS[state]
    return ending, Reason(code, text)


def _detail(said: str, hint: str) -> str:
    return _joined(f" (Slurm: {said})", hint)


def _joined(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text
