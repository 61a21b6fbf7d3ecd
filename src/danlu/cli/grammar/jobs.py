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
    return (one, Option(f"--no-{option.name}", help="not so, whatever the cloned job or the job file says"))


ASK = (
    *(written for option in OPTIONS for written in _written(option)),
    Option("--snapshot", help="copy the code now (what git does not ignore) and run that copy"),
    Option("--snapshot-limit", metavar="SIZE", help="largest snapshot; 100M unless given (or DANLU_SNAPSHOT_LIMIT)"),
    Option("--no-inherit-env", help="start with a clean environment instead of yours"),
    Option("--dry-run", help="submit nothing: say where it would run, or why not yet"),
    JSON,
)

JOBS = (
    Command(
        "run", "run:run", "jobs", "submit a job and follow it; the exit code is the job's",
        (*ASK, Option("--detach", "-d", help="do not follow"), QUIET), rest="needed",
        examples=(
            "danlu run --gpus 1 -- python train.py",
            "danlu run --gpus RTX3090:2 --time 2h -- torchrun --standalone --nproc-per-node=2 train.py",
            "danlu run --nodes 2 --gpus 1 -- python train.py",
        ),
    ),
    Command(
        "submit", "jobs:submit", "jobs", "put a job in the queue and print its id",
        (*ASK, Option("--file", "-f", metavar="FILE", help="a job file in YAML; options win over it")),
        words="FILE", words_min=0, rest="maybe",
        examples=("danlu submit --gpus 1 -- python train.py", "danlu submit job.yaml --priority 9"),
    ),
    Command(
        "ps", "jobs:ps", "jobs", "list your jobs: the active ones, and those that ended last",
        (
            Option("--all", "-a", help="all of them, however old; and what did not come through Danlu, whoever's"),
            Option("--state", metavar="STATE", many=True, help="only these: QUEUED, RUNNING, FAILED…, active, ended"),
            Option("--user", metavar="NAME|all", help="somebody else's jobs, or everybody's"),
            Option("--team", metavar="TEAM", help="the jobs of this team, whoever's they are"),
            Option("--queue", metavar="QUEUE", help="only jobs of this queue"),
            Option("--name", metavar="NAME", help="only jobs of this name"),
            Option("--label", metavar="NAME=VALUE", help="only jobs with this label"),
            Option("--tasks", help="every task of an array in a line of its own"),
            Option("--limit", "-n", metavar="N", kind="count", help="how many; 20 unless given"),
            Option("--before", metavar="CURSOR", help="go on where the last page ended"),
            JSON,
        ),
        examples=("danlu ps", "danlu ps --state FAILED -n 50", "danlu ps --user all --queue train"),
    ),
    Command("show", "jobs:show", "jobs", "everything about a job", (JSON,), words="ID", examples=("danlu show @",)),
    Command(
        "logs", "jobs:logs", "jobs", "print a job's log",
        (
            Option("--follow", "-f", help="go on until the job has ended"),
            Option("--tail", metavar="N", kind="count", help="only the last N lines"),
            Option("--attempt", metavar="N", kind="count", help="the log of an earlier attempt"),
        ),
        words="ID", examples=("danlu logs -f @", "danlu logs --tail 100 k3fz"),
    ),
    Command(
        "stop", "jobs:stop", "jobs", "end jobs: checkpoint notice, TERM, and KILL after a grace",
        (
            Option("--now", help="without the checkpoint notice"),
            Option("--kill", help="KILL at once"),
            QUIET,
            JSON,
        ),
        words="ID...", examples=("danlu stop @", "danlu stop k3fz82aw_7 m2xw", "danlu stop slurm:17"),
    ),
    Command(
        "clone", "jobs:clone", "jobs", "submit a job again, with changed options",
        ASK, words="ID", rest="maybe", examples=("danlu clone @ --gpus 2", "danlu clone k3fz -- python eval.py"),
    ),
    Command(
        "wait", "jobs:wait", "jobs", "wait for the end; 0 all succeeded, 1 one did not, 124 not in time",
        (Option("--timeout", metavar="SECONDS", kind="count", help="wait no longer than this"), QUIET, JSON),
        words="ID...", examples=("danlu wait @", "danlu wait --timeout 3600 k3fz m2xw"),
    ),
    Command("why", "jobs:why", "jobs", "why a job waits, and how long", (JSON,), words="ID", examples=("danlu why @",)),
    Command(
        "exec", "exec:run_beside", "jobs", "run a command, or with -t a shell, beside a running job",
        (Option("--tty", "-t", help="with a terminal"),), words="ID", rest="maybe",
        examples=("danlu exec @ -- nvidia-smi", "danlu exec -t @"),
    ),
    Command(
        "rm", "jobs:remove", "jobs", "forget ended jobs and their logs",
        (Option("--ended", help="all of mine that have ended"), Option("--yes", "-y", help="do not ask"), QUIET, JSON),
        words="ID...", words_min=0, examples=("danlu rm @", "danlu rm --ended"),
    ),
)  # fmt: skip
