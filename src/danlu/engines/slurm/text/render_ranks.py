"""A run on several nodes: what its batch script does otherwise, and the program on each node. Pure.

The script starts one rank per node with `srun` and talks to them over it, which takes neither the controller nor the
shared folder. Down, on srun's standard input, which every rank reads:

    tell SIGNAL     to the command's process group
    warn SIGNAL     the notice: to those of its processes that handle the signal

Up, among what srun itself says on standard error (of ranks it carries nothing else: what commands write there goes to
standard output, and so into the log in the order in which each wrote it). Each line begins with the run's token:

    began RANK NODE
    told RANK NODE                 from now on it does not end by itself
    unheard RANK NODE SIGNAL       nobody there handles it
    failed RANK NODE CODE TEXT     the command could not be started
    ended RANK NODE CODE
"""

import shlex

# What both of them use, and the script of a run on one node.
WORDS = r"""
fact() { # NAME FILE
  local name value
  while IFS='=' read -r name value; do [ "$name" = "$1" ] && { printf %s "$value"; return; }; done < "$2"
}
catches() { # PID NUMBER
  local name mask
  while read -r name mask; do
    [ "$name" = SigCgt: ] && return $(((16#$mask >> ($2 - 1) & 1) ^ 1))
  done < "/proc/$1/status"
  return 1
}
notify() { # SIGNAL: to those under $child who handle it, from the top down; whoever does speaks for all below
  local number file line words pid is_heard=1 queue=("$child")
  local -A below
  number=$(kill -l "$1")
  for file in /proc/[0-9]*/stat; do
    line=; IFS= read -r -d '' line < "$file"
    words=(${line##*) }) # a name may hold anything, a parenthesis too
    pid=${file//[!0-9]/}
    below[${words[1]:-0}]+=" $pid"
  done
  while [ "${#queue[@]}" -gt 0 ]; do
    pid=${queue[0]} queue=("${queue[@]:1}")
    if catches "$pid" "$number"; then kill -s "$1" "$pid" && is_heard=0; else queue+=(${below[$pid]:-}); fi
  done
  return "$is_heard"
}
is_lost() { # bash up to 5.2 may overlook that $child ends just as a signal comes, and would wait for it for ever
  ! kill -0 "$child" && [[ $'\n'"$(jobs -rp)"$'\n' == *$'\n'"$child"$'\n'* ]]
}
await_child() { # until it is over: $code is how, or nothing if that was overlooked
  set +m # with job control, bash leaves its loops and skips its traps once $child was stopped, as Slurm suspends
  while :; do
    rang=
    wait "$child"; code=$?
    if [ -n "$rang" ]; then
      is_lost && { code=; return; }
    elif kill -0 "$child" 2> /dev/null; then
      sleep 0.2 # it was stopped before, and that is all that bash knows
    else
      # What bash says first may be from when it was stopped (147 to 150).
      [ "$code" -ge 147 ] && [ "$code" -le 150 ] && { wait "$child"; code=$?; }
      return
    fi
  done
}
"""

