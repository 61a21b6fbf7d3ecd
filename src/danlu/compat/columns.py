"""Tables as Slurm's commands print them: `-o "%.18i %j"` and `-O jobid,name:30`, to the byte."""

from __future__ import annotations

from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Field = tuple[str, Callable[[Any], str]]  # heading, and the value for a row


class Column:
    """Width 0 means the width of the value; a longer value is cut. `end` is the text after the value."""

    __slots__ = ("end", "is_right", "letter", "width")

    def __init__(self, letter: str, width: int, is_right: bool, end: str) -> None:
        self.letter, self.width, self.is_right, self.end = letter, width, is_right, end

    def cell(self, value: str) -> str:
        if not self.width:
            return value + self.end
        shown = value[: self.width]
        if self.letter == "P" and value.endswith("*"):  # the mark of the default partition stays
            shown = value[: self.width - 1].removesuffix("*") + "*"
        return (shown.rjust(self.width) if self.is_right else shown.ljust(self.width)) + self.end


def parse_format(text: str, known: Mapping[str, Field]) -> tuple[str, list[Column]]:
    """The text before the first column, and the columns of `%.18i %j`."""
    start, *parts = text.split("%")
    columns = []
    for part in parts:
        is_right = part.startswith(".")
        rest = part.removeprefix(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        letter, end = rest[len(digits) : len(digits) + 1], rest[len(digits) + 1 :]
        if letter not in known or len(digits) > 4:
            raise Invalid(
                f"unknown field `%{part[:20]}` in the format", "fields: " + " ".join(f"%{one}" for one in known)
            )
        columns.append(Column(letter, int(digits or 0), is_right, end))
    return start, columns


def parse_fields(text: str, names: Mapping[str, str]) -> tuple[str, list[Column]]:
    """The columns of `jobid,name:30`; the default width is 20."""
    columns = []
    for item in text.split(","):
        name, _, size = item.strip().partition(":")
        letter = names.get(name.lower())
        width = size.removeprefix(".")
        if letter is None or (width and not (width.isascii() and width.isdigit() and len(width) < 5)):
            raise Invalid(f"unknown field `{item[:40]}` in the format", "fields: " + ", ".join(names))
        columns.append(Column(letter, int(width or 20), size.startswith("."), ""))
    return "", columns


def render(
    layout: tuple[str, list[Column]], known: Mapping[str, Field], rows: Sequence[Any], *, with_heading: bool
) -> list[str]:
    start, columns = layout
    lines = [start + "".join(column.cell(known[column.letter][0]) for column in columns)] if with_heading else []
    return lines + [start + "".join(column.cell(known[column.letter][1](row)) for column in columns) for row in rows]


def span(seconds: float) -> str:
    """`0:03`, `1:00:00`, `2-12:00:00`."""
    whole = max(int(seconds), 0)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ranges(numbers: Sequence[int]) -> str:
    """`[1, 2, 3, 5]` is `1-3,5`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def host_list(names: Sequence[str]) -> str:
    """`gn1`, `gn2` are `gn[1-2]`; numbers keep their zeros."""
    by_stem: dict[tuple[str, int], list[int]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        size = len(digits) if digits.startswith("0") or not digits else 0
        # 09 and 10 belong together: a number without a leading zero joins numbers of the same length.
        if digits and (stem, len(digits)) in by_stem:
            size = len(digits)
        by_stem.setdefault((stem, size), []).append(int(digits) if digits else -1)
    return ",".join(_hosts(stem, size, numbers) for (stem, size), numbers in by_stem.items())


def _hosts(stem: str, size: int, numbers: list[int]) -> str:
    if numbers == [-1]:
        return stem
    parts = ranges(numbers).split(",")
    shown = ",".join("-".join(number.zfill(size) for number in part.split("-")) for part in parts)
    return f"{stem}[{shown}]" if "," in shown or "-" in shown else stem + shown
