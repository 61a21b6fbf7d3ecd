"""`scancel`: which jobs to end, and how."""

from __future__ import annotations

from danlu.compat.getopt import on_command_line, parse, read_options
from danlu.compat.squeue import states_of
from danlu.compat.values import count_of
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

OPTIONS = read_options(
    "account=A batch.b ctld. full.f help. interactive.i jobname= me. name=n nodelist=w partition=p qos=q quiet.Q "
    "reservation=R signal=s state=t usage. user=u verbose.v version.V wckey="
)
_MOST = 10_000


class Asked:
    def __init__(self) -> None:
        self.refs: list[str] = []
        self.users: list[str] | None = None
        self.names: list[str] | None = None
        self.queues: list[str] | None = None
        self.accounts: list[str] | None = None
        self.states: list[str] | None = None
        self.is_mine = self.kills = self.is_loud = False

    @property
    def selects(self) -> bool:
        """True for filters beside job numbers."""
        listed = (self.users, self.names, self.queues, self.accounts, self.states)
        return self.is_mine or any(one is not None for one in listed)


def read_words(words: Iterable[str]) -> tuple[Asked, set[str]]:
    given, rest = parse(on_command_line(words), OPTIONS, anywhere=True)
    asked = Asked()
    other: set[str] = set()
    for one in given:
        match one.name:
            case "user":
                asked.users = [one.value]
            case "name" | "jobname":
                asked.names = [one.value]  # `-n a,b` is one name, as in Slurm
            case "partition":
                asked.queues = [one.value]
            case "account":
                asked.accounts = [one.value]
            case "state":
                asked.states = states_of([one.value])
            case "me":
                asked.is_mine = True
            case "signal":
                name = one.value.upper().removeprefix("SIG")
                if name not in ("KILL", "9", "TERM", "15"):
                    raise one.invalid("only TERM and KILL are supported, which end a job")
                asked.kills = name in ("KILL", "9")
            case "verbose":
                asked.is_loud = True
            case "batch" | "full" | "quiet" | "ctld":
                pass
            case "help" | "usage" | "version":
                other.add(one.name)
            case _:
                raise one.invalid("not supported yet")
    for word, _ in rest:
        asked.refs += [ref for item in _split(word) for ref in refs_of(item)]
    if not asked.refs and not asked.selects and not other:
        raise Invalid("No job identification provided")
    return asked, other


def _split(word: str) -> list[str]:
    """At commas, but for those in brackets."""
    found, depth = [""], 0
    for letter in word:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [item for item in found if item]


def refs_of(word: str) -> list[str]:
    """`7`, `7_3`, `7_[1-2,5]`."""
    wrong = Invalid(f"Invalid job id {word[:40]}")
    number, underscore, tasks = word.partition("_")
    try:
        count_of(number)
        if not underscore:
            return [number]
        if not (tasks.startswith("[") and tasks.endswith("]")):
            return [f"{number}_{count_of(tasks)}"]
        found = []
        for part in tasks[1:-1].split(","):
            first, dash, last = part.partition("-")
            low = count_of(first)
            high = count_of(last) if dash else low
            if not low <= high < low + _MOST:
                raise wrong
            found += [f"{number}_{index}" for index in range(low, high + 1)]
    except ValueError:
        raise wrong from None
    return found
