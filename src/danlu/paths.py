"""The folders of a personal installation: the XDG folders, or all under DANLU_HOME.

The server and every command import this module, so it imports nothing slow."""

import os

# A Unix socket's path may have at most 107 bytes.
MAX_SOCKET_PATH = 100
MOST_TRIES = 16


def state_dir() -> str:
    """Database, logs and journal; survives reboots."""
    if home := os.environ.get("DANLU_HOME"):
        return os.path.abspath(home)
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "danlu")


def runtime_dir(state: str) -> str:
    """Sockets: a folder that only its owner may open, with a path short enough for a socket."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.environ.get("DANLU_HOME") and state == state_dir() and base and os.path.isdir(base):
        chosen = os.path.join(base, "danlu")
    else:
        chosen = os.path.join(state, "run")
    if len(os.fsencode(chosen)) + len("/keeper.sock") <= MAX_SOCKET_PATH:
        return chosen
    # Stable for the same folder, so that the next command finds the same server.
    digest = 0
    for byte in os.fsencode(state):
        digest = (digest * 1000003 ^ byte) & 0xFFFFFFFFFFFF
    return _in_tmp(f"/tmp/danlu-{os.getuid()}-{digest:012x}")


def _in_tmp(name: str) -> str:
    """A folder for sockets in a place where every user may create folders: our own folder, else the first free name.
    Server and commands choose the same folder, even if other users create or remove folders meanwhile."""
    names = [name, *(f"{name}-{number}" for number in range(1, MOST_TRIES))]
    free = ""
    for one in names:
        try:
            found = os.lstat(one)
        except FileNotFoundError:
            free = free or one
            continue
        if found.st_uid == os.getuid() and found.st_mode & 0o170077 == 0o040000:  # a folder, for its owner only
            return one
    return free or name  # without a free name, `make_private` and `check_owned` refuse the folder


def server_socket(state: str) -> str:
    return os.path.join(runtime_dir(state), "server.sock")


def keeper_socket(state: str) -> str:
    return os.path.join(runtime_dir(state), "keeper.sock")


def credentials_file() -> str:
    """The file with the credentials from `danlu login`."""
    if home := os.environ.get("DANLU_HOME"):
        return os.path.join(os.path.abspath(home), "credentials.json")
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "danlu", "credentials.json")


def make_private(folder: str) -> str:
    """Create a folder that only its owner may open; refuse a folder of another user."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found, named = os.stat(folder), os.lstat(folder)
    if found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user (uid {found.st_uid})")
    # In a folder open to every user, a foreign link could lead to a folder of ours that other users need.
    if named.st_uid not in (0, os.getuid()):
        raise PermissionError(f"{folder} is a link of another user (uid {named.st_uid})")
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return folder


def check_owned(folder: str) -> None:
    """Refuse a socket folder that another user created, or that other users may write to: any user could listen there.
    A missing folder is fine: nothing listens there."""
    try:
        found = os.lstat(folder)
        if found.st_mode & 0o170000 == 0o120000 and found.st_uid in (0, os.getuid()):  # a link of ours
            found = os.stat(folder)
    except OSError:
        return
    if found.st_uid not in (0, os.getuid()) or found.st_mode & 0o170022 != 0o040000:
        raise PermissionError(f"{folder} is not a folder that only you may write to (uid {found.st_uid} has made it)")
