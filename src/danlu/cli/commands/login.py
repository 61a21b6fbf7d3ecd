"""Commands about the caller's own account: login, logout, whoami, password, tokens."""

from __future__ import annotations

import contextlib
import os
from time import time

from danlu.cli import render
from danlu.cli.input import prompts
from danlu.client import Client, credentials
from danlu.client.http import NoServer, quoted
from danlu.errors import DanluError, Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.cli.input.options import Values

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def login(values: Values) -> int:
    if values["browser"] or values["paste"] or values["no_browser"]:
        from danlu.cli.commands.sign_on import browser_login

        return browser_login(values)
    client = server_to_enter(values)
    is_socket = client.address.scheme == "unix"
    if is_socket and not values["first"]:
        raise Refused(
            "on a Unix socket the machine says who you are: there is nothing to log in to",
            "`danlu whoami` shows it; over the network: `danlu login --server https://HOST:7411`",
        )
    user = values["user"] or prompts.name("Name: ")
    if values["first"]:
        code = prompts.code(values, values["first"])
        answer = client.first_admin(code, user, prompts.new_password(values, f" for {user}"))
    else:
        answer = client.login(user, prompts.password(values, f"Password of {user} at {client.address.text}: "))
    if is_socket:
        client.ask("POST", "/logout", {})
    else:
        keep(client, user, answer["token"])
    told(values, client, answer)
    return 0


def server_to_enter(values: Values) -> Client:
    """A client of the server to log in to; a personal server needs no login."""
    # A new login must not use the credentials of the last login, nor DANLU_TOKEN.
    client = Client(values["server"] or os.environ.get("DANLU_SERVER") or _default(), remembered=False)
    if client.is_personal:
        raise Invalid(
            "which server? Your own needs no login", "for example `danlu login --server https://gpu.lab:7411`"
        )
    if client.address.scheme == "http" and client.address.host not in _LOOPBACK:
        render.say(
            f"warning: {client.address.text} is not encrypted: others on the way can read the password", "yellow"
        )
    return client


def _default() -> str:
    return credentials.default_server()


def keep(client: Client, user: str, token: str) -> None:
    """Remember the token, and log out the previous token."""
    before = credentials.token_for(client.address)
    credentials.remember(client.address, user, token)
    if before:
        # An expired or revoked token is fine: ending the old token was the aim.
        with contextlib.suppress(DanluError):
            Client(client.address.text, token=before, remembered=False).ask("POST", "/logout", {})


def told(values: Values, client: Client, answer: dict[str, Any]) -> None:
    shown = {name: value for name, value in answer.items() if name != "token"} | {"server": client.address.text}
    if values["json"]:
        render.as_json(shown)
    else:
        from danlu.cli.text import render_moment

        until = render_moment(answer["expires_at"], time())
        render.out(f"logged in to {client.address.text} as {answer['user']} ({answer['role']}), until {until}")
    if os.environ.get("DANLU_TOKEN"):
        render.say("DANLU_TOKEN is set, and wins over this login", "yellow")


def logout(values: Values) -> int:
    client = Client(values["server"] or "")
    if client.is_personal or not credentials.token_for(client.address):
        render.out("not logged in")
        return 0
    try:
        Client(client.address.text, token=credentials.token_for(client.address)).ask("POST", "/logout", {})
    except NoServer:
        credentials.forget(client.address)
        raise
    except DanluError as error:
        if error.exit_code == 4:
            raise
        # The server no longer knows the token: logging out was the aim.
    credentials.forget(client.address)
    render.out(f"logged out of {client.address.text}")
    return 0


def whoami(values: Values) -> int:
    client = Client(values["server"] or "")
    try:
        me = client.whoami() | {"server": client.address.text, "is_own_server": client.is_personal}
    except NoServer:
        if not client.is_personal:
            raise
        me = {"user": prompts.unix_user(), "role": "admin", "teams": [], "by": "unix socket", "token": None}
        me |= {"server": client.address.text, "is_own_server": True, "has_account": False}
    if values["json"]:
        render.as_json(me)
        return 0
    from danlu.cli.views.people import render_me

    render.out(render_me(me, time()))
    return 0


def passwd(values: Values) -> int:
    client = Client(values["server"] or "")
    me = client.whoami()["user"]
    user = values["words"][0] if values["words"] else me
    body: dict[str, Any] = {}
    if user == me:
        body["old"] = prompts.password(values, f"Old password of {user}: ")
    body["new"] = prompts.new_password(values, f" for {user}")
    ended = client.ask("POST", f"/users/{quoted(user)}/password", body)["ended"]
    render.out(f"the password of {user} is changed" + (f"; {ended} logins are ended" if ended else ""))
    return 0


def token_create(values: Values) -> int:
    body: dict[str, Any] = {"name": values["words"][0]}
    body |= {name: values[name] for name in ("user", "role", "days") if values[name] is not None}
    answer = Client(values["server"] or "").ask("POST", "/tokens", body)
    if values["json"]:
        render.as_json(answer)
        return 0
    render.out(answer["token"])
    render.say(f"token {answer['id']} of {answer['user']} is shown this once; set DANLU_TOKEN to it", "dim")
    return 0


def token_list(values: Values) -> int:
    query = "?everybody=true" if values["all"] else f"?user={quoted(values['user'])}" if values["user"] else ""
    answer = Client(values["server"] or "").ask("GET", f"/tokens{query}")
    if values["json"]:
        render.as_json(answer)
        return 0
    from danlu.cli.views.people import render_tokens

    render.out(render_tokens(answer["items"], time(), render.width()))
    return 0


def token_revoke(values: Values) -> int:
    client = Client(values["server"] or "")
    for token_id in values["words"]:
        client.ask("DELETE", f"/tokens/{quoted(token_id)}")
        render.out(f"token {token_id} is revoked")
    return 0
