"""What any door is given: REST, and whatever is built beside it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from danlu.actions.jobs.submit import Rules
from danlu.actions.jobs.views import JobView, view_job
from danlu.actions.people.context import PeopleContext
from danlu.actions.people.sign_on_flow import Signon
from danlu.domain.job import Job
from danlu.domain.people import Actor
from danlu.engines.base import Engine
from danlu.errors import DanluError
from danlu.state.jobs import JobCache
from danlu.state.people import Roster
from danlu.state.snapshots import Outlook


@dataclass(frozen=True, slots=True)
class Installation:
    """One running server, in parts: an action is given the parts that it needs."""

    cache: JobCache  # jobs
    engine: Engine
    outlook: Outlook  # what the scheduler sees and last decided
    rules: Rules  # what is accepted
    roster: Roster  # people, teams, quotas
    context: PeopleContext  # what actions about people need
    state_dir: str
    addresses: tuple[str, ...]
    trouble: Callable[[], DanluError | None]  # why nothing moves: the engine or the scheduler is away
    stop_server: Callable[[], None]
    signon: Signon | None = None  # with a browser, where the configuration names a provider
    proxies: frozenset[str] = frozenset()  # whose word about where a request comes from is believed
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def trouble_text(self) -> str | None:
        """Why nothing moves, and since when: what else is told is of then."""
        trouble = self.trouble()
        return trouble.text if trouble else None

    def view(self, actor: Actor, job: Job) -> JobView:
        """The job as this person may see it now."""
        return view_job(self.outlook, self.engine, self.trouble(), actor, job)
