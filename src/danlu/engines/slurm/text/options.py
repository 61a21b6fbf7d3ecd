"""The options of `sbatch` and the files in a run's folder. Pure.

The files, read and written by the run's own user on its node:

    script   the batch script: starts the run once, watches its time limit, stops the run, writes `exit`
    inside   starts a command in the run's folder and environment; shells use the program too
    rank     on several nodes: starts `inside` on each node (see render.py)
    env      the environment, readable by the user only
    began    token, restart, node, start: created exclusively, so a duplicate of the run ends without an effect
    stop     grace and notice of a stop, written by the server before the wake signal
    exit     the end: code, times, text
"""

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from danlu.domain.job import DEFAULT_PRIORITY
from danlu.domain.parsing import Notice
from danlu.domain.resources import model_fits
from danlu.engines.base import Ending, Launch

# Exit codes of scripts without an effect: the run started elsewhere, or its folder is gone.
ALREADY_BEGUN = 98
NO_FOLDER = 97
WAKE_SIGNAL = "URG"  # to the script: "read `stop`"; a process without a handler ignores SIGURG
NICE_PER_STEP = 10_000  # jobs behind, where Slurm keeps the order of arrival
MOST_RESTARTS = 10_000
_LONGEST_NAME = 100
# Slurm sets these variables: GPUs of the run, and its own settings.
_SLURMS_OWN = re.compile(r"SLURM|SBATCH_|SRUN_|SALLOC_|PMI_|PMIX_")
_CARDS = frozenset(
    {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}
)
_SHELLS_OWN = frozenset(
    [
        "BASHOPTS",
        "BASH_ENV",
        "BASH_VERSINFO",
        "BASH_ARGC",
        "BASH_ARGV",
        "BASH_LINENO",
        "BASH_SOURCE",
        "DANLU_NODE",
        "DIRSTACK",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "OLDPWD",
        "PIPESTATUS",
        "PPID",
        "PWD",
        "SHELLOPTS",
        "SHLVL",
        "UID",
        "_",
    ]
)


@dataclass(frozen=True, slots=True)
class ClusterTraits:
    """Properties of the cluster that change the options of `sbatch`."""

    has_accounts: bool = False
    models: tuple[str, ...] = ()  # GPU types in Slurm's spelling
    longest: Mapping[str, timedelta | None] | None = None  # limit of each partition
    default_partition: str = ""
    may_go_first: bool = False
    enforces_memory: bool = True  # Slurm ends a run above its requested memory
    reaches_all: bool = True  # Slurm signals every process of a run, not only the first


@dataclass(frozen=True, slots=True)
class Begun:
    token: str
    restart: int
    number: int
    node: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Ended:
    token: str
    restart: int
    ending: Ending
    exit_code: int | None
    started_at: datetime | None
    ended_at: datetime | None
    text: str
    by_slurm: bool = False  # Slurm ended the run: Slurm's state explains the end
    note: str = ""  # for the owner of the run


def render_comment(instance: str, run_id: str) -> str:
    return f"danlu:{instance}:{run_id}"


@lru_cache(maxsize=1 << 15)
def parse_comment(comment: str) -> tuple[str, str] | None:
    """Installation and run id in a job's comment."""
    match = re.fullmatch(r"danlu:([0-9a-z]+):([\w.\-]+)", comment)
    return (match[1], match[2]) if match else None


def render_options(launch: Launch, comment: str, log: str, traits: ClusterTraits) -> list[str]:
    """The options of `sbatch`. No secrets: all users of the machine can read command lines."""
    ask = launch.ask
    name = launch.name or launch.command[0].rpartition("/")[2]
    options = [
        "--parsable",
        f"--job-name={name[:_LONGEST_NAME]}",
        f"--comment={comment}",
        f"--output={log.replace('%', '%%')}",
        "--open-mode=append",
        "--chdir=/",
        "--requeue",
        "--propagate=NONE",  # the run does not inherit the server's resource limits
        f"--nodes={ask.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={ask.cpus}",
    ]
    if ask.memory_mib:
        options.append(f"--mem={ask.memory_mib}M")
    if ask.gpus:
        options.append(f"--gres=gpu:{_model(ask.gpu_model, traits.models)}{ask.gpus}")
    if ask.shards:
        options.append(f"--gres=shard:{_model(ask.gpu_model, traits.models)}{ask.shards}")
    if launch.queue:
        options.append(f"--partition={launch.queue}")
    if launch.team and traits.has_accounts:
        options.append(f"--account={launch.team}")
    if launch.time_limit:
        longest = (traits.longest or {}).get(launch.queue or traits.default_partition)
        options.append(f"--time={limit_minutes(launch.time_limit, launch.grace, longest)}")
    if (nice := nice_of(launch.priority, is_boosted=launch.is_boosted)) > 0:
        options.append(f"--nice={nice}")
    return options


