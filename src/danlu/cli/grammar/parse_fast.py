"""The parser for well-formed commands. In doubt, `parse_full` decides."""

from __future__ import annotations

from danlu.cli.grammar.jobs import JOBS
from danlu.cli.grammar.model import GLOBAL, Command, Option, read_count, with_defaults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def parse(argv: Sequence[str]) -> tuple[Command, dict[str, object]] | None:
    """The command and its values, including `words` and `rest`; None: in doubt."""
    known = _by_name(GLOBAL)
    command: Command | None = None
    values: dict[str, object] = {}
    words: list[str] = []
    rest: list[str] | None = None
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if word == "--":
            rest = list(argv[at:])
            break
        if word[:1] == "-" and word != "-":
            taken = _take(known, values, word, argv[at] if at < len(argv) else None)
            if taken < 0:
                return None
            at += taken
        elif command is None:
            command = _find(word, argv[at] if at < len(argv) else "")
            if command is None:
                return None
            at += command.name != word
            known = _by_name(GLOBAL + command.options)
        else:
            words.append(word)
    if command is None or not fits(command, words, rest):
        return None
    values["words"], values["rest"] = words, rest
    return command, with_defaults(command, values)


def _find(word: str, following: str) -> Command | None:
    """Find a command of one or two words. Most commands are about jobs; only for others the whole table is imported."""
    for command in JOBS:
        if command.name == word:
            return command
    from danlu.cli.grammar.table import BY_NAME

    return BY_NAME.get(f"{word} {following}") or BY_NAME.get(word)


def fits(command: Command, words: list[str], rest: list[str] | None) -> bool:
    """Whether the number of words, and the command after `--`, match."""
    most = command.words_max
    if len(words) < command.words_min or (most is not None and len(words) > most):
        return False
    if rest is None:
        return command.rest != "needed"
    return bool(command.rest) and bool(rest)


def _take(known: dict[str, Option], values: dict[str, object], word: str, following: str | None) -> int:
    """Read an option; return how many following words it took, or -1: in doubt."""
    name, equals, value = word.partition("=")
    option = known.get(name)
    if option is None or (equals and (option.kind == "flag" or not name.startswith("--"))):
        return -1
    if option.kind == "flag":
        values[option.key] = True
        return 0
    if not equals:
        if following is None or (following[:1] == "-" and following != "-"):
            return -1
        value = following
    if value == "--":
        return -1
    found: object = read_count(value) if option.kind == "count" else value
    if found is None or (option.choices and found not in option.choices):
        return -1
    if option.many:
        listed = values.setdefault(option.key, [])
        assert isinstance(listed, list)
        listed.append(found)
    else:
        values[option.key] = found
    return 0 if equals else 1


def _by_name(options: tuple[Option, ...]) -> dict[str, Option]:
    return {name: option for option in options for name in option.names}
