"""Every command and option, once: both parsers, the help and the completion are made from this table."""

from __future__ import annotations

from danlu.cli.grammar.cluster import CLUSTER, OTHER, SERVER, SHARES
from danlu.cli.grammar.jobs import JOBS
from danlu.cli.grammar.people import PEOPLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.grammar.model import Command

COMMANDS = JOBS + CLUSTER + PEOPLE + SHARES + SERVER + OTHER

BY_NAME = {command.name: command for command in COMMANDS}

# The first words of commands that are nothing without a second one, and what each family is for.
FAMILIES = {
    "token": "what scripts and other machines come in with",
    "account": "getting an account",
    "user": "people",
    "team": "membership",
    "slurm": "making machines a Slurm cluster",
}


def family(word: str) -> list[Command]:
    """The commands of two words that begin with this one."""
    return [command for command in COMMANDS if command.name.startswith(f"{word} ")]
