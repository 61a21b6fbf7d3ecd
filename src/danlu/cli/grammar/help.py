"""`danlu --help`, straight from the table, without the start-up cost of argparse."""

from __future__ import annotations

from danlu.cli.grammar.table import COMMANDS, FAMILIES, family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GROUPS = (
    ("jobs", "Jobs"), ("cluster", "Cluster"), ("shares", "Shares"), ("people", "People"), ("server", "Server"),
    ("other", "More"),
)  # fmt: skip


def render_overview(paint: Callable[[str, str], str]) -> str:
    lines = [
        "Run jobs on shared GPUs, from one machine to a cluster.",
        "",
        f"{paint('usage:', 'bold')} danlu COMMAND [options]",
    ]
    for group, title in _GROUPS:
        lines += ["", paint(title, "bold"), *(f"  {name:<11} {help}" for name, help in _listed(group))]
    lines += [
        "",
        paint("Examples", "bold"),
        "  danlu run --gpus 1 -- python train.py     submit a job and follow its log",
        "  danlu submit --array 1-10%2 -- ./sweep    ten tasks, two at once",
        "  danlu logs -f @                           follow the log of my last job",
        "  danlu up --detach --fake-gpus 4xRTX3090   try Danlu without a card",
        "",
        "`danlu COMMAND --help` shows a command's options.",
        "Name a job by id, by the beginning of its id, by number, or by @ (the last one).",
        "Exit codes: 0 done, 1 the job failed, 2 wrong usage, 3 refused, 4 out of reach.",
        "`run` and `exec` end with the exit code of their command.",
    ]
    return "\n".join(lines)


def _listed(group: str) -> Iterator[tuple[str, str]]:
    """A line per command; a family of commands shares a line."""
    told = set()
    for command in COMMANDS:
        first = command.name.partition(" ")[0]
        if command.group != group or first in told:
            continue
        if first in FAMILIES:
            told.add(first)
            yield first, f"{FAMILIES[first]}: {', '.join(each.name.split()[1] for each in family(first))}"
        else:
            yield command.name, command.help
