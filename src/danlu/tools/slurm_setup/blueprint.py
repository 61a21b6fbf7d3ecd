"""The cluster to build: nodes, queues and settings of a configuration in Slurm's terms, as data. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from danlu.config.settings import Settings
from danlu.domain.queue import Queue
from danlu.domain.resources import Node, model_fits, squeeze
from danlu.errors import Invalid

# Reserved for the system and the firmware: a "256G" machine reports less.
KEPT_PERCENT = 5
KEPT_AT_LEAST_MIB = 1024
ONLY_PARTITION = "all"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Place:
    """Paths and user of the daemons. `port` is set if this machine plays all nodes."""

    user: str = "slurm"
    state: str = "/var/lib/slurm/slurmctld"
    spool: str = "/var/lib/slurm/slurmd"
    log: str = "/var/log/slurm"
    run: str = "/run"
    port: int = 0

    @property
    def is_here(self) -> bool:
        return self.port > 0


@dataclass(frozen=True, slots=True)
class Machines:
    """Identical nodes. `cards`: Slurm's card types, with their numbers."""

    names: tuple[str, ...]
    cpus: int
    memory_mib: int
    cards: tuple[tuple[str, int], ...]

    @property
    def card_count(self) -> int:
        return sum(count for _, count in self.cards)


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    nodes: tuple[str, ...]
    is_default: bool
    max_time: timedelta | None
    default_time: timedelta | None
    max_memory_mib: int | None
    memory_per_cpu_mib: int


@dataclass(frozen=True, slots=True)
class Blueprint:
    cluster: str
    controller: str
    shared: str
    has_accounting: bool
    machines: tuple[Machines, ...]
    partitions: tuple[Partition, ...]
    shards_per_gpu: int  # 0: cards are not divided
    grace: timedelta
    place: Place = Place()
    notes: tuple[str, ...] = ()  # assumptions, and rules of the file that Slurm cannot enforce

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for machines in self.machines for name in machines.names)

    @property
    def has_cards(self) -> bool:
        return any(machines.cards for machines in self.machines)


def blueprint_of(settings: Settings, nodes: Sequence[Node], queues: Mapping[str, Queue]) -> Blueprint:
    """Translate the configuration. Raises Invalid for names and sizes that Slurm does not accept."""
    if not nodes:
        raise Invalid("the file describes no machines", 'add a [[nodes]] for each kind: name = "n[1-4]", cpus, memory')
    slurm, shards = settings.slurm, settings.engine.shards_per_gpu
    for name in (*(node.name for node in nodes), slurm.controller or nodes[0].name):
        _check_name("machine", name, ("default", "all", "localhost"))
    for name in queues:
        _check_name("queue", name, ("default",))
    _check_name("cluster", slurm.cluster, ())
    for node in nodes:
        _check_memory(node)
    notes: list[str] = []
    machines = _alike(nodes, notes)
    return Blueprint(
        cluster=slurm.cluster,
        controller=slurm.controller or nodes[0].name,
        shared=slurm.shared,
        has_accounting=slurm.accounting,
        machines=machines,
        partitions=_partitions(settings, nodes, queues, notes),
        # A single shard per card is the whole card.
        shards_per_gpu=shards if shards > 1 and any(one.cards for one in machines) else 0,
        grace=settings.grace,
        notes=tuple(notes),
    )


