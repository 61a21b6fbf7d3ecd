"""Job files: YAML whose keys are option names."""

from __future__ import annotations

import difflib
import sys

import yaml

from danlu.domain.options import COUNT, LIST, NAMES, PAIRS, SWITCH, names_of
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COUNTS = names_of(COUNT)
_SWITCHES = (*names_of(SWITCH), "snapshot", "no-inherit-env")
_PAIRS = names_of(PAIRS)
_LISTS = names_of(LIST)
_NAMES = ("command", *NAMES, "snapshot", "no-inherit-env")


# Bytes of a file, and characters after its aliases are expanded: more than any system passes to a program.
MOST_FILE = 4 << 20


def read_file(path: str) -> bytes:
    """A job file or a batch script. `-` is standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read(MOST_FILE + 1)
        with open(path, "rb") as file:
            return file.read(MOST_FILE + 1)
    except OSError as error:
        hint = "a command goes after `--`: `danlu submit -- python train.py`"
        raise Invalid(f"cannot read the job file `{path}`: {error.strerror}", hint) from None


def parse_job(text: bytes, path: str) -> tuple[list[str] | None, dict[str, Any]]:
    if len(text) > MOST_FILE:
        raise Invalid(f"`{path}` has more than {MOST_FILE:,} bytes", "put long lists into a file that the job reads")
    try:
        # Every value stays as written: YAML would read `1:30:00` as a number of seconds.
        found = _Reader(path).plain(yaml.compose(text, Loader=yaml.BaseLoader))
    except RecursionError:
        raise Invalid(f"`{path}` is nested too deeply", "a job file has lines of `name: value`") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(
            f"`{path}` is not YAML: {' '.join(str(error).split())}", "a job file has lines of `name: value`"
        ) from None
    if not isinstance(found, dict):
        raise Invalid(
            f"`{path}` is not a job file", "it has lines of `name: value`, such as `command: python train.py`"
        )
    options: dict[str, Any] = {}
    for name, value in found.items():
        if value == "" and name != "command":
            continue
        options[name.replace("-", "_")] = _checked(path, name.replace("_", "-"), value)
    if options.pop("no_inherit_env", False):
        options["inherit_env"] = False
    return options.pop("command", None), options


def _checked(path: str, name: str, value: Any) -> Any:
    if name == "command":
        return _command(path, value)
    if name in _LISTS:
        return value if isinstance(value, list) else [value]
    if name in _PAIRS:
        return _pairs(path, name, value)
    if name not in _NAMES:
        name = name[:60]
        close = difflib.get_close_matches(name, _NAMES, 1, 0.5)
        hint = f"did you mean `{close[0]}`?" if close else "names: " + ", ".join(sorted(_NAMES))
        raise Invalid(f"`{path}` has an unknown name `{name}`", hint)
    if not isinstance(value, str):
        raise Invalid(f"`{path}`: `{name}` takes one value", f"for example `{name}: 2`")
    if name in _COUNTS:
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise Invalid(f"`{path}`: `{name}` takes a whole number of 0 or more, not `{value[:60]}`")
        return int(value)
    if name in _SWITCHES:
        if value.lower() not in ("true", "false", "yes", "no"):
            raise Invalid(f"`{path}`: `{name}` takes true or false, not `{value[:60]}`")
        return value.lower() in ("true", "yes")
    return value


def _command(path: str, value: Any) -> list[str]:
    if isinstance(value, str) and value.strip():
        return ["/bin/sh", "-c", value]
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value
    raise Invalid(
        f"`{path}`: `command` takes a line for the shell or a list of words", "for example `command: [python, a.py]`"
    )


def _pairs(path: str, name: str, value: Any) -> dict[str, str]:
    if isinstance(value, list) and all(isinstance(text, str) and "=" in text for text in value):
        return dict(text.split("=", 1) for text in value)
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    raise Invalid(f"`{path}`: `{name}` takes `NAME: VALUE` lines or a list of NAME=VALUE")


class _Reader:
    """Lists, mappings and texts of a YAML file. Duplicate names are refused: YAML would drop a value."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._left = MOST_FILE

    def plain(self, node: yaml.Node | None) -> Any:
        # Each use of an alias (`*name`) counts in full: a few lines of aliases can expand beyond any memory.
        self._left -= 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self._left < 0:
            text = f"`{self._path}` stands for more than {MOST_FILE:,} characters"
            raise Invalid(text, "write values out, and not as aliases (`*name`) of each other")
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key, value in node.value:
                name, line = key.value, key.start_mark.line + 1
                if not isinstance(name, str):
                    raise Invalid(f"`{self._path}` has a name that is no text (line {line})")
                self._left -= len(name)
                if name in found:
                    raise Invalid(f"`{self._path}` has `{name[:60]}` twice (line {line})", "keep one of them")
                found[name] = self.plain(value)
            return found
        return node.value if isinstance(node, yaml.ScalarNode) else None
