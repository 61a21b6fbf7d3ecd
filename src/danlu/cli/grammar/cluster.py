"""Commands about the cluster and its server, and about quotas and usage."""

from __future__ import annotations

from danlu.cli.grammar.model import JSON, Command, Option

FAKE = Option("--fake", help="simulate all nodes of the file on this machine, to try a cluster")

CLUSTER = (
    Command(
        "status", "server:status", "cluster", "show the server, its cards and its jobs", (JSON,),
        examples=("danlu status",),
    ),
    Command(
        "nodes", "server:nodes", "cluster", "list machines and their free resources", (JSON,),
        examples=("danlu nodes --json",),
    ),
    Command(
        "queues", "queues:queues", "cluster", "list queues: free resources, permitted users, rules",
        (JSON,), words="NAME", words_min=0, examples=("danlu queues", "danlu queues train --json"),
    ),
    Command("gpus", "server:gpus", "cluster", "list cards and their holders", (JSON,), examples=("danlu gpus",)),
)  # fmt: skip

SHARES = (
    Command(
        "quota", "quotas:show", "shares", "show limits and usage of you and your teams",
        (
            Option("--all", "-a", help="all quotas"),
            Option("--csv", help="print CSV for a spreadsheet"),
            JSON,
        ),
        words="HOLDER", words_min=0, examples=("danlu quota", "danlu quota nlp", "danlu quota --all --csv"),
    ),
    Command(
        "quota set", "quotas:set_quota", "shares", "set limits of a team or user; other limits stay (leaders)",
        (JSON,), words="HOLDER NAME=VALUE...", words_min=2,
        examples=(
            "danlu quota set team:nlp gpus=8 borrow=yes", "danlu quota set user:li gpus=2 mem=64G jobs=20",
            "danlu quota set team:nlp gpu_hours=500 period=month shards=128 cpus=none",
        ),
    ),
    Command(
        "quota clear", "quotas:clear_quota", "shares", "remove a quota (leaders)", (JSON,), words="HOLDER",
        examples=("danlu quota clear user:li",),
    ),
    Command(
        "usage", "quotas:usage", "shares", "report GPU-hours held and requested, CPU-hours, runs and waits",
        (
            Option("--user", metavar="NAME|me", help="only this user"),
            Option("--team", metavar="NAME", help="only this team"),
            Option("--since", metavar="DATE|7d", help="start: a date or an age; default 30d"),
            Option("--until", metavar="DATE|7d", help="end: a date or an age; default now"),
            Option("--by", metavar="WHAT", choices=("user", "team", "queue"), help="group by user, team or queue"),
            Option("--csv", help="print CSV for a spreadsheet"),
            JSON,
        ),
        examples=("danlu usage", "danlu usage --team nlp --since 2026-07-01", "danlu usage --by team --csv"),
    ),
    Command(
        "boost", "quotas:boost", "shares", "put a user's jobs first for some days (leaders), or list boosts",
        (
            Option("--until", metavar="DATE|3d", help="end: a date or a duration; at most 30 days"),
            Option("--why", metavar="TEXT", help="the reason, shown to the team"),
            Option("--team", metavar="NAME", help="which of the user's teams, if you lead several"),
            JSON,
        ),
        words="USER", words_min=0,
        examples=("danlu boost", 'danlu boost li --until 3d --why "paper deadline"'),
    ),
    Command(
        "boost end", "quotas:end_boost", "shares", "end a boost early", (JSON,), words="USER|ID",
        examples=("danlu boost end li",),
    ),
)  # fmt: skip

SERVER = (
    Command(
        "up", "server:up", "server", "start your personal server (job commands start it automatically)",
        (
            Option("--detach", "-d", help="run in the background"),
            Option("--config", metavar="FILE", help="settings in TOML"),
            FAKE,
            Option("--fake-gpus", metavar="LIST", help="simulate cards: 4xRTX3090,2xGTX1080Ti"),
        ),
        examples=(
            "danlu up", "danlu up --detach --fake-gpus 4xRTX3090",
            "danlu up --config examples/clusters/fics.toml --fake",
        ),
    ),
    Command("down", "server:down", "server", "stop your personal server; jobs keep running", examples=("danlu down",)),
    Command(
        "serve", "server:serve", "server", "run the shared server of a lab",
        (Option("--config", metavar="FILE", help="settings in TOML"), FAKE),
        examples=("danlu serve --config /etc/danlu/danlu.toml",),
    ),
    Command(
        "simulate", "tools:simulate", "server", "replay a trace of jobs under a configuration: try a policy first",
        (
            Option("--config", metavar="FILE", help="settings in TOML: the machines, queues and policy to try"),
            Option("--people", metavar="FILE", help="teams, quotas and boosts in TOML: examples/people.toml"),
            Option("--step", metavar="DURATION", help="plan only at this interval, like a loaded server: 30s"),
            Option(
                "--preempted", metavar="HOW", choices=("resume", "restart"),
                help="resume: a stopped job continues (default); restart: it starts from the beginning",
            ),
            Option("--jobs-csv", metavar="FILE", help="write start, end and waiting time of each job"),
            Option("--make-trace", metavar="N", kind="count", help="only print a generated trace of N jobs"),
            Option("--seed", metavar="N", kind="count", help="the same seed generates the same trace"),
            Option("--load", metavar="PERCENT", kind="count", help="load of the cards in the trace; default 85"),
            JSON,
        ),
        words="TRACE.csv", words_min=0,
        examples=(
            "danlu simulate trace.csv --config danlu.toml --people people.toml",
            "danlu simulate --make-trace 5000 --seed 1 --config danlu.toml > trace.csv",
        ),
    ),
    Command(
        "doctor", "tools:doctor", "server", "check a machine or cluster: gaps, their cost, and advice",
        (
            Option("--config", metavar="FILE", help="settings in TOML; without it: Slurm, if any, or this machine"),
            Option("--deep", help="Slurm: also run a small job on each node, and check from there"),
            JSON,
        ),
        examples=("danlu doctor", "danlu doctor --config /etc/danlu/danlu.toml --deep", "danlu doctor --json"),
    ),
    Command(
        "slurm init", "tools:slurm_init", "server", "write the files and scripts of a new Slurm cluster",
        (
            Option("--out", metavar="FOLDER", help="output folder; default `slurm`"),
            Option("--force", help="overwrite existing files"),
            Option("--try-here", help="make this machine simulate all nodes, for a first try"),
            Option("--port", metavar="N", kind="count", help="with --try-here: the first port; default 16817"),
            JSON,
        ),
        words="FILE", examples=("danlu slurm init nodes.toml", "danlu slurm init nodes.toml --try-here --out /tmp/try"),
    ),
)  # fmt: skip

OTHER = (
    Command(
        "shims install", "shims:install", "other", "add commands such as sbatch to a folder (~/.local/bin)",
        (Option("--force", help="also where a real Slurm is installed"), JSON), words="DIR", words_min=0,
        examples=("danlu shims install", "danlu shims install ~/danlu-bin"),
    ),
    Command(
        "shims remove", "shims:remove", "other", "remove these commands", (JSON,), words="DIR", words_min=0,
        examples=("danlu shims remove",),
    ),
    Command(
        "completion", "completion:script", "other", "print a shell completion script: bash, zsh or fish",
        words="SHELL", examples=('eval "$(danlu completion bash)"',),
    ),
    Command("version", "server:version", "other", "print the version", (JSON,), examples=("danlu version",)),
)  # fmt: skip
