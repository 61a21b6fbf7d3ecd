"""The context of actions about people: the roster, the tokens, the rules, and the rate limits."""

import asyncio
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import Protocol

from danlu.actions.people.rate_limit import LoginLimiter, Pace
from danlu.domain.people import AuditEntry
from danlu.domain.quota import Quota
from danlu.state.people import Roster
from danlu.store.people_protocol import PeopleStore
from danlu.store.protocol import Store, Token

_CODE_BYTES = 10


class FullStore(Store, PeopleStore, Protocol):
    """Jobs and people in one database."""


@dataclass(frozen=True, slots=True)
class PeopleRules:
    """How this installation treats people."""

    leaders_open: bool = False  # a leader's approval opens an account, without an administrator
    leads_see_all: bool = False
    needs_account: bool = False  # on the Unix socket too
    is_open: bool = False  # the Unix socket serves every user of the machine
    login_days: int = 30
    default_quota: Quota | None = None
    home: str = ""
    team_folder: str = ""
    as_submitter: bool = False  # jobs run as their submitters' Unix users, so folders must belong to these users


class Keyring:
    """Tokens by their digest. Tokens in use stay in memory; a revoked token leaves memory before `drop` returns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Token] = {}
        self.drops = 0  # the number of drops up to now

    async def find(self, digest: str) -> Token | None:
        if found := self._known.get(digest):
            return found
        drops = self.drops
        found = await self._store.token(digest)
        # A revoke during the read makes the token unsafe to cache.
        if found is not None and drops == self.drops:
            self._known[digest] = found
        return found

    async def drop(self, token: Token, *audit: AuditEntry) -> bool:
        gone = await self._store.drop_token(token.id, audit)
        self._known.pop(token.digest, None)
        self.drops += 1
        return gone


class FirstAdmin:
    """The code for making the first administrator: valid once, while this server runs."""

    def __init__(self) -> None:
        self._digest = b""

    def new_code(self) -> str:
        code = os.urandom(_CODE_BYTES).hex()
        self._digest = _digest(code)
        return code

    def is_right(self, code: str) -> bool:
        return bool(self._digest) and hmac.compare_digest(self._digest, _digest(code))

    def end(self) -> None:
        self._digest = b""


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.strip().encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class PeopleContext:
    roster: Roster
    store: FullStore
    rules: PeopleRules = field(default_factory=PeopleRules)
    limiter: LoginLimiter = field(default_factory=LoginLimiter)
    asks: Pace = field(default_factory=lambda: Pace(free=5))
    first: FirstAdmin = field(default_factory=FirstAdmin)
    # Held from a look at the roster until the change based on this look.
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    keyring: Keyring = field(init=False)

    def __post_init__(self) -> None:
        self.keyring = Keyring(self.store)

    @property
    def is_shared(self) -> bool:
        """Whether other people than the server's user have access: by an account, or as a user of the machine."""
        return self.rules.is_open or bool(self.roster.persons)

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes with each change of people and with each revoked token."""
        return self.roster.stamp, self.keyring.drops
