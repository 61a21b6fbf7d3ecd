"""What Slurm is given for a run: the options of `sbatch`, and the files in the run's folder. Pure.

The files, read and written by the run's own user on its node:

    script   the batch script: begins the run once, watches its time, ends it as told, writes how it ended
    inside   starts one command in the run's folder and environment; shells use it too
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

from danlu.domain.job import DEFAULT_PRIORITY
from danlu.domain.resources import model_fits
from danlu.domain.written import Notice
from danlu.engines.base import Ending, Launch

# Exit codes of scripts that did nothing: the run has begun elsewhere, or its folder is gone.
ALREADY_BEGUN = 98
NO_FOLDER = 97
BELL = "URG"  # to the script alone: "read `stop`"; one that comes before bash listens does no harm
NICE_PER_STEP = 1000
MAX_NICE_STEPS = 4
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


def render_comment(instance: str, run_id: str) -> str:
    return f"danlu:{instance}:{run_id}"


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
    if launch.priority < DEFAULT_PRIORITY:
        options.append(f"--nice={min(DEFAULT_PRIORITY - launch.priority, MAX_NICE_STEPS) * NICE_PER_STEP}")
    return options


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
    lines = [f"grace={_ms(grace)}"]
    if notice:
        lines += [f"notice={notice.signal}", f"lead={_ms(notice.lead)}"]
    return "\n".join([*lines, ""])


def parse_begun(text: str) -> Begun | None:
    facts = _facts(text)
    if not {"token", "restart", "job"} <= facts.keys() or not (facts["restart"] + facts["job"]).isdigit():
        return None
    started_at = _moment(facts.get("started", ""))
    return Begun(facts["token"], int(facts["restart"]), int(facts["job"]), facts.get("node", ""), started_at)


def parse_ended(text: str) -> Ended | None:
    facts = _facts(text)
    if facts.get("ending") not in {ending.value for ending in Ending} or not facts.get("restart", "").isdigit():
        return None
    code = facts.get("code", "")
    return Ended(
        token=facts.get("token", ""),
        restart=int(facts["restart"]),
        ending=Ending(facts["ending"]),
        exit_code=int(code) if re.fullmatch(r"\d{1,3}", code) else None,
        started_at=_moment(facts.get("started", "")),
        ended_at=_moment(facts.get("ended", "")),
        text=facts.get("text", "")[:500],
        by_slurm=bool(facts.get("slurm")),
    )


def _facts(text: str) -> dict[str, str]:
    return {name: value for name, equals, value in (line.partition("=") for line in text.split("\n")) if equals}


def _moment(text: str) -> datetime | None:
    """Milliseconds since 1970."""
    return datetime.fromtimestamp(int(text) / 1000, UTC) if re.fullmatch(r"\d{10,14}", text) else None


def _ms(duration: timedelta) -> int:
    # Bash counts in 64 bits, and `sleep` takes a year.
    return min(max(round(duration.total_seconds() * 1000), 0), 366 * 86_400_000)


def render_script(launch: Launch, folder: str, token: str) -> str:
    notice = launch.notice
    given = {
        "folder": folder,
        "token": token,
        "nodes": str(launch.ask.nodes),
        "cpus": str(launch.ask.cpus),
        "limit": str(_ms(launch.time_limit)) if launch.time_limit else "",
        "grace": str(_ms(launch.grace)),
        "notice": notice.signal if notice else "",
        "lead": str(_ms(notice.lead)) if notice else "0",
    }
    return "\n".join(
        [
            "#!/bin/bash",
            f"# The run {launch.run_id} of Danlu. What its parts are for: see `danlu show`.",
            *(f"{name}={shlex.quote(value)}" for name, value in given.items()),
            f"command=({' '.join(map(shlex.quote, launch.command))})",
            _SCRIPT,
        ]
    )


def render_inside(launch: Launch, folder: str) -> str:
    given = {"folder": folder, "workdir": launch.workdir, "mask": f"{launch.umask:04o}", "nodes": str(launch.ask.nodes)}
    return "\n".join(
        ["#!/bin/bash", *(f"__danlu_{name}={shlex.quote(value)}" for name, value in given.items()), _INSIDE]
    )


_SCRIPT = (
    f"already_begun={ALREADY_BEGUN} no_folder={NO_FOLDER}"
    + r"""
