"""Nodes and queues in a configuration file: the keys of `[[nodes]]` and `[[queues]]`, and their conversion."""

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from danlu.domain.job import DEFAULT_PRIORITY
from danlu.domain.parsing import parse_duration, parse_memory_mib
from danlu.domain.queue import Queue
from danlu.domain.resources import SHARDS_PER_GPU, Gpu, Node, model_fits
from danlu.errors import Invalid
from danlu.monitor.machine import parse_fake_gpus

DEFAULT_CPUS = 16
DEFAULT_MEMORY = "64G"
MAX_NODES = 2000
_NAME = re.compile(r"[^\W_][\w.-]{0,62}")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One `[[nodes]]` section: a machine, or several equal machines (`fics-[1-4]`)."""

    name: str = ""
    cpus: int = DEFAULT_CPUS
    memory: str = DEFAULT_MEMORY
    gpus: str = ""  # "5xRTX3090"; empty: none


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One `[[queues]]` section. A missing key does not restrict."""

    name: str = ""
    nodes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    max_gpus: int | None = None
    max_shards: int | None = None
    max_cpus: int | None = None
    max_mem: str = ""
    max_time: str = ""
    default_time: str = ""
    default_priority: int | None = None
    max_priority: int | None = None
    interactive: bool = True
    default: bool = False


def nodes_of(described: Sequence[NodeSettings], *, shards_per_gpu: int = SHARDS_PER_GPU) -> tuple[Node, ...]:
    """The nodes that a file describes, with all patterns expanded."""
    nodes: dict[str, Node] = {}
    for one in described:
        for name in written_out(one.name, "`[[nodes]]`"):
            if name in nodes:
                raise Invalid(f"two `[[nodes]]` describe `{name}`", "keep one of them")
            if one.cpus < 1:
                raise Invalid(f"node `{name}`: `cpus` must be 1 or more, not {one.cpus}")
            memory_mib = _size(one.memory, f"node `{name}`: `memory`")
            nodes[name] = Node(name, one.cpus, memory_mib, _cards(name, one.gpus, shards_per_gpu))
            if len(nodes) > MAX_NODES:
                raise Invalid(f"`[[nodes]]` describes more than {MAX_NODES} nodes")
    return tuple(nodes.values())


def queues_of(described: Sequence[QueueSettings], nodes: Sequence[Node]) -> dict[str, Queue]:
    """The queues that a file describes, in the order of the file, each with its nodes."""
    queues: dict[str, Queue] = {}
    for one in described:
        if not _NAME.fullmatch(one.name):
            raise Invalid(f"`{one.name}` is no name for a queue", "letters, digits, `_`, `.` and `-`, at most 63")
        if one.name in queues:
            raise Invalid(f"two `[[queues]]` are called `{one.name}`", "keep one of them, or give it another name")
        queues[one.name] = _queue(one, nodes)
    defaults = [name for name, queue in queues.items() if queue.is_default]
    if len(defaults) > 1:
        raise Invalid(f"`{defaults[0]}` and `{defaults[1]}` are both the default queue", "keep `default` in one")
    return queues


def written_queues(described: Sequence[QueueSettings]) -> dict[str, Queue]:
    """The rules that a file adds to the queues of a cluster. Nothing else is known before the cluster's
    first report."""
    return queues_of([replace(one, nodes=(), models=()) for one in described], ())


def queues_with(described: Sequence[QueueSettings], there: Sequence[Queue]) -> dict[str, Queue]:
    """The queues of a cluster, each with the rules that a file adds. A queue in the file without a queue in the cluster
    cannot be used, and is left out."""
    rules = {one.name: one for one in described}
    has_default = any(one.default for one in described)
    queues = {}
    for queue in there:
        one = rules.get(queue.name)
        if one is not None:
            added = _queue(replace(one, nodes=(), models=()), [])
            max_time = min(filter(None, (queue.max_time, added.max_time)), default=None)
            queue = replace(
                added,
                nodes=queue.nodes,
                models=one.models,
                users=queue.users or added.users,
                teams=frozenset() if queue.users else added.teams,
                groups=queue.groups,
                besides=queue.besides,
                max_time=max_time,
                default_time=added.default_time or queue.default_time,
                is_default=queue.is_default,
                closed=queue.closed,
                takes_jobs=queue.takes_jobs,
            )
        if has_default:
            queue = replace(queue, is_default=one is not None and one.default)
        queues[queue.name] = queue
    return queues


