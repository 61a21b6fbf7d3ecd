"""The rules of queues: the queue of a job, the right to use a queue, and the limits of a queue for a job."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from danlu.domain.amounts import render_count, render_cpus, render_list, render_memory
from danlu.domain.job import JobSpec
from danlu.domain.people import Actor
from danlu.domain.queue import Queue
from danlu.domain.resources import Node, model_fits
from danlu.errors import Forbidden, Invalid, Refused, TooBig
from danlu.scheduler.plan import fits_ever
from danlu.unix.groups import groups_of

Queues = Mapping[str, Queue]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a queue exceeded by a job."""

    text: str
    instead: str  # an acceptable option


def choose_queue(queues: Queues, actor: Actor, name: str) -> Queue | None:
    """The named queue, or the default queue for jobs without a queue. None: this installation has no queues."""
    if not queues:
        if name:
            raise Invalid(f"there is no queue `{name}`: this installation has none", "leave `--queue` out")
        return None
    if name:
        queue = queues.get(name)
        if queue is None:
            raise Invalid(f"there is no queue `{name}`", _near(name, queues), code="unknown_queue")
        if why_not := closed_to(queue, actor):
            raise Forbidden(why_not, _instead(open_queues(queues, actor)) or "ask an administrator")
        _check_takes_jobs(queue, queues, actor)
        return queue
    usable = [queue for queue in queues.values() if not closed_to(queue, actor)]
    if not usable:
        raise Forbidden(f"{actor.name} may use none of the queues here", "`danlu queues` shows who may")
    chosen = next((queue for queue in usable if queue.is_default), usable[0] if len(usable) == 1 else None)
    if chosen is None:
        usable = open_queues(queues, actor) or usable
        raise Invalid("which queue is it for?", f"name one: {_instead(usable)}", code="queue_needed")
    _check_takes_jobs(chosen, queues, actor)
    return chosen


def _check_takes_jobs(queue: Queue, queues: Queues, actor: Actor) -> None:
    if not queue.takes_jobs:
        others = _instead(open_queues(queues, actor))
        hint = f"use {others}" if others else "try again later"
        raise Refused(f"queue `{queue.name}` takes no jobs at present: {queue.closed}", hint, code="closed")


def open_queues(queues: Queues, actor: Actor) -> list[Queue]:
    """The queues open to the actor and starting jobs at present."""
    return [queue for queue in queues.values() if not queue.closed and not closed_to(queue, actor)]


def closed_to(queue: Queue, actor: Actor) -> str:
    """Why the actor may not use the queue; empty if the actor may."""
    if queue.groups and actor.name != "root" and not queue.groups & groups_of(actor.name):
        groups = f"the Unix group{'s' if len(queue.groups) > 1 else ''} {render_list(sorted(queue.groups))}"
        return (
            f"queue `{queue.name}` is for {groups}; {actor.name} is not in {'any' if len(queue.groups) > 1 else 'it'}"
        )
    if not (queue.users or queue.teams) or actor.name in queue.users:
        return ""
    if any(one.team in queue.teams for one in actor.teams):
        return ""
    return f"queue `{queue.name}` is for {who_may(queue)}; {actor.name} is not among them"


def who_may(queue: Queue) -> str:
    """`the teams cv and nlp, and li`; `everybody`."""
    parts = []
    if queue.teams:
        parts.append(f"the team{'s' if len(queue.teams) > 1 else ''} {render_list(sorted(queue.teams))}")
    if queue.users:
        parts.append(render_list(sorted(queue.users)))
    return ", and ".join(parts) or "everybody"


