"""A Slurm cluster from nothing: `danlu.tools.slurm_setup` does the work, outside the light command line."""

from __future__ import annotations

import os
import sys

from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values


def init(values: Values) -> int:
    if values["port"] is not None and not values["try_here"]:
        raise Invalid("`--port` is for `--try-here`", "real machines use Slurm's own ports")
    options = [f"--{name}" for name in ("json", "force", "try-here") if values[name.replace("-", "_")]]
    for name in ("out", "port", "color"):
        if values[name] is not None:
            options.append(f"--{name}={values[name]}")
    os.execv(sys.executable, [sys.executable, "-m", "danlu.tools.slurm_setup.main", *options, "--", *values["words"]])
