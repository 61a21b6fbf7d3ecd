"""Submitting runs: told and not waited for; what cannot be known is found out by looking, never by trying again."""

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
from danlu.engines.base import Ending, Launch, Observation, RunState
from danlu.engines.slurm.accounts import Accounts, Choice, Payer, how_to_add
from danlu.engines.slurm.commands import Answer, Commands, Person, is_trouble, may_become
from danlu.engines.slurm.poll import Look
from danlu.engines.slurm.priorities import Order
from danlu.engines.slurm.run_folders import Folders, Record
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.text.messages import explain_full, explain_refusal, last_words
from danlu.engines.slurm.text.options import nice_of, render_comment, render_options
from danlu.engines.slurm.text.render import render_script
from danlu.errors import DanluError, EngineDown

log = logging.getLogger(__name__)

SUBMITS_AT_ONCE = 4
# Trouble of the shared folder or of this server, and not of this person (as a full quota is): the run waits.
_PASSES = frozenset(
    {errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN}
    | {errno.ENOENT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED, errno.EBUSY, errno.ENOLCK}  # unmounted
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
)
OF_ONE_PERSON = 2  # their `sbatch` is theirs: who makes it hang holds up themselves
FULL_S = 4.0  # between two tries for somebody who has as many jobs as Slurm's books allow


@dataclass(slots=True)
class Full:
    """As many jobs of somebody's, in a team and a queue, as Slurm takes. The others wait here for a place."""

    why: Reason
    at: float
    held: dict[str, Launch]
    tried: str = ""  # the run for which a place is being asked


