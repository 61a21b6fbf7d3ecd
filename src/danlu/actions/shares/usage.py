"""Usage: card hours held and requested, CPU hours, runs and their waiting times."""

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
    """The use of a person, a team, a queue, or all together."""

    name: str
    runs: int = 0
    running: int = 0  # the part of `runs` still running
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
    """The use of runs ended in the time span and of present runs, from Danlu or from outside. Each person sees the own
    use and the use of the own teams."""
    if by not in _NAMES:
        raise Invalid(f"usage is shown by user, team or queue, not by `{by[:40]}`")
    begin = parse_moment(since or DEFAULT_SINCE, "--since", now=now)
    end = parse_moment(until, "--until", now=now) if until else now
    if begin >= end:
        raise Invalid("--since must be before --until", "for example `--since 30d --until 7d`")
    _demand(roster, actor, user, team)
    past = await store.use(UseFilter(since=begin, until=end, user=user, team=team))
    # The store gets the charge of a run at the end of the run; a present run counts only if the time span reaches now.
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
    """Demand the right to see the named team or person. Without a name there is no demand: `usage` filters the result
    by the actor's rights."""
    if team:
        demand(actor, "usage.show", "", f"the usage of team {team[:40]}", teams=(team,))
    if user:
        teams = [one.team for one in roster.memberships(user)]
        demand(actor, "usage.show", user, f"the usage of {user[:40]}", teams=teams)


def _find(roster: Roster, actor: Actor, user: str, team: str) -> None:
    """Refuse an unknown name. Called only without any use: a person without an account, or a deleted team, may have
    use to show."""
    if user and user != actor.name:
        find_person(roster, user)
    if team:
        find_team(roster, team)


def _running(
    holding: Iterable[Job], others: Iterable[ExternalRun], shards_per_gpu: int, now: datetime
) -> Iterator[Charge]:
    """The charge of each present run, as if the run ended now."""
    for job in holding:
        if job.state is JobState.PENDING:
            continue  # the job waits in the engine's queue and holds nothing yet
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
