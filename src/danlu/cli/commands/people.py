"""Commands about people: accounts, teams, requests for accounts, the audit log."""

from __future__ import annotations

from time import time

from danlu.cli import render
from danlu.cli.input import prompts
from danlu.cli.input.options import connect
from danlu.client.http import query_of, quoted
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.cli.input.options import Values


def user_list(values: Values) -> int:
    found = connect(values).users()
    if values["json"]:
        render.as_json({"items": found})
        return 0
    from danlu.cli.views.people import render_users

    render.out(render_users(found, render.width()))
    return 0


def user_show(values: Values) -> int:
    return _show_user(values, connect(values).ask("GET", f"/users/{quoted(values['words'][0])}"))


def _show_user(values: Values, user: dict[str, Any]) -> int:
    if values["json"]:
        render.as_json(user)
        return 0
    from danlu.cli.views.people import render_user

    render.out(render_user(user, time()))
    return 0


def user_create(values: Values) -> int:
    body: dict[str, Any] = {"name": values["words"][0], "teams": values["team"]}
    for option, name in (("name", "full_name"), ("email", "email"), ("role", "role")):
        if values[option] is not None:
            body[name] = values[option]
    if values["password_stdin"]:
        body["password"] = prompts.new_password(values, "")
    made = connect(values).ask("POST", "/users", body)
    if values["json"]:
        render.as_json(made)
        return 0
    render.out(f"account {made['name']} is open")
    _tell_folders(made["folders"])
    if not values["password_stdin"]:
        render.say(f"it has no password yet: `danlu passwd {made['name']}` sets one", "dim")
    return 0


def user_disable(values: Values) -> int:
    name = values["words"][0]
    user = connect(values).ask("POST", f"/users/{quoted(name)}/disable", {})
    if values["json"]:
        render.as_json(user)
        return 0
    render.out(f"{name} is disabled: no door opens, nothing new starts; data stay")
    for what, ids in (("still running", user["running"]), ("waiting, and held", user["queued"])):
        if ids:
            more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
            render.out(f"{what}: {', '.join(ids[:10])}{more}")
    if user["running"] or user["queued"]:
        render.say("`danlu stop ID` ends them", "dim")
    return 0


def user_enable(values: Values) -> int:
    name = values["words"][0]
    user = connect(values).ask("POST", f"/users/{quoted(name)}/enable", {})
    render.as_json(user) if values["json"] else render.out(f"{name} may work again")
    return 0


def user_role(values: Values) -> int:
    name, role = values["words"]
    user = connect(values).ask("POST", f"/users/{quoted(name)}/role", {"role": role})
    render.as_json(user) if values["json"] else render.out(f"{name} is now {role}")
    return 0


def team_list(values: Values) -> int:
    found = connect(values).teams()
    if values["json"]:
        render.as_json({"items": found})
        return 0
    from danlu.cli.views.people import render_teams

    render.out(render_teams(found, render.width()))
    return 0


def team_show(values: Values) -> int:
    return _show_team(values, connect(values).ask("GET", f"/teams/{quoted(values['words'][0])}"))


def team_create(values: Values) -> int:
    made = connect(values).ask("POST", "/teams", {"name": values["words"][0]})
    if values["json"]:
        render.as_json(made)
        return 0
    render.out(f"team {made['name']} is made")
    _tell_folders(made["folders"])
    render.say(made["warning"], "dim")
    return 0


def team_add(values: Values) -> int:
    return _members(values, "PUT", "members")


def team_remove(values: Values) -> int:
    return _members(values, "DELETE", "members")


def team_join(values: Values) -> int:
    team = connect(values).join_team(values["words"][0])
    render.as_json(team) if values["json"] else render.out(f"you are in team {team['name']}")
    return 0


def team_leave(values: Values) -> int:
    team = connect(values).leave_team(values["words"][0])
    render.as_json(team) if values["json"] else render.out(f"you are not in team {team['name']}")
    return 0


def team_leader(values: Values) -> int:
    return _members(values, "DELETE" if values["remove"] else "PUT", "leaders")


def _members(values: Values, method: str, what: str) -> int:
    client = connect(values)
    team: dict[str, Any] = {}
    for user in values["words"][1:]:
        team = client.ask(method, f"/teams/{quoted(values['words'][0])}/{what}/{quoted(user)}", again=True)
    done = _show_team(values, team)
    invited = [one["user"] for one in team.get("invited", []) if one["user"] in values["words"][1:]]
    if invited and not values["json"]:
        render.say(f"invited: {', '.join(invited)}; each accepts with `danlu team join {team['name']}`", "dim")
    return done


def _show_team(values: Values, team: dict[str, Any]) -> int:
    if values["json"]:
        render.as_json(team)
        return 0
    from danlu.cli.views.people import render_team

    render.out(render_team(team, render.width()))
    if team["warning"]:
        render.say(f"warning: {team['warning']}", "yellow")
    return 0


def account_ask(values: Values) -> int:
    if not values["team"]:
        raise Invalid("in which team?", "name it: `danlu account ask --team TEAM`")
    user = values["user"] or prompts.unix_user()
    body: dict[str, Any] = {"user": user, "team": values["team"]}
    for option, name in (("name", "full_name"), ("email", "email"), ("why", "why")):
        if values[option] is not None:
            body[name] = values[option]
    body["password"] = prompts.new_password(values, f" for {user}")
    made = connect(values, start=False).ask("POST", "/requests", body)
    if values["json"]:
        render.as_json(made)
        return 0
    render.out(f"asked for the account {user} in team {made['team']}: request {made['id']}")
    render.say("`danlu login` says how it stands, and lets you in once it is open", "dim")
    return 0


def account_list(values: Values) -> int:
    answer = connect(values).ask("GET", "/requests" + ("?decided=true" if values["all"] else ""))
    if values["json"]:
        render.as_json(answer)
    elif answer["items"]:
        from danlu.cli.views.people import render_requests

        render.out(render_requests(answer["items"], time(), render.width()))
    else:
        render.say("nobody waits for an account")
    return 0


def account_approve(values: Values) -> int:
    return _decide(values, "approve", {})


def account_open(values: Values) -> int:
    return _decide(values, "open", {})


def account_refuse(values: Values) -> int:
    return _decide(values, "refuse", {"why": values["why"] or ""})


def _decide(values: Values, verb: str, body: dict[str, Any]) -> int:
    made = connect(values).ask("POST", f"/requests/{quoted(values['words'][0])}/{verb}", body)
    if values["json"]:
        render.as_json(made)
        return 0
    said = {"APPROVED": "is approved; an administrator opens it", "OPENED": "is open", "REFUSED": "is refused"}
    render.out(f"the account {made['user']} in team {made['team']} {said[made['state']]}")
    _tell_folders(made["folders"])
    return 0


def _tell_folders(folders: list[dict[str, Any]]) -> None:
    for folder in folders:
        if folder["made"]:
            render.out(f"made {folder['path']}" + (f" ({folder['said']})" if folder["said"] else ""))
        else:
            render.say(f"{folder['path']}: {folder['said']}", "yellow")


def audit(values: Values) -> int:
    pairs = [(name, values[name]) for name in ("who", "what", "target", "limit", "before")]
    answer = connect(values).ask("GET", "/audit" + query_of(pairs))
    if values["json"]:
        render.as_json(answer)
        return 0
    from danlu.cli.views.people import render_audit

    render.out(render_audit(answer["items"], render.width()))
    if answer["next"]:
        render.say(f"older ones: `--before {answer['next']}`", "dim")
    return 0
