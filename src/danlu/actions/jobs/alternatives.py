"""Alternatives that start now: small changes of an ask, each tried with the same `plan()` on the same snapshot."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from danlu.actions.cluster.queue_rules import render_time, serves
from danlu.domain.quota import keys_of
from danlu.domain.resources import Ask, Node, Seat, model_fits
from danlu.scheduler.plan import seat_now
from danlu.scheduler.snapshot import Snapshot, Waiting

MAX_TRIALS = 12
MAX_FOUND = 5
MAX_OF_A_KIND = 3
TRIED = "what would start instead"
_TIMES = tuple(timedelta(minutes=minutes) for minutes in (30, 60, 120, 240, 480, 1440))
# A different ask does not help a job waiting for another job, for its own array, or for its owner's account.


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values of a queue for jobs without their own values."""

    priority: int
    time_limit: timedelta | None


@dataclass(frozen=True, slots=True)
class Choices:
    """Other queues and teams allowed for the person; `plan()` does not check rights."""

    queues: Mapping[str, Defaults] = field(default_factory=dict)
    teams: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Options for a start now, with the seat and a description of the difference."""

    changes: Mapping[str, str | int | bool]
    text: str
    seat: Seat


def find_alternatives(snapshot: Snapshot, entry: Waiting, choices: Choices) -> tuple[Alternative, ...]:
    """The changes for `entry` to start now if submitted anew; the smallest sacrifice first.
    The snapshot does not contain the entry itself: the alternative replaces the entry."""
    trials = _Trials(snapshot, replace(entry, key=TRIED, seq=2**62, count=1, may_start=1, blocked=None))
    found: list[Alternative] = []
    for guesses in (_borrowing, _other_teams, _other_queues, _other_models, _shorter, _fewer, _parts, _leaner):
        if len(found) < MAX_FOUND:
            found += guesses(trials, choices)
    return tuple(found[:MAX_FOUND])


def render_options(changes: Mapping[str, str | int | bool]) -> str:
    """`--gpus RTX3090:1 --preemptible`, as typed in a terminal."""
    return " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in changes.items())


class _Free:
    """The free resources of a node."""

    __slots__ = ("cpus", "memory_mib", "name", "parts", "whole")

    def __init__(self, node: Node, seats: Sequence[Seat]) -> None:
        self.name = node.name
        self.cpus = node.cpus - sum(seat.cpus for seat in seats)
        self.memory_mib = node.memory_mib - sum(seat.memory_mib for seat in seats)
        taken = {index: 10**9 for seat in seats for index in seat.gpus}
        for seat in seats:
            if seat.shared_gpu is not None:
                taken[seat.shared_gpu] = taken.get(seat.shared_gpu, 0) + seat.shards
        self.whole: dict[str, int] = {}  # number of free cards, by model
        self.parts: dict[str, int] = {}  # the most free shards of a single card, by model
        for gpu in node.gpus:
            left = gpu.shards - taken.get(gpu.index, 0)
            self.whole[gpu.model] = self.whole.get(gpu.model, 0) + (left == gpu.shards)
            self.parts[gpu.model] = max(self.parts.get(gpu.model, 0), left)

    def cards(self, models: Collection[str]) -> int:
        return sum(self.whole[model] for model in models if model in self.whole)

    def fits(self, ask: Ask, models: Collection[str]) -> bool:
        if self.cpus < ask.cpus or (ask.memory_mib and self.memory_mib < ask.memory_mib):
            return False
        if ask.shards:
            return any(self.parts.get(model, 0) >= ask.shards for model in models)
        return not ask.gpus or self.cards(models) >= ask.gpus


class _Trials:
    """A bounded number of plans. A change without enough free resources costs no plan: even an empty queue
    would not help."""

    def __init__(self, snapshot: Snapshot, entry: Waiting) -> None:
        self.snapshot = snapshot
        self.entry = entry
        self.left = MAX_TRIALS
        seats: dict[str, list[Seat]] = {}
        for held in snapshot.holding:
            for seat in (held.seat, *held.more):
                seats.setdefault(seat.node, []).append(seat)
        self._room = [_Free(node, seats.get(node.name, ())) for node in snapshot.nodes if node.accepts_jobs]
        self._models = {gpu.model: None for node in snapshot.nodes for gpu in node.gpus}

    def seat(self, ask: Ask | None = None, **changes: Any) -> Seat | None:
        """The seat where the entry would start now, with these changes."""
        tried = replace(self.entry, ask=ask or self.entry.ask, **changes)
        if not self.left or not self.has_room(tried.ask, tried.queue):
            return None
        self.left -= 1
        answer = seat_now(self.snapshot, tried)
        return answer if isinstance(answer, Seat) else None

    def has_room(self, ask: Ask, queue: str) -> bool:
        models = self.models(queue, ask.gpu_model)
        return sum(free.fits(ask, models) for free in self.nodes(queue)) >= ask.nodes

    def nodes(self, queue: str) -> Iterator[_Free]:
        rules = self.snapshot.queues.get(queue)
        for free in self._room:
            if rules is None or not rules.nodes or free.name in rules.nodes:
                yield free

    def models(self, queue: str, wanted: str | None = None) -> list[str]:
        """The models of the queue matching `wanted`."""
        rules = self.snapshot.queues.get(queue)
        return [
            model for model in self._models if model_fits(model, wanted) and (rules is None or serves(rules, model))
        ]

    def largest(self, most: int, starts: Callable[[int], Seat | None]) -> tuple[int, Seat] | None:
        """The largest number up to `most` with a start now. Assumes: if a larger number starts, each smaller starts."""
        least, number, best = 1, most, None
        while least <= number and self.left:
            seat = starts(number)
            if seat is not None:
                best, least = (number, seat), number + 1
            else:
                most = number - 1
            number = (least + most) // 2
        return best


def _borrowing(trials: _Trials, _: Choices) -> Iterator[Alternative]:
    entry, quotas = trials.entry, trials.snapshot.quotas
    owned = [quotas[key] for key in keys_of(entry.user, entry.team) if key in quotas]
    if not entry.is_preemptible and any(quota.borrow for quota in owned):
        seat = trials.seat(is_preemptible=True)
        if seat is not None:
            text = "borrows what others leave idle; may be asked to checkpoint and wait again"
            yield Alternative({"preemptible": True}, text, seat)


def _other_teams(trials: _Trials, choices: Choices) -> Iterator[Alternative]:
    for team in choices.teams[:MAX_OF_A_KIND]:
        seat = trials.seat(team=team)
        if seat is not None:
            yield Alternative({"team": team}, f"on the quota of team {team}", seat)


def _other_queues(trials: _Trials, choices: Choices) -> Iterator[Alternative]:
    for queue, given in list(choices.queues.items())[:MAX_OF_A_KIND]:
        seat = trials.seat(queue=queue, priority=given.priority, time_limit=given.time_limit)
        if seat is not None:
            limit = given.time_limit
            time = f", for at most {render_time(limit)}" if limit and limit != trials.entry.time_limit else ""
            yield Alternative({"queue": queue}, f"in the queue {queue}{time}", seat)


def _other_models(trials: _Trials, _: Choices) -> Iterator[Alternative]:
    ask = trials.entry.ask
    if not ask.gpu_model or not ask.gpus:
        return
    others = [model for model in trials.models(trials.entry.queue) if not model_fits(model, ask.gpu_model)]
    for model in others[:MAX_OF_A_KIND]:
        seat = trials.seat(replace(ask, gpu_model=model))
        if seat is not None:
            short = short_model(model)
            yield Alternative({"gpus": f"{short}:{ask.gpus}"}, f"{short} instead of {ask.gpu_model}", seat)


def _shorter(trials: _Trials, _: Choices) -> Iterator[Alternative]:
    """A shorter time limit: there is room, but only until an earlier job needs this room."""
    entry = trials.entry
    if not trials.has_room(entry.ask, entry.queue):
        return
    times = [time for time in _TIMES if entry.time_limit is None or time < entry.time_limit]
    best = trials.largest(len(times), lambda number: trials.seat(time_limit=times[number - 1]))
    if best is not None:
        time = render_time(times[best[0] - 1])
        yield Alternative({"time": time}, f"over within {time}, before its place is wanted", best[1])


def _fewer(trials: _Trials, _: Choices) -> Iterator[Alternative]:
    ask, queue = trials.entry.ask, trials.entry.queue
    models = trials.models(queue, ask.gpu_model)
    free = max((free.cards(models) for free in trials.nodes(queue)), default=0)
    best = trials.largest(min(ask.gpus - 1, free), lambda number: trials.seat(replace(ask, gpus=number)))
    if best is not None:
        written = f"{ask.gpu_model}:{best[0]}" if ask.gpu_model else best[0]
        cards = f"{best[0]} card{'s' if best[0] > 1 else ''}"
        yield Alternative({"gpus": written}, f"{cards} instead of {ask.gpus}", best[1])


def _parts(trials: _Trials, _: Choices) -> Iterator[Alternative]:
    """Half or a quarter of a card instead of a whole card; half or a quarter of the shards instead of all."""
    ask = trials.entry.ask
    whole = trials.snapshot.shards_per_gpu if ask.gpus == 1 else ask.shards
    if ask.nodes > 1:
        return
    for shards in dict.fromkeys((whole // 2, whole // 4)):
        seat = trials.seat(replace(ask, gpus=0, gpu_model=None, shards=shards)) if shards else None
        if seat is not None:
            text = f"{shards} shards" + (", a part of a card, instead of one" if ask.gpus else f" instead of {whole}")
            yield Alternative({"shards": shards}, text, seat)
            return


def _leaner(trials: _Trials, _: Choices) -> Iterator[Alternative]:
    """All the cards, but only the CPUs and memory still free on a node with these cards."""
    ask, queue = trials.entry.ask, trials.entry.queue
    cards = replace(ask, cpus=1, memory_mib=0)
    models = trials.models(queue, ask.gpu_model)
    hosts = [free for free in trials.nodes(queue) if free.fits(cards, models)]
    if not hosts or trials.has_room(ask, queue):
        return
    host = max(hosts, key=lambda free: (min(free.cpus, ask.cpus), min(free.memory_mib, ask.memory_mib)))
    leaner = replace(ask, cpus=min(ask.cpus, host.cpus), memory_mib=max(0, min(ask.memory_mib, host.memory_mib)))
    if ask.memory_mib and not leaner.memory_mib:
        return
    seat = trials.seat(leaner)
    if seat is not None:
        changes: dict[str, str | int | bool] = {}
        if leaner.cpus < ask.cpus:
            changes["cpus"] = leaner.cpus
        if leaner.memory_mib < ask.memory_mib:
            changes["mem"] = f"{leaner.memory_mib}M"
        yield Alternative(changes, "with what is left beside the cards that are free", seat)


def short_model(model: str) -> str:
    """`NVIDIA GeForce RTX 3090` -> `RTX3090`: as short as people write the name, and still the same card."""
    words = [word for word in model.split() if word.casefold() not in {"nvidia", "geforce", "tesla", "amd"}]
    short = "".join(words)
    return short if model_fits(model, short) else model.replace(" ", "")
