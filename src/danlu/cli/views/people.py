"""Views of people: data in, text out."""

from __future__ import annotations

from danlu.cli.text import epoch, render_duration, render_facts, render_moment, render_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Data = dict[str, Any]


def render_me(me: Data, now: float) -> str:
    """The block of `danlu whoami`."""
    if me["is_own_server"]:
        return render_facts([("name", me["user"]), ("server", f"your own ({me['server']}): no login needed")])
    token = me.get("token") or {}
    by = {"login": "by login", "token": f"with token {token.get('name')} ({token.get('id')})"}
    until = render_moment(token.get("expires_at"), now)
    facts = [
        ("name", me["user"] + (f", {me['full_name']}" if me.get("full_name") else "")),
        ("role", me["role"]),
        ("teams", ", ".join(_my_team(one) for one in me["teams"])),
        ("invited", ", ".join(_invitation(one) for one in me.get("invitations", []))),
        ("server", me["server"]),
        ("signed in", by.get(me["by"], "by the Unix socket") + (f", until {until}" if until else "")),
        ("account", "" if me.get("has_account") else "none: known to this machine only"),
    ]
    return render_facts(facts)


def _invitation(one: Data) -> str:
    return f"into {one['team']} by {one['by']}: `danlu team join {one['team']}`"


def _my_team(one: Data) -> str:
    if one["is_leader"]:
        return f"{one['team']} (you lead it)"
    return f"{one['team']} (led by {', '.join(one['leaders']) or 'nobody'})"


def render_memberships(teams: Sequence[Data]) -> str:
    return ", ".join(f"{one['team']} (leads)" if one["is_leader"] else str(one["team"]) for one in teams)


def render_users(users: Sequence[Data], width: int | None) -> str:
    rows = [
        [
            str(user["name"]),
            str(user["role"]),
            "yes" if user["is_enabled"] else "no",
            render_memberships(user["teams"]),
            str(user["full_name"]),
        ]
        for user in users
    ]
    return render_table(["USER", "ROLE", "ENABLED", "TEAMS", "NAME"], rows, width)


def render_user(user: Data, now: float) -> str:
    ways = [what for what, has in (("password", user["has_password"]), ("sign-on", user["signs_on"])) if has]
    facts = [
        ("user", user["name"] + (f", {user['full_name']}" if user["full_name"] else "")),
        ("email", user["email"]),
        ("role", user["role"]),
        ("enabled", "yes" if user["is_enabled"] else "no: nothing new starts"),
        ("teams", render_memberships(user["teams"])),
        ("created", render_moment(user["created_at"], now)),
        ("enters by", ", ".join(ways) or "tokens and the Unix socket only"),
        ("running", ", ".join(user["running"])),
        ("waiting", ", ".join(user["queued"])),
    ]
    return render_facts(facts)


def render_teams(teams: Sequence[Data], width: int | None) -> str:
    rows = [[str(team["name"]), str(len(team["members"])), ", ".join(team["leaders"]) or "nobody"] for team in teams]
    return render_table(["TEAM", "PEOPLE", "LED BY"], rows, width)


def render_team(team: Data, width: int | None) -> str:
    rows = [
        [
            str(one["user"]),
            "leads" if one["is_leader"] else "",
            "" if one["is_enabled"] else "disabled",
            str(one["full_name"]),
        ]
        for one in team["members"]
    ]
    rows += [[str(one["user"]), "", f"invited by {one['by']}", ""] for one in team.get("invited", [])]
    if not rows:
        return f"nobody is in {team['name']}"
    return render_table(["USER", "LEADS", "STATE", "NAME"], rows, width)


def render_requests(requests: Sequence[Data], now: float, width: int | None) -> str:
    rows = [
        [
            str(one["id"]),
            str(one["user"]),
            str(one["team"]),
            str(one["state"]) + (f" by {one['decided_by']}" if one["decided_by"] else ""),
            f"{render_duration(now - epoch(one['asked_at']))} ago",
            str(one["full_name"]),
            str(one["email"]),
            str(one["why"]),
        ]
        for one in requests
    ]
    # An older server does not say it.
    notes = [f"{one['id']}: {one['conflict']}" for one in requests if one.get("conflict")]
    table = render_table(["ID", "USER", "TEAM", "STATE", "ASKED", "NAME", "EMAIL", "WHY"], rows, width)
    return "\n".join([table, *(["", *notes] if notes else [])])


def render_audit(entries: Sequence[Data], width: int | None) -> str:
    from time import localtime, strftime

    rows = [
        [
            strftime("%Y-%m-%d %H:%M:%S", localtime(epoch(one["at"]))),
            str(one["who"] or "-"),
            str(one["what"]),
            str(one["target"]),
            str(one["origin"]),
            str(one["detail"]),
        ]
        for one in entries
    ]
    return render_table(["WHEN", "WHO", "WHAT", "TARGET", "FROM", "DETAIL"], rows, width)


def render_tokens(tokens: Sequence[Data], now: float, width: int | None) -> str:
    rows = [
        [
            str(token["id"]),
            str(token["user"]),
            str(token["role"]),
            str(token["name"]),
            render_moment(token["expires_at"], now) or "never",
        ]
        for token in tokens
    ]
    return render_table(["ID", "USER", "ROLE", "NAME", "EXPIRES"], rows, width)
