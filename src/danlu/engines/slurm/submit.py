"""Submits runs in the background. After a lost answer only a poll decides; a submit is never repeated blindly."""

import asyncio
import errno
import logging
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from danlu.domain.job import Reason
from danlu.domain.reasons import ReasonCode
from danlu.engines.base import Ending, Launch, Observation, RunState, shm_notes
from danlu.engines.slurm.accounts import Accounts, Choice, Payer, how_to_add
from danlu.engines.slurm.commands import Answer, Commands, Person, is_unreachable, may_become
from danlu.engines.slurm.poll import Poller
from danlu.engines.slurm.priorities import Priorities
from danlu.engines.slurm.run_folders import Folders, Record
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.messages import explain_full, explain_refusal, last_words
from danlu.engines.slurm.text.options import nice_of, render_comment, render_options
from danlu.engines.slurm.text.render import render_script
from danlu.engines.slurm.timing import Timing
from danlu.errors import DanluError, EngineDown

log = logging.getLogger(__name__)

SUBMITS_AT_ONCE = 4
# Temporary trouble of the shared folder or of this server: the run waits. (A full quota of its user is final.)
_TEMPORARY = frozenset(
    {errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN}
    | {errno.ENOENT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED, errno.EBUSY, errno.ENOLCK}  # unmounted
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
)
SUBMITS_PER_USER = 2  # `sbatch` belongs to the user: a hanging one blocks no other user


@dataclass(slots=True)
class FullQueue:
    """A job limit of Slurm is reached for a user, team and queue. Further runs wait here."""

    why: Reason
    at: float
    held: dict[str, Launch]
    tried: str = ""  # the run of the current attempt


