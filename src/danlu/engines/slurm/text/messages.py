"""Translates Slurm's messages (a job waits, ended, was refused) into reasons. Pure."""

import re
from collections.abc import Sequence

from danlu.domain.job import Reason
from danlu.domain.reasons import ReasonCode
from danlu.engines.base import Ending

_NOT_IN_GROUP = ("the user's groups may not use this queue", "try another `--queue`")
# Reason of `squeue` for a pending job -> code, text, hint.
_WAITS: dict[str, tuple[str, str, str]] = {
    "None": ("slurm_new", "accepted by Slurm, not yet scheduled", ""),
    "Resources": ("no_room", "not enough cards, cores or memory are free", ""),
    "Priority": ("behind", "jobs with higher priority are ahead in its queue", ""),
    "Dependency": ("dependency", "another Slurm job must end first", ""),
    "DependencyNeverSatisfied": ("dependency_failed", "its dependency can no longer be met", "stop the job"),
    "BeginTime": ("begin_time", "its begin time in Slurm has not come", ""),
    "JobHeldUser": ("held", "the job is held", "`scontrol release`, or stop the job"),
    "JobHeldAdmin": ("held", "an administrator of Slurm holds the job", "ask the administrator"),
    "JobHoldMaxRequeue": ("held", "Slurm restarted the job too often, and holds it", "see its log, and stop the job"),
    "JobArrayTaskLimit": ("array_limit", "the limit of running tasks of its array is reached", ""),
    "Licenses": ("no_licenses", "no licence is free", ""),
    "Reservation": ("reservation", "its reservation has not begun", ""),
    "ReservationDeleted": ("reservation", "its reservation is gone", "stop the job, and submit without a reservation"),
    "Cleaning": ("slurm_new", "Slurm cleans up after its previous attempt", ""),
    "Prolog": ("starting", "Slurm prepares the node", ""),
    "NonZeroExitCode": ("failed", "the job failed", ""),
    "InvalidAccount": ("slurm_account", "Slurm has no such account for this user", "ask the administrators of Slurm"),
    "InvalidQOS": ("slurm_account", "its quality of service is not allowed here", "ask the administrators of Slurm"),
    "AccountNotAllowed": ("slurm_account", "the account of its team may not use this queue", "try another `--queue`"),
    "QOSNotAllowed": ("slurm_account", "its quality of service may not use this queue", "try another `--queue`"),
    "BadConstraints": ("too_big", "no node has the requested resources", "ask for less: `danlu nodes` lists all nodes"),
    "PartitionConfig": ("too_big", "no node of its queue has the requested resources", "ask for less or another queue"),
    "PartitionNodeLimit": ("too_big", "asks for more nodes than its queue allows", "ask for fewer `--nodes`"),
    "PartitionTimeLimit": ("time_limit", "its time limit is longer than its queue allows", "use a shorter `--time`"),
    "PartitionDown": ("closed", "its queue accepts jobs, but starts none at present", "try another `--queue`"),
    "PartitionInactive": ("closed", "its queue is switched off", "try another `--queue`"),
    "NodeDown": ("closed", "a required node is down", ""),
    "ReqNodeNotAvail": ("closed", "required nodes accept no new jobs at present", "see `danlu nodes`"),
    "Nodes_required_for_job_are_DOWN": (
        "closed", "all suitable nodes are down, drained or reserved", "see `danlu nodes`",
    ),
    "FrontEndDown": ("closed", "the required nodes are down", ""),
    "launch_failed_requeued_held": (
        "held", "its node could not start the job, and Slurm holds it", "the log of slurmd has the cause",
    ),
    "job_requeued_in_held_state": ("held", "Slurm requeued and holds the job", "`scontrol release`, or stop the job"),
    "MaxCpuPerAccount": ("quota", "the core limit of its account in Slurm is reached", ""),
}  # fmt: skip
_COUNTED = {
    "GRES": "GPUs", "Gres": "GPUs", "Cpu": "cores", "CPU": "cores", "Mem": "memory", "Memory": "memory",
    "Node": "nodes", "Jobs": "jobs", "Job": "jobs", "Submit": "jobs", "Wall": "time",
    "Billing": "billing units",
}  # fmt: skip
# Some reasons of `squeue` are sentences: patterns of their beginnings.
_LONG_WAITS: tuple[tuple[str, str, str, str], ...] = (
    (r"Job's account not permitted to use this partition", *_WAITS["AccountNotAllowed"]),
    (r"Job's QOS not permitted to use this partition", *_WAITS["QOSNotAllowed"]),
    (r"uid \d+ not in group permitted to use this partition", "slurm_user", *_NOT_IN_GROUP),
)
_LESS = "ask for less, or a shorter `--time`"
_ASK = "ask the administrators of Slurm"
# A line of `sbatch` (22.05 and 24.11) about a refusal -> code, text, hint.
# Order matters: specific lines before the generic lines printed with them.
_REFUSALS: tuple[tuple[str, str, str, str], ...] = (
    (r"invalid partition specified: .*|Invalid partition name specified", "no_queue", "Slurm has no such queue",
     "`danlu queues` lists them"),
    (r"No partition specified or system default partition", "no_queue", "Slurm has no default queue",
     "name one: `danlu queues` lists them"),
    (r"(Invalid|Duplicate) generic resource \(gres\) specification|Invalid GRES specification .*"
     r"|Insufficient GRES available in allocation|Invalid Trackable RESource \(TRES\) specification"
     r"|Requested GRES option unsupported by configured SelectType plugin|RestrictedCoresPerGPU: .*",
     "no_cards", "Slurm has no such GPUs", "`danlu gpus` lists all models"),
    (r"Memory specification can not be satisfied|Memory required by task is not available", "too_big",
     "no node has the requested memory", "ask for less `--mem`"),
    (r"CPU count per node can not be satisfied|CPU count specification invalid|More processors requested than permitted"
     r"|Requested more tasks than available processors|Task count specification invalid", "too_big",
     "no node has the requested cores", "ask for fewer `--cpus`"),
    (r"Node count specification invalid", "too_big", "asks for more nodes than exist", "ask for fewer `--nodes`"),
    (r"Requested partition configuration not available now", "too_big", "above the limits of its queue (size or time)",
     "ask for less, a shorter `--time`, or another `--queue`"),
    (r"Requested (node|topology) configuration is not available|Requested nodes not in this partition", "too_big",
     "no node of its queue has the requested resources", "ask for less: `danlu nodes`"),
    (r"Job size specification needs to be provided", "too_big", "Slurm needs the size of the job",
     "name `--cpus` and `--mem`"),
    (r"Requested time limit is invalid \(missing or exceeds some limit\)|Time limit specification required, .*",
     "time_limit", "no time limit, or a limit above the queue's maximum", "use a shorter `--time`"),
    (r"Invalid (--)?time(-min)? specifi.*", "time_limit", "Slurm does not accept the time limit",
     "use another `--time`"),
    (r"Invalid account or account/partition combination specified|Invalid or unknown association"
     r"|Multiple partition job request not supported when a partition is set in the association",
     "slurm_account", "Slurm has no such account for this user in this queue", f"`sacctmgr` adds accounts: {_ASK}"),
    (r"Invalid qos specification(, relative QOS .*)?|Invalid wckey specification", "slurm_account",
     "its quality of service is not allowed here", _ASK),
    (r"Job violates accounting/QOS policy .*", "quota", "above Slurm's own limits", _LESS),
    (r"Requested account has breached requested QOS usage threshold", "quota",
     "the quality of service in Slurm is used up for its account", _ASK),
    (r"Invalid node name specified|Invalid node list specified", "no_nodes", "Slurm has no such node",
     "`danlu nodes` lists them"),
    (r"Invalid (preferred )?feature specification|Invalid extra constraints specification"
     r"|Active features not subset of available features", "no_nodes", "no node has this feature",
     "`sinfo -o '%N %f'` lists all features"),
    (r"User's group not permitted to use this partition", "slurm_user", *_NOT_IN_GROUP),
    (r"Invalid (user|group) id|Unable to resolve (user|group) ID to .*|(User|Group ID) not found on host"
     r"|Missing UNIX (user|group) in the system", "slurm_user", "Slurm does not know this user",
     "the account must exist on every node"),
    (r"Access/permission denied", "slurm_user", "Slurm does not permit this to the user",
     f"try another `--queue`, or {_ASK}"),
    (r"Required partition not available \(inactive or drain\)|Partition in DOWN state", "closed",
     "its queue accepts no jobs at present", "try another `--queue`"),
    (r"Required node not available \(down, drained or reserved\)|Job can not start due to maintenance reservation\.",
     "closed", "required nodes accept no new jobs at present", "see `danlu nodes`"),
    (r"(Access denied to requested|Requested) reservation( is invalid| is in use| not usable now)?", "reservation",
     "the reservation cannot be used", _ASK),
    (r"Invalid license specification|Licenses currently unavailable", "no_licenses", "Slurm has no such licence", _ASK),
    (r"Job dependency problem|Circular job dependency", "dependency_failed", "its dependency does not exist", ""),
)  # fmt: skip
# Messages about the controller or the way to it: they say nothing about the job. Whole lines only: a plugin of the
# site has its own texts for refusals, perhaps with similar words.
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
# Messages of `scancel` for an ended job, as for the parts of a job after a stop of another part.
ALREADY_OVER = frozenset({"Invalid job id specified", "Job/step already completing or completed"})
# Lines without a cause: the lines before name the cause.
_GENERIC = frozenset({"Unspecified error", "Generic error", "cli_filter plugin terminated with error"})
_SUBMIT_FAILED = "Batch job submission failed: "
_BEFORE = re.compile(
    rf"^(?:(?:\w+: )?(?:[Ee]rror|fatal): )?(?:{_SUBMIT_FAILED}|\w+ error: |Kill job error on job id \S+: )?(?=\S)"
)
_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max)([A-Za-z]*)")
_ENDS: dict[str, tuple[Ending, str, str]] = {
    "TIMEOUT": (Ending.TIMED_OUT, "timed_out", "stopped at its time limit"),
    "DEADLINE": (Ending.TIMED_OUT, "timed_out", "stopped at its deadline"),
    "CANCELLED": (Ending.STOPPED, "stopped", "cancelled in Slurm"),
    "NODE_FAIL": (Ending.LOST, "lost", "its node failed"),
    "BOOT_FAIL": (Ending.LOST, "lost", "its node did not boot"),
    "PREEMPTED": (Ending.LOST, "preempted", "preempted by Slurm for a job with higher priority"),
    "REVOKED": (Ending.LOST, "lost", "Slurm moved the job to another cluster"),
    "OUT_OF_MEMORY": (Ending.EXITED, "out_of_memory", "killed: it used more memory than requested"),
}