# What the script of a run on several nodes calls where the script of one node has its own command.
SEVERAL = r"""
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$first
# A name that nobody can look up has an address in Slurm's configuration.
getent hosts "$first" > /dev/null \
  || address=$(scontrol -o show node "$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
address=${address:-$first}
box=$(mktemp -d) && mkfifo "$box/words" "$box/said" || finish not_started '' "no temporary folder on $node"
: > "$box/began"; : > "$box/ends"
exec 4<> "$box/words"
begin() {
  hear < "$box/said" 4>&- &
  hearer=$!
  export DANLU_MASTER_ADDR=$address DANLU_MASTER_PORT=$port DANLU_RANKS="$token $reaches_all"
  srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="$cpus" --kill-on-bad-exit=0 --wait=0 \
    --export=ALL /bin/bash "$folder/rank" "${command[@]}" <&4 2> "$box/said" 3>&- 4>&- &
  child=$!
}
tell() { printf 'tell %s\n' "$1" >&4; }
warn() { printf 'warn %s\n' "$1" >&4; }
hear() { # what ranks say, and srun
  local line word rank where code text told=
  while IFS= read -r line; do
    case $line in "$token "*) read -r _ word rank where code text <<< "$line" ;; *) word= ;; esac
    case $word in
      began) printf '%s\n' "$rank" >> "$box/began" ;;
      told) told+=" $rank " ;;
      unheard) note "notice $code was not sent on $where: none of its processes there catches it" ;;
      failed) [ -e "$box/failed" ] || printf '%s\n' "code=${code#-}" "text=$text" > "$box/failed" ;;
      ended)
        case $told in *" $rank "*) word=told ;; *) word=alone ;; esac
        printf '%s\n' "$rank $where $code $word" >> "$box/ends"
        kill -USR2 $$ ;;
      *)
        printf '%s\n' "$line" >&3; printf %s "$line" > "$box/last"
        case $line in *"Node failure on "* | *"io error with slurmstepd"*) : > "$box/lost" ;; esac ;;
    esac
  done
}
heard() { # the rank that fails by itself ends the others, as they are asked to: with a grace
  local rank where code how
  rang=1
  while read -r rank where code how; do
    [ "$code" != 0 ] && [ "$how" = alone ] && { clock; end_at "$now" $((now + grace)); return; }
  done < "$box/ends"
}
trap heard USR2
force() { # a step that does not die is Slurm's to end; a node that is lost is Slurm's to notice, unless we end anyway
  [ "$ending" = exited ] || { pause 5000; kill -KILL -- "-$child"; }
}
await_slurm() { # it begins the run of a lost node again; to whoever ends before it has noticed, it does not
  local left
  left=$(scontrol show config | sed -n 's/^SlurmdTimeout *= *\([0-9]*\).*/\1/p')
  left=$((2 * ${left:-300} + 30)) is_told=
  trap 'is_told=1' TERM INT HUP
  while [ "$left" -gt 0 ] && [ -z "$is_told" ] && [ ! -e "$folder/stop" ]; do pause 1000; left=$((left - 1)); done
  trap '' TERM INT HUP
}
count() { # the code of the run is that of the rank that failed first
  local rank where one how seen=0 first= first_how=
  wait "$hearer"
  while read -r rank where one how; do
    seen=$((seen + 1))
    if [ "$one" != 0 ] && { [ -z "$first" ] || [ "$first_how.$how" = told.alone ]; }; then
      first=$one first_how=$how text="rank $rank on $where"
    fi
  done < "$box/ends"
  [ -e "$box/failed" ] && cp "$box/failed" "$failed"
  if [ "$seen" -lt "$nodes" ] && { [ "$code" != 0 ] || [ -e "$box/lost" ]; }; then
    # A node is lost, or srun was never let in. Slurm knows which.
    if [ -s "$box/began" ]; then
      slurm=1
      [ -e "$box/lost" ] && [ "$ending" = exited ] && await_slurm
    elif [ "$ending" = exited ] && [ -z "$slurm" ]; then
      finish not_started '' "srun could not start it: $(cat "$box/last")"
    fi
    code=${first:-$code}
  else
    code=${first:-0}
  fi
}
"""

_RANK = r"""
read -r token reaches_all <<< "$DANLU_RANKS"
unset DANLU_RANKS BASH_ENV ENV
rank=$SLURM_PROCID node=${SLURMD_NODENAME:-${HOSTNAME:-}}
exec 3>&2 2> /dev/null 4<&0 < /dev/null
say() { printf '%s %s %s %s %s\n' "$token" "$1" "$rank" "$node" "${2:-}" >&3; }
say began
set -m # each background job is a process group
/bin/bash "$folder/inside" start "$@" < /dev/null 2>&1 3>&- 4<&- &
child=$!
pass() { # SIGNAL, of Slurm's. Where it reaches every process of a step by itself, this one passes on nothing
  rang=1
  say told
  [ -n "$reaches_all" ] || kill -s "$1" -- "-$child"
}
for sign in TERM INT HUP QUIT USR1 USR2; do trap "pass $sign" "$sign"; done
(
  trap - TERM INT HUP QUIT USR1 USR2
  while read -r what sign <&4; do
    say told
    if [ "$what" = tell ]; then kill -s "$sign" -- "-$child"; else notify "$sign" || say unheard "$sign"; fi
  done
) &
hearer=$!
await_child
trap '' TERM INT HUP QUIT USR1 USR2
for job in $hearer $child; do kill -KILL -- "-$job"; done
failed="$folder/.failed.$rank"
if [ -s "$failed" ]; then # empty where it was ended just before it could say why
  unable=$(fact code "$failed")
  say failed "${unable:--} $(fact text "$failed")"
fi
say ended "${code:-143}"
"""


def render_rank(folder: str) -> str:
    return "\n".join(["#!/bin/bash", f"folder={shlex.quote(folder)}", WORDS, _RANK])
