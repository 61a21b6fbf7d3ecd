"""Supervises all runs of an installation: starts and stops runs, notices their ends, and cleans up their leftovers."""

import contextlib
import heapq
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from danlu.engines.local.keeper import log_limit, process_tree
from danlu.engines.local.keeper.cgroups import Groups
from danlu.engines.local.keeper.journal import Journal
from danlu.engines.local.keeper.ownership import Ownership
from danlu.engines.local.keeper.process_tree import Process
from danlu.engines.local.keeper.run import UNKILLABLE_AFTER_SECONDS, Run, signal_name
from danlu.engines.local.keeper.spawn import CannotStart, enter_folder, open_log, spawn
from danlu.engines.local.keeper.spawn_as import account_of, problem_of, spawn_as
from danlu.engines.local.protocol import KEEPER_MARK, RUN_MARK

# Adopted processes are not children: the kernel does not report the exit of the last process.
LOOK_AGAIN_SECONDS = 0.05


class Supervisor:
    def __init__(self, journal: Journal, groups: Groups, mark: str) -> None:
        self.runs: dict[str, Run] = {}  # by handle, including ended runs until `forget`
        self.changed: dict[str, Run] = {}  # not yet reported
        self.journal = journal
        self.groups = groups
        self.ownership = Ownership(mark)
        self.alive = self.ownership.alive
        self.on_shell_exit: Callable[[int, int], None] = lambda pid, code: None
        self._timers: list[tuple[float, int, Run]] = []
        self._serial = 0
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)

    # Starting

    def start(self, launches: list[dict[str, Any]]) -> None:
        fresh = []
        for asked in launches:
            if asked["handle"] not in self.runs:
                run = Run(asked)
                run.started_at, run.started_mono = time.time(), time.monotonic()
                self.runs[run.handle] = self.alive[run.handle] = self.changed[run.handle] = run
                with self._apart(run):
                    self._seat(run)
                    self.journal.append(run.start_record())
                    fresh.append((run, asked["command"]))
        self.journal.write()  # the journal holds the intent before any process begins
        for run, command in fresh:
            with self._apart(run):
                self._begin(run, command)

    @contextlib.contextmanager
    def _apart(self, run: Run) -> Iterator[None]:
        """Any error ends this run only. The other runs of the same message start."""
        try:
            yield
        except CannotStart as cannot:
            self._finish(run, _not_started(cannot))
        except Exception as error:  # noqa: BLE001 - no run waits for a fault that only another one meets
            import traceback

            traceback.print_exc()
            if not run.pid:
                self._finish(run, _not_started(CannotStart(f"its keeper cannot start it: {error}")))

    def _seat(self, run: Run) -> None:
        if run.memory_mib:
            run.limited = self.groups.take_limited(run.memory_mib)
            if run.limited is None:
                run.notes.append(f"memory limit not enforced: {self.groups.why_no_memory}")
        if run.limited is None or not run.limited.is_v2:
            run.group = self.groups.take()

    def _begin(self, run: Run, command: list[str]) -> None:
        run.env = {**(run.env or {}), RUN_MARK: run.run_id, KEEPER_MARK: self.ownership.mark}
        log = open_log(run.log)
        try:
            to = os.POSIX_SPAWN_DUP2
            before = time.clock_gettime(time.CLOCK_BOOTTIME)
            actions = [(to, self._null, 0), (to, log, 1), (to, log, 2)]
            run.pid, run.told = self.spawn_in(run, command, run.env, actions)
        except CannotStart as cannot:
            _write_line(log, f"danlu: {cannot.text}")
            raise
        finally:
            os.close(log)
        run.spawned = (before, time.clock_gettime(time.CLOCK_BOOTTIME))
        self.ownership.add_main(run)
        self.journal.append(run.pid_record())
        run.plan_limit()
        self.schedule(run)

    def spawn_in(self, run: Run, command: list[str], env: dict[str, str], actions: list[Any]) -> tuple[int, int]:
        """Start a process in the run's folder and groups, as its user. Returns the same as `spawn_as`."""
        if not command or not command[0]:
            raise CannotStart("there is no command to run", 127)
        account = account_of(run.user) if run.user else None
        join = f"{run.limited.path}/cgroup.procs" if run.limited else ""
        stepped = self._step_into_group(run)
        own_umask = os.umask(run.umask)
        try:
            if account and account.pw_uid != os.geteuid():
                return spawn_as(account, command, env, actions, folder=run.workdir, join=join)
            enter_folder(run.workdir)
            return spawn(command, env, actions, join=join), -1
        finally:
            os.umask(own_umask)
            if stepped:
                self.groups.step_back()
            os.chdir("/")

    def _step_into_group(self, run: Run) -> bool:
        """False: the process starts outside. A group removed from outside is replaced before the run begins."""
        if run.group is None or self.groups.step_into(run.group):
            return run.group is not None
        if not run.pid:
            self.groups.discard(run.group)
            run.group = self.groups.take()
        return run.group is not None and self.groups.step_into(run.group)

    # Seeing processes end

    def reap(self) -> None:
        """Reap every ended child, and handle the processes that ended runs left behind."""
        over: list[Run] = []
        reaped = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            reaped = True
            if run := self.ownership.mains.pop(pid, None):
                run.status = status
                run.main_over = True
                over.append(run)
            elif run := self.ownership.shells.pop(pid, None):
                run.shells.discard(pid)
                self.on_shell_exit(pid, status)
            else:
                self.ownership.orphan_ended(pid)
        if not reaped:
            return
        # A dying process hands over its children before its parent can reap it: by now all children have arrived.
        if ownerless := self.ownership.discover():
            self._kill_below(ownerless)
        for run in over:
            self.settle(run)
        for run in [run for run in self.alive.values() if run.main_over and run not in over]:
            self.settle(run)

    def main_gone(self, run: Run, exit_known_by: float | None) -> None:
        """The main process of an adopted run is gone; the exit code may arrive a little later."""
        run.main_over = True
        run.exit_known_by = exit_known_by
        self.settle(run)

    def settle(self, run: Run) -> None:
        """The main process ended: finish if no process is left, else kill the rest (during a stop, after the grace)."""
        # A process that forks all the time is on no list of orphans; its group still counts it.
        is_empty = run.is_group_empty()
        left = self.ownership.members(run) if not is_empty or self.ownership.may_have_survivors(run) else []
        if (left or not is_empty) and run.kill_at is None:
            self._kill_round(run, left)
        elif not left and is_empty and _knows_exit(run):
            self._finish(run)
        if run.adopted:
            run.check_at = time.monotonic() + LOOK_AGAIN_SECONDS
            self.schedule(run)

    # Ending

    def stop(self, handle: str, grace: float, notice: tuple[int, float] | None) -> None:
        self.reap()  # a run that has just ended by itself does not count as stopped
        run = self.alive.get(handle)
        if run is not None:
            run.plan_stop(time.monotonic(), grace, notice)
            self.journal.append({"stop": handle, "why": run.why})
            self.act(run)

    def act(self, run: Run) -> None:
        """Do the due step for this run: notice, TERM, KILL, or a check for remaining processes."""
        now = time.monotonic()
        run.check_at = None
        if run.notice_at is not None and run.notice_at <= now:
            run.notice_at = None
            self._send_notice(run)
        if run.term_at is not None and run.term_at <= now:
            run.term_at = None
            if not run.why:
                run.why = "timed_out"
                self.journal.append({"stop": run.handle, "why": run.why})
            run.kill_at = now + run.grace
            if run.grace > 0:
                for process in self.ownership.members(run):
                    process_tree.send(process, signal.SIGTERM)
                    process_tree.send(process, signal.SIGCONT)
        if run.kill_at is not None and run.kill_at <= now:
            self._kill_round(run, self.ownership.members(run))
        elif run.main_over:
            self.settle(run)
        self.schedule(run)

    def _send_notice(self, run: Run) -> None:
        if run.notice is None or run.main_over:
            return
        signum = run.notice[0]
        heard = process_tree.catchers(process_tree.look_at_all(), run.pid, signum)
        for process in heard:
            process_tree.send(process, signum)
        if not heard:
            run.notes.append(f"notice {signal_name(signum)} was not sent: none of its processes catches it")
            self.changed[run.handle] = run

    def _kill_round(self, run: Run, left: list[Process]) -> None:
        now = time.monotonic()
        if run.killing_since is None:
            run.killing_since = now
        if not left and run.main_over and run.is_group_empty():
            run.kill_at = None
            self.settle(run)
            return
        if now - run.killing_since > UNKILLABLE_AFTER_SECONDS:
            pids = ", ".join(str(process.pid) for process in left[:8])
            run.notes.append(f"processes that cannot be killed may still hold its hardware: {pids}")
            self._finish(run, is_clean=False)
            return
        for group in (run.group, run.limited):
            if group:
                group.kill()
        for process in left:
            process_tree.send(process, signal.SIGKILL)
        run.checks += 1
        run.kill_at = now + min(0.01 * 1.5**run.checks, 0.5)
        self.schedule(run)

    def _kill_below(self, pids: list[int]) -> None:
        for process in process_tree.descendants(process_tree.look_at_all(), set(pids)):
            process_tree.send(process, signal.SIGKILL)

    def _finish(self, run: Run, end: dict[str, Any] | None = None, *, is_clean: bool = True) -> None:
        if run.end is not None:
            return
        oom_kills = run.limited.out_of_memory() if run.limited else 0
        if run.told >= 0:
            end = end or self._never_began(run)
        run.end = end or run.ended(at=time.time(), oom_kills=oom_kills)
        self.journal.append(run.records()[0], sync=True)
        self.changed[run.handle] = run
        if run.group and is_clean:
            self.groups.give_back(run.group)
        elif run.group:
            self.groups.discard(run.group)
        if run.limited:
            self.groups.discard(run.limited)
        if run.log_limit:
            log_limit.cut(run.log, run.log_limit)
        if run.pidfd >= 0:
            os.close(run.pidfd)
        run.group = run.limited = run.env = run.due = None
        run.pidfd = -1
        if ownerless := self.ownership.remove(run):
            self._kill_below(ownerless)

    def _never_began(self, run: Run) -> dict[str, Any] | None:
        """The end of a run whose command failed to begin, if the keeper no longer waited for the failure."""
        told, run.told = run.told, -1
        cannot = problem_of(told)
        if cannot is None or run.why:
            return None
        with contextlib.suppress(CannotStart):
            log = open_log(run.log)
            _write_line(log, f"danlu: {cannot.text}")
            os.close(log)
        return _not_started(cannot)

    # Remembering

    def forget(self, handles: list[str]) -> None:
        gone = [handle for handle in handles if handle in self.runs and handle not in self.alive]
        for handle in gone:
            del self.runs[handle]
            self.changed.pop(handle, None)
        if gone and not self.runs:
            self.journal.rewrite([])
        elif gone:
            self.journal.append({"forget": gone})
            if self.journal.is_fat:
                self.compact()

    def compact(self) -> None:
        self.journal.rewrite([record for run in self.runs.values() for record in run.records()])

    # The clock

    def schedule(self, run: Run) -> None:
        due = run.next_due() if run.end is None else None
        if due is not None and due != run.due:
            self._serial += 1
            heapq.heappush(self._timers, (due, self._serial, run))
        run.due = due

    def seconds_to_next(self) -> float | None:
        while self._timers and self._timers[0][2].due != self._timers[0][0]:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def run_timers(self) -> None:
        while self.seconds_to_next() == 0.0:
            run = heapq.heappop(self._timers)[2]
            run.due = None
            self.act(run)


def _not_started(cannot: CannotStart) -> dict[str, Any]:
    reason = ("not_started", cannot.text)
    return {"ended_at": time.time(), "ending": "not_started", "exit_code": cannot.exit_code, "reason": reason}


def _knows_exit(run: Run) -> bool:
    """True when the exit status of the main process is known, or will never be known."""
    if run.exit_known_by is None or run.why:
        return True
    try:
        run.status = process_tree.exit_status_of(run.pidfd)
    except OSError:
        return True
    return run.status is not None or time.monotonic() >= run.exit_known_by


def _write_line(fd: int, text: str) -> None:
    try:
        os.write(fd, f"{text}\n".encode("utf-8", "replace"))
    except OSError:  # a full disk: the reason of the run holds the same text
        return
