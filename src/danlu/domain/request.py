"""A submit request as written, and its conversion into a job's spec and back."""

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
from danlu.domain.texts import (
    LONGEST_ARRAY,
    LONGEST_LABELS,
    LONGEST_NAME,
    LONGEST_PATH,
    LONGEST_WRITTEN,
    MOST_AFTER,
    check_start,
    check_text,
)
from danlu.errors import Invalid, TooBig


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The options of a submit under their names on the command line and in job files."""

    command: tuple[str, ...]
    workdir: str = ""
    name: str = ""
    gpus: str | int = 0
    shards: str | int = 0
    cpus: str | int = 1
    mem: str | int = 0
    shm: str | int = 0
    nodes: str | int = 1
    time: str | int = ""
    priority: str | int = ""  # empty: the queue's default, or DEFAULT_PRIORITY
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


# Texts that may be longer than `LONGEST_WRITTEN`.
LONGEST = {"workdir": LONGEST_PATH, "name": LONGEST_NAME, "array": LONGEST_ARRAY}
_RUNNERS = ("python", "bash", "sh", "torchrun", "accelerate", "deepspeed")
REQUEST_NAMES = tuple(f.name for f in fields(JobRequest))


def spec_of(
    wanted: JobRequest, *, default_time: timedelta | None = None, default_priority: int | None = None
) -> tuple[JobSpec, ArrayAsk | None]:
    """Parse the request; refuse an invalid value with the option's name. Code outside resolves `after`, which needs a
    lookup of ids, and the effective queue and team, which need the rules."""
    model, gpus = parse_gpus(wanted.gpus)
    array = parse_array(wanted.array) if wanted.array else None
    if wanted.workdir and not wanted.workdir.startswith("/"):
        raise Invalid(f"--workdir must be an absolute path, not `{wanted.workdir}`")
    spec = JobSpec(
        command=wanted.command,
        workdir=wanted.workdir or "/",
        name=wanted.name or default_name(wanted.command),
        ask=Ask(
            gpus=gpus,
            gpu_model=model,
            shards=parse_count(wanted.shards, "--shards"),
            cpus=parse_count(wanted.cpus, "--cpus"),
            memory_mib=parse_memory_mib(wanted.mem),
            shm_mib=parse_memory_mib(wanted.shm, "--shm"),
            nodes=parse_count(wanted.nodes, "--nodes"),
        ),
        priority=(default_priority or DEFAULT_PRIORITY)
        if wanted.priority == ""
        else parse_count(wanted.priority, "--priority"),
        time_limit=default_time if wanted.time == "" else parse_duration(wanted.time),
        notice=parse_notice(wanted.signal) if wanted.signal else None,
        retries=parse_count(wanted.retries, "--retries"),
        env=_pairs(wanted.env, "--env"),
        labels=_pairs(wanted.label, "--label"),
        array=wanted.array,
        at_once=array.at_once if array else None,
        snapshot=wanted.snapshot,
        umask=parse_umask(wanted.umask) if wanted.umask else DEFAULT_UMASK,
        team=wanted.team,
        queue=wanted.queue,
        is_preemptible=wanted.preemptible,
        is_interactive=wanted.interactive,
    )
    return spec, array


def check_request(wanted: JobRequest) -> None:
    """Before any parsing, refuse texts that no system passes to a program, and texts too long for later readers."""
    for name in REQUEST_NAMES:
        if isinstance(value := getattr(wanted, name), str):
            check_text(value, f"--{name}", LONGEST.get(name, LONGEST_WRITTEN))
    if len(wanted.after) > MOST_AFTER:
        hint = "make one array of the jobs that it waits for, or let a job in between wait for some of them"
        raise TooBig(f"a job waits for at most {MOST_AFTER} others, this one for {len(wanted.after):,}", hint)
    labels = [f"{name}={value}" for name, value in wanted.label.items()]
    variables = [f"{name}={value}" for name, value in (*wanted.env.items(), *(wanted.environ or {}).items())]
    check_text("".join(wanted.after), "--after")
    check_text("".join(labels), "--label")
    for name in wanted.environ or {}:
        if not name or "=" in name:
            raise Invalid(f"no variable can be called `{name[:40]}`", "a name is not empty and has no `=`")
    check_start(wanted.command, variables)
    if (size := sum(map(len, labels))) > LONGEST_LABELS:
        raise TooBig(f"the labels of this job have {size:,} characters, at most {LONGEST_LABELS:,} are possible")


def request_of(spec: JobSpec) -> JobRequest:
    """A request for this spec, without the dependencies and the submitter's environment."""
    ask = spec.ask
    return JobRequest(
        command=spec.command,
        workdir=spec.workdir,
        name=spec.name,
        gpus=f"{ask.gpu_model}:{ask.gpus}" if ask.gpu_model else ask.gpus,
        shards=ask.shards,
        cpus=ask.cpus,
        mem=ask.memory_mib,
        shm=ask.shm_mib,
        nodes=ask.nodes,
        time=f"{spec.time_limit.total_seconds():.3f}s" if spec.time_limit else "",
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


def outline(wanted: JobRequest) -> JobRequest:
    """The options that queue rules check, without the long parts: the result is parsed once for each queue."""
    return replace(wanted, command=wanted.command[:1], array="", env={}, label={}, environ=None)


def changed_request(wanted: JobRequest, changes: Mapping[str, Any]) -> JobRequest:
    """The request with other options; `--gpus` replaces `--shards`, and `--shards` replaces `--gpus`."""
    if changes.get("gpus") and "shards" not in changes:
        changes = {**changes, "shards": 0}
    if changes.get("shards") and "gpus" not in changes:
        changes = {**changes, "gpus": 0}
    return replace(wanted, **changes)


def default_name(command: tuple[str, ...]) -> str:
    """`python train.py --lr 1` -> train.py: the program or script, never its arguments.
    People without the right to see commands can see names."""
    program = command[0].rpartition("/")[2][:LONGEST_NAME] if command else ""
    if program.startswith(_RUNNERS):
        script = next((word for word in command[1:] if not word.startswith("-")), "")
        if script and "-c" not in command and re.fullmatch(r"[\w./+@-]+", script):
            program = script.rpartition("/")[2] or script
    printable = "".join(letter for letter in program if letter.isprintable())
    return printable[:60] or "job"


def _pairs(given: Mapping[str, str], what: str) -> tuple[tuple[str, str], ...]:
    return parse_pairs(tuple(f"{name}={value}" for name, value in given.items()), what)
