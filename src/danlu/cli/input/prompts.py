"""Passwords, codes and names from the person at the terminal. Passwords and codes are never shown."""

from __future__ import annotations

import os
import sys

from danlu.cli import render
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values

LEAST = 8
# A longer line on stdin is no password.
MOST = 4096


def password(values: Values, prompt: str) -> str:
    """The password: the next line of stdin with `--password-stdin`, else from a prompt without echo."""
    if values["password_stdin"]:
        return _line_of_stdin()
    return _hidden(prompt)


def new_password(values: Values, whose: str) -> str:
    """A new password; a terminal asks for the password twice."""
    if values["password_stdin"]:
        return _line_of_stdin()
    first = _hidden(f"New password{whose}: ")
    if len(first) < LEAST:
        raise Invalid(f"the password is too short: {len(first)} characters", f"take {LEAST} or more")
    if _hidden("The same again: ") != first:
        raise Invalid("the two are not the same", "try again")
    return first


def code(values: Values, given: str) -> str:
    """A one-time code: as given, or from a prompt for `-`. With `--password-stdin`, the code is the line before the
    password."""
    if given != "-":
        return given
    return _line_of_stdin() if values["password_stdin"] else _hidden("The code that the server printed: ")


def name(prompt: str) -> str:
    if not render.is_terminal(0):
        raise Invalid("whose account?", "name it: `--user NAME`")
    answer = render.question(prompt)
    if not answer:
        raise Invalid("whose account?", "name it: `--user NAME`")
    return answer


def unix_user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _line_of_stdin() -> str:
    line = sys.stdin.buffer.readline(MOST)
    return line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def _hidden(prompt: str) -> str:
    import getpass

    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise Invalid("there is no terminal to ask for the password", "give it on stdin: `--password-stdin`") from None
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise Invalid("no password was given", "give it on stdin: `--password-stdin`") from None
