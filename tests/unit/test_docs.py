"""Documentation that fails the build when it lies."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from danlu import errors
from danlu.actions.jobs.submit import STOPPING
from danlu.api.app import ROUTERS
from danlu.cli.grammar.parse_fast import parse
from danlu.cli.grammar.table import BY_NAME
from danlu.domain.job import JobState
from danlu.domain.reasons import ReasonCode
from danlu.engines.base import Ending
from danlu.engines.slurm.text import messages as slurm_messages
from danlu.loops.settle import GIVING_BACK
from danlu.provision import variables

ROOT = Path(__file__).parents[2]
ADMINISTRATION = tuple(
    f"docs/{name}.md" for name in ("administration", "install", "people", "shares", "slurm", "operation")
)
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_in(text: str) -> list[str]:
    """Every `danlu …` in a code block or between backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.S | re.M)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    return [line.partition("   #")[0].strip() for line in lines + spans if line.startswith("danlu ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_the_docs_is_one(page: Path) -> None:
    for command in commands_in(page.read_text()):
        words = shlex.split(command)[1:]
        if {"…", "[options]", "CMD…"} & set(words) or len(words) == 1:
            assert words[0] in BY_NAME, command
        else:
            assert parse(words) is not None, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_route_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    for route in (route for router in ROUTERS for route in router.routes):
        methods = sorted(route.methods) if isinstance(route, APIRoute) and route.methods else ["WS"]
        path = getattr(route, "path", "")
        assert f"`{methods[0]} {path}" in text, f"{methods[0]} {path}"


def test_every_error_code_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DanluError)]
    for kind in kinds:
        if kind not in (errors.DanluError, errors.ServerDown):
            row = next((line for line in text.splitlines() if line.startswith("|") and f"`{kind.code}`" in line), "")
            assert f"| {kind.status} | {kind.exit_code} |" in row, kind.code


def test_every_variable_a_job_sees_is_documented() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    for name in re.findall(r'"((?:DANLU|CUDA)_\w+)":', Path(variables.__file__).read_text()):
        assert f"`{name}`" in guide, name


def test_every_command_is_in_a_page_for_people() -> None:
    pages = "".join((ROOT / name).read_text() for name in ("README.md", "docs/guide.md", *ADMINISTRATION))
    for name in BY_NAME:
        assert f"danlu {name}" in pages, name


def reason_codes() -> Iterator[str]:
    """Every code that a job's reason may have: written where a Reason is made, or in the tables of an engine."""
    for path in sorted((ROOT / "src/danlu").rglob("*.py")):
        if path.parts[-2] == "simulate":
            continue
        for call in (one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "Reason" and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value)
    yield from ReasonCode
    keeper = (ROOT / "src/danlu/engines/local/keeper/run.py").read_text()
    yield from re.findall(r'reason = \("(\w+)",', keeper)
    yield from (code for code, *_ in slurm_messages._WAITS.values())
    yield from (code for _, code, *_ in slurm_messages._REFUSALS)
    yield from (code for _, code, _ in slurm_messages._ENDS.values())
    yield from (*Ending, *STOPPING.values(), GIVING_BACK)


def test_every_state_and_reason_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text().partition("## States and reasons")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    made = set(reason_codes())
    assert len(made) > 40, "they are found"
    assert made == documented, made ^ documented
    assert not [code for code in made - set(ReasonCode) if not code.startswith("slurm")], "codes are in one table"
    for state in JobState:
        assert f"`{state}`" in text, state