unset BASH_ENV ENV
restart=${SLURM_RESTART_COUNT:-0}
node=${SLURMD_NODENAME:-${HOSTNAME:-}}
umask 0077
exec 3>&2 2>/dev/null # what bash says of its jobs is nobody's business; the run gets the log back

clock() { # milliseconds since 1970, in $now
  local precise=${EPOCHREALTIME:-}
  if [ -n "$precise" ]; then precise=${precise/[.,]/}; now=${precise%???}; else now=$(date +%s%3N); fi
}
fact() { # NAME FILE
  local name value
  while IFS='=' read -r name value; do [ "$name" = "$1" ] && { printf %s "$value"; return; }; done < "$2"
}
pause() { sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }

# Begin once: a link to a file that is there already fails, on every file system. Slurm's own requeue goes on.
clock; started=$now
mine="$folder/.begin.$SLURM_JOB_ID.$restart.$node.$$"
printf '%s\n' "token=$token" "restart=$restart" "job=$SLURM_JOB_ID" "node=$node" "started=$started" > "$mine" \
  || exit "$no_folder"
if ! ln "$mine" "$folder/began"; then
  was=$(fact restart "$folder/began")
  if [ "$(fact token "$folder/began")" != "$token" ] || [ "$(fact job "$folder/began")" != "$SLURM_JOB_ID" ] \
    || [ "$restart" -le "${was:-0}" ]; then
    rm -f "$mine"; exit "$already_begun"
  fi
  mv -f "$mine" "$folder/began"
fi
rm -f "$mine" "$folder/.failed" "$folder/exit"

finish() { # ENDING CODE TEXT
  # What a lost node left behind does not speak for the run that Slurm began again elsewhere.
  if [ "$(fact restart "$folder/began")" = "$restart" ]; then
    clock
    printf '%s\n' "token=$token" "restart=$restart" "ending=$1" "code=$2" "started=$started" "ended=$now" "node=$node" \
      "slurm=$slurm" "text=${3//$'\n'/ }" > "$folder/.exit.$node.$$" && mv -f "$folder/.exit.$node.$$" "$folder/exit"
  fi
  exit "${2:-1}"
}

ending=exited slurm= term_by= kill_by= ender= child= rang=
tell() { # SIGNAL
  if [ "$nodes" -gt 1 ]; then scancel --signal="$1" "$SLURM_JOB_ID.0"; else kill -s "$1" -- "-$child"; fi
}
end_at() { # TERM_AT KILL_AT: only ever sooner
  [ -n "$kill_by" ] && [ "$1" -ge "$term_by" ] && [ "$2" -ge "$kill_by" ] && return
  { [ -z "$term_by" ] || [ "$1" -lt "$term_by" ]; } && term_by=$1
  { [ -z "$kill_by" ] || [ "$2" -lt "$kill_by" ]; } && kill_by=$2
  [ -n "$ender" ] && kill -KILL -- "-$ender"
  (
    clock; [ "$term_by" -gt "$now" ] && pause $((term_by - now))
    if [ "$kill_by" -gt "$term_by" ]; then tell TERM; clock; [ "$kill_by" -gt "$now" ] && pause $((kill_by - now)); fi
    tell KILL
    # A step that does not die of this is Slurm's to end.
    [ "$nodes" -gt 1 ] && { pause 5000; kill -KILL -- "-$child"; }
  ) &
  ender=$!
}
asked() {
  rang=1
  [ -e "$folder/stop" ] || return
  local grace_ms notice_now lead_ms
  grace_ms=$(fact grace "$folder/stop") notice_now=$(fact notice "$folder/stop") lead_ms=$(fact lead "$folder/stop")
  [ "$ending" = exited ] && ending=stopped
  clock
  [ -n "$notice_now" ] && [ -z "$kill_by" ] && tell "$notice_now"
  end_at $((now + ${lead_ms:-0})) $((now + ${lead_ms:-0} + ${grace_ms:-0}))
}
late() {
  rang=1
  [ "$ending" = exited ] && ending=timed_out
  clock
  end_at "$now" $((now + grace))
}