def card_type(model: str) -> str:
    """`Quadro RTX 4000` -> `Quadro_RTX_4000`: Slurm's types contain no spaces, and are case-sensitive."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", model).strip("_")


def usable_memory_mib(memory_mib: int) -> int:
    return max(1, memory_mib - max(KEPT_AT_LEAST_MIB, memory_mib * KEPT_PERCENT // 100))


def _check_name(what: str, name: str, reserved: Sequence[str]) -> None:
    if name.casefold() in reserved:
        raise Invalid(f"Slurm cannot have a {what} called `{name}`: Slurm reserves this word", "rename it")
    if not _NAME.fullmatch(name):
        raise Invalid(f"Slurm cannot have a {what} called `{name}`", "letters a to z, digits, `_`, `.` and `-`")


def _check_memory(node: Node) -> None:
    if node.memory_mib <= KEPT_AT_LEAST_MIB:
        raise Invalid(
            f"node `{node.name}`: the system keeps {KEPT_AT_LEAST_MIB} MiB, and of {node.memory_mib} none is left",
            "`free -m` on the machine says how much it has",
        )


def _alike(nodes: Iterable[Node], notes: list[str]) -> tuple[Machines, ...]:
    groups: dict[tuple[int, int, tuple[tuple[str, int], ...]], list[str]] = {}
    spellings: dict[str, str] = {}
    for node in nodes:
        cards: list[tuple[str, int]] = []
        for gpu in node.gpus:
            kind = _spelled(card_type(gpu.model), spellings, notes)
            if cards and cards[-1][0] == kind:
                cards[-1] = (kind, cards[-1][1] + 1)
            else:
                cards.append((kind, 1))
        groups.setdefault((node.cpus, usable_memory_mib(node.memory_mib), tuple(cards)), []).append(node.name)
    return tuple(Machines(tuple(names), *kind) for kind, names in groups.items())


def _spelled(kind: str, spellings: dict[str, str], notes: list[str]) -> str:
    """The first spelling of a type: to Slurm, `RTX3090` and `rtx3090` are different cards."""
    first = spellings.setdefault(squeeze(kind), kind)
    note = f"`{kind}` is written `{first}`: to Slurm they would be different cards"
    if kind != first and note not in notes:
        notes.append(note)
    return first


def _partitions(
    settings: Settings, nodes: Sequence[Node], queues: Mapping[str, Queue], notes: list[str]
) -> tuple[Partition, ...]:
    described = list(queues.values())
    if not described:
        notes.append(f"no [[queues]] are described, so there is one partition, `{ONLY_PARTITION}`, with every node")
        described = [Queue(ONLY_PARTITION, is_default=True)]
    if not any(queue.is_default for queue in described):
        notes.append(f"no queue says `default = true`; plain `sbatch` without `-p` goes to `{described[0].name}`")
    has_default = any(queue.is_default for queue in described)
    found = []
    for place, queue in enumerate(described):
        chosen = [node for node in nodes if _is_in(node, queue)]
        notes += _unheld(queue)
        found.append(
            Partition(
                name=queue.name,
                nodes=tuple(node.name for node in chosen),
                is_default=queue.is_default if has_default else place == 0,
                max_time=queue.max_time,
                default_time=_shorter(queue.default_time or settings.default_time, queue.max_time),
                max_memory_mib=queue.max_memory_mib,
                memory_per_cpu_mib=min(max(1, usable_memory_mib(node.memory_mib) // node.cpus) for node in chosen),
            )
        )
    return tuple(found)


def _is_in(node: Node, queue: Queue) -> bool:
    if queue.nodes and node.name not in queue.nodes:
        return False
    return not queue.models or any(model_fits(gpu.model, wanted) for gpu in node.gpus for wanted in queue.models)


def _shorter(time: timedelta | None, limit: timedelta | None) -> timedelta | None:
    return min(time, limit) if time and limit else time


def _unheld(queue: Queue) -> list[str]:
    """Rules that Danlu enforces but a partition cannot express. Users of plain `sbatch` are not bound by these
    rules."""
    rules = {
        "who may use it": bool(queue.users or queue.teams),
        "cards per job": queue.max_gpus is not None or queue.max_shards is not None,
        "cores per job": queue.max_cpus is not None,
        "models of cards": bool(queue.models),
        "priorities": queue.default_priority is not None or queue.max_priority is not None,
        "no sitting at jobs": not queue.is_interactive,
    }
    kept = [rule for rule, is_set in rules.items() if is_set]
    return (
        [f"queue `{queue.name}`: Danlu keeps these rules, plain `sbatch` does not: {', '.join(kept)}"] if kept else []
    )
