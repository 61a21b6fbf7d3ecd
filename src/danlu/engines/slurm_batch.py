"""The two programs that Slurm starts for a run: the batch script, and what begins one command inside. Pure."""

import shlex

from danlu.engines.base import Launch
from danlu.engines.slurm_script import ALREADY_BEGUN, NO_FOLDER, milliseconds


def render_script(launch: Launch, folder: str, token: str) -> str:
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
