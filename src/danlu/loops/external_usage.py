"""What runs that did not come through Danlu have used, once they are over. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from danlu.actions.jobs.external import charge_of_other, is_others, run_id_of
from danlu.domain.charge import Charge
from danlu.engines.base import ExternalRun, RunState

_TOLD_FOR = timedelta(days=7)  # longer than any engine tells of runs that are over


@dataclass(frozen=True, slots=True)
class ExternalUsage:
    """How it stood at the last look."""

    running: Mapping[str, ExternalRun] = field(default_factory=dict)  # by the ids of their runs
    charged: Collection[str] = ()  # over, in the books, and perhaps told of again
    charges: tuple[Charge, ...] = ()  # of those that were over since the look before


def in_books(charges: Iterable[Charge], now: datetime, prefix: str = "") -> ExternalUsage:
    """After a restart: what was charged before it is not charged again. `prefix` is that of the engine's ids."""
    return ExternalUsage(
        charged=frozenset(
            charge.run_id
            for charge in charges
            if now - charge.ended_at < _TOLD_FOR and is_others(charge.run_id, prefix)
        )
    )


def reckon(
    before: ExternalUsage, seen: Iterable[ExternalRun], *, now: datetime, shards_per_gpu: int, charges_all: bool = True
) -> ExternalUsage:
    """Who ran and runs no longer is charged: to the moment that the engine tells, or to now if it has forgotten them.
    So is who is told of as over and was never seen. `charges_all`: also for runs that held no card."""
    running: dict[str, ExternalRun] = {}
    over: dict[str, ExternalRun] = {}
    for one in seen:
        if one.started_at is not None and one.state is not RunState.PENDING:
            (running if one.state is RunState.RUNNING else over)[run_id_of(one)] = one
    charged = set(before.charged)
    charges = []
    for run_id in [*before.running, *over]:
        if run_id in running or run_id in charged:
            continue
        charged.add(run_id)
        end = over[run_id].ends_at if run_id in over else None
        # What was seen while it ran says more than what is left of it.
        charge = charge_of_other(before.running.get(run_id) or over[run_id], end or now, shards_per_gpu)
        if charges_all or charge.gpus or charge.shards:
            charges.append(charge)
    return ExternalUsage(running, charged & over.keys(), tuple(charges))
