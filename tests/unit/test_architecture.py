"""Each package's card is true, and ARCHITECTURE.md names every room."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "danlu"
ROOMS = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
MODULES_PER_FOLDER = 20


def test_doors_check_no_permission() -> None:
    """The table is asked in `actions`, so that no door can forget it."""
    for path in (PACKAGE / "api").rglob("*.py"):
        names = re.findall(r"^from danlu\.domain\.people import (\([^)]*\)|.*)$", path.read_text(), flags=re.M)
        assert not re.search(r"\b(demand|may|RIGHTS)\b", " ".join(names)), path.name


# Rooms that ask an engine for its abilities.
NAMELESS = ("actions", "domain", "loops", "scheduler", "startup", "state")
ENGINES = {path.name for path in (PACKAGE / "engines").iterdir() if (path / "__init__.py").exists()} | {"kubernetes"}


def test_no_room_but_the_engines_knows_an_engine_by_name() -> None:
    """A new engine is a leaf: other rooms read its `Abilities`, never its name."""
    names = re.compile("|".join(sorted(ENGINES - {"local"})), flags=re.I)
    paths = [PACKAGE / "app.py", *(path for room in NAMELESS for path in (PACKAGE / room).rglob("*.py"))]
    named = [f"{path.name}: {line}" for path in paths for line in path.read_text().splitlines() if names.search(line)]
    assert not named
    compares = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"engine\.kind (==|!=)", path.read_text())]
    assert set(compares) <= {"main.py", "checks.py"}, "only the doctor looks at a cluster without an engine"


def test_only_engines_know_where_logs_are() -> None:
    """An engine without files has logs too: everybody else asks `Engine.logs`."""
    for room in ROOMS:
        if room.name not in ("engines", "tools"):
            assert not [path.name for path in room.rglob("*.py") if "log_files" in path.read_text()]


def test_doors_touch_no_file_of_a_job() -> None:
    """Folders and logs are laid out and removed by actions, loops and engines: every door would have to repeat it."""
    for path in (PACKAGE / "api").rglob("*.py"):
        assert not re.search(r"provision\.paths|files_dir\b(?<!rules\.files_dir)", path.read_text()), path.name


def test_the_page_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    plan = text[text.index("## Rooms") : text.index("## Life of a job")]
    named = set(re.findall(r"^  ([a-z_]+)(?:/|\.py)", plan, flags=re.M))
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == there - {"__init__"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_has_a_card_and_no_code(package: Path) -> None:
    tree = ast.parse((package / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    # `danlu.client` names what people import from it; revisions are loaded by Alembic.
    assert len(tree.body) == 1 or package.name in ("client", "migrations", "versions"), "it holds code"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_can_be_overlooked(package: Path) -> None:
    if package.parent.name != "migrations":
        assert len([path for path in package.glob("*.py") if path.name != "__init__.py"]) <= MODULES_PER_FOLDER


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_imports_what_its_card_says(room: Path) -> None:
    card = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    line = re.search(r"^May import: ([^.]+)\.", card, flags=re.M)
    assert line, "the card has no line `May import: …`"
    allowed = {word.strip("` ") for word in line.group(1).replace("\n", " ").split(",")}
    imported = {name for path in room.rglob("*.py") for name in _rooms_in(path)} - {room.name, "__version__"}
    assert imported <= allowed, f"the card does not name {imported - allowed}"
    known = {path.stem for path in PACKAGE.iterdir()}
    assert not (allowed & known) - imported, f"the card names {(allowed & known) - imported}, which nothing imports"


def _rooms_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "danlu":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
