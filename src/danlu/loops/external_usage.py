"""The usage of ended external runs, which did not come through Danlu. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from danlu.actions.jobs.external import charge_of_other, is_others, run_id_of
from danlu.domain.charge import Charge
from danlu.engines.base import ExternalRun, RunState

_TOLD_FOR = timedelta(days=7)  # longer than any engine reports ended runs


@dataclass(frozen=True, slots=True)
class ExternalUsage:
    """The state at the last look."""

    running: Mapping[str, ExternalRun] = field(default_factory=dict)  # by run id
    charged: Collection[str] = ()  # ended and charged; the engine may report these runs again
    charges: tuple[Charge, ...] = ()  # for runs that ended since the previous look


def in_books(charges: Iterable[Charge], now: datetime, prefix: str = "") -> ExternalUsage:
    """After a restart: earlier charges are not repeated. `prefix` is the prefix of the engine's ids."""
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
    """Charge each run that has ended: to the end reported by the engine, or to now if the engine has forgotten the run.
    A run first reported as ended is charged too. `charges_all`: charge also runs without a card."""
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
        # The observation of the running job is more complete than the record after its end.
        charge = charge_of_other(before.running.get(run_id) or over[run_id], end or now, shards_per_gpu)
        if charges_all or charge.gpus or charge.shards:
            charges.append(charge)
    return ExternalUsage(running, charged & over.keys(), tuple(charges))
