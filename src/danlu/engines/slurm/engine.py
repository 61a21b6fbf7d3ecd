"""The Slurm engine. Slurm queues and places jobs; the run id identifies a run, never Slurm's number alone."""

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
from danlu.domain.reasons import ReasonCode
from danlu.domain.resources import Node
from danlu.engines.base import Ending, ExternalRun, Handle, Launch, LogSource, NodeNow, Observation, RunState, Stream
from danlu.engines.log_files import LogFiles
from danlu.engines.slurm.accounts import Accounts
from danlu.engines.slurm.cancel import Canceller
from danlu.engines.slurm.commands import Commands, Person, is_unreachable
from danlu.engines.slurm.external import PREFIX, node_now, one_task, stop_words
from danlu.engines.slurm.kind import ABILITIES
from danlu.engines.slurm.poll import Poller
from danlu.engines.slurm.priorities import Priorities
from danlu.engines.slurm.run_folders import Folders, check_run_id
from danlu.engines.slurm.runs import Runs
from danlu.engines.slurm.streams import open_stream
from danlu.engines.slurm.submit import Submitter
from danlu.engines.slurm.text.messages import ALREADY_OVER, last_words
from danlu.engines.slurm.text.parse_cluster import NodeFacts, parse_hostlist
from danlu.engines.slurm.timing import Timing
from danlu.engines.slurm.verdict import UNKNOWN
from danlu.errors import EngineDown, Refused
from danlu.unix.patient_folder import PatientFolder

log = logging.getLogger(__name__)

OUR_PART = 0.8
_FOREIGN = Observation(
    RunState.ENDED,
    ending=Ending.LOST,
    reason=Reason(ReasonCode.LOST, "Danlu was restarted with another folder of runs since; exit status unknown"),
)


