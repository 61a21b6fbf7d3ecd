"""`ps --all`, `show`, `why` and `stop` for runs that did not come through Danlu."""

from __future__ import annotations

from time import time

from danlu.cli import render
from danlu.cli.text import (
    epoch,
    render_duration,
    render_estimate,
    render_facts,
    render_moment,
    render_short,
    render_table,
    visible,
)
from danlu.cli.views.jobs import STYLES, render_ask, render_seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from danlu.cli.input.options import Values
    from danlu.client import Client

    Data = dict[str, Any]
    Painted = Callable[[str, str], str]

_STATES = ("RUNNING", "PENDING", "ACTIVE")


def listed(client: Client, values: Values) -> list[Data]:
    """The external runs that match the options of `ps`; none match a filter that only jobs have."""
    states = [state for state in values["state"] if state.upper() in _STATES]
    if values["team"] or values["label"] or values["before"] or (values["state"] and not states):
        return []
    found = client.others(
        state=states, user=values["user"] or "all", queue=values["queue"] or "", name=values["name"] or ""
    )
    return found if values["limit"] is None else found[: values["limit"]]


def show(client: Client, ref: str, values: Values) -> int:
    found = client.other(ref)
    if values["json"]:
        render.as_json({"items": found})
    elif len(found) == 1:
        render.out(render_other(found[0], time()))
    else:
        render.out(render_others(found, time(), render.width(), render.painted))
    return 0


def why(client: Client, ref: str, values: Values) -> int:
    found = client.other(ref)
    if values["json"]:
        render.as_json({"items": found})
    else:
        render.out("\n".join(render_why_other(one, time()) for one in found))
    return 0


def render_others(others: Sequence[Data], now: float, width: int | None, paint: Painted) -> str:
    """The second table of `danlu ps --all`."""
    head = ["ID", "USER", "NAME", "STATE", "QUEUE", "ASKS", "TIME", "UNTIL", "WHERE OR WHY"]
    rows = [
        [
            one["id"], one["user"], one["name"], one["state"], one["queue"], _asks(one),
            render_short(now - epoch(one["started_at"] or one["submitted_at"])) if _begun(one) else "",
            _until(one, now), _where(one),
        ]
        for one in others
    ]  # fmt: skip

    def painted(at: int, value: str, padded: str) -> str:
        if not value:
            return paint(padded, "bold")
        return paint(padded, STYLES.get(value, "")) if at == 3 else padded

    return render_table(head, rows, width, painted)


def render_other(other: Data, now: float) -> str:
    """The block of `danlu show slurm:17`."""
    facts = [
        ("run", f"{other['id']}  {other['name']}".rstrip()),
        ("", "it did not come through Danlu: this is all that is known"),
        ("state", other["state"]),
        ("why", (other["reason"] or {}).get("text") or ""),
        ("estimate", render_estimate(other["estimated_at"], now)),
        ("user", other["user"]),
        ("asks", _asks(other) or "1 cpu"),
        ("runs on", "\n".join(render_seat(seat) for seat in other["seats"])),
        ("queue", other["queue"]),
        ("submitted", render_moment(other["submitted_at"], now)),
        ("started", render_moment(other["started_at"], now)),
        ("ends", render_moment(other["ends_at"], now) or ("no time limit" if other["started_at"] else "")),
    ]
    return render_facts(facts)


def render_why_other(other: Data, now: float) -> str:
    if other["state"] == "RUNNING":
        until = f", until {render_moment(other['ends_at'], now)}" if other["ends_at"] else ", no time limit"
        return visible(f"{other['id']} runs on {_where(other)}{until}")
    text = (other["reason"] or {}).get("text") or "no reason is known"
    estimate = f"\nestimate  {render_estimate(other['estimated_at'], now)}" if other["estimated_at"] else ""
    return visible(f"{other['id']} waits: {text}{estimate}", lines=True)


def _begun(other: Data) -> bool:
    return bool(other["started_at"] or other["submitted_at"])


def _asks(other: Data) -> str:
    asks = render_ask(other["ask"])
    return f"{other['tasks']} x {asks or '1 cpu'}" if other["tasks"] > 1 else asks


def _until(other: Data, now: float) -> str:
    if other["state"] != "RUNNING":
        return ""
    return f"in {render_duration(epoch(other['ends_at']) - now)}" if other["ends_at"] else "no time limit"


def _where(other: Data) -> str:
    if other["seats"]:
        return "; ".join(render_seat(seat) for seat in other["seats"])
    return str((other["reason"] or {}).get("text") or "")
