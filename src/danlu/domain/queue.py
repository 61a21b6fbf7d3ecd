"""A queue: a named set of nodes with its rules."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Queue:
    """Empty sets and None do not restrict."""

    name: str
    nodes: frozenset[str] = frozenset()
    models: tuple[str, ...] = ()  # the cards of these nodes that the queue may use, as people write them
    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()  # access: these users, and the members of these teams
    groups: frozenset[str] = frozenset()  # and only members of at least one of these Unix groups; root needs none
    besides: str = ""  # further conditions of the cluster that Danlu cannot check: "accounts a, b"
    max_gpus: int | None = None  # the largest ask of one job
    max_shards: int | None = None
    max_cpus: int | None = None
    max_memory_mib: int | None = None
    max_time: timedelta | None = None
    default_time: timedelta | None = None
    default_priority: int | None = None
    max_priority: int | None = None
    is_interactive: bool = True  # interactive jobs are allowed
    is_default: bool = False  # for jobs without a queue
    closed: str = ""  # why the queue starts no jobs for now; empty if open
    takes_jobs: bool = True  # new jobs may wait in the queue, also while closed
