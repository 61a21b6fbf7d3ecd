"""How long a plan takes: `python bench/plan.py`. Medians; `read` also looks at every wait."""

import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from danlu.domain.queue import Queue
from danlu.domain.quota import Quota
from danlu.domain.resources import Ask, Gpu, Node, Seat
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODELS = ("NVIDIA GeForce RTX 3090", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
WISHES = (None, None, "RTX3090", "A100", "H100")


def one_node(cards: int = 4) -> Node:
    return Node("n1", 64, 256 * 1024, tuple(Gpu(i, MODELS[0]) for i in range(cards)))


def tiny() -> Snapshot:
    """One node, two runs, one array of 1,000 tasks: what every end of a task costs."""
    holding = tuple(Holding(f"h{i}", Seat("n1", 4, 1024, (i,)), NOW + timedelta(hours=1)) for i in (0, 1))
    ask = Ask(gpus=1, cpus=4, memory_mib=1024)
    array = Waiting("a", ask, 1, time_limit=timedelta(hours=1), count=1000, may_start=1000)
    return Snapshot(NOW, (one_node(3),), (array,), holding)


def same(count: int = 1000) -> Snapshot:
    """Identical jobs that wait for one full node."""
    holding = tuple(Holding(f"h{i}", Seat("n1", 4, 1024, (i,)), NOW + timedelta(hours=i + 1)) for i in range(4))
    waiting = tuple(Waiting(f"w{i}", Ask(gpus=1), i, time_limit=timedelta(hours=1)) for i in range(count))
    return Snapshot(NOW, (one_node(),), waiting, holding)


def random_ask(rng: random.Random, fine: bool) -> Ask:
    """A plausible ask; `fine`: with amounts that hardly ever repeat."""
    kind = rng.random()
    memory = rng.randrange(1024, 256 * 1024) if fine else rng.choice((0, 8, 16, 32, 64, 128)) * 1024
    cpus = rng.randrange(1, 49) if fine else rng.choice((1, 2, 4, 8, 16))
    if kind < 0.25:
        return Ask(cpus=cpus, memory_mib=memory)
    if kind < 0.4:
        return Ask(shards=rng.choice((8, 16, 32)), cpus=min(cpus, 8), memory_mib=memory // 4)
    return Ask(gpus=rng.choice((1, 1, 1, 2, 4, 8)), gpu_model=rng.choice(WISHES), cpus=cpus, memory_mib=memory)


def big(count: int = 10_000, nodes: int = 1000, distinct: int = 300, timed: float = 0.3) -> Snapshot:
    """Many jobs before many nodes that are nearly full."""
    rng = random.Random(1)
    machines, holding = [], []
    for n in range(nodes):
        model = MODELS[n % 3]
        machines.append(Node(f"n{n}", 64, 512 * 1024 + rng.randrange(999), tuple(Gpu(i, model) for i in range(8))))
        card = 0
        while card < 8:
            width = min(rng.choice((1, 2, 4, 8)), 8 - card)
            if rng.random() < 0.97:
                seat = Seat(f"n{n}", width * rng.randrange(4, 9), width * 48 * 1024, tuple(range(card, card + width)))
                end = NOW + timedelta(minutes=rng.randrange(1, 5000)) if rng.random() < timed else None
                holding.append(Holding(f"h{n}.{card}", seat, end))
            card += width
    asks = [random_ask(rng, distinct >= count) for _ in range(distinct)]
    waiting = []
    for i in range(count):
        ask = asks[i] if distinct >= count else rng.choice(asks)
        limit = timedelta(hours=rng.choice((1, 4, 12, 24, 72))) if rng.random() < 0.7 else None
        waiting.append(Waiting(f"w{i}", ask, i, priority=rng.choice((5, 5, 5, 7, 3)), time_limit=limit))
    return Snapshot(NOW, tuple(machines), tuple(waiting), tuple(holding))


def shared(borrowed: float = 0.2) -> Snapshot:
    """The same before 200 people in 20 teams with quotas, use and three queues; some of what runs is borrowed."""
    rng = random.Random(2)
    alone = big()
    people = [(f"user{i}", f"team{i % 20}") for i in range(200)]
    names = [node.name for node in alone.nodes]
    queues = {
        "all": Queue("all"),
        "dev": Queue("dev", frozenset(names[:200]), models=("RTX3090",)),
        "train": Queue("train", frozenset(names[200:])),
    }
    quotas = {f"team:team{i}": Quota(gpus=rng.randrange(300, 600), borrow=True) for i in range(20)}
    quotas |= {f"user:user{i}": Quota(gpus=rng.choice((8, 64, 256)), jobs=500) for i in range(150)}
    use = {key: rng.random() * 1000 for key in quotas}

    def owned(rng: random.Random) -> dict[str, Any]:
        # As everywhere, some have far more to do than others.
        user, team = people[int(rng.paretovariate(0.5)) % 200]
        return {"user": user, "team": team, "is_preemptible": rng.random() < borrowed}

    began = NOW - timedelta(hours=5)
    holding = tuple(replace(held, started_at=began, **owned(rng)) for held in alone.holding)
    kinds = ("all", "train", "train", "dev")
    waiting = tuple(replace(entry, queue=rng.choice(kinds), **owned(rng)) for entry in alone.waiting)
    boosted = frozenset({"user3", "user77"})
    return replace(
        alone, waiting=waiting, holding=holding, queues=queues, quotas=quotas, use=use, spent=use, boosted=boosted
    )


def measure(name: str, make: Callable[[], Snapshot], rounds: int) -> None:
    snapshot = make()
    planned, read = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        made = plan(snapshot)
        between = time.perf_counter()
        for key in made.waits:
            made.waits[key]
        end = time.perf_counter()
        planned.append(between - begin)
        read.append(end - begin)
    starts, waits = len(made.starts), len(made.waits)
    print(
        f"{name:<44} plan {statistics.median(planned) * 1e3:9.3f} ms   read {statistics.median(read) * 1e3:9.3f} ms"
        f"   {starts} start, {waits} wait, {len(snapshot.holding)} hold, {len(made.stops)} stop",
    )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    measure("1 node, 2 runs, an array of 1,000", tiny, rounds * 50)
    measure("1 full node, 1,000 identical", same, rounds * 10)
    measure("1,000 nodes, 10,000 jobs, 300 asks", big, rounds)
    measure("… of 200 people in 20 teams, quotas, queues", shared, rounds)
    measure("1,000 nodes, 10,000 jobs, all distinct", lambda: big(distinct=10_000), rounds)
    measure("1,000 nodes, 10,000 distinct, all timed", lambda: big(distinct=10_000, timed=1.0), rounds)
    measure("1,000 nodes, 10,000 distinct, none timed", lambda: big(distinct=10_000, timed=0.0), rounds)


if __name__ == "__main__":
    main()
