#!/bin/bash
folder='/f o'"'"'o'

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
