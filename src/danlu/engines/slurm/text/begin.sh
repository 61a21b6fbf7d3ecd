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
