"""A private PostgreSQL server for tests: in a temporary folder, on a Unix socket, gone afterwards."""

import atexit
import os
import pwd
import shutil
import subprocess
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from tests.warden import short_folder

_USER = "postgres"


class PostgresServer:
    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = short_folder("danlu-pg-")
        self._numbers = count(1)
        # The server refuses to run as root.
        self._run_as = _USER if os.getuid() == 0 else None
        if self._run_as:
            shutil.chown(self._folder, self._run_as)
        self._call("initdb", "-D", self._data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.start()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses='' -c max_connections=60"
        self._call("pg_ctl", "-D", self._data, "-w", "-o", options, "-l", str(self._folder / "log"), "start")

    def crash(self) -> None:
        """Every connection is cut off at once, and what was not durable is lost."""
        # Else the next start would make all test databases anew from the log, which takes a minute.
        self.execute("CHECKPOINT")
        self._call("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def fresh_url(self, encoding: str = "UTF8") -> str:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
        return f"postgresql://{_USER}@/{name}?host={self._folder}"

    def execute(self, sql: str) -> None:
        self._call("psql", "-q", "-h", str(self._folder), "-U", _USER, "-c", sql, "postgres")

    def remove(self) -> None:
        subprocess.run(
            [self._binaries / "pg_ctl", "-D", self._data, "-m", "fast", "stop"],
            user=self._run_as,
            cwd=self._folder,
            capture_output=True,
        )
        shutil.rmtree(self._folder, ignore_errors=True)

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            user=self._run_as,
            cwd=self._folder,
            # It outlives the test that needs it first: nothing of that test's installation may be seen on it.
            env={name: value for name, value in os.environ.items() if not name.startswith("DANLU_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            # A server that stays holds its end of a pipe open, and reading it would never end.
            stderr=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            timeout=60,
        )
        assert done.returncode == 0, f"{program}: {done.stderr!r}"


@cache
def _started() -> PostgresServer | None:
    """One for the whole test process."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    binaries = folders[-1] if folders else Path(found).parent if found else None
    if binaries is None or (os.getuid() == 0 and _USER not in {entry.pw_name for entry in pwd.getpwall()}):
        return None
    server = PostgresServer(binaries)
    atexit.register(server.remove)
    return server


def postgres_server() -> PostgresServer:
    """The server, or a loud skip; with CI set a missing server is a failure."""
    server = _started()
    if server is None:
        missing = "PostgreSQL is not installed, so nothing was tested on it: `apt install postgresql`"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return server
