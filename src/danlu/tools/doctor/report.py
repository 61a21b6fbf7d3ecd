"""Render findings. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap

from danlu.cli.text import visible
from danlu.tools.doctor.findings import Finding, Level, count, plural

Paint = Callable[[str, str], str]

NARROWEST, WIDEST = 60, 100
_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "red"}
_LEVEL_WIDTH = 9
_INDENT = " " * 4


def render_report(findings: Sequence[Finding], paint: Paint, width: int | None = None) -> str:
    """A single line for each passed check. Other findings are followed by cost and advice, and surrounded by blank
    lines."""
    columns = min(max(width or 80, NARROWEST), WIDEST)
    topics = _LEVEL_WIDTH + max((len(one.topic) for one in findings), default=0) + 2
    lines: list[str] = []
    for one in findings:
        details = list(_details(one, paint, columns))
        if details and lines and lines[-1]:
            lines.append("")
        head = f"{paint(one.level, _STYLES[one.level])}{' ' * (_LEVEL_WIDTH - len(one.level))}"
        head += f"{one.topic:<{topics - _LEVEL_WIDTH}}"
        first, *rest = _wrapped(one.found, columns - topics)
        style = "bold" if one.level in (Level.PROBLEM, Level.WARNING) else ""
        lines.append(head + paint(first, style))
        lines += [" " * topics + paint(line, style) for line in rest]
        lines += details
        if details:
            lines.append("")
    return "\n".join(lines).rstrip("\n")


def _details(one: Finding, paint: Paint, columns: int) -> Iterable[str]:
    for name, text in (("costs", one.costs), ("do", one.do)):
        if text:
            first, *rest = _wrapped(text, columns - len(_INDENT) - 7)
            yield f"{_INDENT}{paint(name, 'dim')}{' ' * (7 - len(name))}{first}"
            yield from (f"{_INDENT}{' ' * 7}{line}" for line in rest)
    for line in one.lines:
        yield f"{_INDENT}{' ' * 9}{paint(visible(line), 'cyan')}"


def _wrapped(text: str, columns: int) -> list[str]:
    # Keep a number and its unit on the same line.
    glued = re.sub(r"(\d) (s|ms|h|MiB|GiB)\b", "\\1\0\\2", visible(text))
    lines = wrap(glued, columns, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines] or [""]


def render_summary(findings: Sequence[Finding], paint: Paint) -> str:
    counted = count(findings)
    parts = []
    for level, one in ((Level.PROBLEM, "problem"), (Level.WARNING, "warning"), (Level.NOTE, "note")):
        if counted[level]:
            parts.append(paint(plural(counted[level], one), _STYLES[level]))
    parts.append(paint(f"{counted[Level.OK]} fine", _STYLES[Level.OK]))
    verdict = "no problems: ready to use"
    if counted[Level.WARNING]:
        verdict = "no problems: ready to use, with the limits in the warnings"
    if counted[Level.PROBLEM]:
        verdict = "problems stop jobs or lose them: fix these first, then run `danlu doctor` again"
    return f"{', '.join(parts)}\n{verdict}"
