"""Tables of a replay, at most 100 columns wide, and its jobs as CSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from danlu.cli.text import cut, render_table
from danlu.tools.simulate.metrics import Group, Never, Report, Spread
from danlu.tools.simulate.replay import Life

SHOWN_NEVER = 5
WIDTH = 100
JOB_COLUMNS = (
    "line", "user", "team", "queue", "gpus", "submit", "start", "end", "waited", "runs", "preemptions", "fate",
    "reason",
)  # fmt: skip


def render_report(report: Report) -> str:
    parts = [_summary(report), _waiting_table(report), _use_table(report)]
    if report.never:
        parts.append(_never_list(report.never))
    return "\n\n".join(parts)


def _summary(report: Report) -> str:
    whole = report.in_all
    lines = [
        f"{whole.jobs:,} jobs in {render_seconds(report.span_s)} on {report.gpus:,} GPUs: "
        f"{whole.ended:,} ended ({whole.timed_out:,} at their limit), {whole.never:,} never fit",
        f"GPUs in use: {_percent(whole.utilisation)} of the {render_seconds(report.busy_s)} with jobs",
        f"fairness between teams, 1 is equal: use {_number(report.fairness_use, 3)}, "
        f"slowdown {_number(report.fairness_slowdown, 3)}",
    ]
    if not report.is_complete:
        lines.insert(0, f"INTERRUPTED: {report.unfinished:,} jobs had not ended; these are the figures so far")
    return "\n".join(lines)


def _rows(report: Report) -> Iterator[tuple[str, Group]]:
    for team in report.teams:
        yield (f"team {team.name}" if team.name else "no team"), team
    for queue in report.queues:
        yield (f"queue {queue.name}" if queue.name else "no queue"), queue
    yield "all", report.in_all


def _waiting_table(report: Report) -> str:
    head = ("WAITED", "JOBS", "MEAN", "MEDIAN", "P90", "P99", "MAX", "SLOWDOWN", "ITS P90")
    rows = [
        (name, f"{group.jobs:,}", *_times(group.waited_s), *_ratios(group.slowdown)) for name, group in _rows(report)
    ]
    return render_table(head, rows, WIDTH)


def _use_table(report: Report) -> str:
    head = ("USED", "GPU-HOURS", "SHARE", "QUOTA", "ITS SHARE", "BORROWED", "PREEMPTED", "NEVER FIT", "IN USE")
    rows = [
        (
            name,
            f"{group.gpu_hours:,.1f}",
            _percent(group.share),
            "-" if group.quota_gpus is None else f"{group.quota_gpus:,}",
            _percent(group.quota_share),
            "-" if group.borrowed_gpu_hours is None else f"{group.borrowed_gpu_hours:,.1f}",
            f"{group.preemptions:,}",
            f"{group.never:,}",
            _percent(group.utilisation),
        )
        for name, group in _rows(report)
    ]
    return render_table(head, rows, WIDTH)


def _never_list(never: Sequence[Never]) -> str:
    """Show the first jobs, and count the others by reason; `--json` lists all."""
    lines = ["These jobs would never start:"]
    lines += [cut(f"  line {one.line}, {one.user}: {one.why}", WIDTH) for one in never[:SHOWN_NEVER]]
    if len(never) > SHOWN_NEVER:
        counts = Counter(one.code for one in never[SHOWN_NEVER:])
        lines.append("  and " + ", ".join(f"{count:,} more ({code})" for code, count in counts.most_common()))
    return "\n".join(lines)


def _times(found: Spread | None) -> tuple[str, ...]:
    if found is None:
        return ("-",) * 5
    return tuple(render_seconds(each) for each in (found.mean, found.median, found.p90, found.p99, found.max))


def _ratios(found: Spread | None) -> tuple[str, str]:
    return ("-", "-") if found is None else (_number(found.mean, 2), _number(found.p90, 2))


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def _number(number: float | None, digits: int) -> str:
    return "-" if number is None else f"{number:,.{digits}f}"


def render_seconds(seconds: float) -> str:
    """`0s`, `45s`, `12m`, `3h05m`, `2d04h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s" if whole < 600 else f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def render_jobs(lives: Iterable[Life]) -> Iterator[str]:
    """One line per job, times in seconds since the start of the trace; empty cells: did not happen."""
    yield ",".join(JOB_COLUMNS) + "\n"
    for life in lives:
        job, start, end = life.job, life.first_start_s, life.end_s
        held = sum(run.end_s - run.start_s for run in life.runs)
        waited = "" if end is None else _plain(max(end - job.submit_s - held, 0.0))
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(
            (
                job.key, job.user, job.team, job.queue, _plain(life.gpus), _plain(job.submit_s),
                "" if start is None else _plain(start), "" if end is None else _plain(end), waited, len(life.runs),
                life.preemptions, life.fate, life.reason.code if life.reason else "",
            )
        )  # fmt: skip
        yield out.getvalue()


def _plain(number: float) -> str:
    """Render without unnecessary digits: `3`, `3.25`."""
    return f"{number:.3f}".rstrip("0").rstrip(".")
