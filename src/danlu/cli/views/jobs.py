"""Views of jobs and their waits: data in, text out."""

from __future__ import annotations

from danlu.cli.text import (
    epoch,
    render_command,
    render_duration,
    render_estimate,
    render_facts,
    render_mib,
    render_moment,
    render_short,
    render_table,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Data = dict[str, Any]
    Painted = Callable[[str, str], str]

STYLES = {
    "QUEUED": "yellow", "STARTING": "cyan", "PENDING": "yellow", "RUNNING": "cyan", "SUCCEEDED": "green",
    "FAILED": "red", "LOST": "red", "TIMED_OUT": "red", "CANCELLED": "dim",
}  # fmt: skip
_ACTIVE = ("RUNNING", "STARTING", "PENDING", "QUEUED")
HOLDERS_SHOWN = 10
_BY_WEIGHT = (*_ACTIVE, "FAILED", "TIMED_OUT", "LOST", "CANCELLED", "SUCCEEDED")


def render_jobs(jobs: Sequence[Data], now: float, width: int | None, paint: Painted, *, with_user: bool = False) -> str:
    """The table of `danlu ps`: active jobs first, each kind newest first."""
    ordered = [job for job in jobs if job["state"] in _ACTIVE] + [job for job in jobs if job["state"] not in _ACTIVE]
    head = ["ID", "NAME", "STATE", "ASKS", "TIME", "WHERE OR WHY", "COMMAND"]
    rows = [_row(job, now) for job in ordered]
    if with_user:
        head.insert(1, "USER")
        for job, row in zip(ordered, rows, strict=True):
            row.insert(1, job.get("user") or "")
    state_at = head.index("STATE")

    def painted(at: int, value: str, padded: str) -> str:
        if not value:
            return paint(padded, "bold")
        return paint(padded, STYLES.get(value, "")) if at == state_at else padded

    return render_table(head, rows, width, painted)


def _row(job: Data, now: float) -> list[str]:
    if job.get("tasks"):
        job = _as_one(job)
    return [
        job["id"], job.get("name") or "", job["state"], render_ask(job["ask"]), _time(job, now), _where(job),
        render_command(_first_lines(job["command"])) if job.get("command") else "",
    ]  # fmt: skip


def _first_lines(words: Sequence[str]) -> list[str]:
    """A script inside a command would fill the screen: only its first line; `danlu show` has all of it."""
    return [f"{word.partition(chr(10))[0]}…" if "\n" in word else word for word in words]


def _as_one(job: Data) -> Data:
    """A whole array in a single line: its most important state, and the counts of all states."""
    tasks: dict[str, int] = job["tasks"]
    state = next(state for state in _BY_WEIGHT if state in tasks)
    numbers = ", ".join(f"{tasks[each]} {each.lower().replace('_', ' ')}" for each in _BY_WEIGHT if each in tasks)
    one = {**job, "id": job["array_id"], "state": state, "node": None, "reason": {"text": numbers}}
    if state in _ACTIVE:
        one |= {"started_at": None, "ended_at": None}
    return one


def _time(job: Data, now: float) -> str:
    if job.get("ended_at"):
        return f"{render_short(now - epoch(job['ended_at']))} ago"
    return render_short(now - epoch(job.get("started_at") or job["submitted_at"]))


def _where(job: Data) -> str:
    if job["state"] == "RUNNING" and job.get("node"):
        more = len(job.get("seats") or ()) - 1
        return render_seat(job) + (f"; {more} more node{'s' if more > 1 else ''}" if more > 0 else "")
    text = str((job.get("reason") or {}).get("text") or "")
    if job["state"] == "FAILED" and job.get("exit_code") is not None and not text:
        return f"exit code {job['exit_code']}"
    return "" if job["state"] == "SUCCEEDED" and not job.get("tasks") else text


def render_ask(ask: Data) -> str:
    """A short form of an ask: `RTX3090:1 4 cpu 16G`, `2 nodes × 4 gpu`."""
    parts = []
    if ask.get("gpus"):
        parts.append(f"{ask['gpu_model']}:{ask['gpus']}" if ask.get("gpu_model") else f"{ask['gpus']} gpu")
    if ask.get("shards"):
        parts.append(f"{ask['shards']} shards")
    if (ask.get("cpus") or 1) != 1:
        parts.append(f"{ask['cpus']} cpu")
    if ask.get("memory_mib"):
        parts.append(render_mib(ask["memory_mib"]))
    if ask.get("shm_mib"):
        parts.append(f"{render_mib(ask['shm_mib'])} shm")
    nodes = ask.get("nodes") or 1
    return " ".join([f"{nodes} nodes ×" if parts else f"{nodes} nodes", *parts] if nodes > 1 else parts)


def render_seat(seat: Data) -> str:
    """`desk, GPU 0,1` or `desk, 16 shards of GPU 2`."""
    node = str(seat.get("node") or "")
    if seat.get("gpus"):
        return f"{node}, GPU {','.join(str(index) for index in seat['gpus'])}"
    if seat.get("shared_gpu") is not None:
        shards = seat.get("shards") or (seat.get("ask") or {}).get("shards")
        return f"{node}, {f'{shards} shards of ' if shards else ''}GPU {seat['shared_gpu']}"
    return node


def render_job(job: Data, now: float, paint: Painted) -> str:
    """The block of `danlu show`."""
    took = ""
    if job.get("started_at"):
        until = epoch(job["ended_at"]) if job.get("ended_at") else now
        took = render_duration(until - epoch(job["started_at"]))
    limit = render_duration(job["time_limit_s"]) if job.get("time_limit_s") else ""
    facts = [
        ("job", f"{job['id']}  {job.get('name') or ''}".rstrip()),
        ("number", str(job.get("number") or "")),
        ("state", job["state"]),
        ("why", str((job.get("reason") or {}).get("text") or "")),
        ("exit code", "" if job.get("exit_code") is None else str(job["exit_code"])),
        ("place", f"{job['place']} in the queue" if job.get("place") else ""),
        ("estimate", render_estimate(job.get("estimated_at"), now)),
        ("user", job.get("user") or ""),
        ("command", render_command(job["command"]) if job.get("command") else ""),
        ("folder", job.get("workdir") or ""),
        ("snapshot", job.get("snapshot") or ""),
        ("asks", render_ask(job["ask"]) or "1 cpu"),
        ("runs on", "\n".join(map(render_seat, job.get("seats") or ([job] if job.get("node") else ())))),
        _engine_id(job.get("engine_id") or ""),
        ("queue", job.get("queue") or ""),
        ("team", job.get("team") or ""),
        ("kind", ", ".join(kind for kind in ("preemptible", "interactive") if job.get(kind))),
        ("priority", str(job.get("priority") or "")),
        ("time limit", limit),
        ("signal", job.get("signal") or ""),
        ("retries", f"attempt {job['attempt']} of {job['retries'] + 1}" if job.get("retries") else ""),
        ("after", ", ".join(job.get("after") or ())),
        ("env", "\n".join(f"{name}={value}" for name, value in (job.get("env") or {}).items())),
        ("labels", ", ".join(f"{name}={value}" for name, value in (job.get("labels") or {}).items())),
        ("submitted", render_moment(job.get("submitted_at"), now)),
        ("started", render_moment(job.get("started_at"), now)),
        ("ended", render_moment(job.get("ended_at"), now)),
        ("took" if job.get("ended_at") else "runs for", took),
        ("stopping", render_moment(job.get("stop_requested_at"), now) if not job.get("ended_at") else ""),
        ("log", job.get("log_path") or ""),
        ("run folder", job.get("run_folder") or ""),
        ("earlier", "\n".join(_earlier(run) for run in job.get("runs") or ())),
        ("notes", "\n".join(job.get("notes") or ())),
    ]
    return _styled(render_facts(facts), job["state"], paint)


def _engine_id(name: str) -> tuple[str, str]:
    """`slurm job 17`: only the number, for use in Slurm's commands."""
    engine, _, number = name.partition(":")
    return f"{engine} job", number


def _styled(text: str, state: str, paint: Painted) -> str:
    style = STYLES.get(state, "")
    return text.replace(f"  {state}\n", f"  {paint(state, style)}\n", 1) if style else text


def _earlier(run: Data) -> str:
    why = str((run.get("reason") or {}).get("text") or "")
    code = "" if run.get("exit_code") is None else f", exit code {run['exit_code']}"
    return f"attempt {run.get('attempt', '?')}: {run.get('state', 'ended')}{code}{f', {why}' if why else ''}"


def render_array(array: Data, now: float, width: int | None, paint: Painted) -> str:
    """An array: the counts of its states, then its first tasks."""
    return f"array {array['id']}: {render_states(array['states'])}\n\n" + render_jobs(array["items"], now, width, paint)


def render_states(states: dict[str, int]) -> str:
    """`3 running, 7 queued of 10`."""
    order = [*_ACTIVE, "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED", "LOST"]
    parts = [f"{states[state]} {state.lower().replace('_', ' ')}" for state in order if states.get(state)]
    return ", ".join(parts) + f" of {sum(states.values())}" if parts else "nothing"


def render_why(why: Data, now: float) -> str:
    """The block of `danlu why`."""
    reason = str((why.get("reason") or {}).get("text") or "no reason is known")
    verbs = {"QUEUED": "waits", "STARTING": "starts", "PENDING": "waits", "RUNNING": "runs"}
    verb = verbs.get(why["state"], why["state"].lower())
    held = [_holder(holder, now) for holder in why.get("holders") or ()]
    if len(held) > HOLDERS_SHOWN:
        held[HOLDERS_SHOWN:] = [f"and {len(held) - HOLDERS_SHOWN} more"]
    others = [f"{one['command']}   {one['text']}" for one in why.get("alternatives") or ()]
    if others:
        others.append(f"then stop this job, so that only one of the two runs: danlu stop {why['id']}")
    facts = [
        ("place", f"{why['place']} in the queue" if why.get("place") else ""),
        ("estimate", _estimate(why, now)),
        ("held by", "\n".join(held)),
        ("instead", "\n".join(["this would start now:", *others]) if others else ""),
    ]
    more = render_facts([fact for fact in facts if fact[1]])
    head = render_facts([("", f"{why['id']} {verb.replace('_', ' ')}: {reason}")]).lstrip()
    return head + ("\n\n" + more if more else "")


def _estimate(wait: Data, now: float) -> str:
    guess = ", a guess: not every run before it has a time limit" if wait.get("is_guess") else ""
    return f"{render_estimate(wait.get('estimated_at'), now)}{guess}"


def _holder(holder: Data, now: float) -> str:
    cards = holder.get("gpus")
    where = f"{holder.get('node') or ''}{', GPU ' + ','.join(str(c) for c in cards) if cards else ''}"
    until = f", until {render_moment(holder['ends_at'], now)}" if holder.get("ends_at") else ", no time limit"
    if holder.get("shards"):
        where += f", {holder['shards']} shards"
    who = f"{holder.get('user') or '?'}{' of ' + holder['team'] if holder.get('team') else ''}"
    return f"{holder['id']} ({who}) on {where}{until}"


def render_dry_run(plan: Data, now: float) -> str:
    if plan.get("fits_now") and plan.get("seat"):
        return f"would start now on {render_seat(plan['seat'])}"
    reason = str((plan.get("reason") or {}).get("text") or "there is no free place")
    estimate = _estimate(plan, now)
    lines = [f"would wait: {reason}", *([f"estimated start: {estimate}"] if estimate else [])]
    lines += [f"would start now with {one['options']}   {one['text']}" for one in plan.get("alternatives") or ()]
    return "\n".join(lines)
