"""`danlu --help`, straight from the table: nobody waits for argparse to read a page."""

from __future__ import annotations

from danlu.cli.grammar import COMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_GROUPS = (("jobs", "Jobs"), ("cluster", "Cluster"), ("people", "People"), ("server", "Server"), ("other", "More"))


def render_overview(paint: Callable[[str, str], str]) -> str:
    lines = [
        "Run jobs on shared GPUs, from one machine to a cluster.",
        "",
        f"{paint('usage:', 'bold')} danlu COMMAND [options]",
    ]
    for group, title in _GROUPS:
        listed = [f"  {command.name:<13} {command.help}" for command in COMMANDS if command.group == group]
        lines += ["", paint(title, "bold"), *listed] if listed else []
    lines += [
        "",
        paint("Examples", "bold"),
        "  danlu run --gpus 1 -- python train.py     submit, and see the log as it is written",
        "  danlu submit --array 1-10%2 -- ./sweep    ten tasks, two at once",
        "  danlu logs -f @                           follow my last job; @~1 is the one before",
        "  danlu up --detach --fake-gpus 4xRTX3090   try it without a card",
        "",
        "`danlu COMMAND --help` shows a command's options. Jobs are named by id, by the beginning of one, or @.",
        "Exit codes: 0 done, 1 the job failed, 2 wrong usage, 3 refused, 4 out of reach. `run` and `exec`: the job's.",
    ]
    return "\n".join(lines)
