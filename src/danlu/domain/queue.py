"""A queue: a named set of nodes with its rules."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Queue:
    """Empty sets and None do not restrict."""

    name: str
    nodes: frozenset[str] = frozenset()
    models: tuple[str, ...] = ()  # the cards of those nodes that it may use, as people write them
    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()  # who may use it: one of these users, or somebody of one of these teams
    groups: frozenset[str] = frozenset()  # and only with one of these Unix groups; root needs none
    besides: str = ""  # what the cluster asks of a job besides, which nobody here can judge: "accounts a, b"
    max_gpus: int | None = None  # the largest ask of one job
    max_shards: int | None = None
    max_cpus: int | None = None
    max_memory_mib: int | None = None
    max_time: timedelta | None = None
    default_time: timedelta | None = None
    default_priority: int | None = None
    max_priority: int | None = None
    is_interactive: bool = True  # work that a person sits at is allowed
    is_default: bool = False  # for jobs that name none
    closed: str = ""  # why it starts nothing for now; empty if it does
    takes_jobs: bool = True  # new ones may wait in it, also while it is closed
