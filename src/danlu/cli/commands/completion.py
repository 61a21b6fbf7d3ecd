"""Shell completion: argcomplete over a parser built from the option table; ids and names come from the server."""

from __future__ import annotations

import argparse

from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from danlu.cli import render
from danlu.cli.grammar.model import GLOBAL, Command, Option
from danlu.cli.grammar.parse_full import settings_of
from danlu.cli.grammar.table import COMMANDS
from danlu.client import Client
from danlu.errors import DanluError, Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from danlu.cli.input.options import Values

SHELLS = ("bash", "zsh", "fish")
STATES = (
    "QUEUED", "STARTING", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "LOST",
    "active", "ended",
)  # fmt: skip
ROLES = ("member", "admin")
ANSWER_WITHIN_S = 1.0
_NAMED = {"user": "/users", "who": "/users", "team": "/teams", "queue": "/queues"}  # options with a name


def script(values: Values) -> int:
    """`danlu completion SHELL`: print the script that the shell reads once."""
    shell = values["words"][0]
    if shell not in SHELLS:
        raise Invalid(f"no completion for `{shell}`", f"there is {', '.join(SHELLS)}")
    render.out(shellcode(["danlu"], shell=shell).rstrip())
    return 0


def complete() -> None:
    """Answer the shell and exit; called only for a completion request of a shell."""
    CompletionFinder()(full_parser(), always_complete_options=False)


def full_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="danlu", allow_abbrev=False)
    _add_options(parser, GLOBAL)
    subparsers = parser.add_subparsers(dest="command")
    families: dict[str, Any] = {}
    for word in {command.name.partition(" ")[0]: None for command in COMMANDS if " " in command.name}:
        families[word] = subparsers.add_parser(word, allow_abbrev=False)
    seconds = {word: family.add_subparsers(dest="subcommand") for word, family in families.items()}
    for command in COMMANDS:
        first, _, second = command.name.partition(" ")
        if second:
            one = seconds[first].add_parser(second, help=command.help, allow_abbrev=False)
        else:
            one = families.get(first) or subparsers.add_parser(first, help=command.help, allow_abbrev=False)
        _add_options(one, command.options + GLOBAL)
        if second or first not in families:
            _add_words(one, command)
    return parser


def _add_options(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    for option in options:
        action: Any = parser.add_argument(*option.names, **settings_of(option))
        if option.key == "state":
            action.completer = ChoicesCompleter(dict.fromkeys(STATES, ""))
        elif option.key == "after":
            action.completer = _job_ids
        elif option.key == "workdir":
            action.completer = DirectoriesCompleter()
        elif option.key in ("file", "config"):
            action.completer = FilesCompleter()
        elif option.key in _NAMED:
            action.completer = _names_in(_NAMED[option.key])


def _add_words(parser: argparse.ArgumentParser, command: Command) -> None:
    if not command.words:
        return
    for number, word in enumerate(command.words.split()):
        kind = word.removesuffix("...")
        action: Any = parser.add_argument(f"word{number}", nargs="?" if kind == word else "*")
        if kind == "ID" and command.group == "jobs":
            action.completer = _job_ids
        elif kind == "NAME" and command.name == "queues":
            action.completer = _names_in("/queues")
        elif kind == "TEAM" and command.name != "team create":
            action.completer = _names_in("/teams")
        elif kind == "USER" and command.name != "user create":
            action.completer = _names_in("/users")
        elif kind == "HOLDER":
            action.completer = _holders
        elif kind == "ROLE":
            action.completer = ChoicesCompleter(dict.fromkeys(ROLES, ""))
        elif kind == "FILE":
            action.completer = FilesCompleter()
        elif kind == "SHELL":
            action.completer = ChoicesCompleter(dict.fromkeys(SHELLS, ""))


def _names_in(path: str) -> Callable[..., dict[str, str]]:
    """Names of people, teams or queues, from the server."""

    def names(prefix: str, **_: object) -> dict[str, str]:
        return {one["name"]: one.get("full_name", "") for one in _items(path) if one["name"].startswith(prefix)}

    return names


def _holders(prefix: str, **_: object) -> list[str]:
    kinds = {"team:": "/teams", "user:": "/users"}
    kind = next((kind for kind in kinds if prefix.startswith(kind)), "")
    return [f"{kind}{one['name']}" for one in _items(kinds[kind])] if kind else list(kinds)


def _items(path: str) -> list[dict[str, Any]]:
    try:
        return list(Client(timeout=ANSWER_WITHIN_S).ask("GET", path)["items"])
    except (DanluError, OSError, ValueError, KeyError):
        return []


def _job_ids(prefix: str, **_: object) -> dict[str, str]:
    """The newest jobs of the caller; nothing if the server is down or slow."""
    try:
        jobs = list(Client(timeout=ANSWER_WITHIN_S).jobs(limit=100))
    except (DanluError, OSError, ValueError, KeyError):
        return {}
    return {job.id: f"{job.state} {job.name}".strip() for job in jobs if job.id.startswith(prefix)}
