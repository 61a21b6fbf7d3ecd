"""Parse values as people write them (`RTX3090:2`, `16G`, `1-02:00:00`, `1-10%2`, `USR1@300`)."""

import math
import re
import signal
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from danlu.domain.texts import LONGEST_ARRAY, LONGEST_WRITTEN, check_text
from danlu.errors import Invalid

MAX_ARRAY_TASKS = 50_000  # a single commit writes all tasks, and all other writes wait for the commit
_UNITS_MIB = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, slots=True)
class Notice:
    """A signal sent some time before the end, so that a job can write a checkpoint."""

    signal: str
    lead: timedelta


@dataclass(frozen=True, slots=True)
class ArrayAsk:
    """The task numbers of an array, and how many may run at once."""

    indices: tuple[int, ...]
    at_once: int | None = None


def _read(text: str | int, what: str, most: int = LONGEST_WRITTEN) -> str:
    """Check the length of a text before parsing: the time of the parsers may grow with the square of the length."""
    return check_text(str(text), what, most).strip()


def parse_count(text: str | int, what: str) -> int:
    """`4` -> 4. Refuse anything else, with the name of the option."""
    check_text(str(text), what, LONGEST_WRITTEN)
    if isinstance(text, bool) or not re.fullmatch(r"\d{1,9}", str(text)):
        raise Invalid(f"{what} takes a whole number of 0 or more, not `{text}`", f"for example `{what} 2`")
    return int(text)


def parse_gpus(text: str | int) -> tuple[str | None, int]:
    """`2` -> (None, 2); `RTX3090:2` -> ("RTX3090", 2); `RTX3090` -> ("RTX3090", 1)."""
    written = _read(text, "--gpus")
    if re.fullmatch(r"\d{1,6}", written):
        return None, int(written)
    model, colon, count = written.rpartition(":")
    if not colon:
        model, count = written, "1"
    # A bare number with more digits is a typing error, not a model.
    if (
        not re.fullmatch(r"\d{1,6}", count)
        or not re.fullmatch(r"[^:]*([A-Za-z]|\d{3})[^:]*", model)
        or written.isdigit()
    ):
        raise Invalid(f"--gpus takes N or MODEL:N, not `{text}`", "for example `--gpus 2` or `--gpus RTX3090:2`")
    return model, int(count)


