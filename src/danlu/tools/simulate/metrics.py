"""Results of a replay as data: waiting times, utilisation and fairness."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from danlu.domain.quota import Quota, team_key
from danlu.domain.resources import model_fits
from danlu.tools.simulate.replay import Fate, Life, Policy, Replay

SHORT_S = 10.0  # shorter jobs count as this long: otherwise their slowdown would dominate the mean
_ENDED = (Fate.DONE, Fate.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    median: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Group:
    """Results of a team, a queue, or all jobs. None: not applicable."""

    name: str
    jobs: int
    ended: int
    timed_out: int
    never: int
    waited_s: Spread | None  # of ended jobs: total time in the queue
    slowdown: Spread | None  # time from submit to end, relative to the run time
    gpu_hours: float
    share: float | None  # of all GPU-hours
    quota_gpus: int | None
    quota_share: float | None  # of the GPUs in all team quotas
    borrowed_gpu_hours: float | None  # held beyond the team's quota
    preemptions: int
    utilisation: float | None  # of its cards, over the busy time


@dataclass(frozen=True, slots=True)
class Never:
    """A job that was refused, or would wait for ever."""

    line: int
    user: str
    team: str
    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    begin: str
    span_s: float  # from the start of the trace to the last end
    busy_s: float  # while jobs waited or ran
    gpus: int
    is_complete: bool  # False: interrupted
    unfinished: int  # jobs without an end at the interruption
    # Jain's index over the teams' GPU-hours, per GPU of their quota if all teams have a quota.
    fairness_use: float | None
    fairness_slowdown: float | None  # Jain's index over the teams' mean slowdowns
    in_all: Group
    teams: tuple[Group, ...]
    queues: tuple[Group, ...]
    never: tuple[Never, ...]


def report_of(replay: Replay, *, is_complete: bool = True) -> Report:
    lives, policy, now_s = replay.lives, replay.policy, replay.now_s
    busy_s = _covered((life.job.submit_s, _until(life, now_s)) for life in lives if _was_active(life))
    measure = _Measure(policy, now_s, busy_s, _gpu_hours(lives, now_s))
    by_team = _by(lives, lambda life: life.job.team)
    teams = tuple(
        measure.group(name, members, policy.quotas.get(team_key(name)) if name else None)
        for name, members in by_team.items()
    )
    quota_gpus = sum(team.quota_gpus or 0 for team in teams)
    by_queue = _by(lives, lambda life: life.job.queue) if policy.queues else {}
    return Report(
        begin=replay.begin.isoformat(),
        span_s=now_s,
        busy_s=busy_s,
        gpus=measure.gpus(),
        is_complete=is_complete,
        unfinished=sum(life.fate not in (*_ENDED, Fate.NEVER) for life in lives),
        fairness_use=_fairness_of_use(teams),
        fairness_slowdown=jain([team.slowdown.mean for team in teams if team.slowdown]),
        in_all=measure.all_of(lives, teams),
        teams=tuple(_with_quota_share(team, quota_gpus) for team in teams),
        queues=tuple(measure.queue(name, members) for name, members in by_queue.items()),
        never=tuple(
            Never(int(life.job.key), life.job.user, life.job.team, life.reason.code, life.reason.text)
            for life in lives
            if life.fate is Fate.NEVER and life.reason
        ),
    )


class _Measure:
    def __init__(self, policy: Policy, now_s: float, busy_s: float, gpu_hours: float) -> None:
        self._policy = policy
        self._now_s = now_s
        self._busy_s = busy_s
        self._gpu_hours = gpu_hours

    def group(self, name: str, lives: Sequence[Life], quota: Quota | None = None, gpus: int = 0) -> Group:
        ended = [life for life in lives if life.fate in _ENDED]
        hours = _gpu_hours(lives, self._now_s)
        limit = quota.gpus if quota else None
        return Group(
            name=name,
            jobs=len(lives),
            ended=len(ended),
            timed_out=sum(life.fate is Fate.TIMED_OUT for life in lives),
            never=sum(life.fate is Fate.NEVER for life in lives),
            waited_s=spread([_waited_s(life) for life in ended]),
            slowdown=spread([_slowdown(life) for life in ended]),
            gpu_hours=hours,
            share=hours / self._gpu_hours if self._gpu_hours else None,
            quota_gpus=limit,
            quota_share=None,
            borrowed_gpu_hours=None if limit is None else self._borrowed(lives, limit),
            preemptions=sum(life.preemptions for life in lives),
            utilisation=hours * 3600 / (gpus * self._busy_s) if gpus and self._busy_s else None,
        )

    def queue(self, name: str, lives: Sequence[Life]) -> Group:
        return self.group(name, lives, gpus=self.gpus(name))

    def all_of(self, lives: Sequence[Life], teams: Iterable[Group]) -> Group:
        whole = self.group("", lives, gpus=self.gpus())
        borrowed = [team.borrowed_gpu_hours for team in teams if team.borrowed_gpu_hours is not None]
        return replace(whole, borrowed_gpu_hours=sum(borrowed) if borrowed else None)

    def gpus(self, queue: str = "") -> int:
        """The number of cards in the cluster, or in a queue."""
        rules = self._policy.queues.get(queue)
        models = rules.models if rules else ()
        return sum(
            not models or any(model_fits(gpu.model, model) for model in models)
            for node in self._policy.nodes
            if not rules or not rules.nodes or node.name in rules.nodes
            for gpu in node.gpus
        )

    def _borrowed(self, lives: Iterable[Life], quota: int) -> float:
        """GPU-hours held above the quota."""
        changes = [
            change
            for life in lives
            if life.gpus
            for start_s, end_s in _held(life, self._now_s)
            for change in ((start_s, life.gpus), (end_s, -life.gpus))
        ]
        changes.sort()
        held, since, over = 0.0, 0.0, 0.0
        for at_s, gpus in changes:
            over += max(held - quota, 0.0) * (at_s - since)
            held += gpus
            since = at_s
        return over / 3600


def spread(numbers: Iterable[float]) -> Spread | None:
    """None for an empty input. Percentiles are interpolated."""
    ordered = sorted(numbers)
    if not ordered:
        return None
    mean = sum(ordered) / len(ordered)
    return Spread(mean, _percentile(ordered, 0.5), _percentile(ordered, 0.9), _percentile(ordered, 0.99), ordered[-1])


def _percentile(ordered: Sequence[float], part: float) -> float:
    place = (len(ordered) - 1) * part
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def jain(numbers: Sequence[float]) -> float | None:
    """Jain's index: 1 if all are equal, 1/n if a single member has everything."""
    squares = sum(number * number for number in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else None


def _fairness_of_use(teams: Sequence[Group]) -> float | None:
    if teams and all(team.quota_gpus for team in teams):
        return jain([team.gpu_hours / team.quota_gpus for team in teams if team.quota_gpus])
    return jain([team.gpu_hours for team in teams])


def _with_quota_share(team: Group, quota_gpus: int) -> Group:
    if team.quota_gpus is None or not quota_gpus:
        return team
    return replace(team, quota_share=team.quota_gpus / quota_gpus)


def _was_active(life: Life) -> bool:
    return life.fate not in (Fate.AHEAD, Fate.NEVER)


def _until(life: Life, now_s: float) -> float:
    return now_s if life.end_s is None else life.end_s


def _held(life: Life, now_s: float) -> Iterator[tuple[float, float]]:
    for run in life.runs:
        yield run.start_s, run.end_s
    if life.fate is Fate.RUNNING:
        yield life.start_s, now_s


def _gpu_hours(lives: Iterable[Life], now_s: float) -> float:
    return sum(life.gpus * (end_s - start_s) for life in lives for start_s, end_s in _held(life, now_s)) / 3600


def _waited_s(life: Life) -> float:
    """The total time in the queue, including the time between two runs."""
    assert life.end_s is not None
    held_s = sum(run.end_s - run.start_s for run in life.runs)
    return max(life.end_s - life.job.submit_s - held_s, 0.0)


def _slowdown(life: Life) -> float:
    assert life.end_s is not None
    job = life.job
    limit_s = job.time_limit.total_seconds() if job.time_limit else job.duration_s
    needed_s = min(job.duration_s, limit_s)
    return max((life.end_s - job.submit_s) / max(needed_s, SHORT_S), 1.0)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of the spans."""
    covered, reached = 0.0, 0.0
    for start_s, end_s in sorted(spans):
        covered += max(end_s - max(start_s, reached), 0.0)
        reached = max(reached, end_s)
    return covered


def _by(lives: Iterable[Life], name: Callable[[Life], str]) -> Mapping[str, list[Life]]:
    groups: dict[str, list[Life]] = {}
    for life in lives:
        groups.setdefault(name(life), []).append(life)
    return dict(sorted(groups.items()))
