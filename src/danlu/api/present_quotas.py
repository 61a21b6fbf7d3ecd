"""The JSON of quotas, usage and boosts."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator, WithJsonSchema

from danlu.actions.shares.quotas import Amounts, Standing
from danlu.actions.shares.usage import Line, Usage
from danlu.api.answers import Answer, HolderOut
from danlu.api.bodies import holder_out, time_out
from danlu.api.fields import Text, string
from danlu.domain.people import Boost
from danlu.domain.quota import Quota, limits_of, render_quota
from danlu.domain.texts import LONGEST_WRITTEN, trouble_with


def _amount(value: Any) -> str:
    """The text of a quota value for `parse_quota`; null lifts a limit."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str | int):
        raise ValueError("must be a text, a whole number, true, false or null")
    text = str(value)
    if trouble := trouble_with(text, LONGEST_WRITTEN):
        raise ValueError(trouble)
    return text


_NUMBER = {"anyOf": [{"type": "integer"}, string(LONGEST_WRITTEN), {"type": "null"}]}
Amount = Annotated[str, PlainValidator(_amount), WithJsonSchema(_NUMBER)]


class QuotaIn(BaseModel):
    """Named values change; the others stay."""

    model_config = ConfigDict(extra="forbid")
    gpus: Amount = ""
    shards: Amount = ""
    cpus: Amount = ""
    mem: Amount = ""
    jobs: Amount = ""
    gpu_hours: Amount = ""
    period: Amount = ""
    borrow: Annotated[str, PlainValidator(_amount), WithJsonSchema({"type": "boolean"})] = ""

    def words(self) -> list[str]:
        return [f"{name}={getattr(self, name)}" for name in type(self).model_fields if name in self.model_fields_set]


class BoostIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    user: Text
    until: Text = ""
    why: Text = ""
    team: Text = ""


class AmountsOut(Answer):
    gpus: float
    shards: int
    cpus: int
    memory_mib: int
    jobs: int


class LimitsOut(Answer):
    gpus: int | None
    shards: int | None
    cpus: int | None
    memory_mib: int | None
    jobs: int | None
    gpu_hours: int | None


class QuotaOut(Answer):
    holder: str
    written: str
    limits: LimitsOut
    period: str
    borrow: bool
    held: AmountsOut
    waiting: AmountsOut
    spent_gpu_hours: float | None
    period_began_at: str | None
    holders: list[HolderOut]


class QuotaList(Answer):
    items: list[QuotaOut]


class UsageLine(Answer):
    name: str
    runs: int
    running: int
    gpu_hours: float
    asked_gpu_hours: float
    cpu_hours: float
    mean_wait_s: float
    longest_wait_s: float


class UsageOut(Answer):
    since: str
    until: str
    by: str
    items: list[UsageLine]
    total: UsageLine


class BoostOut(Answer):
    id: str
    user: str
    team: str
    by: str
    why: str
    created_at: str
    until: str


class BoostList(Answer):
    items: list[BoostOut]


def quota_out(standing: Standing) -> dict[str, Any]:
    quota = standing.quota or Quota()
    limits = limits_of(quota)
    limits["memory_mib"] = limits.pop("mem")
    return {
        "holder": standing.holder,
        "written": render_quota(quota),
        "limits": limits,
        "period": quota.period,
        "borrow": quota.borrow,
        "held": _amounts_out(standing.held),
        "waiting": _amounts_out(standing.waiting),
        "spent_gpu_hours": None if standing.spent_gpu_hours is None else round(standing.spent_gpu_hours, 3),
        "period_began_at": time_out(standing.since),
        "holders": [holder_out(holder) for holder in standing.holders],
    }


def _amounts_out(amounts: Amounts) -> dict[str, Any]:
    return {
        "gpus": round(amounts.gpus, 3),
        "shards": amounts.shards,
        "cpus": amounts.cpus,
        "memory_mib": amounts.memory_mib,
        "jobs": amounts.jobs,
    }


def usage_out(usage: Usage) -> dict[str, Any]:
    return {
        "since": time_out(usage.since),
        "until": time_out(usage.until),
        "by": usage.by,
        "items": [_line_out(line) for line in usage.lines],
        "total": _line_out(usage.total),
    }


def _line_out(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "runs": line.runs,
        "running": line.running,
        "gpu_hours": round(line.gpu_hours, 3),
        "asked_gpu_hours": round(line.asked_gpu_hours, 3),
        "cpu_hours": round(line.cpu_hours, 3),
        "mean_wait_s": round(line.mean_wait_s, 1),
        "longest_wait_s": round(line.longest_wait_s, 1),
    }


def boost_out(boost: Boost) -> dict[str, Any]:
    return {
        "id": boost.id,
        "user": boost.user,
        "team": boost.team,
        "by": boost.by,
        "why": boost.why,
        "created_at": time_out(boost.created_at),
        "until": time_out(boost.until),
    }
