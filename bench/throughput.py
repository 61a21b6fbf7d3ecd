"""1,000 jobs of `true` on 2 slots, from the submit until all have ended and are written down."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

from bench.figures import Figure, spread
from bench.peers import HyperQueue, Peer, Skipped, TaskSpooler
from bench.place import Home
from bench.timing import round_robin
from bench.wire import Wire

PEERS: dict[str, tuple[type[Peer], float]] = {
    "HyperQueue": (HyperQueue, 1.0),
    "task-spooler": (TaskSpooler, 0.7),
}


def measure(quick: bool) -> list[Figure]:
    count, rounds = (100, 2) if quick else (1000, 7)
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        home = stack.enter_context(Home().up())
        wire = stack.enter_context(Wire(home.socket))
        contestants: dict[str, Callable[[], float]] = {"danlu": lambda: run_array(wire, count)}
        for name, (peer, _) in PEERS.items():
            try:
                contestants[name] = stack.enter_context(peer(count)).run
            except Skipped as why:
                skipped[name] = str(why)
        samples = round_robin(contestants, rounds)
    rates = {name: count / median(found) for name, found in samples.items()}
    figures = [
        Figure(f"{name}: {count:,} × true", rates[name], "jobs/s", note=spread(found, scale=1, unit="s"))
        for name, found in samples.items()
    ]
    for name, (_, at_least) in PEERS.items():
        if name in rates:
            figures.append(Figure(f"danlu against {name}", rates["danlu"] / rates[name], "×", at_least=at_least))
        else:
            figures.append(Figure(f"danlu against {name}", 0.0, "", note=f"skipped: {skipped[name]}"))
    return figures


def run_array(wire: Wire, count: int) -> float:
    begin = time.perf_counter()
    states = wire.wait(wire.submit(["true"], array=f"1-{count}"))
    seconds = time.perf_counter() - begin
    if states != {"SUCCEEDED": count}:
        raise RuntimeError(f"not all of {count} jobs succeeded: {states}")
    return seconds
