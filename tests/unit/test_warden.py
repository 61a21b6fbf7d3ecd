"""Nothing is left of a test process that was killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_KILLED = """\
import subprocess, sys
from tests.warden import appoint, short_folder
appoint()
folder = short_folder("danlu-warden-")
(folder / "inside").mkdir()
if sys.argv[1] == "root":
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder / "inside"], check=True)
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(folder, left.pid, flush=True)
sys.stdin.read()
"""


def test_processes_mounts_and_folders_of_a_killed_run_are_gone() -> None:
    who = "root" if os.getuid() == 0 else "somebody"
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        folder, pid = run.stdout.readline().split()
        assert Path(folder).is_dir()
        assert is_alive(pid)
        run.kill()
    within(60, lambda: not is_alive(pid))
    within(60, lambda: not Path(folder).exists())
    assert folder not in Path("/proc/self/mounts").read_text()


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def within(seconds: float, is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.02)
