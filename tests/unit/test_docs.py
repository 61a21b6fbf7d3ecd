"""Documentation that fails the build when it lies."""

import re
import shlex
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from danlu import errors
from danlu.api.server import ROUTERS
from danlu.cli.fast import parse
from danlu.cli.grammar import BY_NAME
from danlu.provision import variables

ROOT = Path(__file__).parents[2]
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
    pages = "".join((ROOT / name).read_text() for name in ("README.md", "docs/guide.md", "docs/administration.md"))
    for name in BY_NAME:
        assert f"danlu {name}" in pages, name
