"""Makes folders of people and teams below an existing folder, with the right owner and mode, or reports why not."""

import contextlib
import grp
import os
import pwd
from dataclasses import dataclass

from danlu.domain.people import check_name
from danlu.errors import Invalid

PRIVATE, OF_A_TEAM = 0o700, 0o2770


@dataclass(frozen=True, slots=True)
class Folder:
    """`said` is a message for the administrator; empty if all is well."""

    path: str
    is_made: bool
    said: str = ""


@dataclass(frozen=True, slots=True)
class _Owner:
    uid: int
    gid: int


def path_of(template: str, *, user: str = "", team: str = "") -> tuple[str, list[str]]:
    """The folder that must exist, and the folders below for this person or team."""
    if user:
        check_name(user, "a person")
    if team:
        check_name(team, "a team")
    parts = template.split("/")
    if not template.startswith("/") or ".." in parts or "." in parts:
        raise Invalid(f"`{template}` does not stay in its place", "an absolute path without `.` and `..`")
    mark = next((at for at, part in enumerate(parts) if "{" in part), None)
    if mark is None:
        raise Invalid(f"`{template}` is the same folder for everybody", "it needs {user} or {team}")
    made = [part.replace("{user}", user).replace("{team}", team) for part in parts[mark:] if part]
    if any("{" in part or "}" in part for part in made):
        raise Invalid(f"`{template}` knows only {{user}} and {{team}}")
    return "/".join(parts[:mark]) or "/", made


def make_home(template: str, user: str, *, as_submitter: bool) -> Folder:
    """A folder with access for this person only."""
    base, parts = path_of(template, user=user)
    path = os.path.join(base, *parts)
    owner: _Owner | None = None
    if as_submitter:
        try:
            found = pwd.getpwnam(user)
        except KeyError:
            return Folder(path, False, f"this machine knows no user `{user}`: make the user, then the folder")
        owner = _Owner(found.pw_uid, found.pw_gid)
    return _made(base, parts, owner, PRIVATE)


def make_team_folder(template: str, team: str, *, as_submitter: bool) -> Folder:
    """A folder for all members of the team; new files belong to the team's group."""
    base, parts = path_of(template, team=team)
    path = os.path.join(base, *parts)
    if not as_submitter:
        return _made(base, parts, None, 0o770)
    try:
        gid = grp.getgrnam(team).gr_gid
    except KeyError:
        return Folder(path, False, f"this machine knows no group `{team}`: make the group, then the folder")
    return _made(base, parts, _Owner(0, gid), OF_A_TEAM)


def _made(base: str, parts: list[str], owner: _Owner | None, mode: int) -> Folder:
    """Make the missing folders below `base`. Follows no link, and changes no existing folder."""
    path = os.path.join(base, *parts)
    with contextlib.ExitStack() as stack:
        try:
            here = os.open(base, os.O_DIRECTORY | os.O_RDONLY)
            stack.callback(os.close, here)
            is_made = False
            for part in parts:
                is_made = _made_one(here, part)
                here = os.open(part, os.O_DIRECTORY | os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here)
                stack.callback(os.close, here)
                if is_made:
                    if owner is not None:
                        os.fchown(here, owner.uid, owner.gid)
                    os.fchmod(here, mode)
            found = os.fstat(here)
        except OSError as error:
            return Folder(path, False, f"not made: {error.strerror}")
    if not is_made and owner is not None and (found.st_uid, found.st_gid) != (owner.uid, owner.gid):
        return Folder(path, False, "it was there already, and belongs to somebody else")
    return Folder(path, is_made, "" if is_made else "it was there already")


def _made_one(parent: int, name: str) -> bool:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    return True
