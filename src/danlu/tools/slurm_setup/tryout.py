"""The same cluster, played by this machine: a slurmd for each node, below one folder, with pretend cards. Pure."""

import re

from danlu.errors import Invalid, Refused
from danlu.tools.slurm_setup.blueprint import Blueprint, Place

MOST_NODES = 50
_LONGEST_SOCKET = 100
_SCRIPT = """\
#!/bin/sh
# This machine plays the Slurm cluster {cluster}: {count} nodes with pretend cards. Everything is below {folder}.
#   sh try.sh up        start it; then SLURM_CONF={folder}/slurm.conf makes sinfo, srun, sbatch mean it
#   sh try.sh down      end its jobs and daemons
# As root, jobs run as their submitter; otherwise, as you. Jobs are real, cards and limits are not.
set -eu
folder={folder}
nodes="{nodes}"
export SLURM_CONF="$folder/slurm.conf"
PATH=$PATH:/usr/sbin:/sbin
run=$folder/run

refuse() {{ echo "error: $*" >&2; exit 1; }}
# A zombie is not alive.
alive() {{
    pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status"
}}
wait_for() {{ n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 600 ] || return 1; sleep 0.1; done; }}
answers() {{ scontrol ping | grep -q UP; }}
# A node is idle as soon as it answers, a second before its version is known; a job that runs there then loses output.
all_idle() {{ [ "$(sinfo -h -N -t idle,mix,alloc -o '%v %N' | grep '^[0-9]' | sort -u | wc -l)" = {count} ]; }}
no_jobs() {{ [ -z "$(squeue -h -t R,CG,S,CF)" ]; }}

up() {{
    for program in munged slurmctld slurmd sinfo; do
        command -v $program >/dev/null || refuse "$program is missing: apt install munge slurmctld slurmd slurm-client"
    done
    mkdir -p "$run" "$folder/log" "$folder/state" "$folder/dev"
    for node in $nodes; do mkdir -p "$folder/spool/$node"; done
    card=0
    while [ $card -lt {cards} ]; do
        # Slurm wants a device, and looks no further.
        ln -sf /dev/null "$folder/dev/nvidia$card"
        card=$((card + 1))
    done
    [ -s "$folder/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
    alive "$run/munged.pid" || munged --key-file="$folder/munge.key" --socket="$run/munge.socket" \\
        --pid-file="$run/munged.pid" --log-file="$folder/log/munged.log" --seed-file="$run/munged.seed"
    alive "$run/slurmctld.pid" || slurmctld -f "$SLURM_CONF"
    wait_for answers || refuse "slurmctld does not answer: see $folder/log/slurmctld.log"
    for node in $nodes; do
        alive "$run/slurmd.$node.pid" || slurmd -d "$(command -v slurmstepd)" -f "$SLURM_CONF" -N "$node"
    done
    wait_for all_idle || refuse "not all nodes are there: see \\`sinfo -R\\` and $folder/log"
    echo "up. Now: export SLURM_CONF=$SLURM_CONF; sinfo; srun hostname"
}}

down() {{
    # Jobs first: the processes of a lost job would search their controller for ever.
    if alive "$run/slurmctld.pid"; then
        squeue -h -o %A | sort -u | xargs -r scancel || true
        wait_for no_jobs || true
    fi
    for file in "$run"/slurmd.*.pid "$run/slurmctld.pid" "$run/munged.pid"; do
        alive "$file" || continue
        kill "$pid"
        n=0
        while alive "$file"; do
            n=$((n + 1))
            [ $n -lt 100 ] || {{ kill -KILL "$pid"; break; }}
            sleep 0.1
        done
    done
    echo "down"
}}

case "${{1:-}}" in
up | down) "$1" ;;
*) refuse "sh try.sh up, or sh try.sh down" ;;
esac
"""


def place_below(folder: str, user: str, port: int) -> Place:
    """All paths below one folder, and ports from `port` on."""
    if not re.fullmatch(r"/[\w./+-]+", folder, re.ASCII):
        raise Invalid(f"Slurm cannot have its files in `{folder}`", "use `--out` with a path of plain letters")
    if len(f"{folder}/run/munge.socket.lock") > _LONGEST_SOCKET:
        raise Invalid(f"`{folder}` is too long a path for a Unix socket", "use `--out` with a shorter one")
    return Place(user, f"{folder}/state", f"{folder}/spool/%n", f"{folder}/log", f"{folder}/run", port)


def check_size(plan: Blueprint) -> None:
    if len(plan.names) > MOST_NODES:
        raise Refused(f"this machine cannot play {len(plan.names)} nodes, at most {MOST_NODES}", "describe fewer")


def render_try(plan: Blueprint, folder: str) -> str:
    return _SCRIPT.format(
        cluster=plan.cluster,
        count=len(plan.names),
        folder=folder,
        nodes=" ".join(plan.names),
        cards=max(machines.card_count for machines in plan.machines),
    )