def explain_wait(reason: str) -> Reason:
    """`Resources` -> a reason for people. Unknown reasons keep Slurm's text."""
    word = re.match(r"[A-Za-z_]*", reason.replace(" ", "_"))
    known = _WAITS.get(reason) or _WAITS.get(word[0] if word else "")
    if known is None and (limit := _LIMIT.match(reason)):
        hint = f"{_less(limit[3])}: waiting does not help" if _is_of_one(limit[2], limit[3]) else ""
        return Reason(ReasonCode.QUOTA, _joined(_explain_limit(*limit.groups()).text, hint))
    known = known or next((row[1:] for row in _LONG_WAITS if re.match(row[0], reason)), None)
    if known is None:
        return Reason("slurm", f"Slurm says: {reason}")
    code, text, hint = known
    names = re.search(r"UnavailableNodes:(\S+?)\)?$", reason)
    return Reason(code, _joined(f"{text} ({names[1]})" if names else text, hint))


def _explain_limit(whose: str, kind: str, what: str) -> Reason:
    """`AssocGrpGRES`, `QOSMaxJobsPerUserLimit`: limits by the administrators of Slurm."""
    of = "its account in Slurm" if whose == "Assoc" else "its quality of service in Slurm"
    limited = what.partition("Per")[0]  # without its scope: job, user
    counted = next((word for key, word in _COUNTED.items() if key in limited), "resources")
    if _is_of_one(kind, what):
        much = "much" if counted in ("memory", "time") else "many"
        return Reason(ReasonCode.QUOTA, f"too {much} {counted} for one job ({of})")
    each = " per user" if "PerUser" in what else ""
    return Reason(ReasonCode.QUOTA, f"{of} has reached its limit of {counted}{each}")


