"""How much a person or a team may hold at once, and spend in a period."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Period(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def start(self, now: datetime) -> datetime:
        """When the period that `now` is in began: midnight UTC, of Monday, of the first."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        match self:
            case Period.DAY:
                return midnight
            case Period.WEEK:
                return midnight - timedelta(days=midnight.weekday())
        return midnight.replace(day=1)


@dataclass(frozen=True, slots=True)
class Quota:
    """None does not limit. Shards count against `gpus` too, as the part of a card that they are."""

    gpus: int | None = None
    shards: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    jobs: int | None = None
    gpu_hours: int | None = None  # in each period
    period: Period = Period.MONTH
    borrow: bool = False  # preemptible jobs may go beyond it while nobody else wants what they take


def user_key(name: str) -> str:
    return f"user:{name}"


def team_key(name: str) -> str:
    return f"team:{name}"
