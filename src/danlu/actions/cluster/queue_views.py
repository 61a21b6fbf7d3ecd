"""The queues for a single person: free resources, running and waiting jobs, and the right to use the queue."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from danlu.actions.cluster.queue_rules import closed_to, serves
from danlu.actions.jobs.views import NodeView, node_views
from danlu.domain.job import JobState
from danlu.domain.people import Actor, demand
from danlu.domain.queue import Queue
from danlu.engines.base import RunState
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of a model in a queue. A free card has no holder, not even of a part, and its node accepts jobs."""

    model: str
    total: int
    free: int
    shards_free: int


@dataclass(frozen=True, slots=True)
class QueueView:
    queue: Queue
    nodes: tuple[str, ...]
    cards: tuple[Cards, ...]
    cpus: int
    cpus_free: int
    running: int  # runs in this queue, like `waiting`
    waiting: int
    why_not: str  # why this person may not use the queue; empty if allowed


def queue_views(cache: JobCache, inventory: Inventory, actor: Actor, *, now: datetime) -> list[QueueView]:
    """Every queue, in the order of the configuration. `running` and `waiting` include runs from outside Danlu."""
    demand(actor, "queue.list", actor.name, "the list of queues")
    running: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for job in cache.active_jobs.holding():
        (waiting if job.state is JobState.PENDING else running)[job.spec.queue] += 1
    for group in cache.active_jobs.groups():
        waiting[group.spec.queue] += group.count
    for other in inventory.others:
        (waiting if other.state is RunState.PENDING else running)[other.queue] += other.tasks
    everywhere = node_views(cache, inventory, actor, now=now)
    return [_view(queue, everywhere, actor, running, waiting) for queue in inventory.queues.values()]


def _view(
    queue: Queue, everywhere: Sequence[NodeView], actor: Actor, running: Counter[str], waiting: Counter[str]
) -> QueueView:
    views = [view for view in everywhere if not queue.nodes or view.node.name in queue.nodes]
    cards = [card for view in views for card in view.gpus if serves(queue, card.gpu.model)]
    open_cards = [card for view in views if view.node.accepts_jobs for card in view.gpus]
    models = dict.fromkeys(card.gpu.model for card in cards)
    return QueueView(
        queue=queue,
        nodes=tuple(view.node.name for view in views),
        cards=tuple(
            Cards(
                model,
                sum(card.gpu.model == model for card in cards),
                sum(card.gpu.model == model and card.use == "free" for card in open_cards),
                sum(card.shards_free for card in open_cards if card.gpu.model == model),
            )
            for model in models
        ),
        cpus=sum(view.node.cpus for view in views),
        cpus_free=sum(view.cpus_free for view in views if view.node.accepts_jobs),
        running=running[queue.name],
        waiting=waiting[queue.name],
        why_not=closed_to(queue, actor),
    )
