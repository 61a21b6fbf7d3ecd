"""Passwords: a slow hash over the value sent by the `det` client. This way the same password works for each client."""

import asyncio
import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from danlu.errors import Invalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LEAST = 8
MOST = 1024
# The salt built into the `det` client is public: its only use is to make the same value, and it protects nothing.
_CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"


def wire_value(password: str) -> str:
    """The password as `det` sends it. The value is as secret as the password: either is enough to log in."""
    return hashlib.sha512((_CLIENT_SALT + password).encode("utf-8", "surrogatepass")).hexdigest()


def given_value(password: str, *, is_hashed: bool = False) -> str:
    """The value to check: made from a typed password, or already made by `det`."""
    return password[:MOST] if is_hashed else wire_value(password[:MOST])


def new_value(password: str, *, is_hashed: bool = False) -> str:
    """The value of a new password; refuses an unusable password."""
    if is_hashed:
        if not re.fullmatch(r"[0-9a-f]{128}", password) or password == wire_value(""):
            raise Invalid("`is_hashed` goes with the 128 hex digits that `det` makes of a password")
        return password
    if len(password) < LEAST:
        raise Invalid(f"the password is too short: {len(password)} characters", f"take {LEAST} or more")
    if len(password) > MOST:
        raise Invalid(f"the password is too long: {len(password)} characters", f"take at most {MOST}")
    return wire_value(password)


async def hashed(value: str) -> str:
    """The hash to store. The slow work runs in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), lambda: _hasher().hash(value))


async def is_right(kept: str, value: str) -> bool:
    """Whether the value matches the stored hash. An empty `kept` takes as long, and never matches."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), _verified, kept, value)


def _verified(kept: str, value: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    nobody = _nobody()
    try:
        return _hasher().verify(kept or nobody, value) and bool(kept)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _hasher() -> "PasswordHasher":
    # Imported with the first password check: a personal server never needs the import.
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def _nobody() -> str:
    return _hasher().hash(os.urandom(16).hex())


@cache
def _threads() -> ThreadPoolExecutor:
    # Two threads: each hash needs 64 MiB, and many login attempts must not fill the server's memory.
    return ThreadPoolExecutor(2, "passwords")