def choose_team(actor: Actor, name: str, queue: Queue | None) -> str:
    """The team of a job: the named team, or the only possible team of the owner."""
    mine = sorted(one.team for one in actor.teams)
    # In a queue for certain teams, a job must run for such a team; a user named in the queue may run for any own team.
    is_of_teams = queue is not None and bool(queue.teams) and actor.name not in queue.users
    fitting = [team for team in mine if not is_of_teams or (queue and team in queue.teams)]
    if name:
        if name not in mine:
            hint = (
                f"your team{'s are' if len(mine) > 1 else ' is'} {render_list(mine)}" if mine else "leave `--team` out"
            )
            raise Forbidden(f"{actor.name} is not in the team `{name}`", hint)
        if name not in fitting and queue is not None:
            raise Forbidden(
                f"queue `{queue.name}` is for {who_may(queue)}, not for the team `{name}`", _teams_instead(fitting)
            )
        return name
    if len(fitting) > 1:
        raise Invalid(
            f"{actor.name} is in several teams: for which one is this?", _teams_instead(fitting), code="team_needed"
        )
    return fitting[0] if fitting else ""


def default_time(queue: Queue | None, otherwise: timedelta | None) -> timedelta | None:
    """The time limit of a job without `--time`. In a queue with `max_time` such a job gets a limit too."""
    if queue is None:
        return otherwise
    if queue.default_time or queue.max_time is None:
        return queue.default_time or otherwise
    return min(otherwise, queue.max_time) if otherwise else queue.max_time


def check_queue(
    queues: Queues,
    queue: Queue,
    nodes: Sequence[Node],
    actor: Actor,
    spec: JobSpec,
    spec_in: Callable[[Queue], JobSpec],
) -> None:
    """Refuse a job over the limits of this queue, with a hint for a working option. `spec_in` gives the same job in
    another queue, with the defaults of the other queue."""

    def takes(other: Queue) -> bool:
        moved = spec_in(other)
        return not any(limits_over(other, moved)) and fits_ever(nodes, moved.ask, other) is None

    limits = list(limits_over(queue, spec))
    if not limits and (never := fits_ever(nodes, spec.ask, queue)) is None:
        return
    others = [other for other in open_queues(queues, actor) if other is not queue and takes(other)]
    elsewhere = _instead(others)
    if not limits:
        assert never is not None
        hint = f"use {elsewhere}" if others else f"see what it has: `danlu queues {queue.name}`"
        raise TooBig(never.text, hint)
    first = limits[0]
    hint = " or ".join(part for part in (first.instead, f"use {elsewhere}" if others else "") if part)
    raise Refused(first.text, hint or "`danlu queues` shows what each gives", code="queue_limit")


def written_queue(written: Queues, actor: Actor, name: str) -> Queue | None:
    """The configured rules for a job's queue, before the cluster's queues are known. None: the configuration has no
    rules for this queue."""
    found = next((one for one in written.values() if (one.name == name if name else one.is_default)), None)
    return choose_queue(written, actor, found.name) if found else None


def check_written(written: Queues, queue: Queue | None, actor: Actor, spec: JobSpec) -> None:
    """Refuse a job against its queue's rules; without `--queue`, refuse the job if any configured queue might."""
    if queue is not None:
        for limit in limits_over(queue, spec):
            raise Refused(limit.text, limit.instead or "`danlu queues` shows what each gives", code="queue_limit")
    elif not spec.queue and any(closed_to(one, actor) or any(limits_over(one, spec)) for one in written.values()):
        text = "which queue is it for? The cluster was not heard of yet, and not every queue would take this"
        raise Invalid(text, "name one: `--queue NAME`", code="queue_needed")


