"""Commands about the cluster and its server, and about what is whose share of it."""

from __future__ import annotations

from danlu.cli.grammar.model import JSON, Command, Option

FAKE = Option("--fake", help="play all the nodes that the file describes on this machine, to try a cluster")

CLUSTER = (
    Command(
        "status", "server:status", "cluster", "the server, its cards and its jobs", (JSON,),
        examples=("danlu status",),
    ),
    Command(
        "nodes", "server:nodes", "cluster", "machines, and what is free on them", (JSON,),
        examples=("danlu nodes --json",),
    ),
    Command(
        "queues", "queues:queues", "cluster", "queues: what is free in them, who may use them, their rules",
        (JSON,), words="NAME", words_min=0, examples=("danlu queues", "danlu queues train --json"),
    ),
    Command("gpus", "server:gpus", "cluster", "cards, and who holds them", (JSON,), examples=("danlu gpus",)),
)  # fmt: skip

SHARES = (
    Command(
        "quota", "quotas:show", "shares", "what you and your teams may hold, hold and wait for",
        (
            Option("--all", "-a", help="every quota there is"),
            Option("--csv", help="print lines for a spreadsheet"),
            JSON,
        ),
        words="HOLDER", words_min=0, examples=("danlu quota", "danlu quota nlp", "danlu quota --all --csv"),
    ),
    Command(
        "quota set", "quotas:set_quota", "shares", "limit a team or person; what is not named stays (leaders)",
        (JSON,), words="HOLDER NAME=VALUE...", words_min=2,
        examples=(
            "danlu quota set team:nlp gpus=8 borrow=yes", "danlu quota set user:li gpus=2 mem=64G jobs=20",
            "danlu quota set team:nlp gpu_hours=500 period=month shards=128 cpus=none",
        ),
    ),
    Command(
        "quota clear", "quotas:clear_quota", "shares", "lift a quota (leaders)", (JSON,), words="HOLDER",
        examples=("danlu quota clear user:li",),
    ),
    Command(
        "usage", "quotas:usage", "shares", "GPU-hours held and asked for, CPU-hours, runs and waiting times",
        (
            Option("--user", metavar="NAME|me", help="of one person"),
            Option("--team", metavar="NAME", help="of one team"),
            Option("--since", metavar="DATE|7d", help="from this day, or so long ago; 30d unless given"),
            Option("--until", metavar="DATE|7d", help="to this day, or so long ago; now unless given"),
            Option("--by", metavar="WHAT", choices=("user", "team", "queue"), help="a line for each user, team, queue"),
            Option("--csv", help="print lines for a spreadsheet"),
            JSON,
        ),
        examples=("danlu usage", "danlu usage --team nlp --since 2026-07-01", "danlu usage --by team --csv"),
    ),
    Command(
        "boost", "quotas:boost", "shares", "put somebody's jobs first for some days (leaders); alone: who is",
        (
            Option("--until", metavar="DATE|3d", help="to this day, or so long; at most 30 days"),
            Option("--why", metavar="TEXT", help="the reason, which the team reads"),
            Option("--team", metavar="NAME", help="for which of their teams, if you lead several"),
            JSON,
        ),
        words="USER", words_min=0,
        examples=("danlu boost", 'danlu boost li --until 3d --why "paper deadline"'),
    ),
    Command(
        "boost end", "quotas:end_boost", "shares", "end a boost before its time", (JSON,), words="USER|ID",
        examples=("danlu boost end li",),
    ),
)  # fmt: skip

SERVER = (
    Command(
        "up", "server:up", "server", "start your own server (any job command does it by itself)",
        (
            Option("--detach", "-d", help="in the background"),
            Option("--config", metavar="FILE", help="settings in TOML"),
            FAKE,
            Option("--fake-gpus", metavar="LIST", help="pretend to have cards: 4xRTX3090,2xGTX1080Ti"),
        ),
        examples=(
            "danlu up", "danlu up --detach --fake-gpus 4xRTX3090",
            "danlu up --config examples/clusters/fics.toml --fake",
        ),
    ),
    Command("down", "server:down", "server", "stop your own server; jobs go on", examples=("danlu down",)),
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
            Option("--step", metavar="DURATION", help="plan only every so often, as a loaded server would: 30s"),
            Option(
                "--preempted", metavar="HOW", choices=("resume", "restart"),
                help="resume: who is stopped goes on where it was (as if nothing is said); restart: begins again",
            ),
            Option("--jobs-csv", metavar="FILE", help="write a line for each job: its start, end and waiting time"),
            Option("--make-trace", metavar="N", kind="count", help="replay nothing: print an invented trace of N jobs"),
            Option("--seed", metavar="N", kind="count", help="of the invented trace; the same number, the same trace"),
            Option("--load", metavar="PERCENT", kind="count", help="how busy it keeps the cards; 85 unless given"),
            JSON,
        ),
        words="TRACE.csv", words_min=0,
        examples=(
            "danlu simulate trace.csv --config danlu.toml --people people.toml",
            "danlu simulate --make-trace 5000 --seed 1 --config danlu.toml > trace.csv",
        ),
    ),
    Command(
        "doctor", "tools:doctor", "server", "look first: what a machine or cluster lacks, and what it costs",
        (
            Option("--config", metavar="FILE", help="settings in TOML; without it: Slurm, if any, or this machine"),
            Option("--deep", help="Slurm: also run a small job on each node, and look from there"),
            JSON,
        ),
        examples=("danlu doctor", "danlu doctor --config /etc/danlu/danlu.toml --deep", "danlu doctor --json"),
    ),
    Command(
        "slurm init", "tools:slurm_init", "server", "write files and scripts that make machines a Slurm cluster",
        (
            Option("--out", metavar="FOLDER", help="where to; `slurm` unless given"),
            Option("--force", help="overwrite files that are there"),
            Option("--try-here", help="write it so that this machine plays all the nodes, to try it first"),
            Option("--port", metavar="N", kind="count", help="with --try-here: the first of its ports, else 16817"),
            JSON,
        ),
        words="FILE", examples=("danlu slurm init nodes.toml", "danlu slurm init nodes.toml --try-here --out /tmp/try"),
    ),
)  # fmt: skip

OTHER = (
    Command(
        "completion", "completion:script", "other", "a script that completes danlu's words: bash, zsh or fish",
        words="SHELL", examples=('eval "$(danlu completion bash)"',),
    ),
    Command("version", "server:version", "other", "the version of this command", (JSON,), examples=("danlu version",)),
)  # fmt: skip
