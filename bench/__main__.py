"""Take the figures: `python -m bench [--quick] [--only NAME] [--json]`; `--markdown` prints the last ones as a page."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench import (
    backlog,
    cold,
    crowd,
    download,
    followers,
    history,
    memory,
    planning,
    simulate,
    slurm,
    start,
    throughput,
)
from bench.figures import Figure, Topic, load, load_average, now_text, render_markdown, render_table, save
from bench.place import ROOT, install

TOPICS: dict[str, Callable[[bool], list[Figure]]] = {
    "start": start.measure,
    "throughput": throughput.measure,
    "history": history.measure,
    "download": download.measure,
    "followers": followers.measure,
    "plan": planning.measure,
    "crowd": crowd.measure,
    "simulate": simulate.measure,
    "backlog": backlog.measure,
    "memory": memory.measure,
    "cold": cold.measure,
    "slurm": slurm.measure,
}
# More than this, and the figures say more about the neighbours.
QUIET_LOAD = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Take the figures of docs/performance.md.")
    parser.add_argument("--only", action="append", choices=TOPICS, help="only this topic; may be given again")
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works, not for figures")
    parser.add_argument("--json", action="store_true", help="print data as JSON")
    parser.add_argument("--markdown", action="store_true", help="measure nothing: print the last figures as a page")
    options = parser.parse_args()
    if options.markdown:
        print(render_markdown(*load()))
        return 0
    # Leaving properly stops the servers that were started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    install()
    if load_average() > QUIET_LOAD:
        print(f"note: the machine is busy (load {load_average():.1f}): only the ratios mean something", file=sys.stderr)
    topics = []
    for name in options.only or TOPICS:
        topics.append(_measured(name, options.quick))
        if not options.json:
            print(render_table(topics[-1]), flush=True)
        save(topics, _machine())
    if options.json:
        print(json.dumps([asdict(topic) for topic in topics], indent=1, ensure_ascii=False))
    return 1 if any(topic.trouble for topic in topics) else 0


def _measured(name: str, quick: bool) -> Topic:
    """One topic; what goes wrong in it is said, and the others go on."""
    busy = load_average()
    try:
        figures, trouble = TOPICS[name](quick), ""
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None)
        figures, trouble = [], f"{error} {said.decode(errors='replace') if said else ''}".strip()
    return Topic(name, tuple(figures), now_text(), quick, busy, trouble)


def _machine() -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "commit": commit.stdout.decode().strip() or "unknown",
    }


if __name__ == "__main__":
    sys.exit(main())
