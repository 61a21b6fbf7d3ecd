"""Views of quotas, usage and boosts: data in, text out."""

from __future__ import annotations

from danlu.cli.text import render_duration, render_mib, render_moment, render_table, visible
from danlu.cli.views.jobs import render_seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Data = dict[str, Any]

HOLDERS_SHOWN = 20
_AMOUNTS = ("gpus", "shards", "cpus", "memory_mib", "jobs")
_COLUMNS = ("runs", "running", "gpu_hours", "asked_gpu_hours", "cpu_hours", "mean_wait_s", "longest_wait_s")


def render_quotas(items: Sequence[Data], now: float, width: int | None) -> str:
    """Held amount and limit of each holder, then the running jobs with their end times."""
    head = ["HOLDER", "GPUS", "SHARDS", "CPUS", "MEMORY", "JOBS", "GPU-HOURS", "BORROWS", "WAITING"]
    table = render_table(head, [_standing(item) for item in items], width)
    held = {holder["id"]: holder for item in items for holder in item["holders"] if holder["gpus"]}
    if not held:
        return table
    listed = list(held.values())
    rows = [_holder(holder, now) for holder in listed[:HOLDERS_SHOWN]]
    more = f"\nand {len(listed) - HOLDERS_SHOWN} more" if len(listed) > HOLDERS_SHOWN else ""
    return f"{table}\n\n{render_table(['JOB', 'USER', 'TEAM', 'HOLDS', 'UNTIL'], rows, width)}{more}"


def _standing(item: Data) -> list[str]:
    limits, held, waiting = item["limits"], item["held"], item["waiting"]
    spent = "" if item["spent_gpu_hours"] is None else f"{item['spent_gpu_hours']:.1f}"
    if limits["gpu_hours"] is not None:
        spent += f"/{limits['gpu_hours']} a {item['period']}"
    return [
        item["holder"],
        _of(f"{held['gpus']:g}", limits["gpus"]),
        _of(held["shards"], limits["shards"]),
        _of(held["cpus"], limits["cpus"]),
        _of(render_mib(held["memory_mib"]) or "0", limits["memory_mib"], is_memory=True),
        _of(held["jobs"], limits["jobs"]),
        spent,
        "yes" if item["borrow"] else "no",
        f"{_count(waiting['jobs'], 'job')}, {_count(waiting['gpus'], 'GPU')}" if waiting["jobs"] else "",
    ]


def _count(number: float, thing: str) -> str:
    return f"{number:g} {thing}{'' if number == 1 else 's'}"


def _of(held: object, limit: int | None, *, is_memory: bool = False) -> str:
    if limit is None:
        return str(held)
    return f"{held}/{(render_mib(limit) or '0') if is_memory else limit}"


def _holder(holder: Data, now: float) -> list[str]:
    seat = {**holder, "gpus": [], "shared_gpu": holder["gpus"][0]} if holder.get("shards") else holder
    until = render_moment(holder["ends_at"], now) if holder.get("ends_at") else "no time limit"
    return [holder["id"], holder["user"], holder.get("team") or "", render_seat(seat), until]


def render_usage(usage: Data, width: int | None) -> str:
    head = [
        usage["by"].upper(), "RUNS", "RUNNING", "GPU-HOURS", "ASKED", "CPU-HOURS", "MEAN WAIT", "LONGEST WAIT",
    ]  # fmt: skip
    items = [*usage["items"], *([usage["total"]] if len(usage["items"]) != 1 else [])]
    rows = [
        [
            item["name"] or "(none)",
            str(item["runs"]),
            str(item["running"]),
            f"{item['gpu_hours']:.1f}",
            f"{item['asked_gpu_hours']:.1f}",
            f"{item['cpu_hours']:.1f}",
            render_duration(item["mean_wait_s"]),
            render_duration(item["longest_wait_s"]),
        ]
        for item in items
    ]
    return render_table(head, rows, width)


def render_usage_csv(usage: Data) -> str:
    rows = [[item["name"], *(item[name] for name in _COLUMNS)] for item in usage["items"]]
    return _csv([usage["by"], *_COLUMNS], rows)


def render_quotas_csv(items: Sequence[Data]) -> str:
    """Columns per resource: held amount, limit (empty: none), and waiting amount."""
    head = [f"{name}{part}" for name in _AMOUNTS for part in ("", "_limit", "_waiting")]
    rows = [
        [
            item["holder"],
            *(
                value
                for name in _AMOUNTS
                for value in (item["held"][name], item["limits"][name], item["waiting"][name])
            ),
            item["spent_gpu_hours"],
            item["limits"]["gpu_hours"],
            item["period"] if item["limits"]["gpu_hours"] is not None else "",
            "yes" if item["borrow"] else "no",
        ]
        for item in items
    ]
    return _csv(["holder", *head, "gpu_hours", "gpu_hours_limit", "period", "borrow"], rows)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and a line per row. The first column is a name, which must stay data in a spreadsheet."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for name, *values in rows:
        writer.writerow([_inert(str(name)), *values])
    return text.getvalue().removesuffix("\n")


def _inert(name: str) -> str:
    """Spreadsheets evaluate text that looks like a formula; a leading quote prevents this."""
    shown = visible(name)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown


def render_boosts(boosts: Sequence[Data], now: float, width: int | None) -> str:
    rows = [
        [one["id"], one["user"], one["team"], one["by"], render_moment(one["until"], now), one["why"]] for one in boosts
    ]
    return render_table(["ID", "USER", "TEAM", "BY", "UNTIL", "WHY"], rows, width)
