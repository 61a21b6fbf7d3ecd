"""Every command and option, once: both parsers, the help and the completion are made from this table."""

from __future__ import annotations


class Option:
    """One option. `kind` is `flag`, `text` or `count` (a whole number); `many` may be given again and again."""

    __slots__ = ("choices", "help", "kind", "many", "metavar", "names")

    def __init__(
        self,
        *names: str,
        help: str,
        metavar: str = "",
        kind: str = "",
        many: bool = False,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.names, self.help, self.metavar, self.many, self.choices = names, help, metavar, many, choices
        self.kind = kind or ("text" if metavar else "flag")

    @property
    def key(self) -> str:
        """Its name in what a parser gives: `--dry-run` is `dry_run`."""
        return self.names[0].lstrip("-").replace("-", "_")


class Command:
    """One command. `words` is what stands beside the options, `rest` whether a command follows after `--`."""

    __slots__ = ("examples", "group", "handler", "help", "name", "options", "rest", "words", "words_min")

    def __init__(
        self,
        name: str,
        handler: str,
        group: str,
        help: str,
        options: tuple[Option, ...] = (),
        *,
        words: str = "",
        words_min: int | None = None,
        rest: str = "",
        examples: tuple[str, ...] = (),
    ) -> None:
        self.name, self.handler, self.group, self.help, self.options = name, handler, group, help, options
        self.words, self.rest, self.examples = words, rest, examples
        self.words_min = (1 if words else 0) if words_min is None else words_min

    @property
    def words_max(self) -> int | None:
        """How many words it takes at most: None is any number (`ID...`)."""
        if not self.words:
            return 0
        return None if self.words.endswith("...") else len(self.words.split())


GLOBAL = (
    Option("--server", metavar="URL", help="the server: unix:///path, http://… or https://… (else DANLU_SERVER)"),
    Option(
        "--color", metavar="WHEN", choices=("auto", "always", "never"), help="auto, always or never; NO_COLOR counts"
    ),
)
JSON = Option("--json", help="print data as JSON")

ASK = (
    Option("--gpus", metavar="N|MODEL:N", help="whole cards, of any model or of one: 2, RTX3090:2"),
    Option("--shards", metavar="N", kind="count", help="parts of one card, which others may share"),
    Option("--cpus", metavar="N", kind="count", help="processor cores"),
    Option("--mem", metavar="SIZE", help="memory: 16G, 512M; a plain number is MiB"),
    Option(
        "--time", metavar="DURATION", help="end it after this long: 90m, 2h30m, 1-12:00:00; a plain number is minutes"
    ),
    Option("--name", metavar="NAME", help="a name to find it by"),
    Option("--priority", metavar="1..9", kind="count", help="9 goes first; 5 unless given"),
    Option("--queue", metavar="QUEUE", help="where it waits and runs: `danlu queues` lists them"),
    Option("--team", metavar="TEAM", help="for which of your teams, if there are several"),
    Option("--preemptible", help="may be asked to checkpoint and wait again; only such jobs borrow beyond a quota"),
    Option("--interactive", help="somebody sits at it; not every queue takes such work"),
    Option("--env", metavar="NAME=VALUE", many=True, help="set a variable; NAME alone takes it from your environment"),
    Option("--label", metavar="NAME=VALUE", many=True, help="a label to filter by"),
    Option("--workdir", metavar="FOLDER", help="where it runs; the folder you are in unless given"),
    Option("--array", metavar="LIST", help="many tasks of one command: 1-10%%2 is ten, two at once"),
    Option("--after", metavar="ID[:any]", many=True, help="wait until that job has succeeded, or with :any has ended"),
    Option("--retries", metavar="N", kind="count", help="start again after a failure, at most N times"),
    Option("--signal", metavar="SIGNAL@SECONDS", help="checkpoint notice before the time limit or a stop: USR1@300"),
    Option("--snapshot", help="copy the code now (what git does not ignore) and run that copy"),
    Option("--snapshot-limit", metavar="SIZE", help="largest snapshot; 100M unless given (or DANLU_SNAPSHOT_LIMIT)"),
    Option("--no-inherit-env", help="start with a clean environment instead of yours"),
    Option("--dry-run", help="submit nothing: say where it would run, or why not yet"),
    JSON,
)
FAKE = Option("--fake", help="play all the nodes that the file describes on this machine, to try a cluster")
PASSWORD_STDIN = Option("--password-stdin", help="read passwords from stdin, a line each, instead of asking")
ROLE = Option("--role", metavar="ROLE", choices=("member", "admin"), help="member (unless given) or admin")
QUIET = Option("--quiet", "-q", help="only the data, no talk")

COMMANDS = (
    Command(
        "run", "run:run", "jobs", "submit a job and follow it; the exit code is the job's",
        (*ASK, Option("--detach", "-d", help="do not follow"), QUIET), rest="needed",
        examples=("danlu run --gpus 1 -- python train.py", "danlu run --gpus RTX3090:2 --time 2h -- torchrun train.py"),
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
            Option("--all", "-a", help="all of them, however old"),
            Option("--state", metavar="STATE", many=True, help="only these: QUEUED, RUNNING, FAILED…, active, ended"),
            Option("--user", metavar="NAME|all", help="somebody else's jobs, or everybody's"),
            Option("--team", metavar="TEAM", help="the jobs of this team, whoever's they are"),
            Option("--name", metavar="NAME", help="only jobs of this name"),
            Option("--label", metavar="NAME=VALUE", help="only jobs with this label"),
            Option("--tasks", help="every task of an array in a line of its own"),
            Option("--limit", "-n", metavar="N", kind="count", help="how many; 20 unless given"),
            Option("--before", metavar="CURSOR", help="go on where the last page ended"),
            JSON,
        ),
        examples=("danlu ps", "danlu ps --state FAILED -n 50", "danlu ps --user all --state active"),
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
        words="ID...", examples=("danlu stop @", "danlu stop k3fz82aw_7 m2xw"),
    ),
    Command(
        "clone", "jobs:clone", "jobs", "submit a job again, with changed options",
        ASK, words="ID", rest="maybe", examples=("danlu clone @ --gpus 2", "danlu clone k3fz -- python eval.py"),
    ),
    Command(
        "wait", "jobs:wait", "jobs", "wait for the end: 0 all succeeded, 1 one did not, 124 not ended in time",
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
    Command("status", "server:status", "cluster", "the server, its cards and its jobs", (JSON,)),
    Command("nodes", "server:nodes", "cluster", "machines, and what is free on them", (JSON,)),
    Command(
        "queues", "queues:queues", "cluster", "queues: what is free in them, who may use them, their rules",
        (JSON,), words="NAME", words_min=0, examples=("danlu queues", "danlu queues train --json"),
    ),
    Command("gpus", "server:gpus", "cluster", "cards, and who holds them", (JSON,)),
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
    Command("down", "server:down", "server", "stop your own server; jobs go on"),
    Command(
        "serve", "server:serve", "server", "run the shared server of a lab",
        (Option("--config", metavar="FILE", help="settings in TOML"), FAKE),
        examples=("danlu serve --config /etc/danlu/danlu.toml",),
    ),
    Command(
        "login", "login:login", "people", "log in to a shared server; later commands mean it, as you",
        (
            Option("--user", metavar="NAME", help="whose account; asked unless given"),
            PASSWORD_STDIN,
            Option("--browser", help="sign on in the browser, where the server offers it"),
            Option("--no-browser", help="with --browser: show the address and open nothing"),
            Option("--paste", help="with --browser: the browser is on another machine, and shows a code to paste here"),
            Option("--first", metavar="CODE", help="become the first administrator, with the code the server printed"),
            JSON,
        ),
        examples=(
            "danlu login --server https://gpu.lab:7411", "danlu login --user li", "danlu login --browser",
            "danlu login --browser --paste",
        ),
    ),
    Command("logout", "login:logout", "people", "end the login, here and at the server"),
    Command("whoami", "login:whoami", "people", "who you are to the server: role, teams, how signed in", (JSON,)),
    Command(
        "passwd", "login:passwd", "people", "change your password, or reset another's (administrators)",
        (PASSWORD_STDIN,), words="USER", words_min=0, examples=("danlu passwd", "danlu passwd li"),
    ),
    Command(
        "token create", "login:token_create", "people", "a token for a script or another machine, shown once",
        (
            Option("--user", metavar="USER", help="for somebody else (administrators)"),
            ROLE,
            Option("--days", metavar="N", kind="count", help="valid for N days, 90 unless given; 0: for ever (admins)"),
            JSON,
        ),
        words="NAME", examples=("danlu token create laptop --days 30",),
    ),
    Command(
        "token list", "login:token_list", "people", "your tokens",
        (
            Option("--user", metavar="USER", help="somebody else's (administrators)"),
            Option("--all", "-a", help="everybody's (administrators)"),
            JSON,
        ),
    ),
    Command("token revoke", "login:token_revoke", "people", "make tokens useless", words="ID..."),
    Command(
        "account ask", "people:account_ask", "people", "ask for an account; no login needed",
        (
            Option("--team", metavar="TEAM", help="the team you belong to; its leader approves"),
            Option("--user", metavar="NAME", help="the name of the account; your Unix name unless given"),
            Option("--name", metavar="NAME", help="your own name"),
            Option("--email", metavar="EMAIL", help="where to reach you"),
            Option("--why", metavar="TEXT", help="what for"),
            PASSWORD_STDIN,
            JSON,
        ),
        examples=('danlu account ask --team nlp --name "Li Hua"',),
    ),
    Command(
        "account list", "people:account_list", "people", "who waits for an account (leaders, administrators)",
        (Option("--all", "-a", help="the decided ones too"), JSON),
    ),
    Command(
        "account approve", "people:account_approve", "people", "a leader's yes to a request",
        (JSON,), words="ID", examples=("danlu account approve k3fz82aw",),
    ),
    Command(
        "account open", "people:account_open", "people", "open the account that was asked for (administrators)",
        (JSON,), words="ID", examples=("danlu account open k3fz82aw",),
    ),
    Command(
        "account refuse", "people:account_refuse", "people", "a no to a request",
        (Option("--why", metavar="TEXT", help="the reason, for the audit log"), JSON),
        words="ID", examples=('danlu account refuse k3fz82aw --why "left the lab"',),
    ),
    Command("user list", "people:user_list", "people", "accounts", (JSON,)),
    Command(
        "user show", "people:user_show", "people", "everything about an account",
        (JSON,), words="USER", examples=("danlu user show li",),
    ),
    Command(
        "user create", "people:user_create", "people", "open an account without a request (administrators)",
        (
            Option("--team", metavar="TEAM", many=True, help="a team to be in"),
            Option("--name", metavar="NAME", help="the person's own name"),
            Option("--email", metavar="EMAIL", help="where to reach them"),
            ROLE,
            PASSWORD_STDIN,
            JSON,
        ),
        words="USER", examples=("danlu user create li --team nlp",),
    ),
    Command(
        "user disable", "people:user_disable", "people", "no new work, no way in; data stay (administrators)",
        (JSON,), words="USER", examples=("danlu user disable li",),
    ),
    Command(
        "user enable", "people:user_enable", "people", "let somebody work again (administrators)",
        (JSON,), words="USER", examples=("danlu user enable li",),
    ),
    Command(
        "user role", "people:user_role", "people", "make somebody admin, or member again (administrators)",
        (JSON,), words="USER ROLE", words_min=2, examples=("danlu user role li admin",),
    ),
    Command(
        "user link", "signon:link", "people", "say whose account it is at the sign-on (administrators)",
        (JSON,), words="USER SUBJECT", words_min=2,
        examples=("danlu user link li 'https://sso.lab/realms/lab|4f1c'",),
    ),
    Command(
        "team create", "people:team_create", "people", "a new team (administrators)",
        (JSON,), words="TEAM", examples=("danlu team create nlp",),
    ),
    Command("team list", "people:team_list", "people", "teams, and who leads them", (JSON,)),
    Command(
        "team show", "people:team_show", "people", "who is in a team",
        (JSON,), words="TEAM", examples=("danlu team show nlp",),
    ),
    Command(
        "team add", "people:team_add", "people", "take accounts into a team (its leaders)",
        (JSON,), words="TEAM USER...", words_min=2, examples=("danlu team add nlp li wang",),
    ),
    Command(
        "team remove", "people:team_remove", "people", "let people go from a team (its leaders)",
        (JSON,), words="TEAM USER...", words_min=2, examples=("danlu team remove nlp wang",),
    ),
    Command(
        "team leader", "people:team_leader", "people", "make somebody lead a team, or no longer (administrators)",
        (Option("--remove", help="they lead no longer, but stay in it"), JSON),
        words="TEAM USER...", words_min=2, examples=("danlu team leader nlp li", "danlu team leader nlp li --remove"),
    ),
    Command(
        "audit", "people:audit", "people", "who changed what, when, and from where (administrators)",
        (
            Option("--who", metavar="USER", help="only what this person did"),
            Option("--what", metavar="VERB", help="only this: user.disable, or all of it: user, quota, token"),
            Option("--target", metavar="NAME", help="only what was done to this"),
            Option("--limit", "-n", metavar="N", kind="count", help="how many; 50 unless given"),
            Option("--before", metavar="CURSOR", help="go on where the last page ended"),
            JSON,
        ),
        examples=("danlu audit", "danlu audit --what user --target li -n 20"),
    ),
    Command(
        "simulate", "simulate:simulate", "server", "replay a trace of jobs under a configuration: try a policy first",
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
        "quota", "quotas:show", "people", "what you and your teams may hold, hold and wait for",
        (Option("--all", "-a", help="every quota there is"), JSON), words="HOLDER", words_min=0,
        examples=("danlu quota", "danlu quota nlp", "danlu quota user:li"),
    ),
    Command(
        "quota set", "quotas:set_quota", "people", "limit a team or person; what is not named stays (leaders)",
        (JSON,), words="HOLDER NAME=VALUE...", words_min=2,
        examples=(
            "danlu quota set team:nlp gpus=8 borrow=yes", "danlu quota set user:li gpus=2 mem=64G jobs=20",
            "danlu quota set team:nlp gpu_hours=500 period=month shards=128 cpus=none",
        ),
    ),
    Command(
        "quota clear", "quotas:clear_quota", "people", "lift a quota (leaders)", (JSON,), words="HOLDER",
        examples=("danlu quota clear user:li",),
    ),
    Command(
        "usage", "quotas:usage", "people", "GPU-hours held and asked for, CPU-hours, runs and waiting times",
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
        "boost", "quotas:boost", "people", "put somebody's jobs first for some days (leaders); alone: who is",
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
        "boost end", "quotas:end_boost", "people", "end a boost before its time", (JSON,), words="USER|ID",
        examples=("danlu boost end li",),
    ),
    Command(
        "completion", "complete:script", "other", "a script that completes danlu's words: bash, zsh or fish",
        words="SHELL", examples=('eval "$(danlu completion bash)"',),
    ),
    Command("version", "server:version", "other", "the version of this command", (JSON,)),
)  # fmt: skip

BY_NAME = {command.name: command for command in COMMANDS}


def read_count(text: str) -> int | None:
    """A whole number of 0 or more, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def with_defaults(command: Command, values: dict[str, object]) -> dict[str, object]:
    """What a parser found, and a value for every option that was not given."""
    for option in GLOBAL + command.options:
        values.setdefault(option.key, [] if option.many else False if option.kind == "flag" else None)
    return values
