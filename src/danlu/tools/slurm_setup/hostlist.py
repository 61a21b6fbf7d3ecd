"""Node names in Slurm's notation: `n1, n2, n3, x` is `n[1-3],x`. Pure."""

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*\D)(\d{1,9})")


def folded(names: Iterable[str]) -> str:
    """The inverse of expanding: trailing numbers become ranges, and keep their leading zeros."""
    split = {name: _NUMBERED.fullmatch(name) for name in names}
    # `n09` and `n10` belong together; `n9` and `n09` are different machines.
    padded = {(found[1], len(found[2])) for found in split.values() if found and found[2].startswith("0")}
    groups: dict[tuple[str, int], list[int]] = {}
    for name, found in split.items():
        if not found:
            groups[name, -1] = []
            continue
        key = (found[1], len(found[2]))
        groups.setdefault(key if key in padded else (found[1], 0), []).append(int(found[2]))
    return ",".join(_folded_group(before, width, numbers) for (before, width), numbers in groups.items())


def _folded_group(before: str, width: int, numbers: list[int]) -> str:
    if width < 0:
        return before
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    written = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges]
    return f"{before}{written[0]}" if len(numbers) == 1 else f"{before}[{','.join(written)}]"
