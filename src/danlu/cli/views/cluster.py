"""Views of the server, its machines and cards: data in, text out."""

from __future__ import annotations

from danlu.cli.text import epoch, render_duration, render_facts, render_mib, render_moment, render_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Data = dict[str, Any]

HOLDERS_SHOWN = 5


def render_status(status: Data, now: float) -> str:
    """The block of `danlu status`."""
    nodes = status.get("nodes") or []
    jobs = status.get("jobs") or {}
    counts = [f"{count} {state.lower().replace('_', ' ')}" for state, count in jobs.items() if count]
    facts = [
        ("server", f"danlu {status.get('version', '')}, pid {status.get('pid', '?')}"),
        ("address", str(status.get("address") or "")),
        ("engine", str(status.get("engine") or "")),
        ("trouble", str(status.get("trouble") or "")),
        ("plays", str(status.get("pretends") or "")),
        ("runs as", _run_as(status)),
        ("state", str(status.get("state_dir") or "")),
        ("started", render_moment(status.get("started_at"), now)),
        ("cards", "\n".join(_cards(node) for node in nodes)),
        ("jobs", ", ".join(counts) or "none"),
    ]
    return render_facts(facts)


def _run_as(status: Data) -> str:
    """The Unix user of jobs. Empty if only this user can submit."""
    if status.get("is_shut"):
        return f"{status['runs_as']}; jobs of other users are refused, because the server does not run as root"
    return "the submitter" if status.get("runs_as") == "submitter" else str(status.get("runs_as") or "")


def _cards(node: Data) -> str:
    models: dict[str, list[int]] = {}
    for card in node.get("gpus") or ():
        found = models.setdefault(str(card.get("model") or "GPU"), [0, 0])
        found[0] += 1
        found[1] += card.get("use") == "free"
    if not models:
        return f"{node['name']}: none"
    listed = ", ".join(f"{count} x {model} ({free} free)" for model, (count, free) in models.items())
    return f"{node['name']}: {listed}"


def render_nodes(nodes: Sequence[Data], now: float, width: int | None) -> str:
    rows = [
        [
            str(node["name"]),
            f"{node['cpus_free']}/{node['cpus']}",
            f"{render_mib(node['memory_free_mib']) or '0'}/{render_mib(node['memory_mib']) or '0'}",
            f"{sum(card['use'] == 'free' for card in node['gpus'])}/{len(node['gpus'])}",
            "yes" if node.get("accepts_jobs") else _closed(node),
            _held([_holder(holder, now) for holder in node["holders"]]),
        ]
        for node in nodes
    ]
    return render_table(["NODE", "CPUS FREE", "MEMORY FREE", "GPUS FREE", "ACCEPTS JOBS", "HELD BY"], rows, width)


def _closed(node: Data) -> str:
    """`no: bad fan, card 2 (MIXED+DRAIN)`."""
    why = f": {node['why_closed']}" if node["why_closed"] else ""
    return f"no{why}{' (' + node['state'] + ')' if node['state'] else ''}"


def _held(holders: list[str]) -> str:
    if len(holders) > HOLDERS_SHOWN:
        holders[HOLDERS_SHOWN:] = [f"and {len(holders) - HOLDERS_SHOWN} more"]
    return ", ".join(holders)


def render_gpus(nodes: Sequence[Data], now: float, width: int | None) -> str:
    """A line per card: whole or shared, its taken shards, and the holders with their end times."""
    rows = [
        [
            str(node["name"]),
            str(card["index"]),
            str(card["model"]),
            render_mib(card.get("memory_mib") or 0),
            card["use"],
            f"{card['shards'] - card['shards_free']}/{card['shards']}",
            _held([_holder(holder, now) for holder in card["holders"]]) or _unheld(node, card),
        ]
        for node in nodes
        for card in node["gpus"]
    ]
    return render_table(["NODE", "GPU", "MODEL", "MEMORY", "USE", "SHARDS TAKEN", "HELD BY"], rows, width)


def _unheld(node: Data, card: Data) -> str:
    if card["use"] != "free":
        return "holder not known yet"
    return "" if node.get("accepts_jobs") else "its node accepts no jobs"


def _holder(holder: Data, now: float) -> str:
    """`k3fz82aw (li, 16 shards, 2h10m left)`."""
    ends_at = holder.get("ends_at")
    shards = f"{holder['shards']} shards, " if holder.get("shards") else ""
    left = f"{render_duration(epoch(ends_at) - now)} left" if ends_at else "no time limit"
    return f"{holder['id']} ({holder.get('user') or '?'}, {shards}{left})"
