"""`ilaunch` and `zlaunch`: words before a command name the queue and the number of cards."""

from __future__ import annotations

from danlu.compat.getopt import on_command_line, parse, read_options
from danlu.compat.values import count_of
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

ZLAUNCH = read_options("args= cpu= env= gpu= help.h list. load=l purge.p queue=q")
ZLAUNCH_CPUS = 10
ILAUNCH_HELP = """\
usage: ilaunch [q QUEUE] [gpu LIST] [load MODULE] COMMAND...
       ilaunch list

  q QUEUE       the queue, or the beginning of its name
  gpu LIST      one card for each number: 0,1,2,3 is four cards; Danlu chooses which
  load MODULE   `module load MODULE` first; may be repeated
  list          the queues"""
ZLAUNCH_HELP = """\
usage: zlaunch [-p] [-l MODULE]... [-q QUEUE] [--cpu N] [--gpu N] [--env A=1,B=2] [--list] [--] COMMAND...

  -q, --queue QUEUE   the queue, or the beginning of its name
  --cpu N             processor cores; 10 unless given
  --gpu N             how many cards
  --env A=1,B=2       set variables
  -l, --load MODULE   `module load MODULE` first; may be repeated
  -p, --purge         `module purge` first
  --args X            one more word for the command; may be repeated
  --list              the queues"""


class Launch:
    """A command to run in the foreground. `queue` may be the beginning of a name; `wants` is `help`, `list` or ``."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.options: dict[str, Any] = {}
        self.queue = ""
        self.notes: list[str] = []
        self.wants = ""


def read_ilaunch(words: Sequence[str]) -> Launch:
    found, left = Launch(), list(words)
    modules: list[str] = []
    if not left or left[0] in ("help", "-h", "--help", "list"):
        found.wants = "list" if left[:1] == ["list"] else "help"
        return found
    while left and left[0] in ("q", "gpu", "load"):
        word, *left = left
        if not left:
            raise Invalid(
                f"`ilaunch {word}` needs a value", "for example `ilaunch q makkapakka gpu 0,1 python main.py`"
            )
        value, *left = left
        if word == "q":
            found.queue = value
        elif word == "load":
            modules.append(value)
        else:
            _cards_by_index(found, value)
    _set_command(found, left, modules, purges=False)
    if not found.command:
        raise Invalid("`ilaunch` needs a command", "for example `ilaunch q makkapakka gpu 0,1 python main.py`")
    return found


def _cards_by_index(found: Launch, text: str) -> None:
    try:
        indices = {count_of(part) for part in text.split(",")}
    except ValueError:
        raise Invalid(f"`gpu {text[:40]}` is no list of cards", "for example `gpu 0,1,2,3`") from None
    found.options["gpus"] = len(indices)
    found.notes.append(
        f"`gpu {text}` asks for {len(indices)} cards; Danlu chooses which, and CUDA_VISIBLE_DEVICES says so"
    )


def read_zlaunch(words: Iterable[str]) -> Launch:
    found = Launch()
    given, rest = parse(on_command_line(words), ZLAUNCH)
    found.options["cpus"] = ZLAUNCH_CPUS
    modules: list[str] = []
    more: list[str] = []
    purges = False
    for one in given:
        try:
            if one.name == "cpu":
                found.options["cpus"] = count_of(one.value, 1)
            elif one.name == "gpu":
                found.options["gpus"] = count_of(one.value)
        except ValueError as error:
            raise one.invalid(str(error)) from None
        if one.name == "queue":
            found.queue = one.value
        elif one.name == "env":
            found.options["env"] = _variables(one.value)
        elif one.name == "load":
            modules.append(one.value)
        elif one.name == "args":
            more.append(one.value)
        elif one.name in ("help", "list"):
            found.wants = one.name
        purges = purges or one.name == "purge"
    _set_command(found, [*(word for word, _ in rest), *more], modules, purges=purges)
    return found


def _variables(text: str) -> dict[str, str]:
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise Invalid(f"`--env` takes A=1,B=2, not `{text[:40]}`")
        found[name] = value
    return found


def _set_command(found: Launch, words: list[str], modules: Sequence[str], *, purges: bool) -> None:
    """A single word with blanks is a line for the shell. Modules are loaded by a login shell."""
    if not words:
        return
    if len(words) == 1 and " " in words[0]:
        words = ["/bin/sh", "-c", words[0]]
    if modules or purges:
        steps = ["module purge"] if purges else []
        steps += [f'module load "${at}"' for at in range(1, len(modules) + 1)]
        script = " && ".join([*steps, f"shift {len(modules)}", 'exec "$@"'])
        words = ["/bin/bash", "-lc", script, "danlu", *modules, *words]
    found.command = words


def chosen_queue(written: str, names: Sequence[str]) -> str:
    """The queue by name, or by an unambiguous beginning of a name."""
    if written in names or not names:
        return written if names else ""
    fitting = [name for name in names if name.startswith(written)]
    if len(fitting) == 1:
        return fitting[0]
    why = f"`{written[:40]}` may be {', '.join(fitting)}" if fitting else f"there is no queue `{written[:40]}`"
    raise Invalid(why, "queues: " + ", ".join(names))
