"""What people see: jobs, nodes and who holds their cards."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from danlu.actions.planning import holding_of
from danlu.domain.account import Actor, demand
from danlu.domain.job import ACTIVE, Job, JobState
from danlu.domain.resources import Gpu, Node
from danlu.store.base import JobFilter, Page
from danlu.store.book import Book

MAX_PAGE = 1000
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Holder:
    id: str
    user: str
    node: str
    gpus: tuple[int, ...]
    shards: int
    ends_at: datetime | None
    team: str = ""


@dataclass(frozen=True, slots=True)
class GpuView:
    gpu: Gpu
    shards_free: int
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    node: Node
    cpus_free: int
    memory_free_mib: int
    gpus: tuple[GpuView, ...]


async def list_jobs(book: Book, actor: Actor, wanted: JobFilter, *, limit: int, before: int | None) -> Page:
    demand(actor, "job.list", wanted.user or actor.name, "the list of jobs")
    limit = max(1, min(limit, MAX_PAGE))
    if wanted.states and wanted.states <= ACTIVE:
        return _active_page(book, wanted, limit, before)
    return await book.store.page(wanted, limit=limit, before=before)


@dataclass(frozen=True, slots=True)
class Line:
    """A job, or an array that stands in one line: its newest task that fits, and how many are in each state."""

    job: Job
    tasks: Mapping[JobState, int] | None = None


async def list_lines(
    book: Book, actor: Actor, wanted: JobFilter, *, limit: int, before: int | None
) -> tuple[list[Line], int | None]:
    """As `list_jobs`, but an array of a thousand tasks is one line. Tasks were submitted together, so their numbers
    have no gaps: having met one, the next look begins before all of them."""
    lines: list[Line] = []
    while len(lines) < min(limit, MAX_PAGE):
        page = await list_jobs(book, actor, wanted, limit=limit - len(lines), before=before)
        for job in page.jobs:
            before = job.seq
            if job.array_id:
                array = await book.store.array(job.array_id)
                lines.append(Line(job, array.states))
                before = array.first_seq
                break
            lines.append(Line(job))
        else:
            if page.next_before is None:
                return lines, None
    is_more = bool((await list_jobs(book, actor, wanted, limit=1, before=before)).jobs)
    return lines, before if is_more else None


def _active_page(book: Book, wanted: JobFilter, limit: int, before: int | None) -> Page:
    """What is active is in hand: no index is needed to find a few of them among a million that have ended."""
    found = [job for job in book.live.jobs.values() if _is_wanted(job, wanted) and (before is None or job.seq < before)]
    found.sort(key=lambda job: -job.seq)
    return Page(tuple(found[:limit]), found[limit - 1].seq if len(found) > limit else None)


def _is_wanted(job: Job, wanted: JobFilter) -> bool:
    return (
        job.state in wanted.states
        and wanted.user in ("", job.user)
        and wanted.name in ("", job.spec.name)
        and wanted.array_id in ("", job.array_id)
        and wanted.team in ("", job.spec.team)
        and wanted.queue in ("", job.spec.queue)
        and (wanted.label is None or wanted.label in job.spec.labels)
    )


def node_views(book: Book, nodes: Sequence[Node], *, now: datetime) -> list[NodeView]:
    """Each node with what is free and who holds each card."""
    held: dict[str, list[Job]] = {}
    for job in book.live.holding():
        if job.seat:
            held.setdefault(job.seat.node, []).append(job)
    return [_node_view(node, held.get(node.name, []), now) for node in nodes]


def holder_of(job: Job, now: datetime) -> Holder:
    holding = holding_of(job, now)
    seat = holding.seat
    gpus = seat.gpus if seat.shared_gpu is None else (seat.shared_gpu,)
    return Holder(job.id, job.user, seat.node, gpus, seat.shards, holding.ends_at, job.spec.team)


def by_end(holder: Holder) -> tuple[datetime, str]:
    """The next to end first; who has no time limit last."""
    return holder.ends_at or _NEVER, holder.id


def _node_view(node: Node, jobs: Sequence[Job], now: datetime) -> NodeView:
    seats = [job.seat for job in jobs if job.seat]
    taken: Counter[int] = Counter()
    for seat in seats:
        if seat.shared_gpu is not None:
            taken[seat.shared_gpu] += seat.shards
        taken.update(dict.fromkeys(seat.gpus, 10**9))
    views = []
    for gpu in node.gpus:
        holders = tuple(holder for job in jobs if gpu.index in (holder := holder_of(job, now)).gpus)
        views.append(GpuView(gpu, max(0, gpu.shards - taken[gpu.index]), holders))
    return NodeView(
        node,
        node.cpus - sum(seat.cpus for seat in seats),
        node.memory_mib - sum(seat.memory_mib for seat in seats),
        tuple(views),
    )
