"""The audit log: each change with actor, target, time and origin."""

from collections.abc import Sequence
from datetime import datetime

from danlu.domain.job import Job
from danlu.domain.people import RIGHTS, Actor, AuditEntry, demand
from danlu.errors import Invalid
from danlu.store.people_protocol import PeopleStore

MOST_DETAIL = 500
MAX_PAGE = 1000


def entry(actor: Actor, what: str, target: str = "", detail: str = "", *, now: datetime) -> AuditEntry:
    """An entry of the log. `what` is a verb of the table of rights; `detail` must not contain secrets."""
    assert what in RIGHTS, what
    return AuditEntry(now, actor.name, what, target, detail[:MOST_DETAIL], actor.origin)


def of_jobs(actor: Actor, what: str, jobs: Sequence[Job], *details: str, now: datetime) -> list[AuditEntry]:
    """The entry for an action on a job, or on tasks of the same array: a single line.
    Empty if the actor is the only user of the installation and owns the jobs: the jobs themselves record user and
    time."""
    if not jobs or (actor.is_alone and jobs[0].user == actor.name):
        return []
    first = jobs[0]
    said = list(filter(None, details))
    if first.array_index is not None:
        said.append(f"task {first.array_index}" if len(jobs) == 1 else f"{len(jobs)} tasks")
    if first.user != actor.name:
        said.append(f"of {first.user}")
    return [entry(actor, what, first.group, ", ".join(said), now=now)]


async def note_server_stop(store: PeopleStore, actor: Actor, *, now: datetime) -> None:
    """Check the right to stop the server, and record the actor before the stop."""
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
