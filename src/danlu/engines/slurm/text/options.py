"""What Slurm is given for a run: the options of `sbatch`, and the files in the run's folder. Pure.

The files, read and written by the run's own user on its node:

    script   the batch script: begins the run once, watches its time, ends it as told, writes how it ended
    inside   starts one command in the run's folder and environment; shells use it too
    rank     on several nodes, what starts `inside` on each of them (see slurm_ranks)
    env      the environment, which no other user may read
    began    token, restart, node, start: made exclusively, so a second copy of the run ends without a deed
    stop     how the run is to be ended, written by the server before it rings the script
    exit     how it ended
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

# Exit codes of scripts that did nothing: the run has begun elsewhere, or its folder is gone.
ALREADY_BEGUN = 98
NO_FOLDER = 97
BELL = "URG"  # to the script alone: "read `stop`"; one that comes before bash listens does no harm
NICE_PER_STEP = 10_000  # where Slurm keeps the order of arrival: so many jobs further back
MOST_RESTARTS = 10_000
_LONGEST_NAME = 100
# Slurm says which cards are the run's; what it says of itself is not overruled either.
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
class Habits:
    """What is so on this cluster, and changes the options of a submit."""

    has_accounts: bool = False
    models: tuple[str, ...] = ()  # types of cards as Slurm names them
    longest: Mapping[str, timedelta | None] | None = None  # of each partition
    default_partition: str = ""
    may_go_first: bool = False
    holds_memory: bool = True  # a run that takes more memory than it asked for is ended
    reaches_all: bool = True  # a signal of Slurm's reaches every process of a run, not only the one that Slurm started


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
    by_slurm: bool = False  # Slurm told it to end: its own word on the end counts
    note: str = ""  # what its owner should know of it


def render_comment(instance: str, run_id: str) -> str:
    return f"danlu:{instance}:{run_id}"


@lru_cache(maxsize=1 << 15)
def parse_comment(comment: str) -> tuple[str, str] | None:
    """The installation and the run that a job's comment names."""
    match = re.fullmatch(r"danlu:([0-9a-z]+):([\w.\-]+)", comment)
    return (match[1], match[2]) if match else None


def render_options(launch: Launch, comment: str, log: str, habits: Habits) -> list[str]:
    """The options of `sbatch` for a launch: nothing secret, everyone on the machine can read them."""
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
        "--propagate=NONE",  # limits of the server's process are not the run's
        f"--nodes={ask.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={ask.cpus}",
    ]
    if ask.memory_mib:
        options.append(f"--mem={ask.memory_mib}M")
    if ask.gpus:
        options.append(f"--gres=gpu:{_model(ask.gpu_model, habits.models)}{ask.gpus}")
    if ask.shards:
        options.append(f"--gres=shard:{_model(ask.gpu_model, habits.models)}{ask.shards}")
    if launch.queue:
        options.append(f"--partition={launch.queue}")
    if launch.team and habits.has_accounts:
        options.append(f"--account={launch.team}")
    if launch.time_limit:
        longest = (habits.longest or {}).get(launch.queue or habits.default_partition)
        options.append(f"--time={limit_minutes(launch.time_limit, launch.grace, longest)}")
    if (nice := nice_of(launch.priority, is_boosted=launch.is_boosted)) > 0:
        options.append(f"--nice={nice}")
    return options


def nice_of(priority: int, *, is_boosted: bool) -> int:
    """How far back in the queue of Slurm. Less than nothing is a place before others: only who administers Slurm may
    give it, and not by an option of `sbatch`."""
    boost = NICE_PER_STEP // 2 if is_boosted else 0
    return (DEFAULT_PRIORITY - priority) * NICE_PER_STEP - boost


def limit_minutes(limit: timedelta, grace: timedelta, longest: timedelta | None) -> int:
    """The script ends the run at its limit, to the millisecond; Slurm, which counts minutes, comes after it:
    as much later as the run's grace needs and its queue allows."""
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
    """The environment as a file for bash, and the names that no shell can pass on."""
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
    """Whoever claims a billion would have as many runs looked for when the job is removed."""
    count = _count(facts.get("restart", ""))
    return None if count is None else min(count, MOST_RESTARTS)


def _count(text: str) -> int | None:
    """What a person's own files say is not believed to be a number that fits anywhere."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _moment(text: str) -> datetime | None:
    """Milliseconds since 1970."""
    return datetime.fromtimestamp(int(text) / 1000, UTC) if re.fullmatch(r"[0-9]{10,14}", text) else None


def milliseconds(duration: timedelta) -> int:
    # Bash counts in 64 bits, and `sleep` takes a year.
    return min(max(round(duration.total_seconds() * 1000), 0), 366 * 86_400_000)
