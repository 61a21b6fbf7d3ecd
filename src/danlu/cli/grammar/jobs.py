"""Commands about jobs."""

from __future__ import annotations

from danlu.cli.grammar.model import JSON, QUIET, Command, Option

ASK = (
    Option("--gpus", metavar="N|MODEL:N", help="whole cards, of any model or a given model: 2, RTX3090:2"),
    Option("--shards", metavar="N", kind="count", help="parts of one card; other jobs may use the rest"),
    Option("--cpus", metavar="N", kind="count", help="processor cores"),
    Option("--mem", metavar="SIZE", help="memory: 16G, 512M; a plain number is MiB"),
    Option(
        "--nodes",
        metavar="N",
        kind="count",
        help="number of nodes, each with all of the above; the command starts on every node",
    ),
    Option("--time", metavar="DURATION", help="time limit: 90m, 2h30m, 1-12:00:00; a plain number is minutes"),
    Option("--name", metavar="NAME", help="name of the job"),
    Option("--priority", metavar="1..9", kind="count", help="9 goes first; default 5"),
    Option("--queue", metavar="QUEUE", help="queue of the job: `danlu queues` lists them"),
    Option("--team", metavar="TEAM", help="which of your teams; needed only if you are in several"),
    Option(
        "--preemptible",
        help="the job may be stopped with a checkpoint and queued again; needed to borrow beyond a quota",
    ),
    Option("--no-preemptible", help="overrides the cloned job or the job file"),
    Option("--interactive", help="an interactive session; not every queue allows these"),
    Option("--no-interactive", help="overrides the cloned job or the job file"),
    Option("--env", metavar="NAME=VALUE", many=True, help="set a variable; NAME alone takes it from your environment"),
    Option("--label", metavar="NAME=VALUE", many=True, help="a label to filter by"),
    Option("--workdir", metavar="FOLDER", help="working directory; default: the current one"),
    Option("--array", metavar="LIST", help="many tasks of one command: 1-10%%2 is ten tasks, two at once"),
    Option("--after", metavar="ID[:any]", many=True, help="start after this job has succeeded; with :any, has ended"),
    Option("--retries", metavar="N", kind="count", help="start again after a failure, at most N times"),
    Option("--signal", metavar="SIGNAL@SECONDS", help="checkpoint notice before the time limit or a stop: USR1@300"),
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
        (*ASK, Option("--file", "-f", metavar="FILE", help="a job file in YAML; options override it")),
        words="FILE", words_min=0, rest="maybe",
        examples=("danlu submit --gpus 1 -- python train.py", "danlu submit job.yaml --priority 9"),
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
