"""slurmdbd and its database, for clusters that keep books."""

import fcntl
import shutil
import signal
import subprocess
from pathlib import Path

from tests.slurm.cage import Cage, wait_until
from tests.slurm.layout import CONTROLLER, Ports, render_slurmdbd_conf
from tests.slurm.releases import CACHE, Release

_GRANTS = """\
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
"""


class Accounting:
    def __init__(self, cage: Cage, release: Release, folder: Path, ports: Ports) -> None:
        self._cage, self._release, self._folder, self._ports = cage, release, folder, ports

    def start(self) -> None:
        """Both are up. The database is a copy of one with all tables, which the first cluster of a release makes."""
        conf = self._folder / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text(render_slurmdbd_conf(str(self._folder), self._ports, self._release.plugins))
        shutil.chown(conf, "slurm", "slurm")
        template = CACHE / f"accounting-{self._release.version}"
        CACHE.mkdir(exist_ok=True)
        with Path(f"{template}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                self._make(template)
        _copy(template, self._data)
        self._start_database()
        self.start_daemon()

    def start_daemon(self) -> None:
        env = {"SLURM_CONF": str(self._folder / "slurm.conf")}
        self._cage.run(CONTROLLER, self._release.program("slurmdbd"), user="slurm", env=env)
        wait_until(self._answers, "slurmdbd answers")

    def kill_daemon(self) -> None:
        self._cage.signal(signal.SIGKILL, *self._pids("slurmdbd"))

    def _stop_daemon(self) -> None:
        self._cage.signal(signal.SIGTERM, *self._pids("slurmdbd"))
        wait_until(lambda: not self._pids("slurmdbd"), "slurmdbd stops")

    @property
    def _data(self) -> Path:
        return self._folder / "database"

    @property
    def _client(self) -> list[str]:
        return ["--no-defaults", "-uroot", f"--socket={self._data}/socket"]

    def _answers(self) -> bool:
        return (
            subprocess.run(
                [self._release.program("sacctmgr"), "--noheader", "--immediate", "show", "qos"],
                env={"SLURM_CONF": str(self._folder / "slurm.conf"), "PATH": self._release.search_path},
                capture_output=True,
            ).returncode
            == 0
        )

    def _make(self, template: Path) -> None:
        self._data.mkdir()
        shutil.chown(self._data, "mysql", "mysql")
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=mysql",
                f"--datadir={self._data}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
                "--innodb-log-file-size=4M",
            ],
            check=True,
            capture_output=True,
        )
        self._start_database()
        subprocess.run(["mariadb", *self._client], input=_GRANTS, text=True, check=True, capture_output=True)
        self.start_daemon()
        self._stop_daemon()
        subprocess.run(["mariadb-admin", *self._client, "shutdown"], check=True, capture_output=True)
        wait_until(lambda: not self._pids("mariadbd"), "the database stops")
        begun = template.with_suffix(".new")
        shutil.rmtree(begun, ignore_errors=True)
        _copy(self._data, begun)
        begun.rename(template)
        shutil.rmtree(self._data)

    def _start_database(self) -> None:
        self._cage.run(
            CONTROLLER,
            "mariadbd",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={self._data}",
            f"--socket={self._data}/socket",
            f"--pid-file={self._data}/pid",
            # Its temporary files bear its process number, which in other cages is another's too.
            f"--tmpdir={self._data}",
            f"--port={self._ports.database}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--innodb-log-file-size=4M",
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
            wait=False,
        )
        ping = ["mariadb-admin", *self._client, "ping"]
        wait_until(lambda: subprocess.run(ping, capture_output=True).returncode == 0, "the database answers")

    def _pids(self, program: str) -> list[int]:
        found = ((pid, command.split()[0]) for pid, command in self._cage.processes())
        return [pid for pid, path in found if Path(path).name == program]


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--archive", "--reflink=auto", str(source), str(target)], check=True)
