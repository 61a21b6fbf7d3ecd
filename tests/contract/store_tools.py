"""What the tests of the store share."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine

from danlu.domain.job import Job, JobState, Reason
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.postgres import postgres_server

T = TypeVar("T")

KINDS = ("sqlite", "postgresql")
DONE = Reason("done", "ended with success")


class Run:
    """One event loop for a test that is not a coroutine: `run(store.get("a"))`."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def __call__(self, asked: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asked)

    def together(self, *asked: Coroutine[Any, Any, Any]) -> list[Any]:
        """All at once; errors come back as values."""

        async def gathered() -> list[Any]:
            return await asyncio.gather(*asked, return_exceptions=True)

        return self._runner.run(gathered())


def fresh_url(kind: str, folder: Path) -> str:
    return f"sqlite:///{folder / 'danlu.db'}" if kind == "sqlite" else postgres_server().fresh_url()


@contextmanager
def opened(
    url: str, *, patience: float = 5, before: Callable[[SqlStore], None] | None = None
) -> Iterator[tuple[SqlStore, Run]]:
    """A store on this database, closed at the end."""
    with asyncio.Runner() as runner:
        store, run = SqlStore(url, patience=timedelta(seconds=patience)), Run(runner)
        if before is not None:
            before(store)
        run(store.open())
        try:
            yield store, run
        finally:
            run(store.close())


def writers(store: SqlStore) -> Engine:
    """Where the writer's connections come from, for tests that put something in its way."""
    engine: Engine = store._database._writers  # type: ignore[attr-defined]
    return engine


def array(array_id: str, count: int, **fields: Any) -> list[Job]:
    """Tasks 0 to count - 1, which share one spec."""
    first = job(f"{array_id}_0", array_id=array_id, array_index=0, **fields)
    own = {name: value for name, value in fields.items() if name in Job.__dataclass_fields__}
    rest = [job(f"{array_id}_{i}", array_id=array_id, array_index=i, **own) for i in range(1, count)]
    return [first, *(_with_spec(task, first) for task in rest)]


def _with_spec(task: Job, first: Job) -> Job:
    return replace(task, spec=first.spec)


def started(one: Job) -> Job:
    return one.moved(JobState.STARTING, why=Reason("starting", "is being started"), at=NOW, started_at=NOW)


def ended(one: Job, state: JobState = JobState.SUCCEEDED) -> Job:
    """The next version is the last, wherever it stands now."""
    running = one if one.state.is_given else started(one)
    return replace(running.moved(state, why=DONE, at=NOW, exit_code=0), version=one.version + 1)
