"""Tickets and codes: the state of a sign-on between a terminal, a browser and the identity provider.

The browser keeps a sealed ticket. The server keeps nothing before the provider's answer, so strangers cannot fill the
server's memory. The server keeps a one-time code as a hash; the code is useful only to the terminal at the start of the
sign-on."""

import base64
import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from danlu.errors import DanluError, Invalid, Unauthorized

TICKET_FOR = timedelta(minutes=10)
CODE_FOR = timedelta(minutes=5)
FIRST_PORT = 1024
MOST_FAILURES = 1000
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_ECHO = re.compile(r"[A-Za-z0-9_-]{16,64}")


def challenge_of(verifier: str) -> str:
    """The public challenge of a verifier (RFC 7636, S256)."""
    return _text(hashlib.sha256(verifier.encode("utf-8", "surrogateescape")).digest())


def spoken(challenge: str) -> str:
    """Six digits for a person to compare: terminal and browser show the same digits for the same sign-on."""
    number = int.from_bytes(base64.urlsafe_b64decode(challenge + "=")[:8], "big") % 1_000_000
    return f"{number // 1000:03d}-{number % 1000:03d}"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A sign-on in progress."""

    state: str  # known to the browser of this sign-on, and to the provider
    port: int  # where the terminal listens on loopback; 0: the person pastes the code
    challenge: str  # of the terminal's verifier
    echo: str  # the terminal's own `state`, sent back with the code
    expires_at: datetime


class Tickets:
    """Issues and recognizes tickets. Another server, or the same server after a restart, does not recognize them."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def issue(self, *, port: int, challenge: str, echo: str, now: datetime) -> Ticket:
        if port and not FIRST_PORT <= port <= 65535:
            raise Invalid(f"`port` is where a terminal listens on loopback, or 0, not {port}")
        if not _CHALLENGE.fullmatch(challenge):
            raise Invalid("`challenge` is not the SHA-256 of a verifier", "begin with `danlu login --browser`")
        if not _ECHO.fullmatch(echo):
            raise Invalid("`state` is 16 to 64 letters, digits, `_` and `-`", "begin with `danlu login --browser`")
        ends = (now + TICKET_FOR).replace(microsecond=0)
        return Ticket(_text(os.urandom(32)), port, challenge, echo, ends)

    def seal(self, ticket: Ticket) -> str:
        """The ticket as the browser keeps it: readable, but protected against changes."""
        ends = int(ticket.expires_at.timestamp())
        written = f"{ticket.state}.{ticket.port}.{ticket.challenge}.{ticket.echo}.{ends}"
        return f"{written}.{self._made('seal', written)}"

    def unseal(self, sealed: str, *, now: datetime) -> Ticket:
        written, _, seal = sealed.rpartition(".")
        if not _same(seal, self._made("seal", written)):
            raise Unauthorized("this browser did not begin a sign-on here", "begin with `danlu login --browser`")
        state, port, challenge, echo, ends = written.split(".")
        ticket = Ticket(state, int(port), challenge, echo, datetime.fromtimestamp(int(ends), UTC))
        if ticket.expires_at <= now:
            raise Unauthorized("this sign-on took too long", "begin again with `danlu login --browser`")
        return ticket

    def confirmation(self, ticket: Ticket) -> str:
        """A secret in the confirmation page, known only to a browser with this page."""
        return self._made("confirmation", ticket.state)

    def nonce(self, ticket: Ticket) -> str:
        return self._made("nonce", ticket.state)

    def verifier(self, ticket: Ticket) -> str:
        """The provider's code is bound to this verifier. The verifier stays in the server until its use."""
        return self._made("verifier", ticket.state)

    def _made(self, purpose: str, text: str) -> str:
        return _text(hmac.digest(self._key, f"{purpose}:{text}".encode("utf-8", "surrogateescape"), "sha256"))


def check_same(given: str, expected: str) -> None:
    """Refuse a value from another browser or another sign-on."""
    if not _same(given, expected):
        raise Unauthorized("this answer belongs to another sign-on", "begin again with `danlu login --browser`")


@dataclass(frozen=True, slots=True)
class _Kept:
    outcome: str | DanluError
    challenge: str
    expires_at: datetime


class Codes:
    """One-time codes: each returns the result of a sign-on once, and only for the right verifier."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}  # the oldest first, which is the next to expire
        self._failures: dict[str, None] = {}  # the digests of codes for failed sign-ons

    def give(self, outcome: str | DanluError, challenge: str, *, now: datetime) -> str:
        """A code for an account's name, or for an error. Any stranger can cause errors, so only the newest
        `MOST_FAILURES` codes for errors are kept."""
        for digest in [*takewhile(lambda digest: self._kept[digest].expires_at <= now, self._kept)]:
            self._drop(digest)
        code = os.urandom(20).hex()  # hex digits: easy to paste into any terminal
        self._kept[_digest(code)] = _Kept(outcome, challenge, now + CODE_FOR)
        if isinstance(outcome, DanluError):
            self._failures[_digest(code)] = None
            if len(self._failures) > MOST_FAILURES:
                self._drop(next(iter(self._failures)))
        return code

    def take(self, code: str, verifier: str, *, now: datetime) -> str:
        """The name of the account; raises the error of a failed sign-on. The code is used up in all cases."""
        kept = self._drop(_digest(code))
        if kept is None or kept.expires_at <= now or not _same(challenge_of(verifier), kept.challenge):
            raise Unauthorized("the code is unknown, used or expired", "begin again with `danlu login --browser`")
        if isinstance(kept.outcome, DanluError):
            raise kept.outcome
        return kept.outcome

    def _drop(self, digest: str) -> _Kept | None:
        self._failures.pop(digest, None)
        return self._kept.pop(digest, None)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogateescape")).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
