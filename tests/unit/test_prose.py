"""Comments, docstrings and pages are plain English: nouns instead of chains of pronouns."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "danlu"

# Folders (without their subfolders) and pages that keep the rule. Both lists only grow.
ROOMS = [
    "scheduler",
    "engines/slurm",
    "engines/slurm/text",
    "actions/people",
    "actions/jobs",
    "actions/shares",
    "actions/cluster",
    "actions",
    "tools/simulate",
    "tools/doctor",
    "tools/doctor/look",
    "tools/doctor/judge",
    "tools/slurm_setup",
    "cli/views",
    "cli/grammar",
    "client",
    "compat",
    "cli/shims",
    "monitor",
    "store",
    "api",
    "api/routes",
    "cli/commands",
    "cli/input",
    "cli",
    "tools",
    "engines/local/keeper",
    "loops",
    "engines/local",
    "engines",
    "provision",
    "identity",
    ".",
    "config",
    "startup",
    "state",
    "unix",
    "domain",
]
PAGES = [
    "docs/coming-from-slurm.md",
    "docs/administration.md",
    "README.md",
    "docs/guide.md",
    "docs/people.md",
    "docs/shares.md",
    "docs/install.md",
    "docs/operation.md",
    "docs/slurm.md",
    "docs/several-nodes.md",
    "docs/development.md",
    "docs/simulation.md",
    "docs/doctor.md",
    "docs/concepts.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
]

PRONOUNS = {
    "who", "whoever", "whom", "whose", "what", "whatever", "that", "those", "one", "it", "they", "them",
    "somebody", "nobody", "anybody", "everybody",
}  # fmt: skip
MODULE_SHARE = 0.05
PAGE_SHARE = 0.04
FEW_WORDS = 60  # one pronoun weighs too much in a shorter text
POOR_START = re.compile(r"(?:^|[.!?]\s+)((?:who|whoever|whom|of an?|so)\b[^.]{0,60})", re.IGNORECASE)

MODULES = [path for room in ROOMS for path in sorted((PACKAGE / room).glob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_names_its_nouns(path: Path) -> None:
    blocks = list(prose_of(path.read_text()))
    assert share(blocks) <= MODULE_SHARE, f"{share(blocks):.1%} pronouns"
    assert not [start for block in blocks for start in POOR_START.findall(block)]


def test_pages_name_their_nouns() -> None:
    for page in PAGES:
        blocks = list(paragraphs_of((ROOT / page).read_text()))
        assert share(blocks) <= PAGE_SHARE, f"{page}: {share(blocks):.1%} pronouns"
        assert not [start for block in blocks for start in POOR_START.findall(block)], page


def test_the_measure_sees_pronouns() -> None:
    source = '"""Who asks for it."""\n\n# `who` is code.\n# Second line. So be it.\nx = 1  # noqa: F821\n'
    blocks = list(prose_of(source))
    assert blocks == ["Who asks for it.", "is code. Second line. So be it."]
    assert [start for block in blocks for start in POOR_START.findall(block)] == ["Who asks for it", "So be it"]
    assert share(blocks) == 0.0, "a short text is exempt"
    assert share(["who " * 3 + "noun " * 57]) == 0.05
    assert list(paragraphs_of("# Title\n\nOne `it`\nline.\n\n```\nit\n```\n")) == ["Title", "One line."]


def share(blocks: list[str]) -> float:
    words = [word.lower() for block in blocks for word in re.findall(r"[A-Za-z]+", block)]
    return 0.0 if len(words) < FEW_WORDS else sum(word in PRONOUNS for word in words) / len(words)


def prose_of(source: str) -> Iterator[str]:
    """Each docstring, and each comment with its continuation lines, without code between backticks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from plain(ast.get_docstring(node) or "")
    block, last = "", (-1, -1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = re.sub(r"^(noqa|type:|pragma|!).*", "", token.string.lstrip("# "))
            if token.start != (last[0] + 1, last[1]):
                yield from plain(block)
                block = ""
            block, last = f"{block} {text}", token.start
    yield from plain(block)


def paragraphs_of(page: str) -> Iterator[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page, flags=re.S | re.M)
    for paragraph in re.split(r"\n\s*\n|^ *[-*#|]+ |\|", text, flags=re.M):
        yield from plain(paragraph)


def plain(text: str) -> Iterator[str]:
    text = " ".join(re.sub(r"`[^`]*`", "", text).split())
    if text:
        yield text
