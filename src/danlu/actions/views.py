"""What people see: jobs, nodes and who holds their cards."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from danlu.actions.planning import holding_of
from danlu.actions.refs import resolve
from danlu.domain.account import Actor, demand, may
from danlu.domain.job import ACTIVE, Job, JobState, Reason
from danlu.domain.resources import Gpu, Node, Seat
from danlu.store.base import JobFilter, Page
from danlu.store.book import Book

MAX_PAGE = 1000
# The texts of these name commands and folders; to others they say only this.
_TELLING = {
    "not_prepared": "it could not be made ready",
    "not_started": "it could not be started",
    "retry": "waits to be tried again",
}
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


async def show_job(book: Book, actor: Actor, ref: str) -> list[Job]:
    """The job, or every task of the array, that `ref` means."""
    found = await resolve(book, actor, ref)
    for job in found:
        demand(actor, "job.show", job.user, f"job {job.id}", teams=(job.spec.team,))
    return found


def sees_command(actor: Actor, job: Job) -> bool:
    """Whether somebody is told what the job does: its command, variables, folders and log."""
    return may(actor, "job.show_command", job.user, (job.spec.team,))


def reason_for(actor: Actor, job: Job, reason: Reason) -> Reason:
    """A reason, without what only those are told who see the command."""
    if reason.code not in _TELLING or sees_command(actor, job):
        return reason
    return Reason(reason.code, _TELLING[reason.code])


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


def check_status(actor: Actor) -> None:
    """Refuse who may not know how the installation stands."""
    demand(actor, "server.status", actor.name, "the status")


def node_views(book: Book, nodes: Sequence[Node], actor: Actor, *, now: datetime) -> list[NodeView]:
    """Each node with what is free and who holds each card."""
    demand(actor, "node.list", actor.name, "the list of nodes")
    held: dict[str, list[tuple[Seat, Holder]]] = {}
    for job in book.live.holding():
        for seat, holder in zip(job.seats, holders_of(job, now), strict=True):
            held.setdefault(seat.node, []).append((seat, holder))
    return [_node_view(node, held.get(node.name, [])) for node in nodes]


def holders_of(job: Job, now: datetime) -> list[Holder]:
    """What a job holds, on each of its nodes; nothing as long as it waits."""
    if not job.seats:
        return []
    ends_at = holding_of(job, now).ends_at
    return [
        Holder(job.id, job.user, seat.node, cards_of(seat), seat.shards, ends_at, job.spec.team) for seat in job.seats
    ]


def cards_of(seat: Seat) -> tuple[int, ...]:
    """The cards that it has, or has a part of."""
    return seat.gpus if seat.shared_gpu is None else (seat.shared_gpu,)


def by_end(holder: Holder) -> tuple[datetime, str]:
    """The next to end first; who has no time limit last."""
    return holder.ends_at or _NEVER, holder.id


def _node_view(node: Node, held: Sequence[tuple[Seat, Holder]]) -> NodeView:
    seats = [seat for seat, _ in held]
    taken: Counter[int] = Counter()
    for seat in seats:
        if seat.shared_gpu is not None:
            taken[seat.shared_gpu] += seat.shards
        taken.update(dict.fromkeys(seat.gpus, 10**9))
    views = []
    for gpu in node.gpus:
        holders = tuple(holder for _, holder in held if gpu.index in holder.gpus)
        views.append(GpuView(gpu, max(0, gpu.shards - taken[gpu.index]), holders))
    return NodeView(
        node,
        node.cpus - sum(seat.cpus for seat in seats),
        node.memory_mib - sum(seat.memory_mib for seat in seats),
        tuple(views),
    )
