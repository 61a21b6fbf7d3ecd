"""The command `danlu simulate`: read a trace, replay it, print the outcome. `danlu.cli.commands.tools` starts it."""

import argparse
import gc
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from time import monotonic
from types import FrameType

from danlu.cli import render
from danlu.config.cluster import nodes_of, queues_of
from danlu.config.settings import Settings, load_settings
from danlu.domain.parsing import parse_duration
from danlu.domain.quota import Quota, keys_of, parse_quota, user_key
from danlu.domain.resources import Node
from danlu.errors import DanluError, Invalid
from danlu.monitor.machine import read_node
from danlu.tools.simulate.generate import Place, generate_trace
from danlu.tools.simulate.intake import Intake
from danlu.tools.simulate.metrics import report_of
from danlu.tools.simulate.people import People, read_people
from danlu.tools.simulate.replay import Fate, Policy, Replay, TraceJob
from danlu.tools.simulate.tables import render_jobs, render_report, render_seconds
from danlu.tools.simulate.trace import parse_trace, render_trace

INTERRUPTED = 130
BROKEN_PIPE = 141
PROGRESS_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    render.set_color(options.color)
    try:
        if options.make_trace:
            return _make_trace(options)
        return _simulate(options)
    except DanluError as error:
        render.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m danlu.tools.simulate.main", allow_abbrev=False)
    parser.add_argument("trace", nargs="?", default="")
    parser.add_argument("--config", default="")
    parser.add_argument("--people", default="")
    parser.add_argument("--step", default="")
    parser.add_argument("--preempted", choices=("resume", "restart"), default="resume")
    parser.add_argument("--jobs-csv", default="")
    parser.add_argument("--make-trace", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", default="85")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--color", default="auto")
    return parser.parse_args(argv)


def _make_trace(options: argparse.Namespace) -> int:
    people = read_people(options.people) if options.people else People()
    place = Place(teams=people.teams)
    if options.config:
        settings = load_settings(options.config, os.environ)
        nodes = _nodes(settings)
        place = Place(nodes, queues_of(settings.queues, nodes), people.teams)
    load = _percent(options.load)
    _write(render_trace(generate_trace(options.make_trace, options.seed, place, load)), "")
    return 0


def _percent(text: str) -> float:
    number = text.removesuffix("%")
    if not number.isdecimal() or not 1 <= int(number) <= 1000:
        raise Invalid(f"--load takes percent of the cards, 1 to 1000, not `{text}`", "for example `--load 90`")
    return int(number) / 100


def _simulate(options: argparse.Namespace) -> int:
    began = monotonic()
    settings = load_settings(options.config, os.environ)
    people = read_people(options.people) if options.people else People()
    nodes = _nodes(settings)
    queues = queues_of(settings.queues, nodes)
    trace = parse_trace(_read(options.trace), options.trace)
    intake = Intake(queues, people, settings.default_time, options.trace)
    jobs = list(intake.accept(trace.rows))
    policy = Policy(
        nodes=nodes,
        queues=queues,
        quotas=_quotas(settings, people, jobs),
        boosts=people.boosts_since(trace.begin),
        half_life=settings.half_life,
        grace=settings.grace,
        step=parse_duration(options.step, "--step") if options.step else None,
        resumes=options.preempted == "resume",
        shards_per_gpu=settings.engine.shards_per_gpu,
    )
    replay = Replay(jobs, policy, trace.begin)
    is_complete = _run(replay)
    report = report_of(replay, is_complete=is_complete)
    if options.jobs_csv:
        _write(render_jobs(replay.lives), options.jobs_csv)
    render.as_json(asdict(report)) if options.json else render.out(render_report(report))
    render.say(f"{replay.plans:,} plans, {monotonic() - began:.1f} s", "dim")
    return 0 if is_complete else INTERRUPTED


def _nodes(settings: Settings) -> tuple[Node, ...]:
    """The nodes in the configuration file; without any, this machine."""
    engine = settings.engine
    return nodes_of(settings.nodes, shards_per_gpu=engine.shards_per_gpu) or (
        read_node(
            name=engine.node_name,
            fake_gpus=engine.fake_gpus,
            shards_per_gpu=engine.shards_per_gpu,
            cpus=engine.cpus,
            memory_mib=settings.memory_mib,
        ),
    )


def _quotas(settings: Settings, people: People, jobs: Iterable[TraceJob]) -> dict[str, Quota]:
    """The quotas of the file; other users get the default quota of a new account."""
    quotas = dict(people.quotas)
    users = dict.fromkeys(job.user for job in jobs)
    if settings.people.default_quota:
        usual = parse_quota(settings.people.default_quota.split())
        quotas = {user_key(user): usual for user in users} | quotas
    known = {key for job in jobs for key in keys_of(job.user, job.team)}
    known |= {f"team:{team}" for team in people.teams}
    for holder in quotas:
        if holder not in known:
            render.say(f"note: {holder} has a quota but no job in the trace", "yellow")
    return quotas


def _run(replay: Replay) -> bool:
    """Run to the end, or return False after Ctrl-C. A second Ctrl-C exits at once."""
    asked: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, remember)
    # All objects created so far live to the end: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    try:
        shown = monotonic()
        for moment in replay.moments():
            if asked:
                return False
            if monotonic() - shown > PROGRESS_S:
                shown = monotonic()
                _progress(replay, moment.at_s, len(moment.snapshot.waiting))
        return not asked
    finally:
        gc.unfreeze()
        signal.signal(signal.SIGINT, before)
        render.progress("")


def _progress(replay: Replay, at_s: float, waiting: int) -> None:
    if render.is_terminal(2):
        done = sum(life.fate in (Fate.DONE, Fate.TIMED_OUT, Fate.NEVER) for life in replay.lives)
        render.progress(
            f"{done / len(replay.lives):.0%}: {done:,} of {len(replay.lives):,} jobs over after "
            f"{render_seconds(at_s)}, {waiting:,} wait; Ctrl-C ends it with the figures so far"
        )


def _read(path: str) -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Invalid(f"cannot read the trace {path}: {error.strerror}") from error


def _write(lines: Iterable[str], path: str) -> None:
    """Write to a file; without a path, to stdout."""
    text = "".join(lines).encode("utf-8", "backslashreplace")
    if not path:
        render.raw(text)
        return
    try:
        with open(path, "wb") as file:
            file.write(text)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
