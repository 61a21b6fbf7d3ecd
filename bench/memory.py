"""What a server costs while nobody uses it, fresh and after a thousand jobs."""

import time

from bench.figures import Figure
from bench.place import Home
from bench.processes import memory_mb
from bench.throughput import run_array
from bench.wire import Wire

AT_MOST_MB = 80.0


def measure(quick: bool) -> list[Figure]:
    count = 100 if quick else 1000
    with Home().up() as home, Wire(home.socket) as wire:
        figures = _look(home, "fresh")
        run_array(wire, count)
        time.sleep(1.0)
        return [*figures, *_look(home, f"after {count:,} jobs")]


def _look(home: Home, when: str) -> list[Figure]:
    resident, own = memory_mb(home.server_pid)
    kept = [memory_mb(pid) for pid in home.keeper_pids()]
    both = own + sum(part for _, part in kept)
    note = f"resident {resident + sum(rss for rss, _ in kept):.0f} MB"
    return [
        Figure(f"server, {when}, resident", resident, "MB", at_most=AT_MOST_MB, note=f"its own part {own:.0f} MB"),
        Figure(f"server and keeper, {when}, own part", both, "MB", note=note),
    ]
