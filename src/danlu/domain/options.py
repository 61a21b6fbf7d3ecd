"""The options of a job, defined once. The command line, job files, REST bodies, clones, completion and docs use this
table.

The command line reads this module at every start, so this module imports nothing. A new option is a row here, a field
of `JobRequest`, a field of `JobSpec` or `Ask`, and support in the engine. `tests/unit/test_options.py` names a
forgotten link.
"""

from __future__ import annotations

# How people write the value of an option.
COUNT = "count"  # a whole number: 4
AMOUNT = "amount"  # a number or a text: 2, RTX3090:2; 16G; 2h30m
TEXT = "text"
SWITCH = "switch"  # given or not; `--no-NAME` cancels the switch
PAIRS = "pairs"  # NAME=VALUE, any number of times
LIST = "list"  # a text, any number of times


class JobOption:
    """One option: its name in every door, the kind of its value, and its help."""

    __slots__ = ("help", "kind", "metavar", "name")

    def __init__(self, name: str, kind: str, metavar: str, help: str) -> None:
        self.name, self.kind, self.metavar, self.help = name, kind, metavar, help

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


# In the order of the help. The client sends every option to the server under its name.
OPTIONS = (
    JobOption("gpus", AMOUNT, "N|MODEL:N", "whole cards, of any model or a given model: 2, RTX3090:2"),
    JobOption("shards", COUNT, "N", "parts of one card; other jobs may use the rest"),
    JobOption("cpus", COUNT, "N", "processor cores"),
    JobOption("mem", AMOUNT, "SIZE", "memory: 16G, 512M; a plain number is MiB"),
    JobOption("shm", AMOUNT, "SIZE", "shared memory (/dev/shm): 8G; `danlu show` tells if it is not enforced"),
    JobOption("nodes", COUNT, "N", "number of nodes, each with all of the above; the command starts on every node"),
    JobOption("time", AMOUNT, "DURATION", "time limit: 90m, 2h30m, 1-12:00:00; a plain number is minutes"),
    JobOption("name", TEXT, "NAME", "name of the job"),
    JobOption("priority", COUNT, "1..9", "9 goes first; default 5"),
    JobOption("queue", TEXT, "QUEUE", "queue of the job: `danlu queues` lists them"),
    JobOption("team", TEXT, "TEAM", "which of your teams; needed only if you are in several"),
    JobOption(
        "preemptible",
        SWITCH,
        "",
        "the job may be stopped with a checkpoint and queued again; needed to borrow beyond a quota",
    ),
    JobOption("interactive", SWITCH, "", "an interactive session; not every queue allows these"),
    JobOption("env", PAIRS, "NAME=VALUE", "set a variable; NAME alone takes it from your environment"),
    JobOption("label", PAIRS, "NAME=VALUE", "a label to filter by"),
    JobOption("workdir", TEXT, "FOLDER", "working directory; default: the current one"),
    JobOption("array", AMOUNT, "LIST", "many tasks of one command: 1-10%%2 is ten tasks, two at once"),
    JobOption("after", LIST, "ID[:any]", "start after this job has succeeded; with :any, has ended"),
    JobOption("retries", COUNT, "N", "start again after a failure, at most N times"),
    JobOption("signal", TEXT, "SIGNAL@SECONDS", "checkpoint notice before the time limit or a stop: USR1@300"),
)
NAMES = tuple(option.name for option in OPTIONS)


def names_of(*kinds: str) -> tuple[str, ...]:
    return tuple(option.name for option in OPTIONS if option.kind in kinds)
