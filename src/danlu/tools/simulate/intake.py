"""Apply the submit rules to each job of a trace: its queue and team, their defaults, and refusals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from danlu.actions.cluster.queue_rules import choose_queue, choose_team, default_time, limits_over
from danlu.domain.job import DEFAULT_PRIORITY, JobSpec, Reason
from danlu.domain.people import Actor, Membership
from danlu.domain.queue import Queue
from danlu.errors import Invalid, Refused
from danlu.tools.simulate.people import People
from danlu.tools.simulate.replay import TraceJob
from danlu.tools.simulate.trace import Row

_COMMAND = ("true",)


@dataclass(frozen=True, slots=True)
class Intake:
    """Accept jobs like an installation with these rules."""

    queues: Mapping[str, Queue]
    people: People
    default_time: timedelta | None
    name: str  # name of the trace, for error messages

    def accept(self, rows: Sequence[Row]) -> Iterator[TraceJob]:
        """Yield all jobs; a refused job carries the reason. An error in the file raises Invalid with the line."""
        actors: dict[tuple[str, str], Actor] = {}
        for row in rows:
            who = (row.user, row.team)
            actor = actors.get(who)
            if actor is None:
                actor = actors[who] = self._actor(*who)
            yield self._accept(row, actor)

    def _accept(self, row: Row, actor: Actor) -> TraceJob:
        priority = row.priority or DEFAULT_PRIORITY
        try:
            queue = choose_queue(self.queues, actor, row.queue)
            team = choose_team(actor, row.team, queue)
        except Invalid as error:
            column = "team" if error.code == "team_needed" else "queue"
            hint = error.hint.replace("--", "")
            raise Invalid(f"{self.name} line {row.line}, column `{column}`: {error.text}", hint) from error
        except Refused as error:
            why = Reason(error.code, error.text)
            return _job(row, row.team, row.queue, priority, row.time_limit, why)
        if queue is None:
            return _job(row, team, "", priority, row.time_limit or self.default_time)
        priority = row.priority or queue.default_priority or DEFAULT_PRIORITY
        limit = row.time_limit or default_time(queue, self.default_time)
        broken = next(iter(limits_over(queue, JobSpec(_COMMAND, "/", row.ask, "", priority, limit))), None)
        return _job(row, team, queue.name, priority, limit, Reason("queue_limit", broken.text) if broken else None)

    def _actor(self, user: str, team: str) -> Actor:
        """A user without membership in the file is in the team named by the trace."""
        teams = self.people.teams_of(user) or ((team,) if team else ())
        return Actor(user, teams=tuple(Membership(one) for one in teams))


def _job(
    row: Row, team: str, queue: str, priority: int, limit: timedelta | None, refused: Reason | None = None
) -> TraceJob:
    return TraceJob(
        key=str(row.line),
        submit_s=row.submit_s,
        duration_s=row.duration_s,
        ask=row.ask,
        user=row.user,
        team=team,
        queue=queue,
        priority=priority,
        time_limit=limit,
        is_preemptible=row.is_preemptible,
        refused=refused,
    )