class SlurmEngine:
    """Engine, Reachable and SeesOthers. All nodes see the folder `shared_dir` under the same name; the folder `logs` is
    beside it. `makes_accounts`: add missing accounts of teams to Slurm."""

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
        timing: Timing = Timing(),
    ) -> None:
        self._commands = Commands(path=commands_path, conf=conf, timing=timing)
        self._folders = Folders(shared_dir, patience_s=timing.folder_patience_s)
        files_dir = os.path.dirname(shared_dir)
        self._logs = LogFiles(f"{files_dir}/logs", PatientFolder(files_dir))
        self._poller = Poller(self._commands, timing)
        self._runs = Runs(self._folders, self._poller, timing)
        accounts = Accounts(self._commands, timing, may_make=makes_accounts)
        self._priorities = Priorities(self._commands, self._folders, self._runs)
        self._submitter = Submitter(
            self._commands, self._folders, self._poller, self._runs, accounts, self._priorities, self._submitted, timing
        )
        self._canceller = Canceller(self._commands, self._folders, self._poller, self._runs, self._wake_watcher, timing)
        self._timing = timing
        self._on_change: Callable[[], None] = lambda: None
        self._observed: tuple[list[Handle], tuple[int, set[str]], Mapping[Handle, Observation]] | None = None
        self._down = "Slurm was not asked yet"
        self._down_since = datetime.now(UTC)
        self._wake = asyncio.Event()
        self._polling = asyncio.Lock()
        self._away_since: float | None = None  # last poll of an earlier server, until its gap is read from accounting
        self._calm_polls = 0
        self._watcher: asyncio.Task[None] | None = None
        self._is_open = False

    # The seam

    async def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._runs.load(await self._folders.apart(self._folders.open))
        self._priorities.load()
        self._canceller.load()
        self._away_since = self._folders.last_heartbeat()
        self._down_since = self._folders.down_since() or self._down_since
        self._poller.jobs.instance = self._folders.instance
        self._is_open = True
        with contextlib.suppress(EngineDown):  # the server starts without Slurm, and reports the trouble
            await self.poll()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self._on_change = lambda: None
        self._is_open = False
        if self._watcher:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await self._canceller.close()
        await self._submitter.close()
        self._commands.close()
        self._folders.close()
        self._logs.close()

    async def inventory(self) -> Sequence[Node]:
        return [facts.node for facts in await self.node_facts()]

    async def node_facts(self) -> Sequence[NodeFacts]:
        """Nodes with their use and their queues."""
        self._check_up()
        if time.monotonic() - self._poller.nodes_at > self._timing.refresh_nodes_s:
            await self._poller.read_nodes()
        return self._poller.nodes

    def queues(self) -> Sequence[Queue]:
        """The partitions with their permitted Unix groups; `RootOnly`: root alone."""
        return [
            Queue(
                name=one.name,
                nodes=frozenset(nodes),
                users=frozenset({"root"} if one.is_for_root else ()),
                groups=_groups_to_check(one.groups),
                besides=f"in Slurm: {one.besides}" if one.besides else "",
                max_time=one.max_time,
                default_time=one.default_time,
                is_default=one.is_default,
                closed="" if one.state == "UP" else f"it is {one.state} in Slurm",
                takes_jobs=one.state in ("UP", "DOWN"),  # a DOWN partition accepts jobs and starts none
            )
            for one in self._poller.partitions
            if (nodes := parse_hostlist(one.nodelist))  # a partition without nodes runs nothing
        ]

    def room_for(self) -> int:
        """How many more jobs Danlu may submit. A part of MaxJobCount stays free: a full controller blocks `sbatch` for
        all users. Ended jobs count until Slurm forgets them."""
        ours = self._poller.jobs.ours
        coming = sum(run.is_active for run_id, run in self._runs.known.items() if run_id not in ours)
        return max(0, int(self._poller.max_job_count * OUR_PART) - self._poller.listed - coming)

    async def reorder(self, first: Mapping[Handle, bool]) -> None:
        for handle, is_first in first.items():
            if self._is_ours(handle):
                self._priorities.boost(_run_id(handle), is_first)
        self._wake_watcher()

    def handle(self, run_id: RunId) -> Handle:
        check_run_id(run_id)
        return Handle(f"slurm:{self._folders.instance}:{run_id}")

    async def start(self, launches: Sequence[Launch]) -> None:
        self._check_up()
        for launch in launches:
            if self._is_ours(launch.handle) and not self._runs.is_known(launch.run_id):
                self._submitter.submit(launch)

    async def observe(self, handles: Collection[Handle]) -> Mapping[Handle, Observation]:
        self._check_up()
        wanted, stamp = list(handles), (self._runs.changes, set(self._submitter.submitting_ids))
        # Thousands of pending runs often stay unchanged.
        if self._observed is None or (wanted, stamp) != self._observed[:2]:
            self._observed = wanted, stamp, self._observe(wanted)
        return self._observed[2]

    def _observe(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        found: dict[Handle, Observation] = {}
        known, submitting_ids = self._runs.known, self._submitter.submitting_ids
        for handle in handles:
            run_id = _run_id(handle)
            if not self._is_ours(handle):
                found[handle] = _FOREIGN
            elif run_id in submitting_ids:
                continue
            elif run_id not in known:
                found[handle] = UNKNOWN
            elif seen := known[run_id].seen:
                found[handle] = seen
        return found

    async def stop(self, handle: Handle, *, grace: timedelta, notice: Notice | None = None) -> None:
        self._check_up()
        if handle.startswith("slurm-job:"):
            await self._stop_other(handle)
            return
        record = self._runs.record_of(_run_id(handle))
        if record is None or record.end or not self._is_ours(handle):
            return
        await self._canceller.request(record, grace, notice)

    def ended(self) -> Collection[Handle]:
        known = self._runs.known
        return [self.handle(RunId(run_id)) for run_id, run in known.items() if run.state is RunState.ENDED]

    async def forget(self, handles: Collection[Handle]) -> None:
        self._check_up()
        gone = [_run_id(handle) for handle in handles if self._is_ours(handle)]
        self._submitter.drop(gone)
        await self._runs.forget([run_id for run_id in gone if run_id not in self._submitter.submitting_ids])
        # A running submit cannot be taken back: stop its run.
        for run_id in [run_id for run_id in gone if run_id in self._submitter.submitting_ids]:
            await self._canceller.request(self._runs.known[run_id].record, timedelta(0), None)

    def logs(self, run_id: RunId) -> LogSource:
        return self._logs.of(run_id)

    async def others(self) -> Sequence[ExternalRun]:
        self._check_up()
        return self._poller.external.runs

    def one_of(self, together: ExternalRun, ref: str) -> ExternalRun | None:
        return one_task(together, ref)

    def name_of(self, handle: Handle) -> str:
        number = self._runs.number_of(_run_id(handle)) if self._is_ours(handle) else None
        return "" if number is None else f"{PREFIX}{number}"

    def nodes_now(self) -> Mapping[str, NodeNow]:
        return {facts.node.name: node_now(facts) for facts in self._poller.nodes}

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
        seen, line = self._runs.seen_of(run_id), self._runs.line_of(run_id)
        if seen is None or line is None or seen.state is not RunState.RUNNING or not self._is_ours(handle):
            raise Refused("no process can be started inside: this run is not running", code="not_running")
        try:
            person = Person.named(pwd.getpwuid(line.uid).pw_name)
        except KeyError:
            raise Refused("this machine no longer has the user of this run", code="no_unix_user") from None
        options = ["--pty"] if tty else ["--unbuffered"]
        where = f"--nodelist={seen.seats[0].node}" if seen.seats else "--relative=0"
        srun = [self._commands.find("srun"), f"--jobid={line.number}", "--overlap", "--nodes=1", "--ntasks=1", where]
        inside = ["/bin/bash", f"{self._folders.folder(run_id)}/inside", "enter", *argv]
        env = self._commands.env(person) | {"TERM": term}
        argv = (*srun, *options, *inside)
        return open_stream(argv, env, person, self._timing.hang_up_s, tty=tty, rows=rows, columns=columns)

    # Inside

    def _is_ours(self, handle: Handle) -> bool:
        return handle.startswith(f"slurm:{self._folders.instance}:")

    def _check_up(self) -> None:
        if not self._is_open:
            raise EngineDown("the Slurm engine is closed")
        if self._down:
            raise EngineDown(f"{self._down} (since {self._down_since:%Y-%m-%d %H:%M:%S} UTC)")

    def _submitted(self) -> None:
        self._wake_watcher()
        self._on_change()

    def _wake_watcher(self) -> None:
        """A change is near: poll soon, and often."""
        self._calm_polls = 0
        self._wake.set()

    async def _watch(self) -> None:
        while True:
            try:
                await self._pause()
                await self.poll_and_act()
            except EngineDown:
                pass  # `poll` logged the trouble, and every verb reports it
            except Exception:
                log.exception("a poll of Slurm failed")
                await asyncio.sleep(self._timing.poll_busy_s)  # avoid a busy loop

    async def _pause(self) -> None:
        """Wait for the next poll. Meanwhile read the exit files of running runs."""
        timing, self._calm_polls = self._timing, self._calm_polls + 1
        is_busy = not self._down and (self._runs.has_active or self._submitter.is_busy)
        pause_s = timing.poll_pause_s(self._calm_polls, is_busy=is_busy)
        until = time.monotonic() + max(pause_s, 4 * self._poller.took_s)
        while (left := until - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, timing.read_folders_s)):
                    await self._wake.wait()
                until = min(until, time.monotonic() + max(timing.poll_soon_s, 4 * self._poller.took_s))
            try:
                is_news = await self._runs.read_exits()
            except EngineDown as error:
                await self._went_down(error)
                return
            if is_news:
                self._on_change()
                self._wake_watcher()

    async def poll_and_act(self) -> None:
        """One round: ask Slurm, then send the stops and priorities that are due."""
        await self.poll()
        await self._canceller.send_due()
        await self._priorities.apply()

    async def poll(self) -> None:
        """Ask Slurm now."""
        async with self._polling:
            try:
                # After a restart or `scontrol reconfigure` Slurm may have other settings.
                if self._down or time.monotonic() - self._poller.settings_at > self._timing.refresh_settings_s:
                    await self._poller.read_settings()
                await self._poller.poll(self._runs.owner_of, self._runs.begun_number)
                is_news = await self._read_missed() or self._poller.has_new_nodes or self._poller.external.has_changed
                has_changed = await self._runs.settle()
                await self._folders.in_time(self._folders.write_heartbeat)
            except EngineDown as error:
                await self._went_down(error)
                raise
            was_down, self._down = bool(self._down), ""
            if was_down:
                await self._write_down_since(None)
            if was_down or has_changed:
                self._calm_polls = 0
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
        with contextlib.suppress(EngineDown):  # the shared folder is the trouble
            await self._folders.in_time(self._folders.write_down_since, at)

    async def _read_missed(self) -> bool:
        """Read the jobs of others that ended before this server started. True: there are some."""
        since, self._away_since = self._away_since, None
        try:
            if since is not None:
                await self._poller.read_past(since)
        except EngineDown:
            self._away_since = since
        return since is not None and bool(self._poller.external.past)

    async def _cancel_extras(self) -> None:
        try:
            dropped = await self._runs.drop_extras()
        except OSError as error:
            log.warning("duplicate jobs stay in Slurm's queue for now: %s", error.strerror)
            dropped = []
        me = os.getuid()
        # Without root only own jobs: the comment of another user proves nothing.
        strays = [line for line in self._poller.jobs.strays.values() if me in (0, line.uid)]
        await self._canceller.cancel_waiting([*dropped, *strays])

    async def _stop_other(self, handle: Handle) -> None:
        """Stop an external job by its current number: Slurm reuses numbers."""
        age_s = time.monotonic() - self._poller.began_at
        if age_s > self._timing.refresh_before_stop_s:  # one poll serves all tasks of an array
            await self.poll()
        for line in list(self._poller.jobs.others.values()):
            if not line.is_over and (command := stop_words(line, handle)):
                answer = await self._commands.run(command)
                if is_unreachable(answer):
                    raise EngineDown(f"Slurm does not answer: {last_words(answer.stderr)}")
                message = last_words(answer.stderr)
                if answer.code and message not in ALREADY_OVER:
                    raise Refused(f"Slurm does not let this server stop the job: {message}", "its owner can: `scancel`")
        self._wake_watcher()


def _groups_to_check(groups: frozenset[str]) -> frozenset[str]:
    """Without root, all runs belong to the server's user: only the groups of that user matter."""
    with contextlib.suppress(KeyError):
        if os.getuid() and {grp.getgrnam(name).gr_gid for name in groups} & {os.getgid(), *os.getgroups()}:
            return frozenset()
    return groups


def _run_id(handle: Handle) -> str:
    return handle.split(":", 2)[-1]
