"""First commands and first lines: with no server running, and of an idle one."""

import time
from functools import partial
from statistics import median

from bench.figures import Figure, spread
from bench.place import DANLU, Home
from bench.timing import until_line
from bench.wire import Wire

COLD_MS, ACKNOWLEDGED_MS, FIRST_OUTPUT_MS = 500.0, 2.0, 25.0
IDLE_S = 0.05


def measure(quick: bool) -> list[Figure]:
    fresh, existing = _cold(2 if quick else 9)
    acknowledged, first_output = _idle(10 if quick else 101)
    return [
        _figure("no server, a new home → first line", fresh, COLD_MS),
        _figure("no server, the same home → first line", existing, COLD_MS),
        _figure("submit → acknowledged, idle server", acknowledged, ACKNOWLEDGED_MS),
        _figure("submit → first output, idle server", first_output, FIRST_OUTPUT_MS),
    ]


def _figure(name: str, samples: list[float], at_most: float) -> Figure:
    return Figure(name, median(samples) * 1e3, "ms", at_most=at_most, note=spread(samples))


def _cold(rounds: int) -> tuple[list[float], list[float]]:
    """`danlu run -- echo hi` starts the server; then the same where that server has been before."""
    fresh, existing = [], []
    for _ in range(rounds):
        with Home() as home:
            run = partial(until_line, [DANLU, "run", "--", "echo", "hi"], home.environ, home.folder, b"hi\n")
            fresh.append(run())
            home.down()
            home.wait_for_keeper()
            existing.append(run())
    return fresh, existing


def _idle(rounds: int) -> tuple[list[float], list[float]]:
    acknowledged, first_output = [], []
    with Home().up() as home, Wire(home.socket) as wire:
        for number in range(rounds + 1):
            time.sleep(IDLE_S)
            begin = time.perf_counter()
            job_id = wire.submit(["true"])
            acknowledged.append(time.perf_counter() - begin)
            wire.wait(job_id)
            time.sleep(IDLE_S)
            begin = time.perf_counter()
            wire.first_output(["echo", "hi"], b"hi\n")
            first_output.append(time.perf_counter() - begin)
            wire.rest_of_stream()
            if not number:  # the first of each loads what the later ones find loaded
                acknowledged.clear()
                first_output.clear()
    return acknowledged, first_output
