"""Parse a trace of jobs from CSV. Errors name the line and the column."""

import csv
import difflib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from danlu.domain.parsing import parse_count, parse_duration, parse_memory_mib
from danlu.domain.resources import Ask
from danlu.errors import Invalid
from danlu.tools.simulate.replay import TraceJob

T = TypeVar("T")

# A Monday, the first of a month and of a year: the start of a trace with times in seconds.
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = (
    "submit", "user", "team", "queue", "gpus", "gpu_model", "shards", "cpus", "memory", "nodes", "duration", "time",
    "priority", "preemptible",
)  # fmt: skip
NEEDED = ("submit", "user", "duration")
LONGEST_S = 10 * 365 * 86400.0
MOST_ROWS = 5_000_000
_TRUTH = {"": False, "no": False, "false": False, "0": False, "yes": True, "true": True, "1": True}


@dataclass(frozen=True, slots=True)
class Row:
    """A job as written. None or empty: not in the trace."""

    line: int
    submit_s: float
    user: str
    team: str
    queue: str
    ask: Ask
    duration_s: float
    time_limit: timedelta | None
    priority: int | None
    is_preemptible: bool


@dataclass(frozen=True, slots=True)
class Trace:
    begin: datetime
    rows: tuple[Row, ...]


def parse_trace(data: bytes, name: str) -> Trace:
    """Parse the file's bytes. Rows may be in any order; rows with equal times keep their order."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Invalid(f"{name} line {line} is not UTF-8", "save it as UTF-8 text") from error
    lines = _lines(text, name)
    _, head = next(lines, (0, []))
    if not head:
        raise Invalid(f"{name} is empty", f"its first line names the columns: {','.join(COLUMNS)}")
    columns = _columns(head, name)
    rows: list[Row] = []
    clock = _Clock()
    for line, cells in lines:
        if len(cells) != len(columns):
            raise Invalid(f"{name} line {line} has {len(cells)} columns, the first line names {len(columns)}")
        if len(rows) == MOST_ROWS:
            raise Invalid(f"{name} has more than {MOST_ROWS:,} jobs", "try a part of it")
        rows.append(_row(_Cells(dict(zip(columns, cells, strict=True)), line, name), line, clock))
    if not rows:
        raise Invalid(f"{name} names no job", "one line for each, below the line with the columns")
    return _from_its_begin(rows, clock, name)


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise Invalid(f"{name} line {line} is not CSV: {error}", "is a quote missing?") from error
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield line, [cell.strip() for cell in cells]
        line = reader.line_num + 1


def _columns(head: Sequence[str], name: str) -> list[str]:
    columns = [title.casefold() for title in head]
    for title in columns:
        if title not in COLUMNS:
            near = difflib.get_close_matches(title, COLUMNS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(COLUMNS)}"
            raise Invalid(f"{name} has an unknown column: `{title[:40]}`", hint, code="unknown_key")
        if columns.count(title) > 1:
            raise Invalid(f"{name} has the column `{title}` twice", "keep one of them")
    for title in NEEDED:
        if title not in columns:
            raise Invalid(f"{name} has no column `{title}`", f"needed are {', '.join(NEEDED)}")
    return columns


class _Clock:
    """Submit times are all numbers or all dates."""

    def __init__(self) -> None:
        self.has_dates: bool | None = None

    def read(self, text: str) -> float:
        """Seconds since the start of the trace; for dates, seconds since BEGIN."""
        is_date = not re.fullmatch(r"\d{1,10}(\.\d{1,6})?", text, re.ASCII)
        if is_date:
            try:
                found = datetime.fromisoformat(text)
            except ValueError:
                raise Invalid(
                    f"takes seconds since the start or a time such as 2026-03-01T09:30:00, not `{text[:40]}`"
                ) from None
            seconds = ((found if found.tzinfo else found.replace(tzinfo=UTC)) - BEGIN).total_seconds()
        else:
            seconds = float(text)
            if seconds > LONGEST_S:
                raise Invalid(f"is more than ten years after the start: {text}", "seconds, not milliseconds?")
        if self.has_dates is None:
            self.has_dates = is_date
        if self.has_dates != is_date:
            raise Invalid("mixes times and seconds", "write all of them in one way")
        return seconds


def _from_its_begin(rows: list[Row], clock: _Clock, name: str) -> Trace:
    if not clock.has_dates:
        return Trace(BEGIN, tuple(rows))
    first, last = min(row.submit_s for row in rows), max(row.submit_s for row in rows)
    if last - first > LONGEST_S:
        raise Invalid(f"{name} spans more than ten years", "is one of its dates wrong?")
    moved = (replace(row, submit_s=row.submit_s - first) for row in rows)
    return Trace(BEGIN + timedelta(seconds=first), tuple(moved))


class _Cells:
    """The cells of a row. Errors name the line and column."""

    def __init__(self, cells: Mapping[str, str], line: int, name: str) -> None:
        self._cells = cells
        self._where = f"{name} line {line}"

    def read(self, column: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(self._cells.get(column, ""))
        except Invalid as error:
            raise Invalid(f"{self._where}, column `{column}`: {error.text}", error.hint) from error

    def ask(self) -> Ask:
        gpus, shards = self.read("gpus", _count), self.read("shards", _count)
        if gpus and shards:
            raise Invalid(f"{self._where}, column `shards`: asks for whole GPUs too", "keep one of them")
        cpus, nodes = self.read("cpus", _one_or_more), self.read("nodes", _one_or_more)
        return _ask(gpus, shards, cpus, nodes, self.read("memory", _memory), self.read("gpu_model", _name) or None)


def _row(cells: _Cells, line: int, clock: _Clock) -> Row:
    return Row(
        line=line,
        submit_s=cells.read("submit", clock.read),
        user=cells.read("user", _user),
        team=cells.read("team", _name),
        queue=cells.read("queue", _name),
        ask=cells.ask(),
        duration_s=cells.read("duration", _duration),
        time_limit=cells.read("time", _limit),
        priority=cells.read("priority", _priority),
        is_preemptible=cells.read("preemptible", _truth),
    )


@lru_cache(maxsize=4096)
def _ask(gpus: int, shards: int, cpus: int, nodes: int, memory_mib: int, model: str | None) -> Ask:
    """Share equal asks: a trace repeats the same ones often."""
    return Ask(gpus, model, shards, cpus, memory_mib, nodes)


@lru_cache(maxsize=4096)
def _count(text: str) -> int:
    try:
        return parse_count(text or "0", "it")
    except Invalid:
        raise Invalid(f"takes a whole number of 0 or more, not `{text[:40]}`") from None


def _one_or_more(text: str) -> int:
    number = _count(text or "1")
    if number < 1:
        raise Invalid("takes a whole number of 1 or more, not `0`")
    return number


@lru_cache(maxsize=4096)
def _memory(text: str) -> int:
    try:
        return parse_memory_mib(text or "0")
    except Invalid:
        raise Invalid(f"takes a size such as 16G or 512M, not `{text[:40]}`", "a plain number is MiB") from None


def _duration(text: str) -> float:
    return _seconds(text).total_seconds()


def _limit(text: str) -> timedelta | None:
    if not text:
        return None
    limit = _seconds(text)
    if not limit:
        raise Invalid("must be more than nothing, not `0`", "leave it empty for no limit")
    return limit


@lru_cache(maxsize=65536)
def _seconds(text: str) -> timedelta:
    if re.fullmatch(r"\d{1,10}(\.\d{1,6})?", text, re.ASCII):
        if float(text) > LONGEST_S:
            raise Invalid(f"must be less than ten years, not `{text}`")
        return timedelta(seconds=float(text))
    try:
        return parse_duration(text, "it")
    except Invalid:
        raise Invalid(
            f"takes seconds or a duration such as 2h30m, not `{text[:40]}`",
            "a plain number is seconds, at most ten years",
        ) from None


def _name(text: str) -> str:
    if len(text) > 64 or not (text.isprintable() or not text):
        raise Invalid("takes a name of at most 64 printable characters")
    return text


def _user(text: str) -> str:
    if not text:
        raise Invalid("is empty", "name the user who submitted the job")
    return _name(text)


def _priority(text: str) -> int | None:
    if text and text not in set("123456789"):
        raise Invalid(f"goes from 1 to 9 (9 first), not `{text[:40]}`")
    return int(text) if text else None


def _truth(text: str) -> bool:
    if text.casefold() not in _TRUTH:
        raise Invalid(f"is yes or no, not `{text[:40]}`")
    return _TRUTH[text.casefold()]


def render_trace(jobs: Iterable[TraceJob]) -> Iterator[str]:
    """The lines of a file that `parse_trace` reads."""
    yield ",".join(COLUMNS) + "\n"
    for job in jobs:
        ask = job.ask
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(
            (
                f"{job.submit_s:.0f}", job.user, job.team, job.queue, ask.gpus or "", ask.gpu_model or "",
                ask.shards or "", ask.cpus, f"{ask.memory_mib}M" if ask.memory_mib else "", ask.nodes,
                f"{job.duration_s:.0f}", f"{job.time_limit.total_seconds():.0f}" if job.time_limit else "",
                job.priority, "yes" if job.is_preemptible else "no",
            )
        )  # fmt: skip
        yield out.getvalue()
