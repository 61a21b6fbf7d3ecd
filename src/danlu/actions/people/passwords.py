"""Passwords: a slow hash over the value that the `det` client sends, so that one password serves every door."""

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
# The client's own, known to everybody: it makes the value that travels, it protects nothing.
_CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"


def wire_value(password: str) -> str:
    """The password as `det` sends it; whoever has this value has the password."""
    return hashlib.sha512((_CLIENT_SALT + password).encode("utf-8", "surrogatepass")).hexdigest()


def given_value(password: str, *, is_hashed: bool = False) -> str:
    """What somebody typed, or what `det` made of it, as the one value that is checked."""
    return password[:MOST] if is_hashed else wire_value(password[:MOST])


def new_value(password: str, *, is_hashed: bool = False) -> str:
    """The value of a password that somebody wants to have from now on; refuses what is no password."""
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
    """How a password is kept. Takes a while, in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), lambda: _hasher().hash(value))


async def is_right(kept: str, value: str) -> bool:
    """Whether it is the password that is kept so. Nothing kept takes as long, and is never right."""
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
    # Imported when the first password is checked: a personal server never gets here.
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def _nobody() -> str:
    return _hasher().hash(os.urandom(16).hex())


@cache
def _threads() -> ThreadPoolExecutor:
    # Two: each hash fills 64 MiB, and nobody may make the server fill its memory by knocking.
    return ThreadPoolExecutor(2, "passwords")
