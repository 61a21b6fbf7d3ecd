#!/bin/bash
# The run a.1 of Danlu. What its parts are for: see `danlu show`.
folder='/f o'"'"'o'
token=t
nodes=2
cpus=4
limit=7200000
grace=30000
notice=USR1
lead=60000
reaches_all=''
first_port=23000
ports=6000
command=(echo 'it'"'"'s' '$HOME')
already_begun=98 no_folder=97

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