def parse_memory_mib(text: str | int, what: str = "--mem") -> int:
    """`512` -> 512 (MiB); `16G` -> 16384; `1.5G` -> 1536."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", _read(text, what).casefold())
    if not match:
        raise Invalid(f"{what} takes a size such as 16G or 512M, not `{text}`", "a plain number is MiB")
    # Round up: a job must not be stopped for using the memory it asked for.
    return math.ceil(float(match[1]) * _UNITS_MIB[match[2]])


def parse_duration(text: str | int, what: str = "--time") -> timedelta:
    """`90` minutes; `30s`, `2h30m`, `1d`; in the notation of schedulers `MM:SS`, `HH:MM:SS`, `D-HH:MM:SS`."""
    written = _read(text, what).casefold()
    seconds: float | None = None
    if re.fullmatch(r"\d{1,9}", written):
        seconds = int(written) * 60
    elif re.fullmatch(r"(\d{1,9}(\.\d{1,3})?[smhdw]\s*)+", written):
        seconds = sum(float(n) * _UNITS_S[u] for n, u in re.findall(r"(\d+(?:\.\d+)?)([smhdw])", written))
    elif match := re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", written):
        days, a, b, c = (int(part) if part else None for part in match.groups())
        if days is not None:
            seconds = days * 86400 + (a or 0) * 3600 + (b or 0) * 60 + (c or 0)
        elif c is None:
            seconds = (a or 0) * 60 + (b or 0)
        else:
            seconds = (a or 0) * 3600 + (b or 0) * 60 + c
    if seconds is None:
        raise Invalid(f"{what} takes a duration, not `{text}`", "for example `90m`, `2h30m`, `1d` or `1-12:00:00`")
    if not 0 < seconds <= 10 * 365 * 86400:
        raise Invalid(f"{what} must be more than nothing and less than ten years, not `{text}`")
    return timedelta(seconds=seconds)


def parse_moment(text: str, what: str, *, now: datetime, ahead: bool = False) -> datetime:
    """`2026-07-01`, `2026-07-01T18:00+08:00` (UTC without an offset), or `7d`: 7 days ago, with `ahead` from now."""
    written = _read(text, what)
    try:
        moment = datetime.fromisoformat(written.replace(" ", "T", 1))
    except ValueError:
        try:
            apart = parse_duration(written, what) if re.search(r"[smhdw]$", written.casefold()) else None
        except Invalid:
            apart = None
        if apart is None:
            raise Invalid(
                f"{what} takes a date or a duration, not `{text[:40]}`", "for example `2026-07-01` or `7d`"
            ) from None
        return now + apart if ahead else now - apart
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{what}: there is no such day as `{text[:40]}`") from None


def parse_array(text: str) -> ArrayAsk:
    """`1-10%2` -> tasks 1 to 10, two at once; `1,3,7`, `0-20:5` too."""
    listed, percent, at_once = _read(text, "--array", LONGEST_ARRAY).partition("%")
    bad = Invalid(f"--array takes numbers such as 1-10%2, not `{text[:40]}`", "also `1,3,7` and `0-20:5`")
    if percent and not re.fullmatch(r"[1-9]\d{0,5}", at_once):
        raise bad
    spans: list[range] = []
    for part in listed.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,5}))?)?", part.strip())
        if not match:
            raise bad
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise bad
        spans.append(range(first, last + 1, int(match[3] or 1)))
    # Count the tasks as written, before creating any: a short text can name a task a thousand times.
    if sum(map(len, spans)) > MAX_ARRAY_TASKS:
        raise Invalid(f"--array has more than {MAX_ARRAY_TASKS:,} tasks", "submit several smaller arrays")
    indices = {index for span in spans for index in span}
    return ArrayAsk(tuple(sorted(indices)), int(at_once) if percent else None)


def parse_notice(text: str) -> Notice:
    """`USR1@300` -> SIGUSR1, 300 seconds before the end; `USR1` means 60 seconds."""
    name, at, lead = _read(text, "--signal").partition("@")
    name = name.upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__ or name in {"KILL", "STOP"}:
        raise Invalid(f"--signal does not know the signal `{name}`", "for example `--signal USR1@300`")
    if at and not re.fullmatch(r"[1-9]\d{0,5}", lead):
        raise Invalid(f"--signal takes SIGNAL@SECONDS, not `{text}`", "for example `--signal USR1@300`")
    return Notice(name, timedelta(seconds=int(lead) if at else 60))


def parse_umask(text: str) -> int:
    """`0027` -> 0o27."""
    if not re.fullmatch(r"[0-7]{1,4}", _read(text, "a umask")):
        raise Invalid(f"a umask is an octal number such as 0022, not `{text}`")
    return int(text, 8) & 0o777


def parse_pairs(texts: tuple[str, ...], what: str) -> tuple[tuple[str, str], ...]:
    """`("K=V", …)` -> pairs; the last value of a name wins. Refuse names that no program could read."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or "\0" in text or any(c.isspace() for c in name):
            raise Invalid(f"{what} takes NAME=VALUE, not `{text[:40]}`", f"for example `{what} SEED=1`")
        pairs[name] = value
    return tuple(pairs.items())


def parse_dependency(text: str) -> tuple[str, str]:
    """`ID` or `ID:ok` -> (ID, "ok"); `ID:any` -> (ID, "any"). `ID` may be an engine's own id, `ENGINE:17`."""
    ref, colon, kind = _read(text, "--after").rpartition(":")
    is_engines = ref and kind[:1].isdigit() and not ref.startswith("after")  # `afterok:17` is written for sbatch
    if not colon or is_engines:
        ref, kind = f"{ref}{colon}{kind}", "ok"
    if kind not in {"ok", "any"} or not ref:
        raise Invalid(f"--after takes ID, ID:ok or ID:any, not `{text}`", "`any` means: however it ends")
    return ref, kind
