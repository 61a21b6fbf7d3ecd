"""Where figures are taken: an installation as people have it, and a home of its own for every server.

`python -m bench.place` only installs."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parent.parent
VENV = ROOT / "bench" / ".venv"
PYTHON = str(VENV / "bin" / "python")
DANLU = str(VENV / "bin" / "danlu")
CPUS = 2
GONE_WITHIN_S = 30.0


def install() -> None:
    """A real installation of the sources as they are now: not editable, compiled by pip."""
    stamp = VENV / "danlu.stamp"
    digest = _digest_of_sources()
    if stamp.exists() and stamp.read_text() == digest:
        return
    pip = [PYTHON, "-m", "pip", "-qq", "--disable-pip-version-check"]
    if not os.path.exists(PYTHON):
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        # Python 3.11 puts it into every new environment, where it slows each start, that of a bare interpreter too.
        subprocess.run([*pip, "uninstall", "--yes", "setuptools"], check=True)
    with tempfile.TemporaryDirectory(prefix="danlu-bench-source-") as folder:
        # A copy: building in the tree would leave a build folder there.
        shutil.copytree(ROOT / "src", Path(folder, "src"), ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "README.md"):
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, folder)
        subprocess.run([*pip, "install", folder], check=True)
    stamp.write_text(digest)


def clean_environ() -> dict[str, str]:
    """This environment without what would change Python or point to another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DANLU_"))}


class Home:
    """A state folder of its own and the server in it. Use it with `with`; leaving stops both processes."""

    def __init__(self, folder: Path | None = None) -> None:
        self.is_temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="danlu-bench-")) if folder is None else folder
        self.environ = clean_environ() | {"DANLU_HOME": str(self.folder), "DANLU_ENGINE_CPUS": str(CPUS)}
        self.server_pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        for pid in self.keeper_pids():
            os.kill(pid, signal.SIGTERM)
        self.wait_for_keeper()
        if self.is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def danlu(self, *words: str) -> str:
        """Run a command and give what it printed."""
        done = subprocess.run([DANLU, *words], env=self.environ, cwd=self.folder, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    def up(self, *options: str) -> Self:
        try:
            self.danlu("up", "--detach", *options)
            self.server_pid = int(json.loads(self.danlu("status", "--json"))["pid"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def down(self) -> None:
        """Stop the server; returns when its process is gone, which is a moment after it stops answering."""
        self.danlu("down")
        lock = self.folder / "server.lock"
        pid = lock.read_text().strip() if lock.exists() else ""
        _wait(lambda: not pid or not os.path.exists(f"/proc/{pid}"), f"the server in {self.folder}")

    @property
    def socket(self) -> str:
        """The server's socket, also where the folder's path is too long to have it below."""
        found: str = json.loads(self.danlu("status", "--json"))["address"]
        return found.removeprefix("unix://")

    def keeper_pids(self) -> list[int]:
        """The supervisor of this home's runs, by the journal it was told to write."""
        journal = os.fsencode(self.folder / "keeper.journal")
        return [pid for pid, words in _processes() if journal in words]

    def wait_for_keeper(self) -> None:
        """Until the supervisor has ended by itself, so that nothing of this home is running."""
        _wait(lambda: not self.keeper_pids(), f"the keeper of {self.folder}")


def _wait(is_gone: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + GONE_WITHIN_S
    while not is_gone():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} does not end")
        time.sleep(0.02)


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                yield int(name), Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), ROOT / "pyproject.toml"]):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    install()
