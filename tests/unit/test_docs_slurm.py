"""docs/coming-from-slurm.md lists the tables of the parser."""

from pathlib import Path

from danlu.cli.shims.main import COMMANDS
from danlu.compat import sbatch_options as table
from danlu.compat.getopt import Option

PAGE = (Path(__file__).parents[2] / "docs/coming-from-slurm.md").read_text()


def named(options: tuple[Option, ...]) -> str:
    return ", ".join(f"`--{option.name}`" for option in sorted(options, key=lambda option: option.name))


def test_the_page_lists_what_works_and_what_is_refused() -> None:
    assert f"\n{named(table.USED)}\n" in PAGE
    assert f"\n{named(table.REFUSED)}\n" in PAGE


def test_the_page_says_why_an_option_has_no_effect() -> None:
    rows = "".join(f"| `--{name}` | {why} |\n" for name, why in sorted(table.WHY_DROPPED.items()))
    assert f"|---|---|\n{rows}" in PAGE


def test_the_page_names_each_command() -> None:
    for name in COMMANDS:
        assert f"| `{name}` |" in PAGE
