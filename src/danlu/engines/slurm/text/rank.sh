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