class Submitter:
    def __init__(
        self,
        commands: Commands,
        folders: Folders,
        poller: Poller,
        runs: Runs,
        accounts: Accounts,
        priorities: Priorities,
        on_done: Callable[[], None],
        timing: Timing,
    ) -> None:
        self._commands = commands
        self._folders = folders
        self._poller = poller
        self._runs = runs
        self._accounts = accounts
        self._priorities = priorities
        self._on_done = on_done
        self._timing = timing
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()  # for which `sbatch` was called, in this try
        self._slots = asyncio.Semaphore(SUBMITS_AT_ONCE)
        self._user_slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(SUBMITS_PER_USER))
        self._full: dict[tuple[str, str, str], FullQueue] = {}  # by user, team, queue

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    @property
    def submitting_ids(self) -> Collection[str]:
        return self._tasks.keys()

    def submit(self, launch: Launch) -> None:
        if launch.run_id not in self._tasks:
            # At once: a stop may come before the submit.
            self._runs.submitting(self._runs.record_of(launch.run_id) or _record(launch))
            self._tasks[launch.run_id] = asyncio.create_task(self._run(launch))

    def drop(self, run_ids: Collection[str]) -> None:
        """Take these runs out of the waiting lists."""
        for line, full in list(self._full.items()):
            for run_id in full.held.keys() & set(run_ids):
                del full.held[run_id]
            if not full.held and full.tried not in self._tasks:
                del self._full[line]

    async def close(self) -> None:
        """Wait for running submits: their answers would be lost."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=self._timing.submit_close_s)

    async def _run(self, launch: Launch) -> None:
        try:
            async with self._user_slots[launch.user], self._slots:
                if why := self._limit_reached(launch) or await self._submit_or_refuse(launch):
                    self._runs.known[launch.run_id].submit_failure = why
        except EngineDown as error:
            log.warning("%s waits to be submitted: %s", launch.run_id, error.text)
            self._runs.known[launch.run_id].submit_failure = Reason(ReasonCode.ENGINE_DOWN, error.text)
        except Exception:
            log.exception("%s could not be submitted", launch.run_id)
        finally:
            del self._tasks[launch.run_id]
            self._runs.submitted(launch.run_id)
            self._on_done()

    async def _submit_or_refuse(self, launch: Launch) -> Reason | None:
        try:
            return await self._submit(launch)
        except (DanluError, OSError):
            raise
        except Exception as error:
            # Half a character, or a fault of ours that only this run meets: a retry does not help.
            if launch.run_id in self._asked and not isinstance(error, ValueError):
                raise  # Slurm may have accepted the run
            log.exception("%s cannot be submitted", launch.run_id)
            await self._refused(launch, Reason(ReasonCode.NOT_STARTED, f"it cannot be passed to the system: {error}"))
            return None
        finally:
            self._asked.discard(launch.run_id)

    async def _submit(self, launch: Launch) -> Reason | None:
        """The reason to retry later; None: submitted or refused."""
        try:
            person = Person.named(launch.user)
        except KeyError:
            await self._refused(launch, Reason("slurm_user", f"this machine has no user {launch.user}"))
            return None
        if not may_become(person):
            text = f"only a server with root rights can submit to Slurm as {person.name}"
            await self._refused(launch, Reason("slurm_user", text))
            return None
        record = self._runs.known[launch.run_id].record
        token = secrets.token_hex(8)
        record.tokens.append(token)
        record.uid, record.number = person.uid, None
        launch = replace(launch, is_boosted=record.is_boosted)  # the boost may have changed meanwhile
        record.nice = max(0, nice_of(launch.priority, is_boosted=launch.is_boosted))
        payer = self._payer(launch, person)
        choice = await self._accounts.choose(payer) if payer else Choice()
        record.note(choice.note)
        if launch.ask.memory_mib and not self._poller.traits().enforces_memory:
            record.note("memory limit not enforced: this Slurm does not confine jobs (`danlu doctor` says how to)")
        for note in shm_notes(launch.ask.shm_mib, "a node"):
            record.note(note)
        try:
            await self._folders.apart(self._folders.prepare, launch, record, person)
        except OSError as error:
            if error.errno in _TEMPORARY:
                raise EngineDown(f"the shared folder does not work: {error.strerror}") from None
            text = f"the folder of the run could not be created: {error.strerror} ({error.filename})"
            await self._refused(launch, Reason(ReasonCode.NOT_STARTED, text))
            return None
        answer = await self._sbatch(launch, person, token, choice)
        if payer and _is_about_accounts(answer) and (other := await self._accounts.fallback(choice, payer)):
            record.note(other.note)
            answer = await self._sbatch(launch, person, token, other)
        if answer.code:
            if full := explain_full(answer.stderr):
                record.tokens.remove(token)  # many attempts may follow
                held = before.held if (before := self._full.get(_line_of(launch))) else {}
                held[launch.run_id] = launch
                self._full[_line_of(launch)] = FullQueue(full, time.monotonic(), held)
                return full
            why = explain_refusal(answer.stderr)
            if payer and _is_about_accounts(answer):
                why = replace(why, detail=f"{why.detail}: {how_to_add(payer)}")
            await self._refused(launch, why)
            return None
        if number := re.match(r"([0-9]{1,10})(?:;|\n|$)", answer.stdout.strip()):
            record.number = int(number[1])
            # A killed controller may reuse the number of a cancelled duplicate.
            record.dropped = [number for number in record.dropped if number != record.number]
        self._priorities.check(record)
        self._runs.accepted(record.run_id)
        self._submit_next(launch)
        await self._folders.apart(self._folders.write, record)
        return None

    def _limit_reached(self, launch: Launch) -> Reason | None:
        """The reason not to submit now. At a job limit only the first waiting run is tried."""
        full = self._full.get(_line_of(launch))
        if full is None:
            return None
        full.held[launch.run_id] = launch
        is_due = time.monotonic() - full.at >= self._timing.full_retry_s and full.tried not in self._tasks
        if not is_due or self._first_of(full) is not launch:
            return full.why
        full.tried = launch.run_id
        del full.held[launch.run_id]  # after a lost answer only a poll shows the result
        return None

    def _submit_next(self, taken: Launch) -> None:
        """After a success submit the next waiting run at once."""
        full = self._full.get(_line_of(taken))
        if full is None:
            return
        full.at, full.tried = 0.0, ""
        if first := self._first_of(full):
            self.submit(first)
        else:
            del self._full[_line_of(taken)]

    def _first_of(self, full: FullQueue) -> Launch | None:
        known = self._runs.known
        for run_id in list(full.held):
            run = known.get(run_id)
            # With any other state an earlier submit succeeded.
            is_missing = run is not None and run.state in (None, RunState.UNKNOWN)
            if run is None or not run.is_active or run.record.stop or not is_missing:
                del full.held[run_id]

        def rank(launch: Launch) -> tuple[int, float]:
            record = known[launch.run_id].record
            return nice_of(launch.priority, is_boosted=record.is_boosted), record.at

        return min(full.held.values(), key=rank, default=None)

    def _payer(self, launch: Launch, person: Person) -> Payer | None:
        """None without accounting."""
        traits = self._poller.traits()
        if not traits.has_accounts:
            return None
        return Payer(self._poller.cluster, person.name, launch.team, launch.queue or traits.default_partition)

    async def _sbatch(self, launch: Launch, person: Person, token: str, account: Choice) -> Answer:
        folder = self._folders.folder(launch.run_id)
        comment = render_comment(self._folders.instance, launch.run_id)
        traits = self._poller.traits()
        options = render_options(replace(launch, team=account.name), comment, f"{folder}/log", traits)
        script = render_script(launch, folder, token, reaches_all=traits.reaches_all)
        self._asked.add(launch.run_id)
        answer = await self._commands.run(("sbatch", *options), person=person, stdin=script)
        if answer.code < 0:
            raise EngineDown(f"sbatch was killed by signal {-answer.code} before its answer")
        if is_unreachable(answer):
            raise EngineDown(f"Slurm does not answer: {last_words(answer.stderr)}")
        return answer

    async def _refused(self, launch: Launch, why: Reason) -> None:
        """End the run as not started."""
        end = Observation(RunState.ENDED, ending=Ending.NOT_STARTED, reason=why)
        await self._runs.end(launch.run_id, end)


def _line_of(launch: Launch) -> tuple[str, str, str]:
    return launch.user, launch.team, launch.queue


def _is_about_accounts(answer: Answer) -> bool:
    return answer.code != 0 and explain_refusal(answer.stderr).code == "slurm_account"


def _record(launch: Launch) -> Record:
    ask = launch.ask
    return Record(
        run_id=launch.run_id,
        uid=-1,
        at=time.time(),
        cpus=ask.cpus,
        memory_mib=ask.memory_mib,
        priority=launch.priority,
        is_boosted=launch.is_boosted,
    )
