"""Views for people: jobs, nodes and the holders of cards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from danlu.actions.jobs.references import resolve
from danlu.domain.job import ACTIVE, Job, JobState, Reason
from danlu.domain.people import Actor, demand, may
from danlu.domain.resources import Ask, Gpu, Node, Seat
from danlu.engines.base import Engine, ExternalRun, NodeNow
from danlu.errors import DanluError
from danlu.provision.paths import run_folder_of
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache
from danlu.state.occupancy import Sitting, cards_of, fill
from danlu.state.snapshots import Outlook, holding_of
from danlu.store.protocol import JobFilter, Page, PastRun

MAX_PAGE = 1000
# The texts of these reasons name commands and folders; other people see only the text given here.
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
    is_other: bool = False  # a run from outside Danlu


@dataclass(frozen=True, slots=True)
class GpuView:
    """`holders` may be missing for a moment: the card is taken, and the engine has not yet named the holder."""

    gpu: Gpu
    use: str  # `free`, `exclusive` or `shared`
    shards_free: int
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    node: Node
    cpus_free: int
    memory_free_mib: int
    gpus: tuple[GpuView, ...]
    holders: tuple[Holder, ...]  # of all runs on the node
    state: str = ""  # in the engine's own word
    why_closed: str = ""


async def show_job(cache: JobCache, actor: Actor, ref: str) -> list[Job]:
    """The job, or every task of the array, meant by `ref`."""
    found = await resolve(cache, actor, ref)
    for job in found:
        demand(actor, "job.show", job.user, f"job {job.id}", teams=(job.spec.team,))
    return found


def sees_command(actor: Actor, job: Job) -> bool:
    """Whether the actor may see the job's command, variables, folders and log."""
    return may(actor, "job.show_command", job.user, (job.spec.team,))


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as a person may see the job at this moment."""

    job: Job
    reason: Reason
    sees_command: bool  # and also the folder, the variables, the log's path and notes
    place: int | None = None
    estimated_at: datetime | None = None
    log_path: str = ""


def view_job(outlook: Outlook, engine: Engine, trouble: DanluError | None, actor: Actor, job: Job) -> JobView:
    """While the engine is away (`trouble`), the trouble is the only reason of a job waiting for the engine."""
    mine = sees_command(actor, job)
    wait = outlook.plan.waits.get(job.group) if job.state is JobState.QUEUED else None
    estimated_at = wait.estimated_at if wait else outlook.estimates.get(job.id)
    reason = wait.reason if wait else reason_for(actor, job, job.reason)
    if trouble is not None and job.state in (JobState.QUEUED, JobState.STARTING) and not job.waiting_for:
        reason, estimated_at = Reason(trouble.code, trouble.text), None
    log_path = engine.logs(job.run_id).path if mine else ""
    return JobView(job, reason, mine, wait.place if wait else None, estimated_at, log_path)


@dataclass(frozen=True, slots=True)
class PastRunView:
    run: PastRun
    reason: Reason


@dataclass(frozen=True, slots=True)
class JobDetails:
    """Details for the view of a single job."""

    runs: tuple[PastRunView, ...]  # ended runs
    run_folder: str  # empty: not for this person
    engine_id: str  # the job's id in the engine's own tools; empty: none


async def job_details(cache: JobCache, files_dir: str, actor: Actor, job: Job) -> JobDetails:
    past = await cache.store.past_runs(job.id)
    runs = tuple(
        PastRunView(run, reason_for(actor, job, Reason.read(run.reason_code, run.reason_text))) for run in past
    )
    folder = run_folder_of(files_dir, job.run_id) if job.spec.snapshot else job.spec.workdir
    return JobDetails(runs, folder if sees_command(actor, job) else "", cache.engine_id(job))


def reason_for(actor: Actor, job: Job, reason: Reason) -> Reason:
    """The reason; without the right to see the command, the detailed text is replaced."""
    if sees_command(actor, job):
        return reason
    return Reason(reason.code, _TELLING.get(reason.code) or reason.text)


async def list_jobs(cache: JobCache, actor: Actor, wanted: JobFilter, *, limit: int, before: int | None) -> Page:
    demand(actor, "job.list", wanted.user or actor.name, "the list of jobs")
    limit = max(1, min(limit, MAX_PAGE))
    if wanted.states and wanted.states <= ACTIVE:
        return _active_page(cache, wanted, limit, before)
    return await cache.store.page(wanted, limit=limit, before=before)


@dataclass(frozen=True, slots=True)
class Line:
    """A job, or an array in a single line: the newest matching task, and the number of tasks in each state."""

    job: Job
    tasks: Mapping[JobState, int] | None = None


async def list_lines(
    cache: JobCache, actor: Actor, wanted: JobFilter, *, limit: int, before: int | None
) -> tuple[list[Line], int | None]:
    """Like `list_jobs`, but with a single line for each array. The tasks of an array are submitted together, so their
    `seq` numbers have no gaps: after the first task found, the search continues before the whole array."""
    lines: list[Line] = []
    while len(lines) < min(limit, MAX_PAGE):
        page = await list_jobs(cache, actor, wanted, limit=limit - len(lines), before=before)
        for job in page.jobs:
            before = job.seq
            if job.array_id:
                array = await cache.store.array(job.array_id)
                lines.append(Line(job, array.states))
                before = array.first_seq
                break
            lines.append(Line(job))
        else:
            if page.next_before is None:
                return lines, None
    is_more = bool((await list_jobs(cache, actor, wanted, limit=1, before=before)).jobs)
    return lines, before if is_more else None


def _active_page(cache: JobCache, wanted: JobFilter, limit: int, before: int | None) -> Page:
    """A page of active jobs, from memory: no index is needed to find a few active jobs among a million ended jobs."""
    found = [
        job
        for job in cache.active_jobs.jobs.values()
        if _is_wanted(job, wanted) and (before is None or job.seq < before)
    ]
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
    """Refuse an actor without the right to see the status of the installation."""
    demand(actor, "server.status", actor.name, "the status")


def node_views(cache: JobCache, inventory: Inventory, actor: Actor, *, now: datetime) -> list[NodeView]:
    """Each node with free resources, the holders on the node, and the holders of each card."""
    demand(actor, "node.list", actor.name, "the list of nodes")
    there: dict[str, list[tuple[Sitting, Holder]]] = {}
    for job in cache.active_jobs.holding():
        _seat(there, job.id, job.seats, job.spec.ask, holders_of(job, now))
    for other in inventory.others:
        _seat(there, other.id, other.seats, other.ask, holders_of_other(other))
    return [_node_view(node, there.get(node.name, []), inventory.now.get(node.name)) for node in inventory.nodes]


def _seat(
    there: dict[str, list[tuple[Sitting, Holder]]], key: str, seats: Sequence[Seat], ask: Ask, holders: Sequence[Holder]
) -> None:
    for seat, holder in zip(seats, holders, strict=True):
        there.setdefault(seat.node, []).append((Sitting(key, seat, ask.gpus, ask.shards), holder))


def holders_of(job: Job, now: datetime) -> list[Holder]:
    """The job as a holder on each of its nodes; empty while the job waits."""
    if not job.seats:
        return []
    ends_at = holding_of(job, now).ends_at
    return [
        Holder(job.id, job.user, seat.node, cards_of(seat), seat.shards, ends_at, job.spec.team) for seat in job.seats
    ]


def holders_of_other(other: ExternalRun) -> list[Holder]:
    return [
        Holder(other.id, other.user, seat.node, cards_of(seat), seat.shards, other.ends_at, is_other=True)
        for seat in other.seats
    ]


def by_end(holder: Holder) -> tuple[datetime, str]:
    """Sort key: the next to end first; holders without a time limit last."""
    return holder.ends_at or _NEVER, holder.id


def _node_view(node: Node, there: Sequence[tuple[Sitting, Holder]], now: NodeNow | None) -> NodeView:
    found = fill(node, [sitting for sitting, _ in there], now)
    views = []
    for gpu in node.gpus:
        card = found[gpu.index]
        use = "exclusive" if card.is_whole else "shared" if card.shards else "free"
        free = 0 if card.is_whole else gpu.shards - card.shards
        views.append(GpuView(gpu, use, free, tuple(holder for _, holder in there if holder.id in card.keys)))
    seats = [sitting.seat for sitting, _ in there]
    cpus, memory_mib = sum(seat.cpus for seat in seats), sum(seat.memory_mib for seat in seats)
    if now is not None and seats:  # on a node without seats, the engine's numbers are only out of date
        cpus, memory_mib = max(cpus, now.cpus), max(memory_mib, now.memory_mib)
    return NodeView(
        node,
        node.cpus - cpus,
        node.memory_mib - memory_mib,
        tuple(views),
        tuple(holder for _, holder in there),
        now.state if now else "",
        now.why if now and not node.accepts_jobs else "",
    )
