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
