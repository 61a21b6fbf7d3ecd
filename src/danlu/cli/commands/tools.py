"""Commands that are programs of their own (`danlu.tools`): the program replaces this process."""

from __future__ import annotations

import os
import sys

from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values

_EXAMPLE = "for example `danlu simulate trace.csv --config danlu.toml`"


def doctor(values: Values) -> int:
    return _become("danlu.tools.doctor.main", values, flags=("deep", "json"), options=("config", "server", "color"))


def simulate(values: Values) -> int:
    words = values["words"]
    if values["make_trace"] is not None:
        if words or not values["make_trace"]:
            raise Invalid("`--make-trace` takes a number of jobs, and no trace", "for example `--make-trace 1000`")
    elif not words:
        raise Invalid("`danlu simulate` needs a trace", f"{_EXAMPLE}; `--make-trace 1000` generates one")
    elif not values["config"]:
        raise Invalid("`danlu simulate` needs `--config`: which machines and which rules?", _EXAMPLE)
    options = ("config", "people", "step", "preempted", "jobs-csv", "make-trace", "seed", "load", "color")
    return _become("danlu.tools.simulate.main", values, flags=("json",), options=options)


def slurm_init(values: Values) -> int:
    if values["port"] is not None and not values["try_here"]:
        raise Invalid("`--port` is for `--try-here`", "real machines use Slurm's own ports")
    flags = ("json", "force", "try-here")
    return _become("danlu.tools.slurm_setup.main", values, flags=flags, options=("out", "port", "color"))


def _become(module: str, values: Values, *, flags: tuple[str, ...], options: tuple[str, ...]) -> int:
    """Replace this process by the program. The light command line imports none of the program's modules."""
    argv = [sys.executable, "-m", module]
    argv += [f"--{name}" for name in flags if values[name.replace("-", "_")]]
    for name in options:
        value = values[name.replace("-", "_")]
        if value is not None:
            argv.append(f"--{name}={value}")
    words = values["words"]
    os.execv(sys.executable, [*argv, "--", *words] if words else argv)
