"""argparse over the same table: decides about help and errors."""

from __future__ import annotations

import argparse
import difflib

from danlu.cli.grammar.model import GLOBAL, Command, Option, read_count, with_defaults
from danlu.cli.grammar.parse_fast import fits
from danlu.cli.grammar.table import BY_NAME, FAMILIES, family
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


class HelpAsked(Exception):
    """The user asked for help; carries the text."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Invalid(message, f"`{self.prog} --help` shows the options")


def parse(argv: Sequence[str]) -> tuple[Command, dict[str, object]]:
    """Like `parse_fast.parse`, but with a definite result: values, help (HelpAsked) or an error (Invalid)."""
    front, rest = list(argv), None
    if "--" in front:
        cut = front.index("--")
        front, rest = front[:cut], front[cut + 1 :]
    command, front = _split(front)
    parser = parser_of(command)
    if "-h" in front or "--help" in front:
        raise HelpAsked(parser.format_help())
    for word in front:
        # argparse drops a value of `--` and gives an empty list instead.
        if word.startswith("--") and word.endswith("=--"):
            raise Invalid(
                f"{word.removesuffix('=--')} needs a value, not `--`", f"`{parser.prog} --help` shows the options"
            )
    found, others = parser.parse_known_args(front)
    for word in others:
        if word.startswith("-") and word != "-":
            raise _unknown_option(command, word)
    values: dict[str, object] = {key: value for key, value in vars(found).items() if value is not None}
    _check(command, others, rest)
    values["words"], values["rest"] = others, rest
    return command, with_defaults(command, values)


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of a command. Words and the command after `--` are checked by hand, because their position is free."""
    parser = _Parser(
        prog=f"danlu {command.name}",
        usage=usage_of(command),
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in command.examples) if command.examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for option in command.options + GLOBAL:
        parser.add_argument(*option.names, **settings_of(option))
    return parser


def usage_of(command: Command) -> str:
    words = f" {command.words}" if command.words_min else f" [{command.words}]" if command.words else ""
    rest = {"needed": " -- CMD...", "maybe": " [-- CMD...]", "": ""}[command.rest]
    return f"danlu {command.name} [options]{words}{rest}"


def settings_of(option: Option) -> dict[str, Any]:
    """The arguments of `add_argument`."""
    settings: dict[str, Any] = {"dest": option.key, "default": None, "help": option.help}
    if option.kind == "flag":
        return settings | {"action": "store_true"}
    settings |= {"metavar": option.metavar, "action": "append" if option.many else "store"}
    if option.choices:
        settings["choices"] = option.choices
    if option.kind == "count":
        settings["type"] = _count
    return settings


def _count(text: str) -> int:
    found = read_count(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"takes a whole number of 0 or more, not `{text}`")
    return found


def _split(front: list[str]) -> tuple[Command, list[str]]:
    """Take the command's name out of the words; global options may precede the name."""
    takes_value = {name for option in GLOBAL for name in option.names}
    at = 0
    while at < len(front) and front[at].startswith("-"):
        if front[at].partition("=")[0] not in takes_value | {"-h", "--help"}:
            raise Invalid(
                f"no option `{front[at]}` before the command", "for example `danlu ps --json`; see `danlu --help`"
            )
        at += 2 if front[at] in takes_value else 1
    if at >= len(front):
        raise Invalid("no command given", "`danlu --help` lists them")
    name, size = front[at], 1
    both = " ".join(front[at : at + 2])
    if both in BY_NAME:
        name, size = both, len(both.split(" "))
    if name not in BY_NAME:
        if name in FAMILIES and {"-h", "--help"} & set(front):
            raise HelpAsked(_render_family(name))
        raise _unknown_command(both if family(name) else name)
    return BY_NAME[name], front[:at] + front[at + size :]


def _unknown_command(name: str) -> Invalid:
    if siblings := family(name.partition(" ")[0]):
        return Invalid(f"no command `{name}`", " or ".join(f"`danlu {each.name}`" for each in siblings))
    close = difflib.get_close_matches(name, BY_NAME, 1, 0.5)
    return Invalid(
        f"no command `{name}`", f"did you mean `danlu {close[0]}`?" if close else "`danlu --help` lists them"
    )


def _render_family(word: str) -> str:
    siblings = family(word)
    rows = [(f"{each.name} {each.words}".rstrip(), each.help) for each in siblings]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {help}" for name, help in rows]
    about = f"{FAMILIES[word][0].upper()}{FAMILIES[word][1:]}."
    example = ["", "example:", f"  {siblings[0].examples[0]}"]
    return "\n".join([about, "", *lines, *example, "", f"`danlu {word} COMMAND --help` shows a command's options."])


def _unknown_option(command: Command, word: str) -> Invalid:
    name = word.partition("=")[0]
    names = [name for option in command.options + GLOBAL for name in option.names]
    close = difflib.get_close_matches(name, names, 1, 0.6)
    hint = f"did you mean `{close[0]}`?" if close else f"`danlu {command.name} --help` lists its options"
    return Invalid(f"`danlu {command.name}` has no option `{name}`", hint)


def _check(command: Command, words: list[str], rest: list[str] | None) -> None:
    """Refuse the same commands as `fits`, with an error that shows the right form."""
    if fits(command, words, rest):
        return
    hint = f"for example `{command.examples[0]}`" if command.examples else f"usage: {usage_of(command)}"
    if rest is not None and not command.rest:
        raise Invalid(f"`danlu {command.name}` takes no command after `--`", hint)
    if rest is not None and not rest:
        raise Invalid("there is no command after `--`", hint)
    if words and command.rest == "needed":
        asked = " ".join(words)
        raise Invalid(f"the command goes after `--`: `danlu {command.name} -- {asked}`", hint)
    if command.rest == "needed":
        raise Invalid(f"`danlu {command.name}` needs a command", hint)
    if len(words) < command.words_min:
        raise Invalid(f"`danlu {command.name}` needs {command.words.removesuffix('...')}", hint)
    if command.rest and command.words_max is not None:
        extra = " ".join(words[command.words_max :])
        raise Invalid(
            f"`danlu {command.name}` does not know what to do with `{extra}`", f"a command goes after `--`; {hint}"
        )
    raise Invalid(f"`danlu {command.name}` takes {_how_many(command)}, not {len(words)}", hint)


def _how_many(command: Command) -> str:
    if " " in command.words:
        return command.words
    return f"one {command.words}" if command.words else "no words"
