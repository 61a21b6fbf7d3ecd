"""The result of a check: observation, cost and advice. Pure."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"  # good to know, or not checked
    WARNING = "warning"  # jobs run, but a guarantee of Danlu does not hold
    PROBLEM = "problem"  # jobs do not run, or get lost


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is stable, and begins with the topic. `lines` are ready to copy."""

    code: str
    level: Level
    found: str
    costs: str = ""
    do: str = ""
    lines: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        return self.code.partition(".")[0]


def ok(code: str, found: str) -> Finding:
    return Finding(code, Level.OK, found)


def note(code: str, found: str, costs: str = "", do: str = "", *lines: str) -> Finding:
    return Finding(code, Level.NOTE, found, costs, do, lines)


def warning(code: str, found: str, costs: str, do: str = "", *lines: str) -> Finding:
    return Finding(code, Level.WARNING, found, costs, do, lines)


def problem(code: str, found: str, costs: str, do: str = "", *lines: str) -> Finding:
    return Finding(code, Level.PROBLEM, found, costs, do, lines)


def unchecked(code: str, why: str) -> Finding:
    return Finding(code, Level.NOTE, f"not checked: {why}")


def count(findings: Iterable[Finding]) -> dict[Level, int]:
    """The number of findings per level, with all levels present."""
    counted = dict.fromkeys(Level, 0)
    for one in findings:
        counted[one.level] += 1
    return counted


def as_data(one: Finding) -> dict[str, Any]:
    return {"topic": one.topic, **asdict(one), "level": str(one.level), "lines": list(one.lines)}


def named(names: Iterable[str], most: int = 6) -> str:
    """A list of limited length: `gn1, gn2 and 7 more`."""
    every = list(names)
    shown = ", ".join(every[:most])
    return f"{shown} and {len(every) - most} more" if len(every) > most else shown


def plural(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