def _queue(one: QueueSettings, nodes: Sequence[Node]) -> Queue:
    what = f"queue `{one.name}`"
    _check_priorities(one, what)
    max_time = _duration(one, "max_time")
    default_time = _duration(one, "default_time")
    if max_time and default_time and default_time > max_time:
        raise Invalid(f"{what}: `default_time` is longer than `max_time`", f"at most {one.max_time}")
    chosen = _chosen(one, what, [node.name for node in nodes])
    _check_models(one, what, [node for node in nodes if not chosen or node.name in chosen])
    return Queue(
        name=one.name,
        nodes=chosen,
        models=one.models,
        users=frozenset(one.users),
        teams=frozenset(one.teams),
        max_gpus=one.max_gpus,
        max_shards=one.max_shards,
        max_cpus=one.max_cpus,
        max_memory_mib=_size(one.max_mem, f"{what}: `max_mem`") if one.max_mem else None,
        max_time=max_time,
        default_time=default_time,
        default_priority=one.default_priority,
        max_priority=one.max_priority,
        is_interactive=one.interactive,
        is_default=one.default,
    )


def _check_priorities(one: QueueSettings, what: str) -> None:
    for key, value in (("default_priority", one.default_priority), ("max_priority", one.max_priority)):
        if value is not None and not 1 <= value <= 9:
            raise Invalid(f"{what}: `{key}` goes from 1 to 9 (9 first), not {value}")
    highest = one.max_priority or 9
    if one.default_priority and one.default_priority > highest:
        raise Invalid(
            f"{what}: its default priority {one.default_priority} is above its highest, {highest}",
            "lower `default_priority`, or raise `max_priority`",
        )
    if one.default_priority is None and highest < DEFAULT_PRIORITY:
        raise Invalid(
            f"{what}: jobs that name no priority have {DEFAULT_PRIORITY}, which is above its highest, {highest}",
            f"set `default_priority = {highest}` too",
        )


def _check_models(one: QueueSettings, what: str, nodes: Sequence[Node]) -> None:
    there = dict.fromkeys(gpu.model for node in nodes for gpu in node.gpus)
    for model in one.models:
        if not any(model_fits(card, model) for card in there):
            raise Invalid(f"{what}: its nodes have no card `{model}`", f"they have {_few(list(there))}")


def _chosen(one: QueueSettings, what: str, names: Sequence[str]) -> frozenset[str]:
    """The nodes of a queue: single names, `fics-[1-4]`, or patterns with `*`. No names: all nodes, now and later."""
    chosen: set[str] = set()
    for pattern in one.nodes:
        if "*" in pattern or "?" in pattern:
            found = fnmatch.filter(names, pattern)
            if not found:
                raise Invalid(f"{what}: no node fits `{pattern}`", f"there is {_few(names)}")
            chosen.update(found)
            continue
        for name in written_out(pattern, what):
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"there is {_few(names)}"
                raise Invalid(f"{what}: there is no node `{name}`", hint)
            chosen.add(name)
    return frozenset(chosen)


def written_out(pattern: str, what: str) -> tuple[str, ...]:
    """`fics-[1-3]` -> fics-1, fics-2, fics-3; `n[01-03,7]` keeps its zeros; a plain name stays the same."""
    found = re.fullmatch(r"([^\[\]]*)(?:\[([\d,\s-]+)\]([^\[\]]*))?", pattern)
    if not found or not pattern:
        raise Invalid(f"{what}: `{pattern}` is no name of nodes", "for example `fics-1` or `fics-[1-4]`")
    before, numbers, after = found[1], found[2], found[3] or ""
    names = [before] if numbers is None else [f"{before}{number}{after}" for number in _numbers(numbers, pattern, what)]
    for name in names:
        if not _NAME.fullmatch(name):
            raise Invalid(f"{what}: `{name}` is no name of a node", "letters, digits, `_`, `.` and `-`, at most 63")
    return tuple(names)


def _numbers(text: str, pattern: str, what: str) -> Iterable[str]:
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if not 0 <= int(last) - int(first) < MAX_NODES:
            raise Invalid(f"{what}: `{pattern}` is no list of nodes", "for example `fics-[1-4]` or `fics-[1,3]`")
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def _cards(name: str, text: str, shards: int) -> tuple[Gpu, ...]:
    try:
        cards = parse_fake_gpus(text, shards=shards) if text else ()
    except Invalid as error:
        raise Invalid(f"node `{name}`: {error.text}", error.hint) from error
    # Cards of different machines need different ids.
    return tuple(replace(card, uuid=f"FAKE-{name}-{card.index}") for card in cards)


def _size(text: str, what: str) -> int:
    try:
        return parse_memory_mib(text)
    except Invalid as error:
        raise Invalid(f"{what} takes a size such as 64G, not `{text}`") from error


def _duration(one: QueueSettings, key: str) -> timedelta | None:
    text: str = getattr(one, key)
    return parse_duration(text, f"queue `{one.name}`: `{key}`") if text else None


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "none"
