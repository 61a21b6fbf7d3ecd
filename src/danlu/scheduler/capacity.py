"""What nodes could hold if they were empty."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Node, model_fits
from danlu.scheduler.wording import render_cards, render_cpus, render_list, render_memory

CardKey = tuple[tuple[int, str, int], ...]
Size = tuple[int, int]  # cpus, memory


class Cards:
    """The cards of a node. Nodes with the same cards share one of these."""

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


_cards_of_key = lru_cache(maxsize=4096)(Cards)


def cards_of(node: Node) -> Cards:
    return _cards_of_key(tuple([(gpu.index, gpu.model, gpu.shards) for gpu in node.gpus]))


@lru_cache(maxsize=4096)
def fitting_models(models: tuple[str, ...], wanted: str | None) -> tuple[str, ...]:
    return tuple(model for model in models if model_fits(model, wanted))


def fits_ever(nodes: Iterable[Node], ask: Ask) -> Reason | None:
    """None if some node, empty, could run it; else what it asks for and how much there is."""
    return Capacity(nodes).refusal(ask)


class Capacity:
    """The sizes of nodes by their cards; of each, only sizes that no other one exceeds are kept."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.sizes: dict[Cards, list[Size]] = {}
        self._able: dict[tuple[int, int, str | None], list[Size]] = {}
        for node in nodes:
            sizes = self.sizes.setdefault(cards_of(node), [])
            cpus, memory = node.cpus, node.memory_mib
            if any(c >= cpus and m >= memory for c, m in sizes):
                continue
            sizes[:] = [(c, m) for c, m in sizes if c > cpus or m > memory]
            sizes.append((cpus, memory))
        self.models = tuple(dict.fromkeys(model for cards in self.sizes for model in cards.by_model))

    def fits(self, ask: Ask) -> bool:
        cpus, memory = ask.cpus, ask.memory_mib
        return any(c >= cpus and m >= memory for c, m in self._with_cards(ask))

    def refusal(self, ask: Ask) -> Reason | None:
        if self.fits(ask):
            return None
        return Reason("never_fits", self._shortage(ask))

    def _with_cards(self, ask: Ask) -> list[Size]:
        """The sizes of the nodes that have the cards asked for."""
        key = (ask.gpus, ask.shards, ask.gpu_model)
        if key not in self._able:
            models = fitting_models(self.models, ask.gpu_model)
            self._able[key] = [
                size
                for cards, sizes in self.sizes.items()
                if (not ask.gpus or cards.count(models) >= ask.gpus)
                and (not ask.shards or cards.most_shards(models) >= ask.shards)
                for size in sizes
            ]
        return self._able[key]

    def _shortage(self, ask: Ask) -> str:
        if not self.sizes:
            return "there is no node here that could run it"
        able = self._with_cards(ask)
        if not able:
            return self._card_shortage(ask)
        where = f"the largest node with {render_cards(ask)}" if ask.gpus or ask.shards else "the largest node"
        most_cpus, most_memory = max(c for c, _ in able), max(m for _, m in able)
        if ask.cpus > most_cpus:
            return f"asks for {render_cpus(ask.cpus)}, {where} has {most_cpus}"
        if ask.memory_mib > most_memory:
            return f"asks for {render_memory(ask.memory_mib)} of memory, {where} has {render_memory(most_memory)}"
        wanted = [render_cards(ask)] if ask.gpus or ask.shards else []
        wanted += [render_cpus(ask.cpus), f"{render_memory(ask.memory_mib)} of memory"]
        return f"asks for {render_list(wanted)}, no single node has them together"

    def _card_shortage(self, ask: Ask) -> str:
        if not self.models:
            return f"asks for {render_cards(ask)}, no node has a GPU"
        models = fitting_models(self.models, ask.gpu_model)
        if not models:
            return f"asks for {render_cards(ask)}, there is only {render_list(self.models)}"
        if ask.gpus:
            most = max(cards.count(models) for cards in self.sizes)
            return f"asks for {render_cards(ask)}, the largest node has {most}"
        most = max(cards.most_shards(models) for cards in self.sizes)
        return f"asks for {render_cards(ask)}, the largest one has {most}"
