"""Reading /proc."""

import os
import signal
import subprocess
import sys

from danlu.engines.local.keeper import process_tree
from danlu.engines.local.keeper.process_tree import Process, descendants, look_at, parse_stat


def test_a_process_may_have_any_name() -> None:
    stat = b"42 (x) R 1 (y) S 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1\n"
    process = parse_stat(stat)
    assert process is not None
    assert (process.pid, process.state, process.parent, process.session) == (42, "S", 7, 41)
    assert process.start_ticks == 12345
    assert parse_stat(b"") is None


def test_oneself() -> None:
    process = look_at(os.getpid())
    assert process is not None
    assert (process.parent, process.session, process.is_alive) == (os.getppid(), os.getsid(0), True)
    assert process_tree.environment_of(os.getpid()).get("PATH") is not None
    assert look_at(2**22 + 1) is None


def test_descendants_are_found_below_several_roots() -> None:
    table = {pid: Process(pid, "S", parent, 1, 0) for pid, parent in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 1), (6, 5)]}
    assert {p.pid for p in descendants(table, {2, 6, 99})} == {2, 3, 4, 6}
    assert next(p.pid for p in descendants(table, {2})) == 2


def test_who_catches_a_signal() -> None:
    code = "import signal,sys; signal.signal(signal.SIGUSR1, print); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process_tree.catches(child.pid, signal.SIGUSR1)
        assert not process_tree.catches(child.pid, signal.SIGUSR2)
        table = process_tree.look_at_all()
        assert child.pid in [p.pid for p in descendants(table, {os.getpid()})]
        other = Process(child.pid, "S", 1, 1, start_ticks=table[child.pid].start_ticks + 1)
        assert process_tree.send(other, signal.SIGKILL)
        assert child.poll() is None, "a process with the same number was killed"
        process_tree.send(table[child.pid], signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
