"""Values as Slurm writes them: times, sizes, cards, arrays, dependencies, signals. ValueError for nonsense."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_UNLIMITED = ("-1", "infinite", "unlimited")
_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
MAX_TASKS = 100_000
# Names of signals by number, in the numbering of Linux; a fast parser avoids the import of a module.
_SIGNALS = {
    1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 9: "KILL", 10: "USR1", 12: "USR2", 14: "ALRM", 15: "TERM", 18: "CONT",
    19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU",
}  # fmt: skip


def count_of(text: str, least: int = 0) -> int:
    """A whole number, of at most nine digits."""
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < least:
        raise ValueError(f"a whole number of {least} or more is wanted")
    return int(text)


def minutes_of(text: str) -> int | None:
    """`90`, `1:30` (rounded up), `2-12`, `1-02:03:04`; None is no limit."""
    if text.lower() in _UNLIMITED:
        return None
    wrong = ValueError("a time is MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES")
    days, dash, clock = text.partition("-") if "-" in text else ("0", "", text)
    parts = clock.split(":") if clock or not dash else ["0"]
    if len(parts) > 3:
        raise wrong
    try:
        numbers = [count_of(part) for part in parts]
        day = count_of(days)
    except ValueError:
        raise wrong from None
    if dash:
        hours, minutes, seconds = numbers + [0] * (3 - len(numbers))
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, numbers + [0] * (2 - len(numbers))
    total = day * 1440 + hours * 60 + minutes + -(-seconds // 60)
    return total or None


def mib_of(text: str) -> int:
    """`64G`, `64gb`, `500` (MiB), `100K` (rounded up)."""
    number = text.rstrip("kKmMgGtTbB")
    unit = text[len(number) :].upper()
    if unit not in ("", "K", "M", "G", "T", "KB", "MB", "GB", "TB") or not (number.isascii() and number.isdigit()):
        raise ValueError("a size is a whole number with K, M, G or T; without a letter it is MB")
    size = count_of(number)
    return -(-size // 1024) if unit.startswith("K") else size * _MIB[unit[:1]]


def cards_of(text: str) -> tuple[str, int]:
    """`2`, `a100:2`, `a100`: model (or none) and count."""
    model, colon, count = text.rpartition(":")
    if not colon and not text.isdigit():
        model, count = text, "1"
    if ":" in model or (colon and not model) or "," in text or not text:
        raise ValueError("cards are N or MODEL:N")
    return model, count_of(count)


def gres_of(text: str) -> list[tuple[str, str, int]]:
    """`gpu:a100:2,shard:4`: kind, model and count of each."""
    found = []
    for item in text.split(","):
        if not item or item == "none":
            continue
        parts = item.replace("=", ":").split(":")
        if len(parts) > 3 or not all(parts):
            raise ValueError("a generic resource is NAME, NAME:COUNT or NAME:TYPE:COUNT")
        kind, rest = parts[0], parts[1:]
        model, count = cards_of(":".join(rest)) if rest else ("", 1)
        found.append((kind, model, count))
    return found


def least_nodes(text: str) -> int:
    """`2`, `1-4`: at least so many."""
    least, dash, most = text.partition("-")
    found = count_of(least, 1)
    if dash and count_of(most, 1) < found:
        raise ValueError("the smaller number of nodes comes first")
    return found


def array_of(text: str) -> tuple[str, list[int]]:
    """`1-10%2` as we write it, and the numbers of its tasks."""
    listed, percent, at_once = text.partition("%")
    if listed.startswith("[") and listed.endswith("]"):
        listed = listed[1:-1]
    indices: set[int] = set()
    for part in listed.split(","):
        first, dash, rest = part.partition("-")
        last, colon, step = rest.partition(":")
        low = count_of(first)
        high = count_of(last) if dash else low
        by = count_of(step, 1) if colon else 1
        if high < low or (high - low) // by >= MAX_TASKS:
            raise ValueError(f"the tasks of an array go up, and are at most {MAX_TASKS:,}")
        indices.update(range(low, high + 1, by))
    limit = count_of(at_once) if percent else 0
    return listed + (f"%{limit}" if limit else ""), sorted(indices)


def dependencies_of(text: str) -> list[str]:
    """`afterok:7:8,afterany:9` as `--after` takes them. A bare number is `afterany`, also after a comma."""
    if "?" in text:
        raise ValueError("`?` (any one of them is enough) is not supported")
    found = []
    for item in text.split(","):
        kind, colon, listed = item.partition(":")
        if not colon and item[:1].isdigit():
            kind, listed = "afterany", item
        if kind not in ("afterok", "afterany"):
            raise ValueError(f"`{kind[:20]}` is not supported; afterok and afterany are")
        for number in listed.split(":"):
            name, _, task = number.partition("_")
            count_of(name)
            if task:
                count_of(task)
            found.append(number if kind == "afterok" else f"{number}:any")
    return found


def signal_of(text: str) -> str:
    """`B:USR1@60`, `10@60`, `SIGUSR1`: as `--signal` takes it."""
    flags, colon, rest = text.partition(":")
    if not colon:
        flags, rest = "", text
    if flags not in ("", "B"):
        raise ValueError("of the letters before `:` only B is supported")
    name, at, seconds = rest.partition("@")
    if name.isdigit():
        name = _SIGNALS.get(count_of(name), "")
    name = name.upper().removeprefix("SIG")
    if name not in _SIGNALS.values() or name in ("KILL", "STOP"):
        raise ValueError("no such signal")
    lead = count_of(seconds, 0) if at else 60
    if lead > 65535:
        raise ValueError("the notice comes at most 65535 seconds before the end")
    return f"{name}@{max(lead, 1)}"


def exported(text: str, environ: Sequence[tuple[str, str]]) -> tuple[bool, dict[str, str]]:
    """`ALL`, `ALL,X=1`, `NONE`, `X=1,HOME`: whether the environment goes along, and what is set besides."""
    known = dict(environ)
    inherits, variables = False, {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if name == "ALL" and not equals:
            inherits = True
        elif equals and name:
            variables[name] = value
        elif name in known:
            variables[name] = known[name]
    return inherits, variables
