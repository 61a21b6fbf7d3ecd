"""Submitting runs: told and not waited for; what cannot be known is found out by looking, never by trying again."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable

from danlu.domain.job import Reason
from danlu.engines.base import Ending, Launch, Observation, RunState
from danlu.engines.slurm_batch import render_script
from danlu.engines.slurm_commands import Commands, Person, is_trouble
from danlu.engines.slurm_folders import Folders, Record
from danlu.engines.slurm_look import Look
from danlu.engines.slurm_runs import Runs
from danlu.engines.slurm_script import render_comment, render_options
from danlu.engines.slurm_words import explain_refusal, last_words
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

SUBMITS_AT_ONCE = 4


class Starts:
    def __init__(
        self, commands: Commands, folders: Folders, look: Look, runs: Runs, on_done: Callable[[], None]
    ) -> None:
        self._commands = commands
        self._folders = folders
        self._look = look
        self._runs = runs
        self._on_done = on_done
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(SUBMITS_AT_ONCE)

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def is_on_the_way(self, run_id: str) -> bool:
        return run_id in self._tasks

    def begin(self, launch: Launch) -> None:
        if launch.run_id not in self._tasks:
            # At once: a stop may come before the submit has got anywhere.
            self._runs.submitting(self._runs.records.get(launch.run_id) or _record(launch))
            self._tasks[launch.run_id] = asyncio.create_task(self._start(launch))

    async def close(self) -> None:
        """A submit that is under way is let finish: its answer would be lost otherwise."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=15)

    async def _start(self, launch: Launch) -> None:
        try:
            async with self._slots:
                await self._submit(launch)
        except EngineDown as error:
            log.warning("%s waits to be submitted: %s", launch.run_id, error.text)
        except Exception:
            log.exception("%s could not be submitted", launch.run_id)
        finally:
            del self._tasks[launch.run_id]
            self._runs.submitted(self._runs.records[launch.run_id])
            self._on_done()

    async def _submit(self, launch: Launch) -> None:
        try:
            person = Person.named(launch.user)
        except KeyError:
            await self._refused(launch, Reason("slurm_user", f"this machine has no user {launch.user}"))
            return
        record = self._runs.records[launch.run_id]
        token = secrets.token_hex(8)
        record.tokens.append(token)
        record.uid, record.number = person.uid, None
        try:
            await asyncio.to_thread(self._folders.prepare, launch, record, person)
        except OSError as error:
            text = f"its folder could not be made ready: {error.strerror} ({error.filename})"
            await self._refused(launch, Reason("not_started", text))
            return
        folder = self._folders.folder(launch.run_id)
        comment = render_comment(self._folders.instance, launch.run_id)
        options = render_options(launch, comment, f"{folder}/log", self._look.habits())
        script = render_script(launch, folder, token)
        answer = await self._commands.run(("sbatch", *options), person=person, stdin=script)
        if is_trouble(answer):
            raise EngineDown(f"Slurm does not answer: {last_words(answer.said)}")
        if answer.code:
            await self._refused(launch, explain_refusal(answer.said))
            return
        with contextlib.suppress(ValueError):
            record.number = int(answer.out.strip().partition(";")[0])
        self._runs.taken(record)
        await asyncio.to_thread(self._folders.write, record)

    async def _refused(self, launch: Launch, why: Reason) -> None:
        end = Observation(RunState.ENDED, ending=Ending.NOT_STARTED, reason=why)
        await self._runs.end(self._runs.records[launch.run_id], end)


def _record(launch: Launch) -> Record:
    ask = launch.ask
    return Record(run_id=launch.run_id, uid=-1, at=time.time(), cpus=ask.cpus, memory_mib=ask.memory_mib)
