"""The classes of commands and options, and the options of many commands."""

from __future__ import annotations


class Option:
    """An option. `kind` is `flag`, `text` or `count` (a whole number); a `many` option may be repeated."""

    __slots__ = ("choices", "help", "kind", "many", "metavar", "names")

    def __init__(
        self,
        *names: str,
        help: str,
        metavar: str = "",
        kind: str = "",
        many: bool = False,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.names, self.help, self.metavar, self.many, self.choices = names, help, metavar, many, choices
        self.kind = kind or ("text" if metavar else "flag")

    @property
    def key(self) -> str:
        """The key in the parsed values: `--dry-run` is `dry_run`."""
        return self.names[0].lstrip("-").replace("-", "_")


class Command:
    """A command. `words`: the positional arguments; `rest`: whether a command follows after `--`."""

    __slots__ = ("examples", "group", "handler", "help", "name", "options", "rest", "words", "words_min")

    def __init__(
        self,
        name: str,
        handler: str,
        group: str,
        help: str,
        options: tuple[Option, ...] = (),
        *,
        words: str = "",
        words_min: int | None = None,
        rest: str = "",
        examples: tuple[str, ...] = (),
    ) -> None:
        self.name, self.handler, self.group, self.help, self.options = name, handler, group, help, options
        self.words, self.rest, self.examples = words, rest, examples
        self.words_min = (1 if words else 0) if words_min is None else words_min

    @property
    def words_max(self) -> int | None:
        """The maximum number of words: None is any number (`ID...`)."""
        if not self.words:
            return 0
        return None if self.words.endswith("...") else len(self.words.split())


GLOBAL = (
    Option("--server", metavar="URL", help="the server: unix:///path, http://… or https://… (default: DANLU_SERVER)"),
    Option(
        "--color",
        metavar="WHEN",
        choices=("auto", "always", "never"),
        help="auto, always or never; NO_COLOR is respected",
    ),
)
JSON = Option("--json", help="print data as JSON")
QUIET = Option("--quiet", "-q", help="print only data, no messages")


def read_count(text: str) -> int | None:
    """A whole number of 0 or more, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def with_defaults(command: Command, values: dict[str, object]) -> dict[str, object]:
    """Add a default for every option that was not given."""
    for option in GLOBAL + command.options:
        values.setdefault(option.key, [] if option.many else False if option.kind == "flag" else None)
    return values
