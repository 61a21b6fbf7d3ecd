"""Generate a typical trace of a research lab. The same seed gives the same trace.

The model: each team submits two thirds of the work of the team before it, and a few users submit most of a team's
jobs; arrivals follow working hours and working days; a third of the jobs are short tries, most are trainings of hours,
some run for days, all log-normal; most jobs ask for a single card, few for eight cards or for several nodes, some for
shards; larger jobs are longer; time limits are round figures of about twice the real duration, some too short, some
omitted.
"""

import math
import random
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import accumulate

from danlu.actions.cluster.queue_rules import closed_to, limits_over, nodes_in
from danlu.domain.job import JobSpec
from danlu.domain.people import Actor, Membership
from danlu.domain.queue import Queue
from danlu.domain.resources import Ask, Gpu, Node
from danlu.errors import Invalid, Refused
from danlu.scheduler.plan import fits_ever
from danlu.tools.simulate.replay import TraceJob

TEAMS = ("nlp", "vision", "speech", "robotics", "biology")
USERS_PER_TEAM = 8
APPETITE = 2 / 3  # of each team, relative to the team before
# Kind of job: share in percent, median minutes, sigma of the logarithm.
KINDS = ((35, 4.0, 1.0), (55, 75.0, 1.2), (10, 900.0, 0.7))
SIZES = ((8, 0), (58, 1), (16, 2), (11, 4), (5, 8), (2, 16))  # (percent of the jobs, cards); 0 cards: shards
LIMITS_H = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168)
# Relative load of each hour, from midnight, and of each weekday, from Monday.
HOURS = (4, 3, 2, 2, 2, 2, 3, 5, 8, 12, 14, 12, 10, 12, 15, 15, 14, 13, 12, 10, 10, 10, 9, 6)
DAYS = (10, 10, 10, 10, 10, 4, 3)
LONGEST_S = 7 * 86400.0


RETRIES = 20  # to find a job that some queue accepts

_CARDS = tuple(Gpu(index, "NVIDIA GeForce RTX 3090") for index in range(8))
_NODES = tuple(Node(f"n{number}", 64, 512 * 1024, _CARDS) for number in range(1, 5))


@dataclass(frozen=True, slots=True)
class Place:
    """The machines, queues and users of a generated trace."""

    nodes: tuple[Node, ...] = _NODES
    queues: Mapping[str, Queue] = field(default_factory=dict)
    teams: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def cards(self) -> list[int]:
        """The number of cards of each node with cards."""
        return [len(node.gpus) for node in self.nodes if node.gpus]


def generate_trace(count: int, seed: int, place: Place, load: float = 0.85) -> Iterator[TraceJob]:
    """Generate `count` jobs, spread so that the cards are busy for the part `load` of the time."""
    if not place.cards:
        raise Invalid("there is no GPU here", "name them in `[[nodes]]`, or leave `--config` out")
    rng = random.Random(seed)
    people = _people(place)
    jobs = [_job(rng, people, place) for _ in range(count)]
    busy_s = sum(job.duration_s * _width(job.ask) for job in jobs)
    moments = _arrivals(rng, count, busy_s / (sum(place.cards) * load))
    for number, (job, at_s) in enumerate(zip(jobs, moments, strict=True), 2):
        yield replace(job, key=str(number), submit_s=at_s)


def _people(place: Place) -> list[tuple[float, str, str]]:
    """All users with their team and the cumulative sum of their weights."""
    teams = place.teams or {team: [f"{team}{n}" for n in range(1, USERS_PER_TEAM + 1)] for team in TEAMS}
    weights = [
        (APPETITE**place_of_team / rank, user, team)
        for place_of_team, (team, members) in enumerate(teams.items())
        for rank, user in enumerate(members, 1)
    ]
    if not weights:
        raise Refused("the file of people names no team member", "name the members of a team in the file of people")
    sums = accumulate(weight for weight, _, _ in weights)
    return [(total, user, team) for total, (_, user, team) in zip(sums, weights, strict=True)]


