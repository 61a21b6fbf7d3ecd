"""Commands about jobs."""

from __future__ import annotations

from danlu.cli.grammar.model import JSON, QUIET, Command, Option
from danlu.domain.options import COUNT, LIST, OPTIONS, PAIRS, SWITCH, JobOption


def _written(option: JobOption) -> tuple[Option, ...]:
    """An option of a job as the command line takes it."""
    kind = "count" if option.kind == COUNT else ""
    one = Option(option.flag, metavar=option.metavar, kind=kind, many=option.kind in (PAIRS, LIST), help=option.help)
    if option.kind != SWITCH:
        return (one,)
    return (one, Option(f"--no-{option.name}", help="overrides the cloned job or the job file"))


ASK = (
    *(written for option in OPTIONS for written in _written(option)),
    Option("--snapshot", help="copy the code now (without files ignored by git), and run the copy"),
    Option("--snapshot-limit", metavar="SIZE", help="largest snapshot; default 100M (or DANLU_SNAPSHOT_LIMIT)"),
    Option("--no-inherit-env", help="start with a clean environment instead of yours"),
    Option("--dry-run", help="do not submit: show where the job would run, or why it would wait"),
    JSON,
)

JOBS = (
    Command(
        "run", "run:run", "jobs", "submit a job and follow it; the exit code is the job's",
        (*ASK, Option("--detach", "-d", help="do not follow the job"), QUIET), rest="needed",
        examples=(
            "danlu run --gpus 1 -- python train.py",
            "danlu run --gpus RTX3090:2 --time 2h -- torchrun --standalone --nproc-per-node=2 train.py",
            "danlu run --nodes 2 --gpus 1 -- python train.py",
        ),
    ),
    Command(
        "submit", "jobs:submit", "jobs", "put a job in the queue and print its id",
        (*ASK, Option("--file", "-f", metavar="FILE", help="a job file (YAML) or a batch script; options override it")),
        words="FILE", words_min=0, rest="maybe",
        examples=(
            "danlu submit --gpus 1 -- python train.py", "danlu submit job.yaml --priority 9",
            "danlu submit train.sbatch -- --epochs 3",
        ),
    ),
    Command(
        "ps", "jobs:ps", "jobs", "list your jobs: active and recently ended",
        (
            Option("--all", "-a", help="all of your jobs, of any age; and all users' jobs not submitted through Danlu"),
            Option("--state", metavar="STATE", many=True, help="only these: QUEUED, RUNNING, FAILED…, active, ended"),
            Option("--user", metavar="NAME|all", help="jobs of this user, or of all users"),
            Option("--team", metavar="TEAM", help="all jobs of this team"),
            Option("--queue", metavar="QUEUE", help="only jobs of this queue"),
            Option("--name", metavar="NAME", help="only jobs of this name"),
            Option("--label", metavar="NAME=VALUE", help="only jobs with this label"),
            Option("--tasks", help="a separate line for every task of an array"),
            Option("--limit", "-n", metavar="N", kind="count", help="number of jobs; default 20"),
            Option("--before", metavar="CURSOR", help="continue after the last page"),
            JSON,
        ),
        examples=("danlu ps", "danlu ps --state FAILED -n 50", "danlu ps --user all --queue train"),
    ),
    Command(
        "convert", "convert:convert", "jobs", "print a batch script of Slurm as a job file", (JSON,), words="FILE",
        rest="maybe", examples=("danlu convert train.sbatch > job.yaml",),
    ),
    Command("show", "jobs:show", "jobs", "show a job in detail", (JSON,), words="ID", examples=("danlu show @",)),
    Command(
        "logs", "jobs:logs", "jobs", "print a job's log",
        (
            Option("--follow", "-f", help="follow until the job has ended"),
            Option("--tail", metavar="N", kind="count", help="only the last N lines"),
            Option("--attempt", metavar="N", kind="count", help="the log of an earlier attempt"),
        ),
        words="ID", examples=("danlu logs -f @", "danlu logs --tail 100 k3fz"),
    ),
    Command(
        "stop", "jobs:stop", "jobs", "stop jobs: checkpoint notice, TERM, and KILL after a grace period",
        (
            Option("--now", help="without the checkpoint notice"),
            Option("--kill", help="KILL at once"),
            QUIET,
            JSON,
        ),
        words="ID...", examples=("danlu stop @", "danlu stop k3fz82aw_7 m2xw", "danlu stop slurm:17"),
    ),
    Command(
        "clone", "jobs:clone", "jobs", "submit a job again, optionally changed",
        ASK, words="ID", rest="maybe", examples=("danlu clone @ --gpus 2", "danlu clone k3fz -- python eval.py"),
    ),
    Command(
        "wait", "jobs:wait", "jobs", "wait for jobs; exit code 0: all succeeded, 1: not, 124: timeout",
        (Option("--timeout", metavar="SECONDS", kind="count", help="wait at most this long"), QUIET, JSON),
        words="ID...", examples=("danlu wait @", "danlu wait --timeout 3600 k3fz m2xw"),
    ),
    Command(
        "why", "jobs:why", "jobs", "explain why a job waits, and when it may start",
        (JSON,), words="ID", examples=("danlu why @",),
    ),
    Command(
        "exec", "exec:run_beside", "jobs", "run a command, or with -t a shell, next to a running job",
        (Option("--tty", "-t", help="with a terminal"),), words="ID", rest="maybe",
        examples=("danlu exec @ -- nvidia-smi", "danlu exec -t @"),
    ),
    Command(
        "rm", "jobs:remove", "jobs", "delete ended jobs and their logs",
        (Option("--ended", help="all your ended jobs"), Option("--yes", "-y", help="do not ask"), QUIET, JSON),
        words="ID...", words_min=0, examples=("danlu rm @", "danlu rm --ended"),
    ),
)  # fmt: skip
