"""The PyTorch that `tests/install-torch.sh` has put aside."""

import os
from pathlib import Path

import pytest

FOLDER = Path("/var/cache/danlu-tests/torch")


def pytorch() -> Path:
    """Its programs are here; or a loud skip. With CI set, a missing one is a failure."""
    if not (FOLDER / ".complete").exists():
        text = f"PyTorch is not installed: `sh tests/install-torch.sh {FOLDER}`; so this was NOT TESTED"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    return FOLDER / "bin"
