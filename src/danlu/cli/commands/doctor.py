"""Looking before relying: handed over to `danlu.tools.doctor`, which is no part of the light command line."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values


def doctor(values: Values) -> int:
    options = [f"--{name}" for name in ("deep", "json") if values[name]]
    for name in ("config", "server", "color"):
        if values[name] is not None:
            options.append(f"--{name}={values[name]}")
    os.execv(sys.executable, [sys.executable, "-m", "danlu.tools.doctor.main", *options])
