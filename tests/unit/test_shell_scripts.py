"""Every shell script of the project, read by shellcheck."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Whole scripts, made of the parts in src: unlike a part, a whole script sets each variable that it reads.
RENDERED = ROOT / "tests" / "golden" / "slurm" / "scripts"


def shellcheck(option: str, *scripts: Path) -> str:
    """The findings; empty: none."""
    program = shutil.which("shellcheck")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no shellcheck here: shell scripts were NOT TESTED")
    done = subprocess.run([program, option, "--format=gcc", *map(str, scripts)], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_shellcheck_finds_nothing() -> None:
    folders = ("src", "tests", "bench", "examples")
    scripts = [path for folder in folders for path in (ROOT / folder).rglob("*.sh") if RENDERED not in path.parents]
    assert len(scripts) >= 12
    assert shellcheck("--severity=info", *scripts) == ""


def test_rendered_scripts_use_no_variable_that_nobody_sets() -> None:
    assert shellcheck("--include=SC2154", *RENDERED.glob("*.sh")) == ""


def test_a_wheel_has_the_scripts_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packed = {
        path
        for package, patterns in settings["package-data"].items()
        for pattern in patterns
        for path in (ROOT / "src" / package.replace(".", "/")).glob(pattern)
    }
    assert packed == {*(ROOT / "src").rglob("*.sh")}
