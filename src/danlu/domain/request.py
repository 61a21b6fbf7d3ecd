"""What was asked, as it was written, turned into a job's spec and back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from danlu.domain.job import DEFAULT_PRIORITY, DEFAULT_UMASK, JobSpec
from danlu.domain.parsing import (
    ArrayAsk,
    parse_array,
    parse_count,
    parse_duration,
    parse_gpus,
    parse_memory_mib,
    parse_notice,
    parse_pairs,
    parse_umask,
)
from danlu.domain.resources import Ask
from danlu.errors import Invalid, TooBig


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of a submit under their names on the command line and in job files."""

    command: tuple[str, ...]
    workdir: str = ""
    name: str = ""
    gpus: str | int = 0
    shards: str | int = 0
    cpus: str | int = 1
    mem: str | int = 0
    nodes: str | int = 1
    time: str | int = ""
    priority: str | int = ""  # the queue's, or DEFAULT_PRIORITY
    env: Mapping[str, str] = field(default_factory=dict)
    label: Mapping[str, str] = field(default_factory=dict)
    array: str = ""
    after: tuple[str, ...] = ()
    retries: str | int = 0
    signal: str = ""
    snapshot: str = ""
    umask: str = ""
    queue: str = ""
    team: str = ""
    preemptible: bool = False
    interactive: bool = False
    environ: Mapping[str, str] | None = None


LONGEST_START = 2 << 20  # what Linux takes, with a stack of the usual size
LONGEST_LABELS = 16 << 10  # everybody's list of jobs shows them
_RUNNERS = ("python", "bash", "sh", "torchrun", "accelerate", "deepspeed")
WISH_NAMES = tuple(f.name for f in fields(Wish))


def spec_of(
    wish: Wish, *, default_time: timedelta | None = None, default_priority: int | None = None
) -> tuple[JobSpec, ArrayAsk | None]:
    """Read the wish; nonsense is refused by the option's name. `after` is left to who can look ids up, the queue and
    the team that are meant to who knows the rules."""
    _check_length(wish)
    model, gpus = parse_gpus(wish.gpus)
    array = parse_array(wish.array) if wish.array else None
    if wish.workdir and not wish.workdir.startswith("/"):
        raise Invalid(f"--workdir must be an absolute path, not `{wish.workdir}`")
    spec = JobSpec(
        command=wish.command,
        workdir=wish.workdir or "/",
        name=wish.name or default_name(wish.command),
        ask=Ask(
            gpus=gpus,
            gpu_model=model,
            shards=parse_count(wish.shards, "--shards"),
            cpus=parse_count(wish.cpus, "--cpus"),
            memory_mib=parse_memory_mib(wish.mem),
            nodes=parse_count(wish.nodes, "--nodes"),
        ),
        priority=(default_priority or DEFAULT_PRIORITY)
        if wish.priority == ""
        else parse_count(wish.priority, "--priority"),
        time_limit=parse_duration(wish.time) if wish.time else default_time,
        notice=parse_notice(wish.signal) if wish.signal else None,
        retries=parse_count(wish.retries, "--retries"),
        env=_pairs(wish.env, "--env"),
        labels=_pairs(wish.label, "--label"),
        array=wish.array,
        at_once=array.at_once if array else None,
        snapshot=wish.snapshot,
        umask=parse_umask(wish.umask) if wish.umask else DEFAULT_UMASK,
        team=wish.team,
        queue=wish.queue,
        is_preemptible=wish.preemptible,
        is_interactive=wish.interactive,
    )
    return spec, array


def _check_length(wish: Wish) -> None:
    """Refuse what no system passes to a program: it would never run, and fill the memory of all until it fails."""
    pairs = (*wish.env.items(), *(wish.environ or {}).items())
    if sum(map(len, wish.command)) + sum(len(name) + len(value) for name, value in pairs) > LONGEST_START:
        raise TooBig(
            f"the command and its variables have more than {LONGEST_START:,} characters",
            "put long lists into a file, and name that",
        )
    if sum(len(name) + len(value) for name, value in wish.label.items()) > LONGEST_LABELS:
        raise TooBig(f"all labels of a job together have at most {LONGEST_LABELS:,} characters")


def wish_of(spec: JobSpec) -> Wish:
    """The spec as it could have been written; dependencies and the submitter's environment are not repeated."""
    ask = spec.ask
    return Wish(
        command=spec.command,
        workdir=spec.workdir,
        name=spec.name,
        gpus=f"{ask.gpu_model}:{ask.gpus}" if ask.gpu_model else ask.gpus,
        shards=ask.shards,
        cpus=ask.cpus,
        mem=ask.memory_mib,
        nodes=ask.nodes,
        time=f"{spec.time_limit.total_seconds():.0f}s" if spec.time_limit else "",
        priority=spec.priority,
        env=dict(spec.env),
        label=dict(spec.labels),
        array=spec.array,
        retries=spec.retries,
        signal=f"{spec.notice.signal}@{spec.notice.lead.total_seconds():.0f}" if spec.notice else "",
        snapshot=spec.snapshot,
        umask=f"{spec.umask:04o}",
        queue=spec.queue,
        team=spec.team,
        preemptible=spec.is_preemptible,
        interactive=spec.is_interactive,
    )


def changed_wish(wish: Wish, changes: Mapping[str, Any]) -> Wish:
    """A wish with other options; `--gpus` takes the place of `--shards` and the other way round."""
    if changes.get("gpus") and "shards" not in changes:
        changes = {**changes, "shards": 0}
    if changes.get("shards") and "gpus" not in changes:
        changes = {**changes, "gpus": 0}
    return replace(wish, **changes)


def default_name(command: tuple[str, ...]) -> str:
    """`python train.py --lr 1` -> train.py: the program or script, never its arguments.
    Names are seen by people who may not see commands."""
    program = command[0].rpartition("/")[2] if command else ""
    if program.startswith(_RUNNERS):
        script = next((word for word in command[1:] if not word.startswith("-")), "")
        if script and "-c" not in command and re.fullmatch(r"[\w./+@-]+", script):
            program = script.rpartition("/")[2] or script
    printable = "".join(letter for letter in program if letter.isprintable())
    return printable[:60] or "job"


def _pairs(given: Mapping[str, str], what: str) -> tuple[tuple[str, str], ...]:
    return parse_pairs(tuple(f"{name}={value}" for name, value in given.items()), what)
