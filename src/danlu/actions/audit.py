"""The audit log: who changed what, when, and from where."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from danlu.domain.account import RIGHTS, Actor, AuditEntry, demand
from danlu.domain.job import Job
from danlu.errors import Invalid
from danlu.store.people import PeopleStore

MOST_DETAIL = 500
MAX_PAGE = 1000


def entry(actor: Actor, what: str, target: str = "", detail: str = "", *, now: datetime) -> AuditEntry:
    """One line of the log. `what` is a verb of the table of rights; no secret belongs in `detail`."""
    assert what in RIGHTS, what
    return AuditEntry(now, actor.name, what, target, detail[:MOST_DETAIL], actor.origin)


async def note_others(store: PeopleStore, actor: Actor, what: str, jobs: Iterable[Job], *, now: datetime) -> None:
    """Somebody acted on a job that is not their own. What people do with their own is in the jobs themselves."""
    others: dict[str, str] = {job.group: job.user for job in jobs if job.user != actor.name}
    if others:
        await store.record((), [entry(actor, what, job, f"of {owner}", now=now) for job, owner in others.items()])


async def note_server_stop(store: PeopleStore, actor: Actor, *, now: datetime) -> None:
    """Before a server is stopped: who wants it, if they may."""
    demand(actor, "server.stop", "", "the server")
    await store.record((), [entry(actor, "server.stop", now=now)])


async def listed(
    store: PeopleStore,
    actor: Actor,
    *,
    who: str = "",
    what: str = "",
    target: str = "",
    limit: int = 50,
    before: int | None = None,
) -> Sequence[AuditEntry]:
    """The newest first."""
    demand(actor, "audit.list", "", "the audit log")
    if what and not any(verb == what or verb.startswith(f"{what}.") for verb in RIGHTS):
        raise Invalid(f"nothing in the audit log is called `{what[:40]}`", "for example `user.disable`, or `quota`")
    return await store.audit(limit=max(1, min(limit, MAX_PAGE)), before=before, who=who, what=what, target=target)
