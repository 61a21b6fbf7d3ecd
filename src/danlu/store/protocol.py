"""The seam of what is remembered. Every write is durable when it returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from danlu.domain.charge import Charge
from danlu.domain.job import Job, JobId, JobState
from danlu.domain.people import AuditEntry, Role


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. Empty fields do not restrict."""

    states: frozenset[JobState] = frozenset()
    user: str = ""
    name: str = ""
    label: tuple[str, str] | None = None
    array_id: str = ""
    team: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs from the newest to the oldest; `next_before` continues it, None at the end."""

    jobs: tuple[Job, ...]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a job, or all tasks of an array, have come."""

    known: int
    active: int
    succeeded: int


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """How many tasks of an array are in each state; `first_seq` is the smallest of theirs, which have no gaps."""

    states: Mapping[JobState, int]
    first_seq: int


@dataclass(frozen=True, slots=True)
class PastRun:
    """An earlier attempt of a job that was tried again."""

    job_id: JobId
    attempt: int
    state: JobState
    reason_code: str
    reason_text: str
    started_at: datetime | None
    ended_at: datetime
    exit_code: int | None
    node: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token at rest: its hash, never itself."""

    id: str
    digest: str
    user: str
    role: Role
    name: str
    created_at: datetime
    expires_at: datetime | None


class Store(Protocol):
    """Writes that arrive together share one commit. Any verb raises StoreDown when the database cannot serve."""

    async def open(self) -> Sequence[Job]:
        """Make ready (migrations included) and give every active job, in order of submission."""
        ...

    async def close(self) -> None: ...

    async def insert(
        self,
        jobs: Sequence[Job],
        *,
        key: str = "",
        environ: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> Sequence[Job]:
        """Remember new jobs, all or none, and give them back with their `seq`.
        `environ` is the submitter's environment under the jobs' `spec.environ` id; equal ones share one,
        and it goes away by itself once no active job needs it.
        The same user and non-empty `key` a second time gives the jobs of the first time and adds nothing.
        An id that is taken raises Conflict. `audit`, what the log says of it, is there with the new jobs or not at
        all."""
        ...

    async def by_key(self, user: str, key: str) -> Sequence[Job]:
        """The jobs that an insert of this user with this key has made, also one that was asked for just before."""
        ...

    async def update(
        self,
        jobs: Sequence[Job],
        past: Sequence[PastRun] = (),
        charges: Sequence[Charge] = (),
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Remember new versions, all or none. Conflict unless each replaces exactly the version before it.
        `charges` are what the runs that are over by it used; they stay when the jobs are removed.
        `audit` is there with the new versions or not at all."""
        ...

    async def remove(self, ids: Sequence[JobId], audit: Sequence[AuditEntry] = ()) -> int:
        """Forget ended jobs. Active and unknown ones are left alone; gives how many went.
        The log says so only if any did."""
        ...

    async def get(self, job_id: str) -> Job | None: ...
    async def get_all(self, ids: Sequence[str]) -> Sequence[Job]:
        """Those of them that there are, in any order."""
        ...

    async def find(self, prefix: str, *, limit: int = 10) -> Sequence[str]:
        """Distinct ids of jobs and arrays that begin with `prefix`, exact match alone if there is one.
        Tasks are behind their array as long as the prefix does not reach beyond its id."""
        ...

    async def latest(self, user: str, back: int = 0) -> str | None:
        """Id of the user's newest submission (an array counts once), or of the one `back` before it."""
        ...

    async def page(self, wanted: JobFilter, *, limit: int, before: int | None = None) -> Page: ...
    async def outcome(self, ref: str) -> Outcome:
        """Of the job or array with exactly this id."""
        ...

    async def array(self, array_id: str) -> ArraySummary: ...
    async def past_runs(self, job_id: JobId) -> Sequence[PastRun]: ...

    async def snapshots(self) -> frozenset[str]:
        """Every snapshot that a job needs, active or ended."""
        ...

    async def environ(self, environ_id: str) -> Mapping[str, str]:
        """Empty if it is unknown or not needed any more."""
        ...

    async def add_token(self, token: Token, audit: Sequence[AuditEntry] = ()) -> None:
        """Remember it together with what the log says of it, or neither."""
        ...

    async def tokens(self) -> Sequence[Token]: ...
    async def token(self, digest: str) -> Token | None: ...
    async def drop_token(self, token_id: str, audit: Sequence[AuditEntry] = ()) -> bool:
        """Whether there was one. The log says so only then."""
        ...
