"""The rollout to the real machines: two shell scripts and a README. Pure."""

from collections.abc import Sequence

from danlu.tools.slurm_setup.blueprint import Blueprint
from danlu.tools.slurm_setup.side_files import CONSTRAINTS
from danlu.tools.slurm_setup.slurm_conf import decisions

_INSTALL = """\
#!/bin/sh
# Makes this machine a part of the Slurm cluster {cluster}. As root, in the folder with the files:
#   sh install.sh           the machine's name says which part: controller, node, or both
#   sh install.sh client    a login machine: the commands, no daemon but munge
# It may be run again at any time, also after a change of the files. Replaced files are kept beside the new
# ones (slurm.conf.~1~). The controller comes first: the others need its munge key as munge.key in this folder.
set -eu
cd "$(dirname "$0")"
controller={controller}
nodes="{nodes}"
accounting={accounting}
shared="{shared}"

say() {{ echo "[$(hostname -s)] $*"; }}
refuse() {{ say "error: $*" >&2; exit 1; }}
[ "$(id -u)" = 0 ] || refuse "this takes root"
is_controller=no is_node=no
for me in "$(hostname)" "$(hostname -s)"; do
    [ "$me" != "$controller" ] || is_controller=yes
    case " $nodes " in *" $me "*) is_node=yes ;; esac
done
[ "$is_controller$is_node${{1:-}}" != nono ] ||
    refuse "this is neither the controller ($controller) nor a node; on a login machine: sh install.sh client"

# 1. Packages. The same release everywhere is best; the controller must not be older than the nodes.
missing() {{ ! command -v "$1" >/dev/null; }}
wanted="" deb="" rpm=""
want() {{ if missing "$1"; then wanted="$wanted $1" deb="$deb $2" rpm="$rpm $3"; fi; }}
want munged munge munge
want srun slurm-client slurm
[ $is_controller = no ] || want slurmctld slurmctld slurm-slurmctld
[ $is_node = no ] || want slurmd slurmd slurm-slurmd
if [ "$is_controller$accounting" = yesyes ]; then
    want slurmdbd "slurmdbd slurm-wlm-mysql-plugin" slurm-slurmdbd
    want mariadb "mariadb-server mariadb-client" mariadb-server
fi
if [ -n "$wanted" ]; then
    say "installs:$wanted"
    # shellcheck disable=SC2086  # lists of packages
    if command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $deb >/dev/null
    elif command -v dnf >/dev/null; then
        dnf install -y -q epel-release || true
        dnf install -y -q $rpm
    else
        refuse "neither apt-get nor dnf is here: install$wanted by hand, and run this again"
    fi
fi

# 2. The user of the controller, with one number on all machines.
id slurm >/dev/null 2>&1 || useradd --system --uid 64030 --home-dir /nonexistent --shell /usr/sbin/nologin slurm

# 3. The key. Its owner can act as any user of the cluster.
if [ -s munge.key ]; then
    install -o munge -g munge -m 400 munge.key /etc/munge/munge.key
elif [ $is_controller = no ]; then
    refuse "munge.key is not in this folder: copy /etc/munge/munge.key of $controller here (rollout.sh does that)"
elif [ ! -s /etc/munge/munge.key ]; then
    (umask 077 && head -c 1024 /dev/urandom >/etc/munge/munge.key)
    chown munge:munge /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
fi

# 4. Compare the machine with the file. Slurm refuses a machine that has less.
if [ $is_node = yes ]; then
    sh ./check-node.sh || refuse "put the machine in order, or correct nodes.toml and run \\`danlu slurm init\\` again"
fi

# 5. Files, folders and their owners.
put() {{ cmp -s "$1" "/etc/slurm/$1" || install --backup=numbered -o "$2" -g "$2" -m "$3" "$1" "/etc/slurm/$1"; }}
mkdir -p /etc/slurm
for file in slurm.conf gres.conf cgroup.conf; do put $file root 644; done
install -d -o slurm -g slurm -m 755 /var/log/slurm
[ $is_node = no ] || install -d -o root -g root -m 755 /var/lib/slurm /var/lib/slurm/slurmd
[ $is_controller = no ] || install -d -o slurm -g slurm -m 700 /var/lib/slurm/slurmctld
if [ -n "$shared" ] && [ ! -d "$shared" ]; then
    say "warning: the shared folder $shared is not here; jobs that work in it will fail on this machine"
fi
for name in $controller $nodes; do
    getent hosts "$name" >/dev/null || say "warning: the name $name is not known here; add it to /etc/hosts or the DNS"
done

# 6. Daemons.
has_systemd() {{ [ -d /run/systemd/system ]; }}
# start SERVICE PROCESS COMMAND...: without systemd (a container) the command, unless the process is there.
start() {{
    if has_systemd; then
        systemctl enable --quiet "$1"
        systemctl restart "$1"
    elif ! pgrep -x "$2" >/dev/null; then
        shift 2
        "$@"
    fi
}}
if has_systemd && [ $is_node = yes ] && command -v nvidia-smi >/dev/null; then
    # slurmd exits if the device of a card does not exist yet; a query of the driver creates the devices.
    more=/etc/systemd/system/slurmd.service.d
    mkdir -p $more
    printf '[Service]\\nExecStartPre=-%s -L\\n' "$(command -v nvidia-smi)" >$more/danlu.conf
    systemctl daemon-reload
fi
has_systemd || install -d -o munge -g munge -m 755 /run/munge
start munge munged runuser -u munge -- munged
if [ "$is_controller$accounting" = yesyes ]; then
    put slurmdbd.conf slurm 600
    start mariadb mariadbd service mariadb start
    password=$(sed -n 's/^StoragePass=//p' slurmdbd.conf)
    mariadb <<END
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost;
ALTER USER slurm@localhost IDENTIFIED BY '$password';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
END
    start slurmdbd slurmdbd slurmdbd
    # The first start makes its tables.
    for _ in $(seq 120); do sacctmgr -n show cluster >/dev/null 2>&1 && break; sleep 1; done
fi
[ $is_controller = no ] || start slurmctld slurmctld slurmctld
[ $is_node = no ] || start slurmd slurmd slurmd
say "done: $(srun --version)"
"""

