"""The running server, as given to each interface: REST, and any future interface."""

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
    """The parts of a running server. Each action gets only the parts needed."""

    cache: JobCache  # jobs
    engine: Engine
    outlook: Outlook  # the scheduler's view and last decisions
    rules: Rules  # for accepting jobs
    roster: Roster  # people, teams, quotas
    context: PeopleContext  # for actions about people
    state_dir: str
    addresses: tuple[str, ...]
    trouble: Callable[[], DanluError | None]  # why nothing moves: the engine or the scheduler is away
    stop_server: Callable[[], None]
    signon: Signon | None = None  # browser sign-on, if the configuration names a provider
    proxies: frozenset[str] = frozenset()  # trusted to name the origin of a request
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def trouble_text(self) -> str | None:
        """Why nothing moves, and since when. Other data shown meanwhile is the last known state."""
        trouble = self.trouble()
        return trouble.text if trouble else None

    def view(self, actor: Actor, job: Job) -> JobView:
        """The present job as visible to this person."""
        return view_job(self.outlook, self.engine, self.trouble(), actor, job)
