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
