"""A run in the keeper: the request, the current state, the next action, and the report of the end."""

import os
import signal
from typing import Any

from danlu.engines.local.keeper.cgroups import Group
from danlu.engines.local.protocol import parse_handle

# A process that survives KILL for this long is stuck in the kernel: the run ends, and a note reports its seat as dirty.
UNKILLABLE_AFTER_SECONDS = 10.0


class Run:
    __slots__ = (
        "adopted", "check_at", "checks", "due", "end", "env", "exit_known_by", "grace", "group", "handle",
        "kill_at", "killing_since", "limit", "limited", "log", "log_limit", "main_over", "memory_mib",
        "notes", "notice", "notice_at", "pid", "pidfd", "run_id", "shells", "spawned", "started_at",
        "started_mono", "status", "term_at", "told", "umask", "user", "why", "workdir",
    )  # fmt: skip

    def __init__(self, asked: dict[str, Any]) -> None:
        self.handle: str = asked["handle"]
        self.run_id = parse_handle(self.handle)[1]
        self.workdir: str = asked["workdir"]
        self.log: str = asked["log"]
        self.log_limit: int = asked.get("log_limit", 0)  # bytes; 0: none
        self.umask: int = asked.get("umask", 0o022)
        self.user: str = asked.get("user", "")
        self.memory_mib: int = asked.get("memory_mib", 0)
        self.limit: float | None = asked.get("limit")
        self.notice: tuple[int, float] | None = tuple(asked["notice"]) if asked.get("notice") else None
        self.grace: float = asked.get("grace", 30.0)
        self.notes: list[str] = list(asked.get("notes", ()))
        self.env: dict[str, str] | None = asked.get("env")
        self.started_at: float | None = asked.get("at")  # wall clock, for the report
        self.started_mono: float = asked.get("mono", 0.0)  # for the time limit, also in a successor keeper
        self.pid: int = asked.get("is", 0)
        self.spawned: tuple[float, float] = (0.0, 0.0)  # seconds since boot, just before and after the spawn
        self.adopted = False  # started by an earlier keeper: not a child of this keeper
        self.pidfd = -1  # pidfd of an adopted main process
        self.told = -1  # descriptor that later reports a failed start, see `problem_of`
        self.group: Group | None = None
        self.limited: Group | None = None
        self.shells: set[int] = set()
        self.why: str = asked.get("why", "")  # "", stopped or timed_out
        self.status: int | None = None
        self.main_over = False
        self.notice_at: float | None = None
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self.killing_since: float | None = None
        self.exit_known_by: float | None = None  # adopted: how long to wait for the exit code from the kernel
        self.check_at: float | None = None
        self.checks = 0
        self.due: float | None = None
        self.end: dict[str, Any] | None = None

    # When to act

    def plan_limit(self) -> None:
        if self.limit is not None and not self.why:
            self.term_at = self.started_mono + self.limit
            if self.notice:
                self.notice_at = max(self.started_mono, self.term_at - self.notice[1])

    def plan_stop(self, now: float, grace: float, notice: tuple[int, float] | None) -> None:
        """A first stop replaces the plan of the time limit; a later stop can only hasten the end."""
        if self.killing_since is not None:
            return
        if not self.why:
            self.why = "stopped"
            self.grace = grace
            self.notice = notice
            self.notice_at = now if notice else None
            self.term_at = now + notice[1] if notice else now
            return
        self.grace = min(self.grace, grace)
        if self.kill_at is not None:
            self.kill_at = min(self.kill_at, now + grace)
        elif self.term_at is not None:
            self.term_at = min(self.term_at, now + notice[1] if notice else now)
            if not notice:
                self.notice_at = None

    def next_due(self) -> float | None:
        times = [t for t in (self.notice_at, self.term_at, self.kill_at, self.check_at) if t is not None]
        return min(times) if times else None

    def is_group_empty(self) -> bool:
        """Are the groups of this run free of processes?"""
        return all(group is None or group.is_empty() for group in (self.group, self.limited))

    # Reports to the server

    def exit_code(self) -> int | None:
        if self.status is None:
            return None
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code

    def view(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"handle": self.handle, "started_at": self.started_at, "notes": self.notes}
        return seen | self.end if self.end else seen

    def ended(self, *, at: float | None, oom_kills: int) -> dict[str, Any]:
        """How the run ended, decided once."""
        code = self.exit_code()
        ending = self.why or ("lost" if self.status is None else "exited")
        if oom_kills and code != 0 and not self.why:
            reason = ("out_of_memory", f"killed: used more than its {self.memory_mib} MiB of memory")
        elif self.why == "stopped":
            reason = ("stopped", "stopped on request")
        elif self.why == "timed_out":
            reason = ("timed_out", f"reached its time limit of {shown_duration(self.limit or 0)}")
        elif code is None:
            reason = ("lost", "its keeper was killed while it ran, and how it ended could not be learnt")
        elif code > 128 and self.status is not None and os.WIFSIGNALED(self.status):
            reason = ("signal", f"killed by signal {code - 128} ({signal_name(code - 128)})")
        else:
            reason = ("exited", f"ended with exit code {code}")
        if oom_kills and reason[0] != "out_of_memory":
            self.notes.append(f"one of its processes was killed: used more than its {self.memory_mib} MiB of memory")
        return {"ended_at": at, "ending": ending, "exit_code": code, "reason": reason}

    # Journal records

    def start_record(self) -> dict[str, Any]:
        """Everything except the environment: variables may hold secrets, and /proc shows them while the run lives."""
        return {
            "start": self.handle, "workdir": self.workdir, "log": self.log, "log_limit": self.log_limit,
            "umask": self.umask, "user": self.user, "memory_mib": self.memory_mib, "limit": self.limit,
            "notice": self.notice,
            "grace": self.grace, "at": self.started_at, "mono": self.started_mono, "notes": self.notes,
            "groups": [group.path if group else "" for group in (self.group, self.limited)],
        }  # fmt: skip

    def pid_record(self) -> dict[str, Any]:
        return {"pid": self.handle, "is": self.pid, "spawned": self.spawned}

    def records(self) -> list[dict[str, Any]]:
        """The records of this run in a compacted journal."""
        if self.end:
            return [{"end": self.handle, "at": self.started_at, "notes": self.notes, **self.end}]
        return [
            self.start_record(),
            *([self.pid_record()] if self.pid else []),
            *([{"stop": self.handle, "why": self.why}] if self.why else []),
        ]


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return "real-time"


def shown_duration(seconds: float) -> str:
    """`90s`, `2h30m`: as people write a time limit."""
    whole = round(seconds)
    if whole < 1:
        return f"{seconds:g}s"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if whole >= size:
            parts.append(f"{whole // size}{unit}")
            whole %= size
    return "".join(parts)
