"""Which processes belong to which run, also after a process has left its run.

The keeper is a subreaper, so the orphans of a run become the keeper's children. Session, cgroup, environment mark and
output file attribute an orphan to a run. An orphan without a clear owner belongs to every possible run, and is killed
when the last of these runs ends."""

import os

from danlu.engines.local.keeper import process_tree
from danlu.engines.local.keeper.cgroups import group_path_of
from danlu.engines.local.keeper.process_tree import OwnChildren, Process
from danlu.engines.local.keeper.run import Run
from danlu.engines.local.protocol import KEEPER_MARK, RUN_MARK


class Ownership:
    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.alive: dict[str, Run] = {}  # by handle
        self.mains: dict[int, Run] = {}
        self.shells: dict[int, Run] = {}
        self._sessions: dict[int, Run] = {}
        self._orphans: dict[int, set[str]] = {}  # pid: handles of the possible owners
        self._children = OwnChildren()

    def add_main(self, run: Run) -> None:
        self.mains[run.pid] = self._sessions[run.pid] = run

    def add_shell(self, run: Run, pid: int) -> None:
        self.shells[pid] = self._sessions[pid] = run
        run.shells.add(pid)

    def orphan_ended(self, pid: int) -> None:
        self._orphans.pop(pid, None)

    def may_have_survivors(self, run: Run) -> bool:
        """False is certain. Cheap for the many runs that leave no process behind."""
        if run.adopted or run.shells:
            return True
        return any(run.handle in owners and len(owners) == 1 for owners in self._orphans.values())

    def discover(self) -> list[int]:
        """Look for new orphans among the children. Return the orphans that no living run can own."""
        ownerless = []
        for pid in self._children.pids():
            if pid in self.mains or pid in self._orphans or pid in self.shells:
                continue
            process = process_tree.look_at(pid)
            if process is None or not process.is_alive:
                continue
            self._orphans[pid] = owners = self._owners(process)
            if not owners:
                ownerless.append(pid)
        return ownerless

    def _owners(self, process: Process) -> set[str]:
        if run := self._sessions.get(process.session):
            return {run.handle}
        path = group_path_of(process.pid)
        env = process_tree.environment_of(process.pid)
        run_id = env.get(RUN_MARK) if env.get(KEEPER_MARK) == self.mark else None
        outputs = process_tree.outputs_of(process.pid)
        for run in self.alive.values():
            if any(group and group.holds(path) for group in (run.group, run.limited)):
                return {run.handle}
        for run in self.alive.values():
            if run.run_id == run_id or run.log in outputs:
                return {run.handle}
        return {run.handle for run in self.alive.values() if had_begun(run, process)}

    def members(self, run: Run) -> list[Process]:
        """Every living process that certainly belongs to this run."""
        roots = {pid for pid, owners in self._orphans.items() if owners == {run.handle}} | run.shells
        if not run.main_over:
            roots.add(run.pid)
        for group in (run.group, run.limited):
            if group:
                roots |= group.pids()
        table = process_tree.look_at_all()
        if run.adopted:
            roots |= self._marked(run, table)
        return [p for p in process_tree.descendants(table, roots) if p.is_alive and p.pid != os.getpid()]

    def _marked(self, run: Run, table: dict[int, Process]) -> set[int]:
        """The orphans of an adopted run are not the keeper's children: check session and mark of all processes."""
        found = set()
        leader = table.get(run.pid)
        is_our_session = leader is None or began_as(run, leader)  # else the kernel has reused the pid meanwhile
        for process in table.values():
            if not had_begun(run, process):
                continue
            if is_our_session and process.session == run.pid:
                found.add(process.pid)
                continue
            env = process_tree.environment_of(process.pid)
            if env.get(RUN_MARK) == run.run_id and env.get(KEEPER_MARK) == self.mark:
                found.add(process.pid)
        return found

    def remove(self, run: Run) -> list[int]:
        """The run is over. Return the orphans that no run owns any more."""
        self.alive.pop(run.handle, None)
        for known in (self.mains, self._sessions):
            if known.get(run.pid) is run:  # the pid of an adopted run may belong to a younger run by now
                del known[run.pid]
        if len(self._sessions) > len(self.mains):
            self._sessions = {session: of for session, of in self._sessions.items() if of is not run}
        ownerless = []
        for pid, owners in self._orphans.items():
            if run.handle in owners:
                owners.discard(run.handle)
                if not owners:
                    ownerless.append(pid)
        return ownerless


def began_as(run: Run, process: Process) -> bool:
    """Is this the run's main process, and not a later process with the same pid?"""
    first, last = (round(at * process_tree.TICKS_PER_SECOND) for at in run.spawned)
    return process.pid == run.pid and first - 2 <= process.start_ticks <= last + 2


def had_begun(run: Run, process: Process) -> bool:
    """Did the run begin before the process?"""
    return bool(run.pid) and process.start_ticks >= int(run.spawned[0] * process_tree.TICKS_PER_SECOND) - 1
