"""The two programs that Slurm starts for a run: the batch script, and what begins one command inside. Pure."""

import shlex

from danlu.domain.resources import MEETING_PORTS
from danlu.engines.base import Launch
from danlu.engines.slurm.text.options import ALREADY_BEGUN, NO_FOLDER, milliseconds
from danlu.engines.slurm.text.render_ranks import SEVERAL, WORDS


def render_script(launch: Launch, folder: str, token: str, *, reaches_all: bool = True) -> str:
    """`reaches_all`: a signal of Slurm's reaches every process of a run, and not only the one that Slurm started."""
    notice = launch.notice
    given = {
        "folder": folder,
        "token": token,
        "nodes": str(launch.ask.nodes),
        "cpus": str(launch.ask.cpus),
        "limit": str(milliseconds(launch.time_limit)) if launch.time_limit else "",
        "grace": str(milliseconds(launch.grace)),
        "notice": notice.signal if notice else "",
        "lead": str(milliseconds(notice.lead)) if notice else "0",
        "reaches_all": "yes" if reaches_all else "",
        "first_port": str(MEETING_PORTS.start),
        "ports": str(len(MEETING_PORTS)),
    }
    return "\n".join(
        [
            "#!/bin/bash",
            f"# The run {launch.run_id} of Danlu. What its parts are for: see `danlu show`.",
            *(f"{name}={shlex.quote(value)}" for name, value in given.items()),
            f"command=({' '.join(map(shlex.quote, launch.command))})",
            f"already_begun={ALREADY_BEGUN} no_folder={NO_FOLDER}",
            WORDS,
            _BEGIN,
            SEVERAL if launch.ask.nodes > 1 else _ONE,
            _WATCH,
        ]
    )


def render_inside(launch: Launch, folder: str) -> str:
    given = {"folder": folder, "workdir": launch.workdir, "mask": f"{launch.umask:04o}", "nodes": str(launch.ask.nodes)}
    return "\n".join(
        ["#!/bin/bash", *(f"__danlu_{name}={shlex.quote(value)}" for name, value in given.items()), _INSIDE]
    )


_BEGIN = r"""
unset BASH_ENV ENV
restart=${SLURM_RESTART_COUNT:-0}
node=${SLURMD_NODENAME:-${HOSTNAME:-}}
failed="$folder/.failed.0"
umask 0077
exec 3>&2 2>/dev/null # what bash says of its jobs is nobody's business; the run gets the log back

clock() { # milliseconds since 1970, in $now
  local precise=${EPOCHREALTIME:-}
  if [ -n "$precise" ]; then precise=${precise/[.,]/}; now=${precise%???}; else now=$(date +%s%3N); fi
}
pause() { sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }
note() { printf %s "$1" > "$folder/.note"; }

# Begin once: a link to a file that is there already fails, on every file system. Slurm's own requeue goes on.
clock; started=$now
mine="$folder/.begin.$SLURM_JOB_ID.$restart.$node.$$"
printf '%s\n' "token=$token" "restart=$restart" "job=$SLURM_JOB_ID" "node=$node" "started=$started" > "$mine" \
  || exit "$no_folder"
is_over() { # a controller that was killed may have missed its end, and begin it again
  [ -e "$folder/exit" ] && [ "$(fact restart "$folder/exit")" = "$was" ] || return
  [ "$(fact ending "$folder/exit")" != exited ] && return
  local code=$(fact code "$folder/exit")
  [ -z "$(fact slurm "$folder/exit")" ] && [ "${code:-0}" -le 128 ]
}
if ! ln "$mine" "$folder/began"; then
  was=$(fact restart "$folder/began")
  if [ "$(fact token "$folder/began")" != "$token" ] || [ "$(fact job "$folder/began")" != "$SLURM_JOB_ID" ] \
    || [ "$restart" -le "${was:-0}" ] || is_over; then
    rm -f "$mine"; exit "$already_begun"
  fi
  mv -f "$mine" "$folder/began"
fi
rm -f "$mine" "$folder"/.failed.* "$folder/.note" "$folder/exit"

finish() { # ENDING CODE TEXT
  # What a lost node left behind does not speak for the run that Slurm began again elsewhere.
  if [ "$(fact restart "$folder/began")" = "$restart" ]; then
    clock
    printf '%s\n' "token=$token" "restart=$restart" "ending=$1" "code=$2" "started=$started" "ended=$now" "node=$node" \
      "slurm=$slurm" "text=${3//$'\n'/ }" "note=$(cat "$folder/.note")" > "$folder/.exit.$node.$$" \
      && mv -f "$folder/.exit.$node.$$" "$folder/exit"
  fi
  [ -n "$box" ] && rm -rf "$box"
  exit "${2:-1}"
}
is_taken() { # PORT
  grep -qs "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") " /proc/net/tcp /proc/net/tcp6
}

ending=exited slurm= term_by= kill_by= ender= child= rang= box= text=
[ -e "$folder/stop" ] && finish stopped '' 'stopped before it started'
port=$((first_port + SLURM_JOB_ID % ports))
for _ in 1 2 3 4 5 6 7 8; do is_taken "$port" || break; port=$((first_port + (port - first_port + 1009) % ports)); done
set -m # each background job is a process group
"""