class Starts:
    def __init__(
        self,
        commands: Commands,
        folders: Folders,
        look: Look,
        runs: Runs,
        accounts: Accounts,
        order: Order,
        on_done: Callable[[], None],
    ) -> None:
        self._commands = commands
        self._folders = folders
        self._look = look
        self._runs = runs
        self._accounts = accounts
        self._order = order
        self._on_done = on_done
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()  # for which `sbatch` was called, in this try
        self._slots = asyncio.Semaphore(SUBMITS_AT_ONCE)
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OF_ONE_PERSON))
        self._full: dict[tuple[str, str, str], Full] = {}  # by user, team, queue

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    @property
    def on_the_way(self) -> Collection[str]:
        return self._tasks.keys()

    def begin(self, launch: Launch) -> None:
        if launch.run_id not in self._tasks:
            # At once: a stop may come before the submit has got anywhere.
            self._runs.submitting(self._runs.records.get(launch.run_id) or _record(launch))
            self._tasks[launch.run_id] = asyncio.create_task(self._start(launch))

    def let_go(self, run_ids: Collection[str]) -> None:
        """They wait for a place no longer."""
        for line, full in list(self._full.items()):
            for run_id in full.held.keys() & set(run_ids):
                del full.held[run_id]
            if not full.held and full.tried not in self._tasks:
                del self._full[line]

    async def close(self) -> None:
        """A submit that is under way is let finish: its answer would be lost otherwise."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=15)

    async def _start(self, launch: Launch) -> None:
        try:
            async with self._turns[launch.user], self._slots:
                if why := self._why_full(launch) or await self._submit_or_refuse(launch):
                    self._runs.held_up[launch.run_id] = why
        except EngineDown as error:
            log.warning("%s waits to be submitted: %s", launch.run_id, error.text)
            self._runs.held_up[launch.run_id] = Reason("engine_down", error.text)
        except Exception:
            log.exception("%s could not be submitted", launch.run_id)
        finally:
            del self._tasks[launch.run_id]
            self._runs.submitted(self._runs.records[launch.run_id])
            self._on_done()

    async def _submit_or_refuse(self, launch: Launch) -> Reason | None:
        try:
            return await self._submit(launch)
        except (DanluError, OSError):
            raise
        except Exception as error:
            # Half a character, or a fault of ours that only this run meets: trying again does not help.
            if launch.run_id in self._asked and not isinstance(error, ValueError):
                raise  # Slurm may have taken it
            log.exception("%s cannot be submitted", launch.run_id)
            await self._refused(launch, Reason("not_started", f"it cannot be passed to the system: {error}"))
            return None
        finally:
            self._asked.discard(launch.run_id)

    async def _submit(self, launch: Launch) -> Reason | None:
        """Why it is to be tried again later, if it is."""
        try:
            person = Person.named(launch.user)
        except KeyError:
            await self._refused(launch, Reason("slurm_user", f"this machine has no user {launch.user}"))
            return None
        if not may_become(person):
            text = f"this server does not run as root, and so cannot submit to Slurm as {person.name}"
            await self._refused(launch, Reason("slurm_user", text))
            return None
        record = self._runs.records[launch.run_id]
        token = secrets.token_hex(8)
        record.tokens.append(token)
        record.uid, record.number = person.uid, None
        launch = replace(launch, is_boosted=record.is_boosted)  # it may have waited for its turn
        record.nice = max(0, nice_of(launch.priority, is_boosted=launch.is_boosted))
        payer = self._payer(launch, person)
        choice = await self._accounts.choose(payer) if payer else Choice()
        record.note(choice.note)
        if launch.ask.memory_mib and not self._look.habits().holds_memory:
            record.note("memory limit not enforced: this Slurm does not confine jobs (`danlu doctor` says how to)")
        try:
            await self._folders.apart(self._folders.prepare, launch, record, person)
        except OSError as error:
            if error.errno in _PASSES:
                raise EngineDown(f"the shared folder cannot be used: {error.strerror}") from None
            text = f"its folder could not be made ready: {error.strerror} ({error.filename})"
            await self._refused(launch, Reason("not_started", text))
            return None
        answer = await self._sbatch(launch, person, token, choice)
        if payer and _is_about_accounts(answer) and (other := await self._accounts.instead_of(choice, payer)):
            record.note(other.note)
            answer = await self._sbatch(launch, person, token, other)
        if answer.code:
            if full := explain_full(answer.said):
                record.tokens.remove(token)  # many tries may follow
                held = before.held if (before := self._full.get(_line_of(launch))) else {}
                held[launch.run_id] = launch
                self._full[_line_of(launch)] = Full(full, time.monotonic(), held)
                return full
            why = explain_refusal(answer.said)
            if payer and _is_about_accounts(answer):
                why = replace(why, detail=f"{why.detail}: {how_to_add(payer)}")
            await self._refused(launch, why)
            return None
        if number := re.match(r"([0-9]{1,10})(?:;|\n|$)", answer.out.strip()):
            record.number = int(number[1])
            # A controller that was killed may give a number again that was taken back before.
            record.dropped = [number for number in record.dropped if number != record.number]
        self._order.check(record)
        self._runs.taken(record)
        self._begin_next(launch)
        await self._folders.apart(self._folders.write, record)
        return None

    def _why_full(self, launch: Launch) -> Reason | None:
        """Why it is not even tried now. Of those that wait for a place, the first in order is."""
        full = self._full.get(_line_of(launch))
        if full is None:
            return None
        full.held[launch.run_id] = launch
        is_due = time.monotonic() - full.at >= FULL_S and full.tried not in self._tasks
        if not is_due or self._first_of(full) is not launch:
            return full.why
        full.tried = launch.run_id
        del full.held[launch.run_id]  # if its answer is lost, only looking tells whether it was taken
        return None

    def _begin_next(self, taken: Launch) -> None:
        """There was a place: there may be another."""
        full = self._full.get(_line_of(taken))
        if full is None:
            return
        full.at, full.tried = 0.0, ""
        if first := self._first_of(full):
            self.begin(first)
        else:
            del self._full[_line_of(taken)]

    def _first_of(self, full: Full) -> Launch | None:
        records, seen = self._runs.records, self._runs.seen
        for run_id in list(full.held):
            is_found = run_id in seen and seen[run_id].state is not RunState.UNKNOWN  # a submit before came to be
            if (record := records.get(run_id)) is None or record.end or record.stop or is_found:
                del full.held[run_id]

        def rank(launch: Launch) -> tuple[int, float]:
            record = records[launch.run_id]
            return nice_of(launch.priority, is_boosted=record.is_boosted), record.at

        return min(full.held.values(), key=rank, default=None)

    def _payer(self, launch: Launch, person: Person) -> Payer | None:
        """None where Slurm keeps no books."""
        habits = self._look.habits()
        if not habits.has_accounts:
            return None
        return Payer(self._look.cluster, person.name, launch.team, launch.queue or habits.default_partition)

    async def _sbatch(self, launch: Launch, person: Person, token: str, account: Choice) -> Answer:
        folder = self._folders.folder(launch.run_id)
        comment = render_comment(self._folders.instance, launch.run_id)
        habits = self._look.habits()
        options = render_options(replace(launch, team=account.name), comment, f"{folder}/log", habits)
        script = render_script(launch, folder, token, reaches_all=habits.reaches_all)
        self._asked.add(launch.run_id)
        answer = await self._commands.run(("sbatch", *options), person=person, stdin=script)
        if answer.code < 0:
            raise EngineDown(f"sbatch was killed by signal {-answer.code} before it had an answer")
        if is_trouble(answer):
            raise EngineDown(f"Slurm does not answer: {last_words(answer.said)}")
        return answer

    async def _refused(self, launch: Launch, why: Reason) -> None:
        """For good."""
        end = Observation(RunState.ENDED, ending=Ending.NOT_STARTED, reason=why)
        await self._runs.end(self._runs.records[launch.run_id], end)


def _line_of(launch: Launch) -> tuple[str, str, str]:
    return launch.user, launch.team, launch.queue


def _is_about_accounts(answer: Answer) -> bool:
    return answer.code != 0 and explain_refusal(answer.said).code == "slurm_account"


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
