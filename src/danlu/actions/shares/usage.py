"""What was used: card hours held and asked for, CPU hours, runs and how long they waited."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from danlu.actions.jobs.external import charge_of_other
from danlu.actions.people.teams import find_team
from danlu.actions.people.users import find_person
from danlu.domain.charge import Charge, charge_of, gpu_hours
from danlu.domain.job import Job, JobState
from danlu.domain.parsing import parse_moment
from danlu.domain.people import Actor, demand
from danlu.engines.base import ExternalRun, RunState
from danlu.errors import Invalid
from danlu.state.people import Roster
from danlu.store.people_protocol import PeopleStore, Use, UseFilter

DEFAULT_SINCE = "30d"


@dataclass(slots=True)
class Line:
    """One person, team or queue, or all of them together."""

    name: str
    runs: int = 0
    running: int = 0  # of the runs, those that are not over
    gpu_hours: float = 0.0
    asked_gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    waited_s: float = 0.0
    longest_wait_s: float = 0.0

    @property
    def mean_wait_s(self) -> float:
        return self.waited_s / self.runs if self.runs else 0.0

    def add(self, use: Use, running: int) -> None:
        self.runs += use.runs
        self.running += running
        self.gpu_hours += use.gpu_hours
        self.asked_gpu_hours += use.asked_gpu_hours
        self.cpu_hours += use.cpu_hours
        self.waited_s += use.waited_s
        self.longest_wait_s = max(self.longest_wait_s, use.longest_wait_s)


@dataclass(frozen=True, slots=True)
class Usage:
    since: datetime
    until: datetime
    by: str
    lines: tuple[Line, ...]
    total: Line = field(default_factory=lambda: Line("total"))


_NAMES: dict[str, Callable[[Use], str]] = {
    "user": lambda use: use.user,
    "team": lambda use: use.team,
    "queue": lambda use: use.queue,
}


async def usage(
    store: PeopleStore,
    roster: Roster,
    holding: Iterable[Job],
    others: Iterable[ExternalRun],
    actor: Actor,
    *,
    user: str = "",
    team: str = "",
    since: str = "",
    until: str = "",
    by: str = "user",
    shards_per_gpu: int,
    now: datetime,
) -> Usage:
    """Runs that ended in the time, and those that run now, whether they came through Danlu or not. Everybody sees the
    own use and that of the own teams."""
    if by not in _NAMES:
        raise Invalid(f"usage is shown by user, team or queue, not by `{by[:40]}`")
    begin = parse_moment(since or DEFAULT_SINCE, "--since", now=now)
    end = parse_moment(until, "--until", now=now) if until else now
    if begin >= end:
        raise Invalid("--since must be before --until", "for example `--since 30d --until 7d`")
    _demand(roster, actor, user, team)
    past = await store.use(UseFilter(since=begin, until=end, user=user, team=team))
    # What runs now will be in the books when it is over; until then it counts for times that reach to now.
    running = [_use_of(one, begin, now) for one in _running(holding, others, shards_per_gpu, now)] if end >= now else []
    running = [one for one in running if user in ("", one.user) and team in ("", one.team)]
    lines: dict[str, Line] = {}
    total = Line("total")
    for use, count in [*((use, 0) for use in past), *((use, 1) for use in running)]:
        if actor.is_admin or use.user == actor.name or actor.is_in(use.team):
            name = _NAMES[by](use)
            lines.setdefault(name, Line(name)).add(use, count)
            total.add(use, count)
    if not lines:
        _find(roster, actor, user, team)
    ordered = sorted(lines.values(), key=lambda line: (-line.gpu_hours, -line.cpu_hours, line.name))
    return Usage(begin, end, by, tuple(ordered), total)


def _demand(roster: Roster, actor: Actor, user: str, team: str) -> None:
    """Who asks about a team or person must be something to them; who asks about nobody in particular, to oneself."""
    if team:
        demand(actor, "usage.show", "", f"the usage of team {team[:40]}", teams=(team,))
    if user:
        teams = [one.team for one in roster.memberships(user)]
        demand(actor, "usage.show", user, f"the usage of {user[:40]}", teams=teams)


def _find(roster: Roster, actor: Actor, user: str, team: str) -> None:
    """Nothing was used: perhaps by somebody whom there is not. Who has no account may have used something all the
    same, and so may a team that is gone."""
    if user and user != actor.name:
        find_person(roster, user)
    if team:
        find_team(roster, team)


def _running(
    holding: Iterable[Job], others: Iterable[ExternalRun], shards_per_gpu: int, now: datetime
) -> Iterator[Charge]:
    """Each as it would be charged if it ended now."""
    for job in holding:
        if job.state is JobState.PENDING:
            continue  # it waits in the engine's queue, and has nothing yet
        yield charge_of(job, job.started_at or now, now, shards_per_gpu)
    for other in others:
        if other.state is RunState.RUNNING:
            yield charge_of_other(other, now, shards_per_gpu)


def _use_of(run: Charge, since: datetime, now: datetime) -> Use:
    held = max(now - max(run.started_at, since), timedelta(0))
    allowed = max(run.time_limit or held, held)
    waited_s = max((run.started_at - run.submitted_at).total_seconds(), 0.0)
    return Use(
        run.user,
        run.team,
        run.queue,
        runs=1,
        gpu_hours=gpu_hours(run.gpus, run.shards, run.shards_per_gpu, held),
        asked_gpu_hours=gpu_hours(run.gpus, run.shards, run.shards_per_gpu, allowed),
        cpu_hours=run.cpus * held.total_seconds() / 3600,
        waited_s=waited_s,
        longest_wait_s=waited_s,
    )
