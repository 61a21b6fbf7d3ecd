"""Lists through the command line: the same at a short and at a long history."""

import hashlib
import shutil
import subprocess
from functools import partial
from pathlib import Path
from statistics import median

from bench.figures import LATEST, Figure
from bench.place import DANLU, PYTHON, ROOT, Home, clean_environ
from bench.timing import Samples, round_robin, whole_run

SHORT = 100
AT_MOST = 2.0
QUESTIONS = {
    "ps": (),
    "ps, everybody": ("--user", "all"),
    "ps, by state": ("--user", "all", "--state", "FAILED"),
    "ps, by user": ("--user", "user7"),
    "ps, by name": ("--user", "all", "--name", "baseline"),
    "ps, by label": ("--user", "all", "--label", "exp=a"),
    "ps, mine by state": ("--state", "FAILED"),
    "ps, mine by name": ("--name", "baseline"),
    "ps, mine by label": ("--label", "exp=a"),
    "ps, a name nobody has": ("--user", "all", "--name", "nothing"),
}
# Held to nothing: a filter that hardly anything passes, behind one that half of all pass.
HARD = {"ps, by label and a state of long ago": ("--user", "all", "--label", "exp=a", "--state", "LOST")}


def measure(quick: bool) -> list[Figure]:
    long = 100_000 if quick else 1_000_000
    with Home(history(SHORT)).up() as short_home, Home(history(long)).up() as long_home:
        commands = {}
        for name, words in (QUESTIONS | HARD).items():
            for home, suffix in ((short_home, "short"), (long_home, "long")):
                argv = [DANLU, "ps", *words]
                commands[f"{name} {suffix}"] = partial(whole_run, argv, home.environ, home.folder)
        samples = round_robin(commands, 5 if quick else 25)
    return [_figure(name, samples, long) for name in QUESTIONS | HARD]


def _figure(name: str, samples: Samples, long: int) -> Figure:
    before, after = (median(samples[f"{name} {which}"]) * 1e3 for which in ("short", "long"))
    note = f"{before:.1f} ms at {SHORT}, {after:.1f} ms at {long:,}"
    return Figure(name, after / before, "×", at_most=None if name in HARD else AT_MOST, note=note)


def history(count: int) -> Path:
    """The folder of a home with this many ended jobs; made once and kept."""
    made_by = hashlib.sha256(b"".join(path.read_bytes() for path in _makers())).hexdigest()[:8]
    folder = LATEST.parent / f"history-{count}-{made_by}"
    if not (folder / "danlu.db").exists():
        LATEST.parent.mkdir(exist_ok=True)
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        for old in LATEST.parent.glob(f"history-{count}-*"):
            shutil.rmtree(old)
        argv = [PYTHON, "-m", "bench.seed", str(unfinished), str(count)]
        subprocess.run(argv, cwd=ROOT, env=clean_environ(), check=True)
        unfinished.rename(folder)
    return folder


def _makers() -> list[Path]:
    store = ROOT / "src" / "danlu" / "store"
    return [ROOT / "bench" / "seed.py", store / "tables.py", *sorted((store / "migrations" / "versions").glob("*.py"))]
