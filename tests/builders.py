"""Jobs, nodes and snapshots in one line each: a test names only what it is about."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from danlu.domain.job import Job, JobId, JobSpec, Reason
from danlu.domain.resources import SHARDS_PER_GPU, Ask, Gpu, Node, Seat
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MODEL = "NVIDIA GeForce RTX 3090"

_ages = count(1)
_ASK_FIELDS = frozenset({"gpus", "gpu_model", "shards", "cpus", "memory_mib", "nodes"})


def _ask_of(fields: dict[str, Any]) -> Ask:
    """The ask among the fields of something else, taken out of them."""
    return Ask(**{name: fields.pop(name) for name in _ASK_FIELDS & fields.keys()})


def after(minutes: float | None) -> datetime | None:
    """So many minutes from now; None stays None."""
    return None if minutes is None else NOW + timedelta(minutes=minutes)


def waiting(
    key: str = "a",
    *,
    seq: int | None = None,
    priority: int = 5,
    minutes: float | None = None,
    count: int = 1,
    may_start: int | None = None,
    blocked: Reason | None = None,
    **fields: Any,
) -> Waiting:
    """An entry of the queue, younger than all made before it. `minutes`: its time limit."""
    ask = _ask_of(fields)
    return Waiting(
        key,
        ask,
        next(_ages) if seq is None else seq,
        priority,
        None if minutes is None else timedelta(minutes=minutes),
        count,
        count if may_start is None else may_start,
        blocked,
        **fields,
    )


def node(
    name: str = "n1",
    *,
    gpus: int = 0,
    model: str = MODEL,
    models: Iterable[str] = (),
    cpus: int = 64,
    memory_mib: int = 256 * 1024,
    shards: int = SHARDS_PER_GPU,
    accepts_jobs: bool = True,
) -> Node:
    """A machine with so many cards of one model, or one card of each of `models`."""
    cards = tuple(Gpu(index, each, shards=shards) for index, each in enumerate(list(models) or [model] * gpus))
    return Node(name, cpus, memory_mib, cards, accepts_jobs)


def holding(
    key: str = "h",
    *,
    node: str = "n1",
    gpus: Iterable[int] = (),
    cpus: int = 1,
    memory_mib: int = 0,
    shared_gpu: int | None = None,
    shards: int = 0,
    minutes: float | None = None,
    **fields: Any,
) -> Holding:
    """A run with a seat; `minutes`: how long it may still last."""
    return Holding(key, Seat(node, cpus, memory_mib, tuple(gpus), shared_gpu, shards), after(minutes), **fields)


def snapshot(*parts: Node | Waiting | Holding, now: datetime = NOW, **fields: Any) -> Snapshot:
    """All that is given, sorted into nodes, waiting and holding; without a node, one with four cards."""
    nodes = tuple(part for part in parts if isinstance(part, Node))
    return Snapshot(
        now,
        nodes or (node(gpus=4),),
        tuple(part for part in parts if isinstance(part, Waiting)),
        tuple(part for part in parts if isinstance(part, Holding)),
        **fields,
    )


def spec(*, command: Iterable[str] = ("true",), workdir: str = "/tmp", **fields: Any) -> JobSpec:
    """What was asked: `spec(gpus=2, priority=7)`."""
    ask = _ask_of(fields)
    return JobSpec(tuple(command), workdir, ask, **fields)


_JOB_FIELDS = frozenset(Job.__dataclass_fields__) - {"id", "spec"}


def job(id: str = "a", **fields: Any) -> Job:
    """A job: `job("a", gpus=2, user="bo", state=JobState.RUNNING)`. What is not of the job is of its spec."""
    own: dict[str, Any] = {"user": "ada", "submitted_at": NOW, "seq": next(_ages)}
    own |= {name: fields.pop(name) for name in _JOB_FIELDS & fields.keys()}
    return Job(JobId(id), spec=spec(**fields), **own)
