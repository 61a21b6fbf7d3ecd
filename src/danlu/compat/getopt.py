"""Options as GNU getopt reads them: glued short ones, unique beginnings of long ones, words after the first operand."""

from __future__ import annotations

from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COMMAND_LINE = "command line"


class Option:
    """`takes`: `=` a value, `?` an optional value, `.` no value."""

    __slots__ = ("name", "short", "takes")

    def __init__(self, name: str, takes: str, short: str) -> None:
        self.name, self.takes, self.short = name, takes, short


class Given:
    """A given option. `where` is the command line, a line of a script, or a variable."""

    __slots__ = ("name", "value", "where")

    def __init__(self, name: str, value: str, where: str) -> None:
        self.name, self.value, self.where = name, value, where

    def __repr__(self) -> str:
        return f"<{self.where}: --{self.name}={self.value!r}>"

    def invalid(self, why: str, hint: str = "") -> Invalid:
        shown = f"--{self.name}={self.value}" if self.value else f"--{self.name}"
        return Invalid(f"{self.where}: `{shown[:80]}`: {why}", hint)


def read_options(text: str) -> tuple[Option, ...]:
    """`"array=a hold.H nice?"`: long name, kind of value, short name."""
    found = []
    for word in text.split():
        at = next(at for at, letter in enumerate(word) if letter in "=?.")
        found.append(Option(word[:at], word[at], word[at + 1 :]))
    return tuple(found)


def parse(
    words: Sequence[tuple[str, str]], options: Iterable[Option], *, anywhere: bool = False
) -> tuple[list[Given], list[tuple[str, str]]]:
    """The options among words, each with its place, and the other words. Without `anywhere` the first operand ends
    the options."""
    by_name = {option.name: option for option in options}
    by_letter = {option.short: option for option in by_name.values() if option.short}
    given: list[Given] = []
    rest: list[tuple[str, str]] = []
    left = list(reversed(words))
    while left:
        word, where = left.pop()
        if word == "--":
            break
        if word.startswith("--"):
            given.append(_long(by_name, word, where, left))
        elif word.startswith("-") and word != "-":
            given += _short(by_letter, word, where, left)
        elif anywhere:
            rest.append((word, where))
        else:
            left.append((word, where))
            break
    return given, rest + left[::-1]


def _long(by_name: dict[str, Option], word: str, where: str, left: list[tuple[str, str]]) -> Given:
    written, equals, value = word[2:].partition("=")
    option = by_name.get(written)
    if option is None:
        fitting = [name for name in by_name if name.startswith(written)]
        if not fitting:
            raise Invalid(f"{where}: unrecognized option `--{written[:80]}`", "`--help` lists the options")
        if len(fitting) > 1:
            raise Invalid(
                f"{where}: option `--{written}` is ambiguous", "it may be " + ", ".join(f"--{name}" for name in fitting)
            )
        option = by_name[fitting[0]]
    if equals and option.takes == ".":
        raise Invalid(f"{where}: option `--{option.name}` takes no value", f"write `--{option.name}`")
    if not equals and option.takes == "=":
        value = _following(f"--{option.name}", where, left)
    return Given(option.name, value, where)


def _short(by_letter: dict[str, Option], word: str, where: str, left: list[tuple[str, str]]) -> list[Given]:
    found = []
    for at, letter in enumerate(word[1:], start=1):
        option = by_letter.get(letter)
        if option is None:
            raise Invalid(f"{where}: invalid option `-{letter}` in `{word[:80]}`", "`--help` lists the options")
        if option.takes == ".":
            found.append(Given(option.name, "", where))
            continue
        value = word[at + 1 :]
        if not value and option.takes == "=":
            value = _following(f"-{letter}", where, left)
        return [*found, Given(option.name, value, where)]
    return found


def _following(name: str, where: str, left: list[tuple[str, str]]) -> str:
    if not left:
        raise Invalid(f"{where}: option `{name}` requires a value")
    return left.pop()[0]


def on_command_line(words: Iterable[str]) -> list[tuple[str, str]]:
    return [(word, COMMAND_LINE) for word in words]
