"""ARCHITECTURE.md names every room and every module, and every package has its card."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "danlu"


def test_doors_check_no_permission() -> None:
    """The table is asked in `actions`, so that no door can forget it."""
    for path in (PACKAGE / "api").glob("*.py"):
        names = re.findall(r"^from danlu\.domain\.account import (\([^)]*\)|.*)$", path.read_text(), flags=re.M)
        assert not re.search(r"\b(demand|may|RIGHTS)\b", " ".join(names)), path.name


def test_every_module_is_in_the_plan_of_the_house() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    plan = text[text.index("## Rooms") : text.index("## Life of a job")]
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" or "migrations" in parts or parts[0] in ("cli", "client"):
            continue
        room = plan[plan.index(f"{parts[0]}/") :] if len(parts) > 1 else plan
        assert parts[-1] in room, "/".join(parts)


def test_every_package_has_a_card_and_no_code() -> None:
    for path in PACKAGE.glob("*/__init__.py"):
        body = ast.parse(path.read_text()).body
        assert ast.get_docstring(ast.parse(path.read_text())), path
        if path.parent.name != "client":
            assert len(body) == 1, f"{path} holds code"