[ -e "$folder/stop" ] && finish stopped '' 'stopped before it started'
set -m # each background job is a process group
if [ "$nodes" -gt 1 ]; then
  first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  address=$first
  # A name that nobody can look up has an address in Slurm's configuration.
  getent hosts "$first" > /dev/null \
    || address=$(scontrol -o show node "$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  export DANLU_MASTER_ADDR="${address:-$first}" DANLU_MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
  srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="$cpus" \
    --kill-on-bad-exit=1 --export=ALL /bin/bash "$folder/inside" start "${command[@]}" < /dev/null 2>&3 3>&- &
else
  /bin/bash "$folder/inside" start "${command[@]}" < /dev/null 2>&3 3>&- &
fi
child=$!
exec 3>&- > /dev/null
trap asked URG
trap late USR1
trap 'rang=1 slurm=1' TERM INT HUP # Slurm ends this job, or begins it again later, and tells the run itself
[ -e "$folder/stop" ] && asked
watch=
if [ -n "$limit" ]; then
  (
    trap - USR1 URG TERM INT HUP
    if [ -n "$notice" ]; then pause $((limit - lead)); tell "$notice"; pause "$lead"; else pause "$limit"; fi
    kill -USR1 $$
  ) &
  watch=$!
fi
while :; do
  rang=
  wait "$child"; code=$?
  [ -n "$rang" ] || break
done
trap '' USR1 URG TERM INT HUP
for job in $watch $ender $child; do kill -KILL -- "-$job"; done
if [ -e "$folder/.failed" ]; then
  finish not_started "$(fact code "$folder/.failed")" "$(fact text "$folder/.failed")"
fi
finish "$ending" "$code" ''
"""
)

_INSIDE = r"""
__danlu_mode=$1 __danlu_term=${TERM:-}; shift
. "$__danlu_folder/env"
[ "$__danlu_mode" = enter ] && export TERM="$__danlu_term"
export DANLU_NODE="${SLURMD_NODENAME:-${HOSTNAME:-}}" SLURM_SUBMIT_DIR="$__danlu_workdir"
[ -n "${CUDA_VISIBLE_DEVICES+set}" ] || export CUDA_VISIBLE_DEVICES= # no cards were given: it sees none
if [ "$__danlu_nodes" -gt 1 ] && [ "$__danlu_mode" = start ]; then
  export MASTER_ADDR="$DANLU_MASTER_ADDR" MASTER_PORT="$DANLU_MASTER_PORT" WORLD_SIZE="$__danlu_nodes"
  export RANK="$SLURM_PROCID" LOCAL_RANK=0 NODE_RANK="$SLURM_PROCID" NNODES="$__danlu_nodes"
fi
umask "$__danlu_mask"
__danlu_failed() { # CODE TEXT
  if [ "$__danlu_mode" = start ]; then
    (umask 0077; printf '%s\n' "code=$1" "text=${2//$'\n'/ }" > "$__danlu_folder/.failed")
  else
    printf 'danlu: %s\n' "$2" >&2
  fi
  exit "${1:-126}"
}
if ! cd -- "$__danlu_workdir" 2> /dev/null; then
  [ -e "$__danlu_workdir" ] || __danlu_failed '' "the working folder does not exist on $DANLU_NODE: $__danlu_workdir"
  [ -d "$__danlu_workdir" ] || __danlu_failed '' "the working folder is not a folder: $__danlu_workdir"
  __danlu_failed '' "the working folder may not be entered: $__danlu_workdir"
fi
case $1 in
  */*) __danlu_found=$1 ;;
  *) __danlu_found=$(type -P -- "$1") || __danlu_failed 127 "command not found on the job's PATH: $1" ;;
esac
[ -e "$__danlu_found" ] || __danlu_failed 127 "command not found: $__danlu_found"
[ -d "$__danlu_found" ] && __danlu_failed 126 "the command is a folder: $__danlu_found"
[ -x "$__danlu_found" ] || __danlu_failed 126 "the command is not executable: $__danlu_found (try \`chmod +x\`)"
unset __danlu_mode __danlu_term __danlu_folder __danlu_workdir __danlu_mask __danlu_nodes __danlu_found
unset -f __danlu_failed
exec -- "$@"
"""