def limits_over(queue: Queue, spec: JobSpec) -> Iterable[Limit]:
    """The limits of the queue exceeded by the job."""
    ask, name = spec.ask, f"queue `{queue.name}`"
    gpus, shards, cpus, memory = (
        amount * ask.nodes for amount in (ask.gpus, ask.shards, ask.cpus, ask.memory_mib)
    )  # limits hold for all nodes of a job together
    if spec.is_interactive and not queue.is_interactive:
        yield Limit(f"{name} takes no interactive work", "")
    if queue.max_gpus is not None and gpus > queue.max_gpus:
        most = _at_most("--gpus", queue.max_gpus, ask.nodes) if queue.max_gpus else ""
        yield Limit(_over(name, render_count(queue.max_gpus, "GPU"), gpus, queue.max_gpus), most)
    if queue.max_shards is not None and shards > queue.max_shards:
        most = _at_most("--shards", queue.max_shards, ask.nodes) if queue.max_shards else ""
        yield Limit(_over(name, render_count(queue.max_shards, "shard"), shards, queue.max_shards), most)
    if queue.max_cpus is not None and cpus > queue.max_cpus:
        most = _at_most("--cpus", queue.max_cpus, ask.nodes)
        yield Limit(_over(name, render_cpus(queue.max_cpus), cpus, queue.max_cpus), most)
    if queue.max_memory_mib is not None and memory > queue.max_memory_mib:
        text = f"{name} gives one job at most {render_memory(queue.max_memory_mib)} of memory, "
        most = _at_most("--mem", queue.max_memory_mib, ask.nodes, "M")
        yield Limit(f"{text}this one asks for {render_memory(memory)}", most)
    if queue.max_time is not None and (spec.time_limit is None or spec.time_limit > queue.max_time):
        longest = render_time(queue.max_time)
        asked = f"asks for {render_time(spec.time_limit)}" if spec.time_limit else "has no time limit"
        yield Limit(f"{name} runs one job for at most {longest}, this one {asked}", f"`--time {longest}`")
    if queue.max_priority is not None and spec.priority > queue.max_priority:
        text = f"the highest priority in {name} is {queue.max_priority}, this one asks for {spec.priority}"
        yield Limit(text, f"`--priority {queue.max_priority}`")


def check_sitting(queues: Queues, job_id: str, spec: JobSpec) -> None:
    """Refuse a terminal in a job of a queue without interactive work."""
    queue = queues.get(spec.queue)
    if queue is not None and not queue.is_interactive:
        others = [other for other in queues.values() if other.is_interactive]
        raise Refused(
            f"{job_id} runs in queue `{queue.name}`, which takes no interactive work",
            f"for a shell on a card use {_instead(others)}" if others else "`danlu logs -f` shows what it does",
            code="queue_limit",
        )


def nodes_in(queue: Queue, nodes: Iterable[Node]) -> list[Node]:
    """The nodes of a queue, only with the cards usable in the queue."""
    return [
        replace(node, gpus=tuple(gpu for gpu in node.gpus if serves(queue, gpu.model))) if queue.models else node
        for node in nodes
        if not queue.nodes or node.name in queue.nodes
    ]


def serves(queue: Queue, model: str) -> bool:
    return not queue.models or any(model_fits(model, wanted) for wanted in queue.models)


def render_time(time: timedelta) -> str:
    """`3d`, `36h`, `90m`, `45s`: a valid value for `--time`."""
    seconds = int(time.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _over(name: str, most: str, asked: int, limit: int) -> str:
    things = most.partition(" ")[2].removesuffix("s") + "s"
    if not limit:
        return f"{name} takes no jobs with {things}, this one asks for {asked}"
    return f"{name} gives one job at most {most}, this one asks for {asked}"


def _at_most(option: str, limit: int, nodes: int, unit: str = "") -> str:
    """An acceptable option: the limit is for the whole job, but the option is for each node of the job."""
    return f"`{option} {limit // nodes}{unit}`" if limit >= nodes else f"`--nodes {max(limit, 1)}`"


def _near(name: str, queues: Queues) -> str:
    near = difflib.get_close_matches(name, queues, n=3)
    return f"did you mean {_options('--queue', near)}?" if near else f"there is {render_list(list(queues))}"


def _instead(queues: Sequence[Queue]) -> str:
    return _options("--queue", [queue.name for queue in queues[:3]])


def _teams_instead(teams: Sequence[str]) -> str:
    return f"say {_options('--team', teams[:5])}"


def _options(option: str, values: Sequence[str]) -> str:
    return " or ".join(f"`{option} {value}`" for value in values)
