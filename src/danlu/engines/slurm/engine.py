"""The Slurm engine: Slurm queues and places; a run is known by its own id, never by Slurm's number alone."""

import asyncio
import contextlib
import grp
import logging
import os
import pwd
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from danlu.domain.job import Reason, RunId
from danlu.domain.parsing import Notice
from danlu.domain.queue import Queue
from danlu.domain.resources import Node
from danlu.engines.base import Ending, ExternalRun, Handle, Launch, LogSource, NodeNow, Observation, RunState, Stream
from danlu.engines.log_files import LogFiles
from danlu.engines.slurm.accounts import Accounts
from danlu.engines.slurm.cancel import Stops
from danlu.engines.slurm.commands import Commands, Person, is_trouble
from danlu.engines.slurm.external import PREFIX, node_now, one_task, stop_words
from danlu.engines.slurm.kind import ABILITIES
from danlu.engines.slurm.poll import Look
from danlu.engines.slurm.priorities import Order
from danlu.engines.slurm.run_folders import Folders, check_run_id
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.streams import open_stream
from danlu.engines.slurm.submit import Starts
from danlu.engines.slurm.text.messages import ALREADY_OVER, last_words
from danlu.engines.slurm.text.parse_cluster import NodeFacts, parse_hostlist
from danlu.engines.slurm.verdict import UNKNOWN
from danlu.errors import EngineDown, Refused
from danlu.unix.patient_folder import PatientFolder

log = logging.getLogger(__name__)

IDLE_S = 12.0  # between looks when nothing of ours is there
BUSY_S = 2.0  # … when something is, and nothing happens
SOON_S = 0.1  # … when something was just started or stopped; from there slower and slower
BEAT_S = 0.25  # between glances at what runs have written down, which cost the controller nothing
CALM = 20  # looks after which nothing gets slower any more
NODES_S = 15.0
SETTINGS_S = 600.0
OUR_PART = 0.8
_FOREIGN = Observation(
    RunState.ENDED,
    ending=Ending.LOST,
    reason=Reason("lost", "Danlu was restarted with another folder of runs since, and nobody knows how it ended"),
)