_ONE = r"""
begin() {
  export DANLU_MASTER_ADDR=127.0.0.1 DANLU_MASTER_PORT=$port
  /bin/bash "$folder/inside" start "${command[@]}" < /dev/null 2>&3 3>&- &
  child=$!
}
tell() { kill -s "$1" -- "-$child"; }
warn() { notify "$1" || note "notice $1 was not sent: none of its processes catches it"; }
force() { :; }
count() { :; }
"""

_WATCH = r"""
end_at() { # TERM_AT KILL_AT: only ever sooner
  [ -n "$kill_by" ] && [ "$1" -ge "$term_by" ] && [ "$2" -ge "$kill_by" ] && return
  { [ -z "$term_by" ] || [ "$1" -lt "$term_by" ]; } && term_by=$1
  { [ -z "$kill_by" ] || [ "$2" -lt "$kill_by" ]; } && kill_by=$2
  [ -n "$ender" ] && kill -KILL -- "-$ender"
  local mode=+m
  [[ $- == *m* ]] && mode=-m
  set -m
  (
    clock; [ "$term_by" -gt "$now" ] && pause $((term_by - now))
    if [ "$kill_by" -gt "$term_by" ]; then tell TERM; clock; [ "$kill_by" -gt "$now" ] && pause $((kill_by - now)); fi
    tell KILL
    force
  ) &
  ender=$!
  set $mode
}
asked() {
  rang=1
  chmod u+rwx "$folder" # or NFS believes for half a minute that a file is not there which was not there before
  [ -e "$folder/stop" ] || return
  local grace_ms notice_now lead_ms
  grace_ms=$(fact grace "$folder/stop") notice_now=$(fact notice "$folder/stop") lead_ms=$(fact lead "$folder/stop")
  [ "$ending" = exited ] && ending=stopped
  clock
  [ -n "$notice_now" ] && [ -z "$kill_by" ] && warn "$notice_now"
  end_at $((now + ${lead_ms:-0})) $((now + ${lead_ms:-0} + ${grace_ms:-0}))
}
is_replaced() { [ "$(fact restart "$folder/began")" -gt "$restart" ]; }
late() {
  rang=1
  clock
  is_replaced && { end_at "$now" "$now"; return; }
  [ "$ending" = exited ] && ending=timed_out
  end_at "$now" $((now + grace))
}
told_by_slurm() { # SIGNAL: Slurm ends this job, or begins it again later
  rang=1 slurm=1
  [ -n "$reaches_all" ] || [ "$nodes" -gt 1 ] || tell "$1" # it tells the run itself, or the ranks of it
}

begin
exec 3>&- > /dev/null
trap asked URG
trap late USR1
for sign in TERM INT HUP; do trap "told_by_slurm $sign" "$sign"; done
[ -e "$folder/stop" ] && asked
watch=
if [ -n "$limit" ]; then
  (
    trap - USR1 USR2 URG TERM INT HUP
    # Where Slurm ends all processes at once, this one may see its sleep end before itself: no time has passed then.
    if [ -n "$notice" ]; then pause $((limit - lead)) || exit; warn "$notice"; limit=$lead; fi
    pause "$limit" && kill -USR1 $$
  ) &
  watch=$!
fi
( # Where only the daemon of a node is lost, its runs go on there, and Slurm begins them elsewhere: those are the runs.
  trap - USR1 USR2 URG TERM INT HUP
  while pause 10000; do is_replaced && kill -USR1 $$; done
) &
guard=$!
await_child
trap '' USR1 USR2 URG TERM INT HUP
for job in $watch $guard $ender $child; do kill -KILL -- "-$job"; done
count
[ -s "$failed" ] && finish not_started "$(fact code "$failed")" "$(fact text "$failed")"
[ "$ending" = exited ] || text=
finish "$ending" "$code" "$text"
"""

