"""How many active jobs are allowed: for each person, and for all people together."""

from dataclasses import dataclass

from danlu.domain.people import Actor
from danlu.errors import Refused
from danlu.state.jobs import JobCache

MOST_OF_ONE, MOST_IN_ALL = 50_000, 500_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of active jobs. Running jobs count too, so a retried job always has room."""

    of_one: int = MOST_OF_ONE
    in_all: int = MOST_IN_ALL


def check_limits(cache: JobCache, limits: Limits, actor: Actor, count: int) -> None:
    """Refuse `count` more jobs of this person if not all of these jobs fit."""
    more = "1 more job" if count == 1 else f"{count:,} more jobs"
    of_one, of_all = cache.active_of(actor.name), cache.active
    for who, have, most in (("you have", of_one, limits.of_one), ("all people have", of_all, limits.in_all)):
        if have + count > most:
            raise Refused(
                f"{who} {have:,} jobs that have not ended; {more} would exceed the limit of {most:,}",
                f"{most - have:,} more fit now; the rest fits once others have ended or are stopped"
                if have < most
                else "wait until some have ended, or stop some: `danlu stop JOB`",
                code="too_many_jobs",
            )