_CHECK = """\
#!/bin/sh
# Compares this machine with its line in slurm.conf.
set -eu
cd "$(dirname "$0")"
fail=0
name=$(hostname -s)
has=$(slurmd -C 2>/dev/null | head -n 1)
value() { printf '%s\\n' "$1" | tr ' ' '\\n' | sed -n "s/^$2=//p"; }
says=""
while IFS= read -r line; do
    case $line in NodeName=*) ;; *) continue ;; esac
    pattern=${line#NodeName=}
    for one in $(SLURM_CONF=$PWD/slurm.conf scontrol show hostnames "${pattern%% *}"); do
        if [ "$one" = "$name" ] || [ "$one" = "$(hostname)" ]; then says=$line name=$one; fi
    done
done <slurm.conf
[ -n "$says" ] || { echo "slurm.conf does not describe $name" >&2; exit 1; }
for key in CPUs RealMemory; do
    if [ "$(value "$says" $key)" -gt "$(value "$has" $key)" ]; then
        echo "$name: slurm.conf says $key=$(value "$says" $key), the machine has $(value "$has" $key)" >&2
        fail=1
    fi
done
! command -v nvidia-smi >/dev/null || nvidia-smi -L >/dev/null 2>&1 || echo "$name: nvidia-smi finds no card" >&2
cards=0
for count in $(value "$says" Gres | tr ',' '\\n' | sed -n 's/^gpu:.*:\\([0-9]*\\)$/\\1/p'); do
    cards=$((cards + count))
done
card=0
while [ "$card" -lt "$cards" ]; do
    if [ ! -c "/dev/nvidia$card" ]; then
        echo "$name: slurm.conf says $cards cards, and /dev/nvidia$card is not there (is the driver loaded?)" >&2
        fail=1
    fi
    card=$((card + 1))
done
exit $fail
"""