def _is_of_one(kind: str, what: str) -> bool:
    """True: a limit of the request of one job, not of the use at a time."""
    return "PerJob" in what or "PerNode" in what or (kind == "Max" and "Wall" in what)


def is_out_of_reach(stderr: str) -> bool:
    """True: a command failed because the controller is out of reach. The last line of `sbatch` names the cause: lines
    before may come from the site."""
    submits = [line for line in stderr.splitlines() if _SUBMIT_FAILED in line]
    return any(_TROUBLES.fullmatch(line) for line in _lines("\n".join(submits[-1:]) or stderr))


def explain_refusal(stderr: str) -> Reason:
    """Output of `sbatch` -> the reason of the refusal, with a hint."""
    lines = _lines(stderr)
    if limit := _limit(lines):
        return _over_limit(limit, _less(limit[3]))
    for pattern, code, text, hint in _REFUSALS:
        if any(re.fullmatch(pattern, line, re.IGNORECASE) for line in lines):
            return Reason(code, text, _detail(_quoted(lines), hint))
    return Reason(ReasonCode.NOT_STARTED, f"Slurm refused the job: {_quoted(lines) or 'without a message'}")


def explain_full(stderr: str) -> Reason | None:
    """The reason if a job limit of Slurm is reached: a later submit can succeed. None for other refusals."""
    limit = _limit(_lines(stderr))
    if limit is None or "Submit" not in limit[3]:
        return None
    return _over_limit(limit, f"Danlu submits the job when others end; if no other job exists, {_ASK}")


