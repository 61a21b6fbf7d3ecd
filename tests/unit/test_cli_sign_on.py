"""The terminal's side of a sign-on: who may bring the code, and what the browser is shown."""

import socket
import threading
from typing import Any

import httpx
import pytest

from danlu.actions.people import sign_on_tickets
from danlu.cli.commands.sign_on import Listener, spoken
from danlu.errors import Refused

ECHO = "e" * 32


def waiting(listener: Listener, finish: Any) -> "tuple[threading.Thread, list[Any]]":
    found: list[Any] = []

    def wait() -> None:
        try:
            found.append(listener.exchanged(finish))
        except Refused as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, found


def test_terminal_and_page_show_the_same_digits() -> None:
    for verifier in ("a" * 43, "b" * 60, "c" * 64):
        challenge = sign_on_tickets.challenge_of(verifier)
        assert spoken(challenge) == sign_on_tickets.spoken(challenge)
        assert len(spoken(challenge)) == len("123-456")


def test_only_the_browser_of_this_sign_on_is_heard() -> None:
    with Listener(ECHO) as listener, socket.create_connection(("127.0.0.1", listener.port)):
        # The open connection says nothing, as browsers do that connect ahead: it holds up nobody.
        codes: list[str] = []

        def finish(code: str) -> dict[str, Any]:
            codes.append(code)
            return {"user": "<li>"}

        thread, found = waiting(listener, finish)
        base = f"http://127.0.0.1:{listener.port}/"
        for query in ("", "favicon.ico", "?code=x", "?code=x&state=", f"?code=x&state={ECHO[:-1]}", f"?state={ECHO}"):
            assert httpx.get(base + query).status_code == 404, query
        assert httpx.post(f"{base}?code=x&state={ECHO}").status_code == 501
        assert not codes
        page = httpx.get(f"{base}?code=good&state={ECHO}")
        thread.join(30)
        assert (codes, found) == (["good"], [{"user": "<li>"}])
        assert "signed on as &lt;li&gt;. You may close this window." in page.text
        assert page.headers["cache-control"] == "no-store"
        assert "You may close" in httpx.get(f"{base}?code=again&state={ECHO}").text
        assert codes == ["good"]


def test_a_refusal_is_on_the_page_too() -> None:
    def finish(code: str) -> dict[str, Any]:
        raise Refused("your request waits for approval")

    with Listener(ECHO) as listener:
        thread, found = waiting(listener, finish)
        page = httpx.get(f"http://127.0.0.1:{listener.port}/?code=x&state={ECHO}")
        thread.join(30)
    assert "You are not signed on: your request waits for approval." in page.text
    assert isinstance(found[0], Refused)


def test_others_on_the_network_cannot_reach_it() -> None:
    with Listener(ECHO) as listener, pytest.raises(OSError, match=r"refused|unreachable"):
        # Loopback has many addresses; it listens on one.
        socket.create_connection(("127.0.0.2", listener.port), timeout=5)
