"""External runs: started outside Danlu. Danlu shows and counts them, and lets the owner stop them; nothing else."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn

from danlu.actions.audit import entry
from danlu.actions.people.context import PeopleContext
from danlu.domain.charge import Charge
from danlu.domain.people import Actor, demand
from danlu.engines.base import Engine, ExternalRun, RunState, SeesOthers
from danlu.errors import Forbidden, NotFound, Refused
from danlu.state.inventory import Inventory

# `ENGINE:17`, `ENGINE:17_3`, `ENGINE:17_[4-9]`: an engine's prefix, and the engine's id of the run.
_OTHERS_ID = re.compile(r"[a-z]+:\d\S*")


@dataclass(frozen=True, slots=True)
class ExternalFilter:
    """Which runs to list. Empty fields do not restrict."""

    user: str = ""
    queue: str = ""
    name: str = ""
    states: frozenset[RunState] = frozenset()


def is_others(ref: str, prefix: str = "") -> bool:
    """Whether `ref` is an engine's id of a run. External runs have no other id.
    `prefix` is the prefix of the present engine; the form alone is enough for ids of an earlier engine."""
    is_of_engine = bool(prefix) and re.fullmatch(rf"{re.escape(prefix)}\w\S*", ref) is not None
    return is_of_engine or _OTHERS_ID.fullmatch(ref) is not None


def refuse_others(ref: str) -> NoReturn:
    """Refuse an external run where a job is needed."""
    raise Refused(
        f"{ref[:60]} did not come through Danlu: its command, its log and what is inside are only its owner's",
        f"Danlu shows it (`danlu show {ref[:60]}`), counts it, and lets its owner stop it",
        code="other",
    )


def list_others(inventory: Inventory, actor: Actor, wanted: ExternalFilter) -> list[ExternalRun]:
    """The running runs, then the waiting runs; in each part the newest first."""
    demand(actor, "other.list", wanted.user or actor.name, "the list of what others run")
    found = [
        one
        for one in inventory.others
        if wanted.user in ("", one.user)
        and wanted.queue in ("", one.queue)
        and wanted.name in ("", one.name)
        and (not wanted.states or one.state in wanted.states)
    ]
    return sorted(found, key=_newest_first)


def _newest_first(other: ExternalRun) -> tuple[bool, float]:
    return other.state is not RunState.RUNNING, -(other.submitted_at.timestamp() if other.submitted_at else 0.0)


def find_others(inventory: Inventory, engine: Engine, actor: Actor, ref: str) -> list[ExternalRun]:
    """The runs meant by `ref`: a single run, all tasks of an array by its number, or all components of a heterogeneous
    job by its number. `ref` may be an old name of waiting tasks: some of these tasks may have started since."""
    known, bracket, _ = ref.partition("[")
    found = [one for one in inventory.others if one.id == ref]
    if not found and isinstance(engine, SeesOthers):
        found = [task for one in inventory.others if (task := engine.one_of(one, ref))]
    parts = f"{known}[" if bracket else (f"{ref}_", f"{ref}+")
    found = found or [one for one in inventory.others if one.id.startswith(parts)]
    if not found:
        raise NotFound(f"no run `{ref[:60]}` is known", "`danlu ps --all` lists those that did not come through Danlu")
    for one in found:
        demand(actor, "other.show", one.user, one.id)
    return found


async def stop_others(
    inventory: Inventory, context: PeopleContext, engine: Engine, actor: Actor, ref: str, *, now: datetime
) -> list[ExternalRun]:
    """Stop the runs in the engine's own way. The audit entry comes first: an entry without a stop can exist, but no
    stop without an entry."""
    found = find_others(inventory, engine, actor, ref)
    for one in found:
        _demand_owner(context, actor, one)
    if not actor.is_alone or found[0].user != actor.name:
        detail = f"of {found[0].user}" if found[0].user != actor.name else ""
        await context.store.record((), [entry(actor, "other.stop", ref, detail, now=now)])
    for one in found:
        await engine.stop(one.handle, grace=timedelta(0))
    return found


def _demand_owner(context: PeopleContext, actor: Actor, other: ExternalRun) -> None:
    """Demand the owner of the run, which is a Unix user. With `as_submitter` an account of the same name is this Unix
    user; otherwise only the kernel can prove the identity."""
    demand(actor, "other.stop", other.user, other.id)
    if actor.is_admin or actor.is_unix_user or context.rules.as_submitter:
        return
    raise Forbidden(
        f"{other.id} belongs to the Unix user {other.user}, and that you are that user, this server cannot know",
        "come by its Unix socket, ask an administrator, or stop it with the engine's own command",
    )


def run_id_of(other: ExternalRun) -> str:
    """The id for accounting. A restarted run is a new run; so is a run with a reused number."""
    assert other.started_at is not None
    return f"{other.id}@{other.started_at.timestamp():.0f}"


def charge_of_other(other: ExternalRun, ended_at: datetime, shards_per_gpu: int) -> Charge:
    """The charge for the use of the run until `ended_at`."""
    ask, started_at = other.ask, other.started_at or ended_at
    gpus, shards = _cards(other)
    is_over = other.state is RunState.ENDED
    return Charge(
        run_id=run_id_of(other) if other.started_at else other.id,
        user=other.user,
        team="",
        queue=other.queue,
        submitted_at=min(other.submitted_at or started_at, started_at),
        started_at=started_at,
        ended_at=max(ended_at, started_at),
        gpus=gpus,
        shards=shards,
        shards_per_gpu=shards_per_gpu,
        cpus=sum(seat.cpus for seat in other.seats) or ask.cpus * ask.nodes,
        memory_mib=sum(seat.memory_mib for seat in other.seats) or ask.memory_mib * ask.nodes,
        time_limit=other.ends_at - started_at if other.ends_at and not is_over else None,
    )


def _cards(other: ExternalRun) -> tuple[int, int]:
    """GPUs and shards as allocated, if known (nodes may give different numbers), otherwise as requested."""
    gpus, shards = sum(len(seat.gpus) for seat in other.seats), sum(seat.shards for seat in other.seats)
    if gpus or shards:
        return gpus, shards
    return other.ask.gpus * other.ask.nodes, other.ask.shards * other.ask.nodes
