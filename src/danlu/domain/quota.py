"""Quotas: how much a person or a team may hold at once and spend in a period, and the text form of a quota."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from danlu.domain.parsing import parse_memory_mib
from danlu.domain.people import check_name
from danlu.domain.texts import LONGEST_WRITTEN, check_text
from danlu.errors import Invalid


class Period(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def start(self, now: datetime) -> datetime:
        """The start of the period of `now`: midnight UTC of the day, of Monday, or of the first of the month."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        match self:
            case Period.DAY:
                return midnight
            case Period.WEEK:
                return midnight - timedelta(days=midnight.weekday())
        return midnight.replace(day=1)


@dataclass(frozen=True, slots=True)
class Quota:
    """None means no limit. Shards also count against `gpus`, as fractions of a card."""

    gpus: int | None = None
    shards: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    jobs: int | None = None
    gpu_hours: int | None = None  # in each period
    period: Period = Period.MONTH
    borrow: bool = False  # preemptible jobs may exceed the quota while no other person wants the same resources


def user_key(name: str) -> str:
    return f"user:{name}"


def team_key(name: str) -> str:
    return f"team:{name}"


def member_key(user: str, team: str) -> str:
    """A person's jobs for one team. A leader of the team may limit these jobs."""
    return f"member:{user}@{team}"


def keys_of(user: str, team: str) -> tuple[str, ...]:
    """Every holder with a quota that counts a job of this person for this team. `user` and `team` may be empty."""
    own = (user_key(user),) if user else ()
    if not team:
        return own
    return (*own, team_key(team), member_key(user, team)) if user else (team_key(team),)


# The written name -> the field of `Quota`. Each limit takes a number, or `none` for no limit.
LIMITS = {
    "gpus": "gpus",
    "shards": "shards",
    "cpus": "cpus",
    "mem": "memory_mib",
    "jobs": "jobs",
    "gpu_hours": "gpu_hours",
}
NAMES = (*LIMITS, "period", "borrow")
_EXAMPLE = "for example `gpus=8 mem=256G gpu_hours=500 period=month borrow=yes`"
_NONE = frozenset({"none", "unlimited", "-"})
_TRUTH = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False, "1": True, "0": False}
_SPELLINGS = {"gpu": "gpus", "memory": "mem", "gpu-hours": "gpu_hours", "hours": "gpu_hours", "cpu": "cpus"}
_UNLIMITED = Quota()


def parse_quota(words: Iterable[str], base: Quota = _UNLIMITED) -> Quota:
    """Apply `gpus=8 borrow=yes` to `base`; other fields stay. Refuse unknown, repeated and impossible words."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = check_text(word, "a quota", LONGEST_WRITTEN).strip().partition("=")
        name = name.casefold()
        if not equals:
            raise Invalid(f"a quota is written NAME=VALUE, not `{word}`", _EXAMPLE)
        if name not in NAMES:
            raise _unknown(name)
        field = LIMITS.get(name, name)
        if field in changes:
            raise Invalid(f"`{name}` is given twice", "say it once")
        changes[field] = _value(name, text.strip().casefold())
    return replace(base, **changes)


def _value(name: str, text: str) -> object:
    if name == "period":
        if text not in set(Period):
            raise Invalid(f"`period` is day, week or month, not `{text}`", "for example `gpu_hours=500 period=week`")
        return Period(text)
    if name == "borrow":
        if text not in _TRUTH:
            raise Invalid(f"`borrow` is yes or no, not `{text}`")
        return _TRUTH[text]
    if text in _NONE:
        return None
    if name == "mem":
        try:
            return parse_memory_mib(text)
        except Invalid as error:
            raise Invalid(f"`mem` takes a size such as 256G, or none, not `{text}`", error.hint) from None
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise Invalid(
            f"`{name}` takes a whole number of 0 or more, or none, not `{text}`",
            f"for example `{name}=8`; `{name}=none` lifts the limit",
        )
    return int(text)


def _unknown(name: str) -> Invalid:
    near = [_SPELLINGS[name]] if name in _SPELLINGS else difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(NAMES)}"
    return Invalid(f"a quota has no `{name[:40]}`", hint)


def render_quota(quota: Quota) -> str:
    """The text that `parse_quota` reads: `gpus=8 borrow=yes`; empty if the quota limits nothing."""
    parts = [f"{name}={_written(name, value)}" for name, value in limits_of(quota).items() if value is not None]
    if quota.gpu_hours is not None:
        parts.append(f"period={quota.period}")
    if quota.borrow:
        parts.append("borrow=yes")
    return " ".join(parts)


def _written(name: str, value: int) -> str:
    if name != "mem":
        return str(value)
    return f"{value // 1024}G" if value % 1024 == 0 else f"{value}M"


def limits_of(quota: Quota) -> dict[str, int | None]:
    """Each limit by its written name; None means no limit."""
    return {name: getattr(quota, field) for name, field in LIMITS.items()}


def parse_holder(text: str) -> tuple[str, str]:
    """`team:nlp` -> ("team", "nlp"); `user:li` -> ("user", "li"); `member:li@nlp` -> ("member", "li@nlp")."""
    kind, colon, name = check_text(text, "the holder of a quota", LONGEST_WRITTEN).strip().partition(":")
    if not colon or kind not in ("user", "team", "member") or not name:
        raise Invalid(
            f"a quota belongs to user:NAME, team:NAME or member:USER@TEAM, not to `{text[:60]}`",
            "for example `team:nlp`, `user:li`, or `member:li@nlp` for jobs of li for nlp",
        )
    if kind == "member":
        split_member(name)
        return kind, name
    return kind, check_name(name, "a person" if kind == "user" else "a team")


def split_member(name: str) -> tuple[str, str]:
    """`li@nlp` -> the person and the team."""
    user, at, team = name.partition("@")
    if not at:
        raise Invalid(f"a member is written USER@TEAM, not `{name[:60]}`", "for example `member:li@nlp`")
    return check_name(user, "a person"), check_name(team, "a team")
