"""Logins stored by `danlu login`: a token per server, and the default server of commands.

The file is readable by its owner only, and is replaced atomically. DANLU_SERVER and DANLU_TOKEN override it.
"""

from __future__ import annotations

import json
import os

from danlu.errors import Invalid
from danlu.paths import credentials_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.client.http import Address


def key_of(address: Address) -> str:
    """The canonical key of a server. A token is never sent to another server."""
    if address.scheme == "unix":
        return f"unix://{address.path}"
    return f"{address.scheme}://{address.host.lower()}:{address.port}"


def read() -> dict[str, Any]:
    """`{"default": URL, "servers": {URL: {"user", "token"}}}`; empty without a file."""
    where = credentials_file()
    try:
        with open(where, encoding="utf-8") as file:
            found = json.load(file)
        if not isinstance(found["default"], str) or not all(one["token"] for one in found["servers"].values()):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        raise Invalid(f"cannot read {where}: {error.strerror}", "it must belong to you") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Invalid(f"{where} is damaged", "remove it, and `danlu login` again") from None
    return dict(found)


def default_server() -> str:
    return str(read().get("default") or "")


def token_for(address: Address) -> str:
    kept = read().get("servers", {}).get(key_of(address))
    return str(kept["token"]) if kept else ""


def user_for(address: Address) -> str:
    kept = read().get("servers", {}).get(key_of(address))
    return str(kept.get("user") or "") if kept else ""


def remember(address: Address, user: str, token: str) -> None:
    """Store a login, and make this server the default of commands."""

    def put(kept: dict[str, Any]) -> None:
        kept.setdefault("servers", {})[key_of(address)] = {"user": user, "token": token}
        kept["default"] = key_of(address)

    _changed(put)


def forget(address: Address) -> None:
    def drop(kept: dict[str, Any]) -> None:
        kept.setdefault("servers", {}).pop(key_of(address), None)
        if kept.get("default") in (None, key_of(address)):
            kept["default"] = ""

    if read():
        _changed(drop)


def _changed(change: Any) -> None:
    """Read, change, replace under a lock: concurrent logins wait for each other."""
    import fcntl

    where = credentials_file()
    folder = os.path.dirname(where)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    guard = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        kept = read()
        change(kept)
        fresh = f"{where}.{os.getpid()}"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o600)
            json.dump(kept, file, indent=1)
            file.flush()
            os.fsync(fd)
        os.replace(fresh, where)
    finally:
        os.close(guard)
