"""Entering a running job: a command in the job's allocation and environment."""

from dataclasses import dataclass
from datetime import datetime

from danlu.actions.audit import of_jobs
from danlu.actions.cluster.queue_rules import Queues, check_sitting
from danlu.actions.jobs.references import resolve_one
from danlu.actions.jobs.run_as import check_inside
from danlu.domain.job import Job, JobState
from danlu.domain.people import Actor, demand
from danlu.domain.texts import LONGEST_WRITTEN, check_start, check_text
from danlu.engines.base import Engine, Handle, Reachable, Stream
from danlu.errors import Invalid, Refused
from danlu.state.jobs import JobCache
from danlu.store.people_protocol import PeopleStore


@dataclass(frozen=True, slots=True)
class Terminal:
    """The screen in front of the person."""

    kind: str = "xterm"
    rows: int = 24
    columns: int = 80


def check_entrant(actor: Actor, job: Job) -> None:
    """Refuse an actor without the right to be inside the job. The right can end while the actor is inside."""
    demand(actor, "job.exec", job.user, f"job {job.id}", teams=(job.spec.team,))
    check_inside(actor, job.user)


def check_ask(argv: tuple[str, ...], terminal: Terminal | None) -> None:
    """Refuse a command or terminal unusable on any system."""
    if not argv or not argv[0]:
        raise Invalid("no command is named", "for example `danlu exec JOB -- nvidia-smi`")
    check_start(argv)
    if terminal is not None:
        check_text(terminal.kind, "the kind of the terminal", LONGEST_WRITTEN)


async def enter(
    cache: JobCache,
    people: PeopleStore,
    engine: Engine,
    queues: Queues,
    actor: Actor,
    ref: str,
    argv: tuple[str, ...],
    terminal: Terminal | None,
    *,
    now: datetime,
) -> tuple[Job, Stream]:
    """Start `argv` inside the job, with a terminal if given. The command ends with the job at the latest."""
    check_ask(argv, terminal)
    job = await resolve_one(cache, actor, ref)
    check_entrant(actor, job)
    if job.state is not JobState.RUNNING or job.handle is None:
        raise Refused(f"{job.id} is {job.state}; one can only enter a running job", f"see `danlu show {job.id}`")
    if terminal is not None:
        check_sitting(queues, job.id, job.spec)
    if not isinstance(engine, Reachable):
        raise Refused(f"jobs of the engine `{engine.name}` cannot be entered")
    # The audit entry comes first: an entry without an entered job can exist, if the engine refuses, but no person is
    # inside a job without an entry.
    if noted := of_jobs(actor, "job.exec", [job], now=now):
        await people.record((), noted)
    screen = terminal or Terminal()
    stream = await engine.shell(
        Handle(job.handle),
        argv,
        tty=terminal is not None,
        term=screen.kind,
        rows=screen.rows,
        columns=screen.columns,
    )
    return job, stream
