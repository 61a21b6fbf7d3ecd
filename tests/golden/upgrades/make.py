"""Makes the golden files beside it: what a version of before leaves behind when its server is killed.

    .venv/bin/python -m tests.golden.upgrades.make 2529303^ 0a595b5^ 540bc62^ 40b03a1^ 40b03a1

Each revision is the last one with its schema. Its own code runs three jobs, on SQLite and on PostgreSQL:

    runs       is running, and its keeper has not heard of its end
    finished   ended with 7 after the server was killed: only the keeper's journal knows
    waits      waits for two cores

The files are named after the schema. The id of the boot is replaced, as if the machine had restarted since."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.installation import eventually
from tests.postgres import postgres_server

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
ANOTHER_BOOT = "00000000-0000-4000-8000-000000000000"
COMMAND = "import sys; from danlu.cli.main import main; sys.exit(main())"


class Before:
    """An installation of a version of before."""

    def __init__(self, code: Path, folder: Path, store_url: str) -> None:
        self.home = folder / "home"
        # Nothing of whoever makes the files: environments are kept with jobs.
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "DANLU_HOME": str(self.home),
            "DANLU_ENGINE_CPUS": "2",
            "DANLU_ENGINE_NODE_NAME": "desk",
            "PYTHONPATH": str(code / "src"),
        }
        if store_url:
            self.environ["DANLU_STORE_URL"] = store_url

    def danlu(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *words],
            env=self.environ,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def is_in(self, state: str, job_id: str) -> bool:
        return bool(json.loads(self.danlu("show", job_id, "--json"))["state"] == state)

    def leave(self) -> None:
        """Work, and a server that is killed."""
        door = self.home.parent / "door"
        shell = f"while [ ! -e {door} ]; do sleep 0.05; done; exit 7"
        runs = self.danlu("submit", "--name", "runs", "--", "sleep", "600")
        finished = self.danlu("submit", "--name", "finished", "--", "sh", "-c", shell)
        self.danlu("submit", "--name", "waits", "--cpus", "2", "--", "sh", "-c", "echo upgraded")
        eventually(lambda: self.is_in("RUNNING", runs) and self.is_in("RUNNING", finished), "they run")
        os.kill(json.loads(self.danlu("status", "--json"))["pid"], signal.SIGKILL)
        door.touch()
        eventually(lambda: f'"end":"local:{BOOT}:{finished}.1"' in self.journal(), "the keeper writes down the end")

    def journal(self) -> str:
        return (self.home / "keeper.journal").read_text()

    def remove(self) -> None:
        for job in json.loads(self.danlu("ps", "--json"))["items"]:
            self.danlu("stop", "--now", job["id"])
        self.danlu("down")


def dump_sqlite(home: Path) -> str:
    with sqlite3.connect(home / "danlu.db") as database:
        return "\n".join(database.iterdump()) + "\n"


def dump_postgres(url: str) -> str:
    done = subprocess.run(
        ["pg_dump", "--no-owner", "--inserts", "--no-comments", url], capture_output=True, text=True, check=True
    )
    return "".join(
        f"{line}\n"
        for line in done.stdout.splitlines()
        if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog.set_config"))
    )


def make(revision: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dl-", dir="/tmp"))
    code = folder / "code"
    subprocess.run(["git", "worktree", "add", "-q", "--detach", code, revision], cwd=ROOT, check=True)
    try:
        found = re.search(r'SCHEMA = "(\d+)"', (code / "src/danlu/store/tables.py").read_text())
        assert found
        for kind in ("sqlite", "postgresql"):
            url = postgres_server().fresh_url() if kind == "postgresql" else ""
            (folder / kind).mkdir()
            before = Before(code, folder / kind, url)
            before.leave()
            database = dump_postgres(url) if url else dump_sqlite(before.home)
            for name, text in (("sql", database), ("journal", before.journal())):
                (HERE / f"{found[1]}-{kind}.{name}").write_text(text.replace(BOOT, ANOTHER_BOOT))
            before.remove()
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", code], cwd=ROOT, check=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        make(one)
