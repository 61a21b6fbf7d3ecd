"""Trying a policy: the command hands over to `danlu.tools.simulate`, which is no part of the light command line."""

from __future__ import annotations

import os
import sys

from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values

_EXAMPLE = "for example `danlu simulate trace.csv --config danlu.toml`"


def simulate(values: Values) -> int:
    words = values["words"]
    if values["make_trace"] is not None:
        if words or not values["make_trace"]:
            raise Invalid("`--make-trace` takes how many jobs, and no trace", "for example `--make-trace 1000`")
    elif not words:
        raise Invalid("`danlu simulate` needs a trace", f"{_EXAMPLE}; `--make-trace 1000` invents one")
    elif not values["config"]:
        raise Invalid("`danlu simulate` needs `--config`: which machines and which rules?", _EXAMPLE)
    options = ["--json"] if values["json"] else []
    for name in ("config", "people", "step", "preempted", "jobs-csv", "make-trace", "seed", "load", "color"):
        value = values[name.replace("-", "_")]
        if value is not None:
            options.append(f"--{name}={value}")
    os.execv(sys.executable, [sys.executable, "-m", "danlu.tools.simulate.main", *options, "--", *words])
