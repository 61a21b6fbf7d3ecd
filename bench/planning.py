"""How long `plan` thinks; `python bench/plan.py` shows more cases."""

import gc
import time
from collections.abc import Callable
from statistics import median

from bench.figures import Figure, spread
from bench.plan import big, shared, tiny
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Snapshot

AT_MOST_MS = 100.0
# Asks from 300 kinds, as people repeat themselves, and the worst case: no two alike.
CASES: dict[str, Callable[[], Snapshot]] = {
    "plan(), 10,000 queued × 1,000 nodes": big,
    "plan(), the same, no two asks alike": lambda: big(distinct=10_000),
    "plan() with people: 200, 20 teams, quotas, queues": shared,
}


def measure(quick: bool) -> list[Figure]:
    figures = []
    for name, make in CASES.items():
        planned, read = _times(make(), 3 if quick else 21)
        figures.append(Figure(name, median(planned) * 1e3, "ms", at_most=AT_MOST_MS, note=spread(planned)))
        figures.append(Figure("… and every reason read", median(read) * 1e3, "ms", note=spread(read)))
    small, _ = _times(tiny(), 50 if quick else 500)
    figures.append(Figure("plan(), 1 node, an array of 1,000", median(small) * 1e3, "ms"))
    return figures


def _times(snapshot: Snapshot, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds for the plan, and for the plan with all its waits, which are worked out when they are looked at."""
    planned, read = [], []
    for _ in range(rounds):
        gc.collect()
        gc.disable()  # as the server does
        begin = time.perf_counter()
        made = plan(snapshot)
        planned.append(time.perf_counter() - begin)
        gc.enable()
        for key in made.waits:
            made.waits[key]
        read.append(time.perf_counter() - begin)
    return planned, read