def _limit(lines: Sequence[str]) -> re.Match[str] | None:
    return next((found for line in lines if (found := _LIMIT.fullmatch(line))), None)


def _over_limit(limit: re.Match[str], hint: str) -> Reason:
    return Reason(ReasonCode.QUOTA, _explain_limit(*limit.groups()).text, _detail(limit[0], hint))


def _less(what: str) -> str:
    return "use a shorter `--time`" if "Wall" in what else "ask for less"


def last_words(stderr: str) -> str:
    """The last line of a command's stderr, without the command's name; all lines if the last has no cause."""
    lines = _lines(stderr)
    return _quoted(lines if lines and lines[-1] in _GENERIC else lines[-1:])


def _quoted(lines: Sequence[str]) -> str:
    telling = [line for line in dict.fromkeys(lines) if line not in _GENERIC]
    return "; ".join(telling or lines[-1:])[:500]


def _lines(stderr: str) -> list[str]:
    """Lines without their prefixes (`sbatch: error: `, `Kill job error on job id 7: `) and without ` for job 7`."""
    bare = (_BEFORE.sub("", line.strip()) for line in stderr.splitlines())
    return [line for line in (re.sub(r" for job \d\S*$", "", line) for line in bare) if line]


def explain_end(state: str) -> tuple[Ending, Reason] | None:
    """The end of a job by Slurm; None: the job ended by itself."""
    if state not in _ENDS:
        return None
    ending, code, text = _ENDS[state]
    return ending, Reason(code, text)


def _detail(said: str, hint: str) -> str:
    return _joined(f" (Slurm: {said})", hint)


def _joined(text: str, hint: str) -> str:
    return f"{text}; {hint}" if hint else text