_ROLLOUT = """\
#!/bin/sh
# The whole cluster {cluster} at once, from {controller}, as root, with ssh to root on every node:
#   sh rollout.sh              all nodes
#   sh rollout.sh n3 n4        some, for example new ones or those that were switched off
# A node that cannot be reached is named at the end; the others go on.
set -eu
cd "$(dirname "$0")"
nodes="${{*:-{nodes}}}"
[ "$(id -u)" = 0 ] || {{ echo "error: this takes root" >&2; exit 1; }}
sh install.sh
failed=""
for node in $nodes; do
    case $node in "$(hostname)" | "$(hostname -s)") continue ;; esac
    echo "== $node"
    # The key goes through ssh, and lies on no disk but in /etc/munge of both machines.
    if tar cf - install.sh check-node.sh slurm.conf gres.conf cgroup.conf -C /etc/munge munge.key |
        ssh -o BatchMode=yes "root@$node" 'set -eu; umask 077; d=$(mktemp -d); trap "rm -rf $d" EXIT
            cd "$d"; tar xf - --no-same-owner; sh install.sh'; then :; else failed="$failed $node"; fi
done
# A changed set of nodes is read at a restart only; this reads everything else.
scontrol reconfigure || true
sinfo --Node --long || true
[ -z "$failed" ] || {{ echo "error: not done:$failed; then: sh rollout.sh$failed" >&2; exit 1; }}
"""


def render_install(plan: Blueprint) -> str:
    return _INSTALL.format(
        cluster=plan.cluster,
        controller=plan.controller,
        nodes=" ".join(plan.names),
        accounting="yes" if plan.has_accounting else "no",
        shared=plan.shared,
    )


def render_check() -> str:
    return _CHECK


def render_rollout(plan: Blueprint) -> str:
    return _ROLLOUT.format(cluster=plan.cluster, controller=plan.controller, nodes=" ".join(plan.names))


def first_test(plan: Blueprint) -> str:
    """The command that shows that the cluster works."""
    if not plan.has_cards:
        return "srun hostname"
    return "srun --gres=gpu:1 nvidia-smi -L"


def _shared_line(plan: Blueprint) -> str:
    must = f"where root of {plan.controller} must be root (NFS: `no_root_squash`)"
    if plan.shared:
        return f";\nlogs and runs are then in `{plan.shared}/danlu`, {must}"
    return f", and\n`shared_dir`, a folder that every machine mounts and {must}"


def render_readme(plan: Blueprint, files: Sequence[str]) -> str:
    shared = f"`{plan.shared}`" if plan.shared else "The folder in which people work"
    secret = " `slurmdbd.conf` has a password in it." if plan.has_accounting else ""
    steps = f"""\
# The Slurm cluster {plan.cluster}

{len(plan.names)} machines, controlled by {plan.controller}. Files: {", ".join(files)}.{secret}

## Before
- Every machine knows every other by name (`getent hosts {plan.names[0]}`), and their clocks agree (chrony).
- People have the same user number on every machine (`id`): LDAP, or the same lines in /etc/passwd and /etc/group.
- {shared} is mounted at the same place everywhere: a job starts in the folder in which it was submitted.
- The driver is installed where there are cards: `nvidia-smi -L` lists them.
- Ports 6817 to 6819 and, between nodes, all others are open within the cluster; none of them to the world.

## Roll out
Copy this folder to {plan.controller} and run there, as root (it needs `ssh root@NODE` without a password):
```sh
sh rollout.sh
```
Without such an ssh, on each machine, {plan.controller} first: copy the folder, on all but the controller put
`/etc/munge/munge.key` of {plan.controller} into it as `munge.key` (and delete it afterwards), and `sh install.sh`.
On machines that people only log in to: `sh install.sh client`.

## Test
```sh
sinfo                                   # every node is idle
{first_test(plan):<39} # the card of the job
srun --pty bash -i                      # a shell on a node
```
A node is not idle: `scontrol show node NAME` says why (Reason), /var/log/slurm/slurmd.log on it says more.

## Then
The file with the nodes is Danlu's own too. Into its `[engine]` goes `kind = "slurm"`{_shared_line(plan)}.
Then on {plan.controller}, as root, so that jobs run as who submits them:
```sh
danlu doctor --config nodes.toml --deep      # gaps, their cost, and advice
danlu serve --config nodes.toml              # prints how the first administrator logs in
```
On a real cluster `[[nodes]]` is for `danlu slurm init` and `--fake` only: Danlu asks Slurm which nodes there are.
`[[queues]]` adds its rules to the partitions of the same name.

## Decisions and reasons
| line | why |
|---|---|
"""
    rows = "".join(f"| `{line.name}={line.value}` | {line.why} |\n" for line in (*decisions(plan), *CONSTRAINTS))
    notes = "".join(f"- {note}\n" for note in plan.notes)
    return steps + rows + (f"\n## Good to know\n{notes}" if notes else "")