def _job(rng: random.Random, people: Sequence[tuple[float, str, str]], place: Place) -> TraceJob:
    """A random job; with queues, a job that some queue accepts."""
    for _ in range(RETRIES):
        job = _any_job(rng, people, max(place.cards), len(place.cards))
        if not place.queues:
            return job
        fitting = [inside for queue in place.queues.values() if (inside := _inside(queue, place.nodes, job))]
        if fitting:
            return rng.choice(fitting)
    raise Refused("the queues here take hardly any of the jobs that people submit", "leave `--config` out")


def _any_job(rng: random.Random, people: Sequence[tuple[float, str, str]], cards: int, nodes: int) -> TraceJob:
    _, user, team = people[bisect([total for total, _, _ in people], rng.random() * people[-1][0])]
    _, minutes, sigma = _chosen(rng, KINDS)
    ask = _ask(rng, int(_chosen(rng, SIZES)[1]), cards, nodes)
    grown = max(ask.gpus * ask.nodes, 1) ** 0.3
    seconds = round(min(max(rng.lognormvariate(math.log(minutes * 60 * grown), sigma), 5.0), LONGEST_S))
    return TraceJob(
        key="",
        submit_s=0.0,
        duration_s=float(seconds),
        ask=ask,
        user=user,
        team=team,
        priority=rng.choices((3, 5, 7), (8, 88, 4))[0],
        time_limit=_limit(rng, seconds),
        is_preemptible=rng.random() < 0.2,
    )


def _inside(queue: Queue, nodes: Sequence[Node], job: TraceJob) -> TraceJob | None:
    """The job as its owner would submit it to a queue; None if the queue would refuse it."""
    limit, priority = job.time_limit, min(job.priority, queue.max_priority or job.priority)
    if queue.max_time and (limit is None or limit > queue.max_time):
        limit = queue.max_time  # longer work is split into several jobs
    actor = Actor(job.user, teams=(Membership(job.team),))
    spec = JobSpec(("true",), "/", job.ask, priority=priority, time_limit=limit)
    if closed_to(queue, actor) or any(limits_over(queue, spec)) or fits_ever(nodes_in(queue, nodes), job.ask):
        return None
    seconds = min(job.duration_s, queue.max_time.total_seconds()) if queue.max_time else job.duration_s
    return replace(job, queue=queue.name, priority=priority, time_limit=limit, duration_s=seconds)


def _chosen(rng: random.Random, rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return rng.choices(rows, [row[0] for row in rows])[0]


def _ask(rng: random.Random, gpus: int, cards: int, nodes: int) -> Ask:
    if not gpus:
        return Ask(shards=rng.choice((8, 16, 32)), cpus=2, memory_mib=8 * 1024)
    each = min(gpus, cards)
    return Ask(gpus=each, cpus=each * rng.choice((1, 2, 2)), memory_mib=each * 8 * 1024, nodes=min(gpus // each, nodes))


def _limit(rng: random.Random, seconds: float) -> timedelta | None:
    if rng.random() < 0.1:
        return None
    wanted_h = seconds / 3600 * rng.lognormvariate(math.log(2.2), 0.5)
    return timedelta(hours=next((hours for hours in LIMITS_H if hours >= wanted_h), LIMITS_H[-1]))


def _arrivals(rng: random.Random, count: int, span_s: float) -> list[float]:
    """Random times in order: more in working hours than at night, more on working days than on weekends."""
    hours = max(math.ceil(span_s / 3600), 1)
    busyness = [float(HOURS[hour % 24]) * DAYS[hour // 24 % 7] for hour in range(hours)]
    busyness[-1] = max(busyness[-1] * (span_s / 3600 - (hours - 1)), 1e-9)
    sums = list(accumulate(busyness))
    moments = []
    for _ in range(count):
        at = rng.random() * sums[-1]
        hour = min(bisect(sums, at), hours - 1)
        into = (sums[hour] - at) / busyness[hour]  # the remaining part of the hour
        moments.append(round((hour + 1 - min(max(into, 0.0), 1.0)) * 3600))
    return [float(moment) for moment in sorted(moments)]


def _width(ask: Ask) -> float:
    return (ask.gpus + ask.shards / 64) * ask.nodes
