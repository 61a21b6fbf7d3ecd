"""How long a person waits for a command, against an interpreter that does nothing."""

from functools import partial
from statistics import median

from bench.figures import Figure, spread
from bench.place import DANLU, PYTHON, Home
from bench.timing import round_robin, until_line, whole_run

LIMITS = {"danlu --help": 3.0, "danlu ps": 4.0, "danlu submit -- true": 4.0}
RUN_TIMES, RUN_MORE_MS = 4.0, 25.0


def measure(quick: bool) -> list[Figure]:
    with Home().up() as home:
        command = partial(whole_run, environ=home.environ, folder=home.folder)
        samples = round_robin(
            {
                "python -c pass": partial(command, [PYTHON, "-c", "pass"]),
                "danlu --help": partial(command, [DANLU, "--help"]),
                "danlu ps": partial(command, [DANLU, "ps"]),
                "danlu submit -- true": partial(command, [DANLU, "submit", "--", "true"]),
                "run": partial(until_line, [DANLU, "run", "--", "echo", "hi"], home.environ, home.folder, b"hi\n"),
            },
            5 if quick else 41,
        )
    bare = samples.pop("python -c pass")
    figures = [Figure("python -c pass", median(bare) * 1e3, "ms", note=spread(bare))]
    run = samples.pop("run")
    for name, found in samples.items():
        note = f"{median(found) * 1e3:.1f} ms ({spread(found)})"
        figures.append(Figure(name, median(found) / median(bare), "×", at_most=LIMITS[name], note=note))
    limit = RUN_TIMES * median(bare) * 1e3 + RUN_MORE_MS
    told = f"≤ 4 × + 25 ms = {limit:.1f} ms"
    figures.append(
        Figure("danlu run -- echo hi, its line", median(run) * 1e3, "ms", limit, limit=told, note=spread(run))
    )
    return figures
