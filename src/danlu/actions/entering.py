"""Going into a running job: a command in its allocation and environment."""

from danlu.actions.refs import resolve_one
from danlu.domain.account import Actor, demand
from danlu.domain.job import JobState
from danlu.engines.base import Engine, Handle, Reachable, Stream
from danlu.errors import Refused
from danlu.store.book import Book


async def enter(
    book: Book, engine: Engine, actor: Actor, ref: str, argv: tuple[str, ...], *, tty: bool, term: str
) -> Stream:
    """Start `argv` inside the job; it ends with the job at the latest."""
    job = await resolve_one(book, actor, ref)
    demand(actor, "job.exec", job.user, f"job {job.id}")
    if job.state is not JobState.RUNNING or job.handle is None:
        raise Refused(f"{job.id} is {job.state}; one can only enter a running job", f"see `danlu show {job.id}`")
    if not isinstance(engine, Reachable):
        raise Refused(f"jobs of the engine `{engine.name}` cannot be entered")
    return await engine.shell(Handle(job.handle), argv, tty=tty, term=term)
