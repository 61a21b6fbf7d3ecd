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
