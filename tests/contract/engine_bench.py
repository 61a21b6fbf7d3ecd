"""Short runs per second of the keeper alone: `python tests/contract/engine_bench.py [RUNS] [SLOTS] [auto|off]`."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from danlu.engines.local.protocol import PROTOCOL, boot_id, parse_line, render_handle, render_line


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for _ in range(1000):
        try:
            sock.connect(path)
        except OSError:
            time.sleep(0.002)
        else:
            return sock
    raise SystemExit("the keeper did not start")


def launch(folder: str, handle: str, number: int) -> dict[str, Any]:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **{f"VARIABLE_{i}": "x" * 40 for i in range(30)}}
    log = f"{folder}/{number}.log"
    return {"handle": handle, "command": ["true"], "workdir": folder, "env": env, "log": log, "grace": 30.0}


def measure(sock: socket.socket, folder: str, runs: int, slots: int, turn: int) -> float:
    boot, started, ended = boot_id(), 0, 0
    reader = sock.makefile("rb")
    began = time.perf_counter()

    def fill(count: int) -> None:
        nonlocal started
        wanted = range(started, min(started + count, runs))
        started += len(wanted)
        if wanted:
            made = [launch(folder, render_handle(boot, f"b{turn}.{n}"), n) for n in wanted]
            sock.sendall(render_line({"do": "start", "runs": made}))

    fill(slots)
    while ended < runs:
        message = parse_line(reader.readline())
        over = [run["handle"] for run in message.get("runs", ()) if "ending" in run]
        if over:
            ended += len(over)
            fill(len(over))
            sock.sendall(render_line({"do": "forget", "handles": over}))
    return runs / (time.perf_counter() - began)


def main() -> None:
    runs, slots, cgroups = [*sys.argv[1:], *["1000", "2", "auto"][len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/keeper.sock"
        command = [
            sys.executable,
            "-m",
            "danlu.engines.local.keeper.main",
            "--socket",
            path,
            "--journal",
            f"{folder}/journal",
        ]
        began = time.perf_counter()
        keeper = subprocess.Popen([*command, "--cgroups", cgroups, "--linger", "0"])
        sock = connect(path)
        sock.sendall(render_line({"do": "hello", "protocol": PROTOCOL}))
        sock.recv(1 << 16)
        print(f"answers after {1000 * (time.perf_counter() - began):.0f} ms")  # noqa: T201
        rates = [measure(sock, folder, int(runs), int(slots), turn) for turn in range(5)]
        with open(f"/proc/{keeper.pid}/status") as file:
            rss = next(line for line in file if line.startswith("VmRSS")).split()[1]
        print("runs per second:", *(f"{rate:.0f}" for rate in rates))  # noqa: T201
        print(f"keeper: {int(rss) / 1024:.1f} MB, journal {os.path.getsize(f'{folder}/journal')} bytes")  # noqa: T201
        sock.close()
        keeper.wait(10)


if __name__ == "__main__":
    main()
