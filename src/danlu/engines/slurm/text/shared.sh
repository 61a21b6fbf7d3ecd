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
