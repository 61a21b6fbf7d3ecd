"""Run a command as another user. That user can open the command's pipes too (/proc/PID/fd).

The command is over when its process ends, even with open pipes, and only a limited part of its output is read."""

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence

from danlu.unix.descriptors import with_usual_limit

MOST_BYTES = 1 << 16  # of each output


def run_child(
    program: str, argv: Sequence[str], env: Mapping[str, str], stdin: bytes, patience_s: float
) -> tuple[int, bytes, bytes]:
    """The exit code, stdout and stderr. Raises TimeoutExpired and OSError."""
    pipe = subprocess.PIPE
    program, words = with_usual_limit(program, argv)
    process = subprocess.Popen(
        words,
        executable=program,
        env=env,
        cwd="/",
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,  # Ctrl-C for the server must not kill a submit before its answer
    )
    try:
        return _communicate(process, stdin, time.monotonic() + patience_s)
    finally:
        process.kill()  # no effect on an ended process
        with process:  # closes the pipes and reaps the process
            pass


def _communicate(process: "subprocess.Popen[bytes]", left: bytes, deadline: float) -> tuple[int, bytes, bytes]:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    stdin, stdout, stderr = (one.fileno() for one in (process.stdin, process.stdout, process.stderr))
    output = {stdout: bytearray(), stderr: bytearray()}
    over = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as ready:
            for fd in (stdin, stdout, stderr):
                os.set_blocking(fd, False)
                ready.register(fd, selectors.EVENT_WRITE if fd == stdin else selectors.EVENT_READ)
            ready.register(over, selectors.EVENT_READ)
            is_over = False
            while not is_over:
                found = {key.fd for key, _ in ready.select(max(deadline - time.monotonic(), 0))}
                if not found:
                    raise subprocess.TimeoutExpired(process.args, 0)
                is_over = over in found
                if stdin in found and not (left := _write(stdin, left)):
                    ready.unregister(stdin)
                    process.stdin.close()
                for fd in found & output.keys():
                    if not _read(fd, output[fd]):
                        ready.unregister(fd)
        for fd, buffer in output.items():
            _read(fd, buffer)
    finally:
        os.close(over)
    return process.wait(), bytes(output[stdout]), bytes(output[stderr])


def _write(fd: int, data: bytes) -> bytes:
    """The unwritten rest; empty if the reader is gone."""
    try:
        return data[os.write(fd, data) :] if data else b""
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""


def _read(fd: int, buffer: bytearray) -> bool:
    """True: read again later."""
    while len(buffer) < MOST_BYTES:
        try:
            part = os.read(fd, MOST_BYTES - len(buffer))
        except BlockingIOError:
            return True
        if not part:
            return False
        buffer += part
    return False
