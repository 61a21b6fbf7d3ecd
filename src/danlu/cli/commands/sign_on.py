"""`danlu login --browser`: the person signs on at the identity provider, this terminal gets the login.

The browser brings a one-time code to a listener on loopback, or the person pastes the code. The code is useless without
the verifier, which never leaves this process before the last step."""

from __future__ import annotations

import base64
import hashlib
import os
import queue
import secrets
import sys
import threading
import webbrowser
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from danlu.cli import render
from danlu.cli.commands.login import keep, server_to_enter, told
from danlu.cli.input.options import connect
from danlu.client.http import query_of, quoted
from danlu.errors import DanluError, Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.cli.input.options import Values
    from danlu.client import Client

PATIENCE_S = 600.0
ANSWER_WITHIN_S = 60.0
TOLD_WITHIN_S = 5.0
_DONE = "You may close this window."


def browser_login(values: Values) -> int:
    client = server_to_enter(values)
    answer = sign_on(client, opens=not values["no_browser"], pastes=values["paste"])
    keep(client, answer["user"], answer["token"])
    told(values, client, answer)
    return 0


def link(values: Values) -> int:
    """Link an account to a subject of the identity provider."""
    name, subject = values["words"]
    answer = connect(values).ask("PUT", f"/users/{quoted(name)}/subject", {"subject": subject})
    render.as_json(answer) if values["json"] else render.out(f"{name} is {answer['subject']} at the sign-on")
    return 0


def sign_on(client: Client, *, opens: bool, pastes: bool) -> dict[str, Any]:
    """The answer of `POST /signon/finish`: a token and its user. `opens`: open a browser if this machine has one."""
    start = str(client.ask("GET", "/signon")["url"]) or _address(client)
    verifier, echo = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()

    def finish(code: str) -> dict[str, Any]:
        return client.ask("POST", "/signon/finish", {"code": code, "verifier": verifier})

    if pastes:
        _show(f"{start}{query_of([('port', 0), ('challenge', challenge), ('state', echo)])}", challenge)
        code = render.question("the code that the browser shows: ")
        if not code:
            raise Invalid("no code was pasted", "begin again with `danlu login --browser --paste`")
        return finish(code)
    with Listener(echo) as listener:
        url = f"{start}{query_of([('port', listener.port), ('challenge', challenge), ('state', echo)])}"
        _show(url, challenge)
        if opens and has_browser():
            # In a thread: with some browsers, the call returns only after the browser is closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        else:
            render.say("no browser on this machine? `danlu login --browser --paste`", "dim")
        return listener.exchanged(finish)


def has_browser() -> bool:
    """Whether there is a browser with a window: a text browser would compete for the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def spoken(challenge: str) -> str:
    """The same six digits as on the page."""
    number = int.from_bytes(base64.urlsafe_b64decode(challenge + "=")[:8], "big") % 1_000_000
    return f"{number // 1000:03d}-{number % 1000:03d}"


def _address(client: Client) -> str:
    if client.address.scheme == "unix":
        raise Refused("a browser cannot open a Unix socket", "name the server's address: `--server https://HOST:PORT`")
    return f"{client.address.text.rstrip('/')}/api/v1/signon/start"


def _show(url: str, challenge: str) -> None:
    render.say(f"sign on with a browser:\n\n  {url}\n\nit shows the same digits: {spoken(challenge)}\n")


class Listener:
    """Waits on loopback for the browser with the code of this sign-on; refuses other requests."""

    def __init__(self, echo: str) -> None:
        arrived: queue.Queue[tuple[str, queue.Queue[str]]] = queue.Queue()
        is_taken, is_told = threading.Lock(), threading.Event()
        self._arrived, self._is_told = arrived, is_told

        class Visit(BaseHTTPRequestHandler):
            timeout = ANSWER_WITHIN_S

            def do_GET(self) -> None:
                given = parse_qs(urlsplit(self.path).query)
                code, state = given.get("code", [""])[0], given.get("state", [""])[0]
                if not code or not secrets.compare_digest(state.encode(), echo.encode()):
                    return self._say(404, "This is not the sign-on that this terminal waits for.")
                if not is_taken.acquire(blocking=False):
                    return self._say(200, _DONE)
                outcome: queue.Queue[str] = queue.Queue()
                arrived.put((code, outcome))
                try:
                    return self._say(200, outcome.get())
                finally:
                    is_told.set()

            def _say(self, status: int, text: str) -> None:
                body = f'<!doctype html><meta charset="utf-8"><title>Danlu</title><p>{escape(text)}</p>'.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: the request line holds the code."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Visit)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def exchanged(self, finish: Any) -> dict[str, Any]:
        """Call `finish` with the code; the browser shows success or failure. Returns the answer of `finish`."""
        try:
            code, outcome = self._arrived.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Refused("nobody signed on within ten minutes", "begin again with `danlu login --browser`") from None
        try:
            answer: dict[str, Any] = finish(code)
            outcome.put(f"You are signed on as {answer['user']}. {_DONE}")
        except DanluError as error:
            outcome.put(f"You are not signed on: {error.text}. {_DONE}")
            raise
        finally:
            self._is_told.wait(TOLD_WITHIN_S)  # send the page before the command ends
        return answer

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