_INSIDE = r"""
__danlu_mode=$1 __danlu_term=${TERM:-}; shift
. "$__danlu_folder/env"
[ "$__danlu_mode" = enter ] && export TERM="$__danlu_term"
export DANLU_NODE="${SLURMD_NODENAME:-${HOSTNAME:-}}" SLURM_SUBMIT_DIR="$__danlu_workdir"
[ -n "${DANLU_ATTEMPT:-}" ] && export DANLU_ATTEMPT=$((DANLU_ATTEMPT + ${SLURM_RESTART_COUNT:-0}))
[ -n "${CUDA_VISIBLE_DEVICES+set}" ] || export CUDA_VISIBLE_DEVICES= # no cards were given: it sees none
if [ "$__danlu_mode" = start ] && [ "$__danlu_nodes" -gt 1 ]; then
  export MASTER_ADDR="$DANLU_MASTER_ADDR" MASTER_PORT="$DANLU_MASTER_PORT"
  export NNODES="$__danlu_nodes" NODE_RANK="$SLURM_PROCID"
  export WORLD_SIZE="$__danlu_nodes" RANK="$SLURM_PROCID" LOCAL_RANK=0
elif [ "$__danlu_mode" = start ]; then
  # The same line for torchrun works on one node. RANK and the like would say that this is one process of several.
  export MASTER_ADDR="${MASTER_ADDR:-$DANLU_MASTER_ADDR}" MASTER_PORT="${MASTER_PORT:-$DANLU_MASTER_PORT}"
  export NNODES="${NNODES:-1}" NODE_RANK="${NODE_RANK:-0}"
fi
unset DANLU_MASTER_ADDR DANLU_MASTER_PORT
umask "$__danlu_mask"
__danlu_failed() { # CODE TEXT
  if [ "$__danlu_mode" = start ]; then
    (umask 0077; printf '%s\n' "code=$1" "text=${2//$'\n'/ }" > "$__danlu_folder/.failed.${SLURM_PROCID:-0}")
  fi
  printf 'danlu: %s\n' "$2" >&2
  exit "${1:-126}"
}
if ! cd -- "$__danlu_workdir" 2> /dev/null; then
  __danlu_found=$__danlu_workdir
  while [ -n "$__danlu_found" ] && [ ! -e "$__danlu_found" ]; do __danlu_found=${__danlu_found%/*}; done
  # Below a folder that one may not enter nothing seems to be there.
  [ -d "${__danlu_found:-/}" ] && [ ! -x "${__danlu_found:-/}" ] \
    && __danlu_failed '' "the working folder may not be entered: $__danlu_workdir"
  [ -e "$__danlu_workdir" ] && __danlu_failed '' "the working folder is not a folder: $__danlu_workdir"
  __danlu_failed '' "the working folder does not exist on $DANLU_NODE: $__danlu_workdir"
fi
case $1 in
  */*) __danlu_found=$1 ;;
  *) __danlu_found=$(type -P -- "$1") || __danlu_failed 127 "command not found on the job's PATH: $1" ;;
esac
[ -e "$__danlu_found" ] || __danlu_failed 127 "command not found: $__danlu_found"
[ -d "$__danlu_found" ] && __danlu_failed 126 "the command is a folder: $__danlu_found"
[ -x "$__danlu_found" ] || __danlu_failed 126 "the command is not executable: $__danlu_found (try \`chmod +x\`)"
IFS=$' \t' read -r -n 256 __danlu_by _ 2> /dev/null < "$__danlu_found"
case $__danlu_by in
  '#!'/*) [ -e "${__danlu_by:2}" ] \
    || __danlu_failed 126 "the interpreter named in the first line of $__danlu_found does not exist" ;;
esac
unset __danlu_mode __danlu_term __danlu_folder __danlu_workdir __danlu_mask __danlu_nodes __danlu_found __danlu_by
unset -f __danlu_failed
exec -- "$@"
"""
