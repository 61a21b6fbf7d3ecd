"""Clocks around processes, and rounds that give every contestant the same luck."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Samples = dict[str, list[float]]


def whole_run(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> float:
    """Seconds from the start of a command to its end."""
    begin = time.perf_counter()
    subprocess.run(
        argv,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        close_fds=False,
        check=True,
    )
    return time.perf_counter() - begin


def until_line(argv: Sequence[str], environ: Mapping[str, str], folder: Path, line: bytes) -> float:
    """Seconds from the start of a command until this line was read from it; then waits for its end."""
    begin = time.perf_counter()
    with subprocess.Popen(
        argv,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        close_fds=False,
    ) as process:
        assert process.stdout is not None
        found = process.stdout.readline()
        seconds = time.perf_counter() - begin
        if found != line:
            raise RuntimeError(f"{' '.join(argv)} printed {found!r}, not {line!r}")
        process.stdout.read()
    return seconds


def round_robin(measures: Mapping[str, Callable[[], float]], rounds: int, *, warm_up: int = 1) -> Samples:
    """Each once, then each again: what disturbs the machine for a while disturbs all of them."""
    samples: Samples = {name: [] for name in measures}
    for number in range(warm_up + rounds):
        for name, measure in measures.items():
            seconds = measure()
            if number >= warm_up:
                samples[name].append(seconds)
    return samples
