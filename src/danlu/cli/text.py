"""Pure text: widths, tables, times and sizes as people read them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def visible(text: str, *, lines: bool = False) -> str:
    """Text that cannot move the cursor or change colours: control characters are shown escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte outside UTF-8
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def columns(text: str) -> int:
    """The width of a text in terminal columns: two for a Chinese character, none for an accent."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, most: int) -> str:
    """Text cut to at most `most` columns; an ellipsis marks a cut."""
    if columns(text) <= most:
        return text
    kept, used = [], 0
    for char in text:
        used += columns(char)
        if used > most - 1:
            break
        kept.append(char)
    return "".join(kept) + "…" if most > 0 else ""


def render_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    paint: Callable[[int, str, str], str] | None = None,
) -> str:
    """Aligned columns. A table that is too wide loses the end of its last column, then of its widest columns.

    `paint(column, value, padded)` may colour a cell after the widths are known."""
    cells = [[visible(value) for value in row] for row in rows]
    sizes = [max([columns(title), *(columns(row[at]) for row in cells)]) for at, title in enumerate(head)]
    if width is not None:
        sizes = _squeezed(sizes, head, width)
    lines = []
    for number, row in enumerate([list(head), *cells]):
        parts = []
        for at, value in enumerate(row):
            shown = cut(value, sizes[at])
            padded = shown if at == len(row) - 1 else shown + " " * (sizes[at] - columns(shown))
            parts.append(paint(at, value if number else "", padded) if paint else padded)
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _squeezed(sizes: list[int], head: Sequence[str], width: int) -> list[int]:
    sizes = list(sizes)
    over = sum(sizes) + 2 * (len(sizes) - 1) - width
    least = [max(columns(title), 8) for title in head]
    for at in [len(sizes) - 1, *sorted(range(len(sizes) - 1), key=lambda at: -sizes[at])]:
        if over <= 0:
            break
        given = min(over, max(sizes[at] - least[at], 0))
        sizes[at] -= given
        over -= given
    return sizes


def render_facts(facts: Sequence[tuple[str, str]]) -> str:
    """A line per name and value; empty values are left out."""
    shown = [(name, visible(value, lines=True)) for name, value in facts if value]
    size = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:<{size}}  {value.replace(chr(10), chr(10) + ' ' * (size + 2))}" for name, value in shown)


def epoch(text: str) -> float:
    """Seconds since 1970 of `2026-11-15T10:00:00.000000Z`."""
    year, month, day = int(text[0:4]), int(text[5:7]), int(text[8:10])
    # Days since 1970 in the Gregorian calendar, years beginning in March; `datetime` costs a millisecond.
    year -= month <= 2
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    of_era = (year % 400) * 365 + (year % 400) // 4 - (year % 400) // 100 + of_year
    days = (year // 400) * 146097 + of_era - 719468
    clock = text[11:].removesuffix("Z").removesuffix("+00:00")
    return days * 86400 + int(clock[0:2]) * 3600 + int(clock[3:5]) * 60 + float(clock[6:] or 0)


def render_duration(seconds: float) -> str:
    """Two units at most: `45s`, `3m`, `2h10m`, `5d`."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m" if minutes >= 10 or seconds % 60 < 1 else f"{minutes}m{int(seconds % 60)}s"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60}m" if minutes % 60 else f"{minutes // 60}h"
    return f"{minutes // 1440}d"


def render_short(seconds: float) -> str:
    """One unit, for tables: `45s`, `3m`, `2h`, `5d`."""
    seconds = max(seconds, 0.0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def render_moment(text: str | None, now: float) -> str:
    """`2026-11-15 18:00:00 (3m ago)`, in local time."""
    if not text:
        return ""
    from time import localtime, strftime

    at = epoch(text)
    apart = f"in {render_duration(at - now)}" if at > now else f"{render_duration(now - at)} ago"
    return f"{strftime('%Y-%m-%d %H:%M:%S', localtime(at))} ({apart})"


def render_estimate(text: str | None, now: float) -> str:
    """The time of an expected event. An overdue event may come at any moment."""
    return render_moment(text, now) if not text or epoch(text) > now else "at any moment"


def render_mib(mib: int) -> str:
    if mib >= 1024:
        return f"{mib / 1024:.1f}".removesuffix(".0") + "G"
    return f"{mib}M" if mib else ""


def render_command(words: Sequence[str]) -> str:
    """A command, quoted for a shell."""
    return " ".join(_shell_word(word) for word in words)


def _shell_word(word: str) -> str:
    if word and all(c.isalnum() or c in "@%+=:,./-_" for c in word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
