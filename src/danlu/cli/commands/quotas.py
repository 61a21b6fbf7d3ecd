"""Commands about shares: quota, usage, boost."""

from __future__ import annotations

from time import time

from danlu.cli import render
from danlu.cli.input.options import connect
from danlu.errors import Invalid, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values


def show(values: Values) -> int:
    wanted = values["words"][0] if values["words"] else ""
    if wanted and values["all"]:
        raise Invalid("`danlu quota` shows one holder, or with `--all` every quota there is")
    if values["json"] and values["csv"]:
        raise Invalid("--json or --csv, not both")
    items = connect(values).quotas(wanted, every=values["all"])
    if values["json"]:
        render.as_json({"items": items})
        return 0
    if values["csv"]:
        from danlu.cli.views.quotas import render_quotas_csv

        render.out(render_quotas_csv(items))
        return 0
    if not items:
        render.say("no quotas: everybody may use everything", "dim")
        return 0
    from danlu.cli.views.quotas import render_quotas

    render.out(render_quotas(items, time(), render.width()))
    return 0


def set_quota(values: Values) -> int:
    # Parsed here too: the mapping below would hide a name given twice.
    from danlu.domain.quota import parse_holder, parse_quota

    holder, *words = values["words"]
    parse_holder(holder)
    parse_quota(words)
    changes = {name.strip().casefold(): value.strip() for name, _, value in (word.partition("=") for word in words)}
    quota = connect(values).set_quota(holder, **changes)
    if values["json"]:
        render.as_json(quota)
    else:
        render.out(f"{quota['holder']}  {quota['written'] or 'no limits'}")
    return 0


def clear_quota(values: Values) -> int:
    holder = values["words"][0]
    removed = connect(values).clear_quota(holder)
    if values["json"]:
        render.as_json({"removed": int(removed)})
    else:
        render.out(f"{holder}  {'no limits' if removed else 'had no quota'}")
    return 0


def usage(values: Values) -> int:
    if values["json"] and values["csv"]:
        raise Invalid("--json or --csv, not both")
    found = connect(values).usage(
        user=values["user"] or "",
        team=values["team"] or "",
        since=_moment(values["since"]),
        until=_moment(values["until"]),
        by=values["by"] or "user",
    )
    if values["json"]:
        render.as_json(found)
        return 0
    from danlu.cli.views.quotas import render_usage, render_usage_csv

    if values["csv"]:
        render.out(render_usage_csv(found))
    else:
        render.out(render_usage(found, render.width()))
        if render.is_terminal(2):
            render.say(f"from {found['since'][:10]} to {found['until'][:10]}", "dim")
    return 0


def boost(values: Values) -> int:
    client = connect(values)
    if values["words"]:
        user = values["words"][0]
        why, team = values["why"] or "", values["team"] or ""
        made = client.boost(user, until=_moment(values["until"]), why=why, team=team)
        items = [made]
    elif values["until"] or values["why"] or values["team"]:
        raise Invalid("who is to be boosted?", 'for example `danlu boost li --until 3d --why "deadline"`')
    else:
        items = client.boosts()
    if values["json"]:
        render.as_json(made if values["words"] else {"items": items})
        return 0
    if not items:
        render.say("nobody is boosted", "dim")
        return 0
    from danlu.cli.views.quotas import render_boosts

    render.out(render_boosts(items, time(), render.width()))
    return 0


def end_boost(values: Values) -> int:
    """End a boost by its id, or all boosts of a person."""
    client, wanted = connect(values), values["words"][0]
    found = [one for one in client.boosts() if wanted in (one["id"], one["user"])]
    if not found:
        raise NotFound(f"no boost of or called `{wanted}`", "`danlu boost` lists them")
    for one in found:
        client.end_boost(one["id"])
    if values["json"]:
        render.as_json({"removed": len(found)})
    else:
        render.out("\n".join(f"{one['id']}  {one['user']} is no longer boosted" for one in found))
    return 0


def _moment(text: str | None) -> str:
    """Convert a local date or time to UTC, the server's clock. The server parses durations and times with a zone."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat((text or "").strip().replace(" ", "T", 1))
        return text or "" if moment.tzinfo else moment.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return text or ""
