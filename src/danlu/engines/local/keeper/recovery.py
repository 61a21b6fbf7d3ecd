"""A new keeper reads the journal of a killed keeper: it restores every run, and goes on watching the living runs."""

import os
import time
from typing import Any

from danlu.engines.local.keeper import process_tree
from danlu.engines.local.keeper.ownership import began_as
from danlu.engines.local.keeper.process_tree import TICKS_PER_SECOND, Process
from danlu.engines.local.keeper.run import Run
from danlu.engines.local.keeper.supervisor import Supervisor
from danlu.engines.local.protocol import KEEPER_MARK, RUN_MARK, parse_handle

_RESTARTED = ("lost", "the machine restarted while it ran")
_UNSURE = ("lost", "its keeper was killed just as it was to begin: whether it did is unknown")


def adopt(supervisor: Supervisor, records: dict[str, dict[str, Any]], boot: str) -> list[Run]:
    """Restore all runs of the journal. Return the runs to watch by pidfd."""
    table = process_tree.look_at_all() if any("ended" not in record for record in records.values()) else {}
    watched = []
    for handle, record in records.items():
        record.setdefault("workdir", "/")
        record.setdefault("log", "")
        run = Run({**record, "handle": handle})
        supervisor.runs[handle] = run
        if record.get("ended"):
            run.end = {key: record.get(key) for key in ("ended_at", "ending", "exit_code", "reason")}
        elif parse_handle(handle)[0] != boot:
            run.end = _lost(_RESTARTED)
        elif not _find_main(run, record, table, supervisor.ownership.mark):
            run.end = _lost(_UNSURE)
        else:
            _take_over(supervisor, run, record)
            if run.pidfd >= 0:
                watched.append(run)
    return watched


def _lost(reason: tuple[str, str]) -> dict[str, Any]:
    return {"ended_at": None, "ending": "lost", "exit_code": None, "reason": reason}


def _find_main(run: Run, record: dict[str, Any], table: dict[int, Process], mark: str) -> bool:
    """Find the main process by pid or by mark. False: the journal has no pid, and no process bears the mark."""
    if run.pid:
        run.spawned = tuple(record.get("spawned", (0.0, 0.0)))
        return True
    for process in table.values():
        if process.session == process.pid:
            env = process_tree.environment_of(process.pid)
            if env.get(RUN_MARK) == run.run_id and env.get(KEEPER_MARK) == mark:
                run.pid = process.pid
                run.spawned = (process.start_ticks / TICKS_PER_SECOND, (process.start_ticks + 1) / TICKS_PER_SECOND)
                return True
    return False


def _take_over(supervisor: Supervisor, run: Run, record: dict[str, Any]) -> None:
    run.adopted = True
    groups = [*record.get("groups", ()), "", ""]
    run.group, run.limited = supervisor.groups.find_again(groups[0]), supervisor.groups.find_again(groups[1])
    supervisor.alive[run.handle] = run
    run.pidfd = _open_main(run)
    if run.pidfd < 0:
        supervisor.main_gone(run, None)
        return
    if run.why:  # begin the interrupted stop again
        why, run.why = run.why, ""
        run.plan_stop(time.monotonic(), run.grace, None)
        run.why = why
    else:
        run.plan_limit()
    supervisor.schedule(run)


def _open_main(run: Run) -> int:
    """A pidfd of the main process if the pid still belongs to the same process, else -1."""
    try:
        pidfd = os.pidfd_open(run.pid)
    except OSError:
        return -1
    process = process_tree.look_at(run.pid)
    if process and began_as(run, process):
        return pidfd
    os.close(pidfd)
    return -1
