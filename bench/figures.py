"""Figures with their targets: kept as JSON, shown as a table on the screen or in a page."""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LATEST = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `limit` says how a limit that is not a plain number came about."""

    name: str
    number: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    limit: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.at_most is None and self.at_least is None:
            return ""
        fits = self.at_most is None or self.number <= self.at_most
        fits = fits and (self.at_least is None or self.number >= self.at_least)
        return "ok" if fits else "MISS"

    @property
    def value(self) -> str:
        return f"{_rounded(self.number)} {self.unit}".strip()

    @property
    def target(self) -> str:
        if self.limit:
            return self.limit
        if self.at_most is not None:
            return f"≤ {_rounded(self.at_most)} {self.unit}".strip()
        return f"≥ {_rounded(self.at_least)} {self.unit}".strip() if self.at_least is not None else ""


@dataclass(frozen=True, slots=True)
class Topic:
    """What one module measured, when, and how busy the machine was before."""

    name: str
    figures: tuple[Figure, ...]
    at: str
    quick: bool
    load: float
    trouble: str = ""


def spread(samples: Sequence[float], *, scale: float = 1e3, unit: str = "ms") -> str:
    """Best and worst, for the note beside a median."""
    return f"{_rounded(min(samples) * scale)}–{_rounded(max(samples) * scale)} {unit}, n={len(samples)}"


def percentile(samples: Sequence[float], percent: int) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M")


def save(topics: Sequence[Topic], machine: dict[str, Any]) -> None:
    """Keep these; topics that were not measured this time stay as they were."""
    kept = {topic.name: topic for topic in load()[0]} | {topic.name: topic for topic in topics}
    LATEST.parent.mkdir(exist_ok=True)
    document = {"machine": machine, "topics": [asdict(topic) for topic in kept.values()]}
    LATEST.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load() -> tuple[list[Topic], dict[str, Any]]:
    try:
        document = json.loads(LATEST.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [], {}
    topics = []
    for found in document["topics"]:
        figures = tuple(Figure(**figure) for figure in found.pop("figures"))
        topics.append(Topic(figures=figures, **found))
    return topics, document["machine"]


def render_table(topic: Topic) -> str:
    rows = [(figure.name, figure.value, figure.target, figure.verdict, figure.note) for figure in topic.figures]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    lines = [f"{topic.name}{' (quick)' if topic.quick else ''}"]
    for name, value, target, verdict, note in rows:
        cells = (name.ljust(widths[0]), value.rjust(widths[1]), target.ljust(widths[2]), verdict.ljust(widths[3]), note)
        lines.append(("  " + "  ".join(cells)).rstrip())
    if topic.trouble:
        lines.append(f"  not measured: {topic.trouble}")
    return "\n".join(lines)


def render_markdown(topics: Sequence[Topic], machine: dict[str, Any]) -> str:
    """The table as docs/performance.md shows it."""
    about = f"{machine.get('cpus')} cores, {machine.get('memory_gib')} GiB, Python {machine.get('python')}"
    lines = [
        f"Measured by `make bench` on {about}, danlu {machine.get('commit')}.",
        "",
        "| measure | figure | target | | |",
        "|---|---|---|---|---|",
    ]
    for topic in topics:
        size = ", small counts" if topic.quick else ""
        lines.append(f"| **{topic.name}** ({topic.at} UTC, load {topic.load:.1f} before{size}) | | | | |")
        if topic.trouble:
            lines.append(f"| not measured: {topic.trouble} | | | | |")
        for one in topic.figures:
            cells = (one.name, one.value, one.target, one.verdict, one.note)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def load_average() -> float:
    return os.getloadavg()[0]


def _rounded(number: float) -> str:
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"
