"""How long `danlu simulate` takes for 100,000 jobs: invented ones, on 128 cards, with quotas and borrowing."""

import gc
import time
from datetime import timedelta

from bench.figures import Figure
from danlu.domain.quota import Quota, team_key
from danlu.domain.resources import Gpu, Node
from danlu.tools.simulate.generate import TEAMS, Place, generate_trace
from danlu.tools.simulate.metrics import report_of
from danlu.tools.simulate.replay import Policy, Replay
from danlu.tools.simulate.trace import BEGIN, parse_trace, render_trace

JOBS = 100_000
QUICK_JOBS = 2_000
NODES, CARDS = 16, 8
AT_MOST_S = 600.0
QUOTAS = dict(zip(TEAMS, (48, 32, 24, 16, 8), strict=True))


def policy() -> Policy:
    cards = tuple(Gpu(index, "NVIDIA GeForce RTX 3090") for index in range(CARDS))
    return Policy(
        nodes=tuple(Node(f"n{number}", 64, 512 * 1024, cards) for number in range(NODES)),
        quotas={team_key(team): Quota(gpus=gpus, borrow=True) for team, gpus in QUOTAS.items()},
        half_life=timedelta(days=7),
    )


def measure(quick: bool) -> list[Figure]:
    """Seconds of the processor, which neighbours do not change much."""
    count = QUICK_JOBS if quick else JOBS
    place = Place(policy().nodes)
    text = "".join(render_trace(generate_trace(count, 1, place, 0.9))).encode()
    began = time.process_time()
    trace = parse_trace(text, "bench")
    read_s = time.process_time() - began
    jobs = list(generate_trace(count, 1, place, 0.9))
    replay = Replay(jobs, policy(), BEGIN)
    gc.collect()
    gc.freeze()
    began, longest = time.process_time(), 0
    for moment in replay.moments():
        longest = max(longest, len(moment.snapshot.waiting))
    replay_s = time.process_time() - began
    gc.unfreeze()
    began = time.process_time()
    report = report_of(replay)
    report_s = time.process_time() - began
    note = f"{replay.plans:,} plans, at most {longest:,} waiting, {report.in_all.preemptions:,} preemptions"
    return [
        Figure(
            f"simulate {len(trace.rows):,} jobs, processor time",
            read_s + replay_s + report_s,
            "s",
            at_most=AT_MOST_S,
            note=note,
        ),
        Figure("… of that, one plan and its obedience", replay_s / max(replay.plans, 1) * 1e3, "ms"),
    ]
