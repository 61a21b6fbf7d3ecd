"""Every command and option, once. Both parsers, the help and the completion are generated from this table."""

from __future__ import annotations

from danlu.cli.grammar.cluster import CLUSTER, OTHER, SERVER, SHARES
from danlu.cli.grammar.jobs import JOBS
from danlu.cli.grammar.people import PEOPLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.grammar.model import Command

COMMANDS = JOBS + CLUSTER + PEOPLE + SHARES + SERVER + OTHER

BY_NAME = {command.name: command for command in COMMANDS}

# The first words of two-word commands, with the purpose of each family.
FAMILIES = {
    "token": "access for scripts and other machines",
    "account": "account requests",
    "user": "accounts",
    "team": "teams",
    "slurm": "set up a Slurm cluster",
    "shims": "sbatch, squeue and others that call Danlu",
}


def family(word: str) -> list[Command]:
    """The two-word commands that begin with this word."""
    return [command for command in COMMANDS if command.name.startswith(f"{word} ")]