def nice_of(priority: int, *, is_boosted: bool) -> int:
    """Slurm's `Nice`: larger is later. Only administrators of Slurm may set a negative value, and not with `sbatch`."""
    boost = NICE_PER_STEP // 2 if is_boosted else 0
    return (DEFAULT_PRIORITY - priority) * NICE_PER_STEP - boost


def limit_minutes(limit: timedelta, grace: timedelta, longest: timedelta | None) -> int:
    """Slurm's limit in minutes, as late as grace and queue allow: the script itself ends the run at the exact limit."""
    own = _minutes(limit)
    later = _minutes(limit + grace) + 1
    return later if longest is None or later <= _minutes(longest) else max(own, min(later, _minutes(longest)))


def _minutes(duration: timedelta) -> int:
    return max(1, -(-round(duration.total_seconds()) // 60))


def _model(wanted: str | None, models: Collection[str]) -> str:
    if wanted is None:
        return ""
    return f"{next((model for model in models if model_fits(model, wanted)), wanted)}:"


def render_env(env: Mapping[str, str]) -> tuple[str, list[str]]:
    """The environment as a file for bash, and the left out names (invalid in a shell)."""
    lines, left_out = [], []
    for name, value in env.items():
        function = re.fullmatch(r"BASH_FUNC_([A-Za-z_][\w.:-]*)(?:%%|\(\))", name)
        if name in _CARDS or name in _SHELLS_OWN or _SLURMS_OWN.match(name):
            continue
        if function and value.startswith("() {"):
            lines.append(f"{function[1]} {value}\nexport -f {function[1]}")
        elif re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            lines.append(f"export {name}={shlex.quote(value)}")
        else:
            left_out.append(name)
    return "\n".join([*lines, ""]), left_out


def render_stop(grace: timedelta, notice: Notice | None) -> str:
    lines = [f"grace={milliseconds(grace)}"]
    if notice:
        lines += [f"notice={notice.signal}", f"lead={milliseconds(notice.lead)}"]
    return "\n".join([*lines, ""])


def parse_begun(text: str) -> Begun | None:
    facts = _facts(text)
    restart, job = _restarts(facts), _count(facts.get("job", ""))
    if "token" not in facts or restart is None or job is None:
        return None
    return Begun(facts["token"], restart, job, facts.get("node", ""), _moment(facts.get("started", "")))


def parse_ended(text: str) -> Ended | None:
    facts = _facts(text)
    restart = _restarts(facts)
    if facts.get("ending") not in {ending.value for ending in Ending} or restart is None:
        return None
    code = facts.get("code", "")
    return Ended(
        token=facts.get("token", ""),
        restart=restart,
        ending=Ending(facts["ending"]),
        exit_code=int(code) if re.fullmatch(r"[0-9]{1,3}", code) else None,
        started_at=_moment(facts.get("started", "")),
        ended_at=_moment(facts.get("ended", "")),
        text=facts.get("text", "")[:500],
        by_slurm=bool(facts.get("slurm")),
        note=facts.get("note", "")[:500],
    )


def _facts(text: str) -> dict[str, str]:
    return {name: value for name, equals, value in (line.partition("=") for line in text.split("\n")) if equals}


def _restarts(facts: Mapping[str, str]) -> int | None:
    """Limited: the removal of a job looks for a folder of each attempt."""
    count = _count(facts.get("restart", ""))
    return None if count is None else min(count, MOST_RESTARTS)


def _count(text: str) -> int | None:
    """A small number; None for anything else in a user's file."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _moment(text: str) -> datetime | None:
    """Milliseconds since 1970."""
    return datetime.fromtimestamp(int(text) / 1000, UTC) if re.fullmatch(r"[0-9]{10,14}", text) else None


def milliseconds(duration: timedelta) -> int:
    # Bash counts in 64 bits, and `sleep` accepts a year.
    return min(max(round(duration.total_seconds() * 1000), 0), 366 * 86_400_000)
