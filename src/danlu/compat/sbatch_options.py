"""Every option of `sbatch` (24.11) and the treatment of each. docs/coming-from-slurm.md lists these tables."""

from __future__ import annotations

from danlu.compat.getopt import Option, read_options

# Options with an equivalent in Danlu, and options of the command `sbatch` alone.
USED = read_options(
    "account=A array=a chdir=D cpus-per-gpu= cpus-per-task=c dependency=d export= gpus=G gpus-per-node= gpus-per-task= "
    "gres= job-name=J mem= mem-per-cpu= mem-per-gpu= nodes=N ntasks=n ntasks-per-node= tasks-per-node= partition=p "
    "signal= time=t help.h parsable. quiet.Q test-only. usage. verbose.v version.V wait.W wrap="
)

# Named once on stderr, then without effect: each with the reason.
_LAYOUT = "the operating system places processes within a machine"
_ONE_NODE = "a script runs on one node here"
_OUTPUT = "output goes to the log for now, `danlu logs ID` shows it"
DROPPED: dict[str, str] = {
    "output=o": _OUTPUT,
    "error=e": _OUTPUT,
    "open-mode=": _OUTPUT,
    "mail-type=": "Danlu sends no mail",
    "mail-user=": "Danlu sends no mail",
    "qos=q": "Danlu has quotas of teams instead",
    "comment=": "Danlu keeps no comment; a label (`--label`) is kept",
    "nice?": "Danlu has priorities from 1 to 9: `danlu submit train.sh --priority 3`",
    "priority=": "Danlu has priorities from 1 to 9: `danlu submit train.sh --priority 3`",
    "requeue.": "Danlu starts a job again after a lost node with `--retries N` only",
    "no-requeue.": "Danlu starts a job again after a lost node with `--retries N` only",
    "time-min=": "Danlu never shortens a time limit",
    "prefer=": "a preference only",
    "get-user-env?": "a job without your environment gets a login environment",
    "gres-flags=": _LAYOUT,
    "gpu-bind=": _LAYOUT,
    "hint=": _LAYOUT,
    "mem-bind=": _LAYOUT,
    "tres-bind=": _LAYOUT,
    "distribution=m": _LAYOUT,
    "ntasks-per-core=": _LAYOUT,
    "ntasks-per-socket=": _LAYOUT,
    "threads-per-core=": _LAYOUT,
    "contiguous.": _ONE_NODE,
    "spread-job.": _ONE_NODE,
    "use-min-nodes.": _ONE_NODE,
    "wait-all-nodes=": _ONE_NODE,
    "switches=": _ONE_NODE,
    "no-kill?k": _ONE_NODE,
    "segment=": _ONE_NODE,
    "cpu-freq=": "Danlu sets no clock rates",
    "gpu-freq=": "Danlu sets no clock rates",
    "wckey=": "Danlu keeps no such key",
    "profile=": "Danlu records no such profile",
    "acctg-freq=": "Danlu decides how often it measures",
    "propagate?": "limits of the shell do not follow a job here",
    "oversubscribe.s": "jobs get only what they ask for",
    "kill-on-invalid-dep=": "a job whose dependency failed always ends",
    "delay-boot=": "Danlu starts no machines",
    "ignore-pbs.": "Danlu reads `#SBATCH` lines only",
    "autocomplete=": "`danlu completion` completes words",
    "oom-kill-step?": "Danlu ends a job with too much memory",
}

# Options of Slurm that would change the run, without an equivalent yet.
REFUSED = read_options(
    "batch= begin=b bb= bbf= clusters=M cluster= cluster-constraint= constraint=C container= container-id= context= "
    "core-spec=S cores-per-socket= deadline= exclude=x exclusive? export-file= extra= extra-node-info=B gid= "
    "gpus-per-socket= hold.H input=i licenses=L mcs-label= mincpus= network= nodefile=F nodelist=w ntasks-per-gpu= "
    "ntasks-per-tres= overcommit.O reboot. reservation= resv-ports? sockets-per-node= stepmgr. thread-spec= tmp= "
    "tres-per-task= uid="
)

_DROPPED_OPTIONS = read_options(" ".join(DROPPED))
WHY_DROPPED = dict(zip((option.name for option in _DROPPED_OPTIONS), DROPPED.values(), strict=True))
REFUSED_NAMES = frozenset(option.name for option in REFUSED)
OPTIONS: tuple[Option, ...] = USED + _DROPPED_OPTIONS + REFUSED

# Variables for options. The command line overrides variables, and variables override the script.
VARIABLES = {
    "SBATCH_ACCOUNT": "account", "SBATCH_ARRAY_INX": "array", "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint", "SBATCH_CONTAINER": "container", "SBATCH_CPUS_PER_GPU": "cpus-per-gpu",
    "SBATCH_DELAY_BOOT": "delay-boot", "SBATCH_DISTRIBUTION": "distribution", "SBATCH_ERROR": "error",
    "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_EXPORT": "export", "SBATCH_GPU_BIND": "gpu-bind",
    "SBATCH_GPU_FREQ": "gpu-freq", "SBATCH_GPUS": "gpus", "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_GRES": "gres", "SBATCH_GRES_FLAGS": "gres-flags",
    "SBATCH_HINT": "hint", "SBATCH_INPUT": "input", "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu", "SBATCH_MEM_PER_NODE": "mem", "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode", "SBATCH_OUTPUT": "output", "SBATCH_OVERCOMMIT": "overcommit",
    "SBATCH_PARTITION": "partition", "SBATCH_PROFILE": "profile", "SBATCH_QOS": "qos", "SBATCH_REQUEUE": "requeue",
    "SBATCH_RESERVATION": "reservation", "SBATCH_SIGNAL": "signal", "SBATCH_THREADS_PER_CORE": "threads-per-core",
    "SBATCH_TIMELIMIT": "time", "SBATCH_WAIT": "wait", "SBATCH_WCKEY": "wckey",
}  # fmt: skip
