"""Others who run many small commands on one machine, behind one face: enter, run a batch, leave."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from bench.place import CPUS, PYTHON, ROOT, clean_environ

SUBMIT_ALL = 'n=0; while [ $n -lt "$1" ]; do "$2" true; n=$((n + 1)); done'

ANSWER = "bench:"


class Skipped(Exception):
    """This peer is not here; the text says why."""


class Peer(ABC):
    """Runs `count` times `true` on as many slots as danlu has."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def __enter__(self) -> Self:
        """Be ready to take jobs. Raises Skipped."""

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def run(self) -> float:
        """Seconds from the first submit until all have ended."""


class HyperQueue(Peer):
    """Server, worker and client in one process of its own (`python -m bench.peers COUNT FOLDER`)."""

    def __enter__(self) -> Self:
        if subprocess.run([PYTHON, "-c", "import hyperqueue"], stderr=subprocess.DEVNULL).returncode:
            raise Skipped("the Python package `hyperqueue` is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="danlu-bench-hq-"))
        self._process = subprocess.Popen(
            [PYTHON, "-m", "bench.peers", str(self.count), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environ(),
            cwd=ROOT,
            text=True,
        )
        self._heard()
        return self

    def run(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return float(self._heard())

    def _heard(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # it has things of its own to say, too
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER)
        raise RuntimeError("HyperQueue ended unexpectedly")

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class TaskSpooler(Peer):
    """`tsp`, whose only way in is its command: one process for every submit."""

    def __enter__(self) -> Self:
        found = shutil.which("tsp")
        if found is None:
            raise Skipped("the command `tsp` of the Debian package task-spooler is not installed")
        self._tsp = found
        self._folder = tempfile.mkdtemp(prefix="danlu-bench-tsp-")
        self._environ = clean_environ() | {"TS_SOCKET": f"{self._folder}/socket", "TMPDIR": self._folder}
        self._ask("-S", str(CPUS))
        return self

    def run(self) -> float:
        begin = time.perf_counter()
        submitted = subprocess.run(
            ["sh", "-c", SUBMIT_ALL, "sh", str(self.count), self._tsp],
            env=self._environ,
            stdout=subprocess.PIPE,
            check=True,
        )
        ids = submitted.stdout.decode().split()
        # Started in order: when the last of every slot are over, all are.
        for one in ids[-CPUS:]:
            self._ask("-w", one)
        seconds = time.perf_counter() - begin
        if len(ids) != self.count:
            raise RuntimeError(f"task-spooler took {len(ids)} of {self.count} jobs")
        self._ask("-C")
        return seconds

    def __exit__(self, *_: object) -> None:
        self._ask("-K")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, *words: str) -> None:
        subprocess.run([self._tsp, *words], env=self._environ, stdout=subprocess.DEVNULL, check=True)


def serve_hyperqueue(count: int, folder: Path) -> None:
    """Runs a batch for every line that is read, and prints the seconds it took."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    os.chdir(folder)
    with LocalCluster(str(folder / "server"), WorkerConfig(cores=CPUS)) as cluster:
        client = cluster.client()
        print(ANSWER, "ready", flush=True)
        for number, _ in enumerate(sys.stdin):
            begin, outputs = time.time(), folder / str(number)
            job = Job(default_workdir=outputs)
            for _ in range(count):
                job.program(["true"])
            client.wait_for_jobs([client.submit(job)])
            # Its wait looks once a second. The last task begins, and makes its file, a moment before all have ended.
            end = max(path.stat().st_mtime for path in outputs.iterdir())
            print(ANSWER, end - begin, flush=True)


if __name__ == "__main__":
    serve_hyperqueue(int(sys.argv[1]), Path(sys.argv[2]))
