"""The largest asks that empty nodes can hold."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from danlu.domain.amounts import render_cards, render_cpus, render_list, render_memory, render_nodes
from danlu.domain.job import Reason
from danlu.domain.queue import Queue
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Ask, Gpu, Node, model_fits

CardKey = tuple[tuple[int, str, int], ...]
Size = tuple[int, int]  # cpus, memory


class Cards:
    """The cards of a node. Nodes with the same cards share an object."""

    __slots__ = ("by_model", "model_of", "shards_of")

    def __init__(self, key: CardKey) -> None:
        by_model: dict[str, list[int]] = {}
        for index, model, _ in sorted(key):
            by_model.setdefault(model, []).append(index)
        self.by_model: Mapping[str, tuple[int, ...]] = {model: tuple(found) for model, found in by_model.items()}
        self.model_of: Mapping[int, str] = {index: model for index, model, _ in key}
        self.shards_of: Mapping[int, int] = {index: shards for index, _, shards in key}

    def count(self, models: Iterable[str]) -> int:
        return sum(len(self.by_model.get(model, ())) for model in models)

    def most_shards(self, models: Iterable[str]) -> int:
        """The shards of the largest single card."""
        of = self.shards_of
        return max((of[index] for model in models for index in self.by_model.get(model, ())), default=0)


def has_cards(cards: Cards, models: tuple[str, ...], ask: Ask) -> bool:
    """Whether an empty node with these cards has enough cards of these models."""
    if ask.gpus:
        return cards.count(models) >= ask.gpus
    return not ask.shards or cards.most_shards(models) >= ask.shards


_cards_of_key = lru_cache(maxsize=4096)(Cards)
_known: dict[int, tuple[tuple[Gpu, ...], Cards]] = {}  # by identity: successive plans get the same node objects
_KNOW_AT_MOST = 1 << 14


def cards_of(node: Node) -> Cards:
    gpus = node.gpus
    known = _known.get(id(gpus))
    if known is not None and known[0] is gpus:
        return known[1]
    cards = _cards_of_key(tuple([(gpu.index, gpu.model, gpu.shards) for gpu in gpus]))
    if len(_known) >= _KNOW_AT_MOST:
        _known.clear()
    _known[id(gpus)] = (gpus, cards)
    return cards


@lru_cache(maxsize=4096)
def fitting_models(models: tuple[str, ...], wanted: str | None) -> tuple[str, ...]:
    return tuple(model for model in models if model_fits(model, wanted))


@lru_cache(maxsize=1024)
def models_in(models: tuple[str, ...], queue: Queue | None) -> tuple[str, ...]:
    """The models whose cards a queue may use."""
    if queue is None or not queue.models:
        return models
    return tuple(model for model in models if any(model_fits(model, wanted) for wanted in queue.models))


def fits_ever(nodes: Iterable[Node], ask: Ask, queue: Queue | None = None) -> Reason | None:
    """None if an ask fits the empty nodes (of the queue); else a reason with the amounts asked for and available."""
    return Capacity(nodes, queue).refusal(ask)


class Capacity:
    """The largest node sizes per set of cards. A size that another size exceeds in both CPUs and memory is dropped."""

    def __init__(
        self, nodes: Iterable[Node], queue: Queue | None = None, cards: Mapping[str, Cards] | None = None
    ) -> None:
        """`cards`: the cards of each node by name, if already known to the caller."""
        self.sizes: dict[Cards, list[Size]] = {}
        self._able: dict[tuple[int, int, str | None], list[Size]] = {}
        self._counts: dict[Ask, int] = {}
        self._of_queue = f" of queue {queue.name}" if queue else ""
        self._nodes: list[tuple[Node, Cards]] = []
        for node in nodes:
            if queue is not None and queue.nodes and node.name not in queue.nodes:
                continue
            of_node = cards[node.name] if cards else cards_of(node)
            self._nodes.append((node, of_node))
            sizes = self.sizes.setdefault(of_node, [])
            cpus, memory = node.cpus, node.memory_mib
            for most_cpus, most_memory in sizes:
                if most_cpus >= cpus and most_memory >= memory:
                    break
            else:
                sizes[:] = [(c, m) for c, m in sizes if c > cpus or m > memory]
                sizes.append((cpus, memory))
        self.models = models_in(tuple(dict.fromkeys(model for cards in self.sizes for model in cards.by_model)), queue)

    def fits(self, ask: Ask) -> bool:
        cpus, memory = ask.cpus, ask.memory_mib
        fits_one = any(c >= cpus and m >= memory for c, m in self._with_cards(ask))
        return fits_one and (ask.nodes == 1 or self._able_nodes(ask) >= ask.nodes)

    def refusal(self, ask: Ask) -> Reason | None:
        if self.fits(ask):
            return None
        return Reason(ReasonCode.NEVER_FITS, self._shortage(ask))

    def _with_cards(self, ask: Ask) -> list[Size]:
        """The sizes of the nodes with the requested cards."""
        key = (ask.gpus, ask.shards, ask.gpu_model)
        if key not in self._able:
            models = fitting_models(self.models, ask.gpu_model)
            self._able[key] = [
                size for cards, sizes in self.sizes.items() if has_cards(cards, models, ask) for size in sizes
            ]
        return self._able[key]

    def _able_nodes(self, ask: Ask) -> int:
        """The number of empty nodes that could run one part of the ask."""
        able = self._counts.get(ask)
        if able is None:
            models = fitting_models(self.models, ask.gpu_model)
            able = self._counts[ask] = sum(
                node.cpus >= ask.cpus and node.memory_mib >= ask.memory_mib and has_cards(cards, models, ask)
                for node, cards in self._nodes
            )
        return able

    def _shortage(self, ask: Ask) -> str:
        if not self.sizes:
            return f"no node{self._of_queue} could run this job"
        if ask.nodes > 1 and self.fits(replace(ask, nodes=1)):
            able_nodes = self._able_nodes(ask)
            has = "has" if able_nodes == 1 else "have"
            return f"asks for {render_nodes(ask)}, {able_nodes}{self._of_queue} {has} them"
        able = self._with_cards(ask)
        if not able:
            return self._card_shortage(ask)
        where = f"the largest node{self._of_queue}"
        if ask.gpus or ask.shards:
            where += f" with {render_cards(ask)}"
        most_cpus, most_memory = max(c for c, _ in able), max(m for _, m in able)
        if ask.cpus > most_cpus:
            return f"asks for {render_cpus(ask.cpus)}, {where} has {most_cpus}"
        if ask.memory_mib > most_memory:
            return f"asks for {render_memory(ask.memory_mib)} of memory, {where} has {render_memory(most_memory)}"
        wanted = [render_cards(ask)] if ask.gpus or ask.shards else []
        wanted += [render_cpus(ask.cpus), f"{render_memory(ask.memory_mib)} of memory"]
        return f"asks for {render_list(wanted)}, no single node{self._of_queue} has them together"

    def _card_shortage(self, ask: Ask) -> str:
        if not self.models:
            return f"asks for {render_cards(ask)}, no node{self._of_queue} has a GPU"
        models = fitting_models(self.models, ask.gpu_model)
        if not models:
            where = f"in{self._of_queue.removeprefix(' of')}" if self._of_queue else "there"
            return f"asks for {render_cards(ask)}, {where} is only {render_list(self.models)}"
        if ask.gpus:
            most = max(cards.count(models) for cards in self.sizes)
            return f"asks for {render_cards(ask)}, the largest node{self._of_queue} has {most}"
        most = max(cards.most_shards(models) for cards in self.sizes)
        return f"asks for {render_cards(ask)}, the largest one{self._of_queue} has {most}"