class SlurmEngine:
    """Engine, Reachable and SeesOthers. `shared_dir` is a folder that all nodes see under the same name; beside it is
    the folder `logs`. `makes_accounts`: accounts of teams that are missing in Slurm's books are added to them."""

    name = "slurm"
    abilities = ABILITIES
    prefix = PREFIX

    def __init__(
        self,
        shared_dir: str,
        *,
        commands_path: str = "",
        conf: str = "",
        makes_accounts: bool = False,
        idle_s: float = IDLE_S,
    ) -> None:
        self._commands = Commands(path=commands_path, conf=conf)
        self._folders = Folders(shared_dir)
        files_dir = os.path.dirname(shared_dir)
        self._logs = LogFiles(f"{files_dir}/logs", PatientFolder(files_dir))
        self._look = Look(self._commands)
        self._runs = Runs(self._folders, self._look)
        accounts = Accounts(self._commands, may_make=makes_accounts)
        self._order = Order(self._commands, self._folders, self._runs)
        self._starts = Starts(
            self._commands, self._folders, self._look, self._runs, accounts, self._order, self._submitted
        )
        self._stops = Stops(self._commands, self._folders, self._look, self._runs, self._woken)
        self._idle_s = idle_s
        self._on_change: Callable[[], None] = lambda: None
        self._observed: tuple[list[Handle], tuple[int, set[str]], Mapping[Handle, Observation]] | None = None
        self._down = "it was not asked yet"
        self._down_since = datetime.now(UTC)
        self._wake = asyncio.Event()
        self._looking = asyncio.Lock()
        self._away_since: float | None = None  # when we last looked, as long as nobody has caught up with that
        self._calm = 0
        self._watcher: asyncio.Task[None] | None = None
        self._is_open = False

    # The seam

    async def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._runs.load(await self._folders.apart(self._folders.open))
        self._order.load()
        self._stops.load()
        self._away_since = self._folders.last_beat()
        self._down_since = self._folders.down_since() or self._down_since
        self._look.jobs.instance = self._folders.instance
        self._is_open = True
        with contextlib.suppress(EngineDown):  # the server works without it, and says so
            await self.look()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self._on_change = lambda: None
        self._is_open = False
        if self._watcher:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await self._stops.close()
        await self._starts.close()
        self._commands.close()
        self._folders.close()
        self._logs.close()

    async def inventory(self) -> Sequence[Node]:
        return [facts.node for facts in await self.node_facts()]

    async def node_facts(self) -> Sequence[NodeFacts]:
        """Nodes with what is taken of them, and the queues that they serve."""
        self._check_up()
        if time.monotonic() - self._look.nodes_at > NODES_S:
            await self._look.look_at_nodes()
        return self._look.nodes

    def queues(self) -> Sequence[Queue]:
        """The partitions, each with whom it is for: by its Unix groups, or root alone."""
        return [
            Queue(
                name=one.name,
                nodes=frozenset(nodes),
                users=frozenset({"root"} if one.is_for_root else ()),
                groups=_asked_of_people(one.groups),
                besides=f"in Slurm: {one.besides}" if one.besides else "",
                max_time=one.max_time,
                default_time=one.default_time,
                is_default=one.is_default,
                closed="" if one.state == "UP" else f"it is {one.state} in Slurm",
                takes_jobs=one.state in ("UP", "DOWN"),  # as Slurm has it: DOWN, jobs may come and wait
            )
            for one in self._look.partitions
            if (nodes := parse_hostlist(one.nodelist))  # one without nodes is none
        ]

    def room_for(self) -> int:
        """A controller that is full makes everybody's `sbatch` wait: a part of what it takes is left to others. What is
        over fills it too, until it is forgotten there."""
        records = self._runs.records
        coming = sum(records[run_id].end is None for run_id in records.keys() - self._look.jobs.ours.keys())
        return max(0, int(self._look.max_job_count * OUR_PART) - self._look.listed - coming)

    async def reorder(self, first: Mapping[Handle, bool]) -> None:
        for handle, is_first in first.items():
            if self._is_ours(handle):
                self._order.boost(_run_id(handle), is_first)
        self._woken()

    def handle(self, run_id: RunId) -> Handle:
        check_run_id(run_id)
        return Handle(f"slurm:{self._folders.instance}:{run_id}")

    async def start(self, launches: Sequence[Launch]) -> None:
        self._check_up()
        for launch in launches:
            if self._is_ours(launch.handle) and not self._runs.is_known(launch.run_id):
                self._starts.begin(launch)

    async def observe(self, handles: Collection[Handle]) -> Mapping[Handle, Observation]:
        self._check_up()
        wanted, stamp = list(handles), (self._runs.news, set(self._starts.on_the_way))
        # Thousands may wait in the queue as they did before.
        if self._observed is None or (wanted, stamp) != self._observed[:2]:
            self._observed = wanted, stamp, self._observe(wanted)
        return self._observed[2]

    def _observe(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        found: dict[Handle, Observation] = {}
        seen, records, on_the_way = self._runs.seen, self._runs.records, self._starts.on_the_way
        for handle in handles:
            run_id = _run_id(handle)
            if not self._is_ours(handle):
                found[handle] = _FOREIGN
            elif run_id in on_the_way:
                continue
            elif run_id in seen:
                found[handle] = seen[run_id]
            elif run_id not in records:
                found[handle] = UNKNOWN
        return found

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        self._check_up()
        if handle.startswith("slurm-job:"):
            await self._stop_other(handle)
            return
        record = self._runs.records.get(_run_id(handle))
        if record is None or record.end or not self._is_ours(handle):
            return
        await self._stops.ask(record, grace, notice)

    def ended(self) -> Collection[Handle]:
        seen = self._runs.seen
        return [self.handle(RunId(run_id)) for run_id, one in seen.items() if one.state is RunState.ENDED]

    async def forget(self, handles: Collection[Handle]) -> None:
        self._check_up()
        gone = [_run_id(handle) for handle in handles if self._is_ours(handle)]
        self._starts.let_go(gone)
        await self._runs.forget([run_id for run_id in gone if run_id not in self._starts.on_the_way])
        for run_id in [run_id for run_id in gone if run_id in self._starts.on_the_way]:
            await self._stops.ask(self._runs.records[run_id], timedelta(0), None)  # nobody wants it any more

    def logs(self, run_id: RunId) -> LogSource:
        return self._logs.of(run_id)

    async def others(self) -> Sequence[ExternalRun]:
        self._check_up()
        return self._look.others_told.runs

    def one_of(self, together: ExternalRun, ref: str) -> ExternalRun | None:
        return one_task(together, ref)

    def name_of(self, handle: Handle) -> str:
        number = self._runs.number_of(_run_id(handle)) if self._is_ours(handle) else None
        return "" if number is None else f"{PREFIX}{number}"

    def nodes_now(self) -> Mapping[str, NodeNow]:
        return {facts.node.name: node_now(facts) for facts in self._look.nodes}

    async def shell(
        self,
        handle: Handle,
        argv: tuple[str, ...],
        *,
        tty: bool,
        term: str = "xterm",
        rows: int = 0,
        columns: int = 0,
    ) -> Stream:
        self._check_up()
        run_id = _run_id(handle)
        seen, line = self._runs.seen.get(run_id), self._runs.line_of(run_id)
        if seen is None or line is None or seen.state is not RunState.RUNNING or not self._is_ours(handle):
            raise Refused("no process can be started inside: this run is not running", code="not_running")
        try:
            person = Person.named(pwd.getpwuid(line.uid).pw_name)
        except KeyError:
            raise Refused("this machine no longer knows the user of this run", code="no_unix_user") from None
        options = ["--pty"] if tty else ["--unbuffered"]
        where = f"--nodelist={seen.seats[0].node}" if seen.seats else "--relative=0"
        words = ["srun", f"--jobid={line.number}", "--overlap", "--nodes=1", "--ntasks=1", where]
        inside = ["/bin/bash", f"{self._folders.folder(run_id)}/inside", "enter", *argv]
        env = self._commands.env(person) | {"TERM": term}
        words[0] = self._commands.find("srun")
        return open_stream([*words, *options, *inside], env, person, tty=tty, rows=rows, columns=columns)

    # Inside

    def _is_ours(self, handle: Handle) -> bool:
        return handle.startswith(f"slurm:{self._folders.instance}:")

    def _check_up(self) -> None:
        if not self._is_open:
            raise EngineDown("the Slurm engine is closed")
        if self._down:
            raise EngineDown(f"{self._down} (since {self._down_since:%Y-%m-%d %H:%M:%S} UTC)")

    def _submitted(self) -> None:
        self._woken()
        self._on_change()

    def _woken(self) -> None:
        """Something is about to happen: look soon, and again soon after."""
        self._calm = 0
        self._wake.set()

    async def _watch(self) -> None:
        while True:
            try:
                await self._pause()
                await self.look()
                await self._stops.pass_on()
                await self._order.put_right()
            except EngineDown:
                pass  # said once in `look`, and to everybody who asks
            except Exception:
                log.exception("a look at Slurm failed")
                await asyncio.sleep(BUSY_S)  # whatever failed: others are heard meanwhile

    async def _pause(self) -> None:
        """Until the next look is due; meanwhile what runs write down themselves is seen at once."""
        self._calm = min(self._calm + 1, CALM)
        is_busy = self._runs.has_active or self._starts.is_busy
        most = BUSY_S if is_busy and not self._down else self._idle_s
        wait_s = max(min(SOON_S * 1.5**self._calm, most), 4 * self._look.took_s)
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_S)):
                    await self._wake.wait()
                until = min(until, time.monotonic() + max(SOON_S, 4 * self._look.took_s))
            try:
                is_news = await self._runs.glance()
            except EngineDown as error:
                await self._went_down(error)
                return
            if is_news:
                self._on_change()
                self._woken()

    async def look(self) -> None:
        """Ask Slurm now, and not when it is due."""
        async with self._looking:
            try:
                # Whoever restarts it, or has it read its files again, may have changed its settings.
                if self._down or time.monotonic() - self._look.learned_at > SETTINGS_S:
                    await self._look.learn()
                await self._look.look(self._runs.owner_of, self._runs.begun_as)
                is_news = await self._catch_up() or self._look.has_new_nodes or self._look.others_told.is_news
                has_changed = await self._runs.settle()
                await self._folders.in_time(self._folders.beat)
            except EngineDown as error:
                await self._went_down(error)
                raise
            was_down, self._down = bool(self._down), ""
            if was_down:
                await self._write_down_since(None)
            if was_down or has_changed:
                self._calm = 0
                is_news = True
            if is_news:
                self._on_change()
            await self._cancel_extras()

    async def _went_down(self, error: EngineDown) -> None:
        if self._down == error.text:
            return
        self._down_since = self._down_since if self._down else datetime.now(UTC)
        self._down = error.text
        log.warning("%s", error.text)
        self._on_change()
        await self._write_down_since(self._down_since)

    async def _write_down_since(self, at: datetime | None) -> None:
        with contextlib.suppress(EngineDown):  # it is the folder itself
            await self._folders.in_time(self._folders.write_down_since, at)

    async def _catch_up(self) -> bool:
        """Once after we were away; again until the books can be asked. True if somebody ended meanwhile."""
        since, self._away_since = self._away_since, None
        try:
            if since is not None:
                await self._look.look_back(since)
        except EngineDown:
            self._away_since = since
        return since is not None and bool(self._look.others_told.past)

    async def _cancel_extras(self) -> None:
        try:
            dropped = await self._runs.drop_extras()
        except OSError as error:
            log.warning("second copies of runs stay in Slurm's queue for now: %s", error.strerror)
            dropped = []
        me = os.getuid()
        strays = [line for line in self._look.jobs.strays.values() if me in (0, line.uid)]  # else anybody's word
        await self._stops.cancel_waiting([*dropped, *strays])

    async def _stop_other(self, handle: Handle) -> None:
        """By the number that this job has now: tomorrow it may be another's."""
        if time.monotonic() - self._look.began_at > 1.0:  # not for each task of an array
            await self.look()
        for line in list(self._look.jobs.others.values()):
            if not line.is_over and (words := stop_words(line, handle)):
                answer = await self._commands.run(words)
                if is_trouble(answer):
                    raise EngineDown(f"Slurm does not answer: {last_words(answer.said)}")
                said = last_words(answer.said)
                if answer.code and said not in ALREADY_OVER:
                    raise Refused(f"Slurm does not let this server stop it: {said}", "its owner can: `scancel`")
        self._woken()


def _asked_of_people(groups: frozenset[str]) -> frozenset[str]:
    """Of a server that is not root all runs are its own user's: then it is that user who must be in one of them."""
    with contextlib.suppress(KeyError):
        if os.getuid() and {grp.getgrnam(name).gr_gid for name in groups} & {os.getgid(), *os.getgroups()}:
            return frozenset()
    return groups


def _run_id(handle: Handle) -> str:
    return handle.split(":", 2)[-1]
