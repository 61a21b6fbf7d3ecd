"""The occupied cards of a node: from the known seats, and from the report of an engine that knows more. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from danlu.domain.resources import Node, Seat
from danlu.engines.base import NodeNow


@dataclass(frozen=True, slots=True)
class Sitting:
    """A run on a node. Its cards may still be unknown, although the run is known to have asked for cards."""

    key: str
    seat: Seat
    gpus: int = 0
    shards: int = 0

    @property
    def lacks_cards(self) -> bool:
        return bool(self.gpus or self.shards) and not self.seat.gpus and self.seat.shared_gpu is None


@dataclass(frozen=True, slots=True)
class Fill:
    """The occupancy of a card: whole, in parts, or free; with the keys of its runs."""

    is_whole: bool
    shards: int  # taken shards of a shared card
    keys: tuple[str, ...]


def fill(node: Node, sitting: Sequence[Sitting], now: NodeNow | None) -> dict[int, Fill]:
    """The occupancy by card index. A card with a report of use never counts as free, even if its run is unknown."""
    found = [*sitting, *_guessed(sitting, now or NodeNow())]
    whole = {index for one in found for index in one.seat.gpus}
    parts: Counter[int] = Counter()
    keys: dict[int, list[str]] = {}
    for one in found:
        if one.seat.shared_gpu is not None:
            parts[one.seat.shared_gpu] += one.seat.shards
        for index in cards_of(one.seat):
            keys.setdefault(index, []).append(one.key)
    return {
        gpu.index: Fill(
            gpu.index in whole, min(parts[gpu.index], gpu.shards), tuple(filter(None, keys.get(gpu.index, ())))
        )
        for gpu in node.gpus
    }


def cards_of(seat: Seat) -> tuple[int, ...]:
    """The cards that a seat holds, whole or in part."""
    return seat.gpus if seat.shared_gpu is None else (seat.shared_gpu,)


def unknown_seats(node: str, seats: Iterable[Seat], now: NodeNow) -> list[Seat]:
    """Cards that the engine reports as taken beyond these seats."""
    whole: set[int] = set()
    parts: Counter[int] = Counter()
    for seat in seats:
        whole.update(seat.gpus)
        if seat.shared_gpu is not None:
            parts[seat.shared_gpu] += seat.shards
    found = [Seat(node, cpus=0, gpus=(index,)) for index in now.gpus if index not in whole]
    for index, shards in now.shards.items():
        if shards > parts[index]:
            found.append(Seat(node, cpus=0, shared_gpu=index, shards=shards - parts[index]))
    return found


def _guessed(sitting: Sequence[Sitting], now: NodeNow) -> list[Sitting]:
    """Taken cards without a known run: given to the only run that can have them, else to no run."""
    node = sitting[0].seat.node if sitting else ""
    left = unknown_seats(node, (one.seat for one in sitting), now)
    whole, parts = [seat for seat in left if seat.gpus], [seat for seat in left if not seat.gpus]
    without = [one for one in sitting if one.lacks_cards]
    for_whole, for_parts = [one for one in without if one.gpus], [one for one in without if one.shards]
    found = []
    is_theirs = len(for_whole) == 1 and for_whole[0].gpus == len(whole)
    found += [Sitting(for_whole[0].key if is_theirs else "", seat) for seat in whole]
    is_theirs = len(for_parts) == 1 == len(parts)
    for seat in parts:
        if is_theirs:
            seat = Seat(seat.node, 0, shared_gpu=seat.shared_gpu, shards=max(seat.shards, for_parts[0].shards))
        found.append(Sitting(for_parts[0].key if is_theirs else "", seat))
    return found
