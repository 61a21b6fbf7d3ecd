"""A command that belongs to somebody else, and whose pipes they can open too (/proc/PID/fd).

It is over when its process is, whoever else still holds its pipes; and not much of what it says is read."""

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence

from danlu.unix.descriptors import with_usual_limit

MOST_BYTES = 1 << 16  # of each of its outputs


def run_child(
    program: str, argv: Sequence[str], env: Mapping[str, str], stdin: bytes, patience_s: float
) -> tuple[int, bytes, bytes]:
    """Its exit code, output and complaints. Raises TimeoutExpired and OSError."""
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
        start_new_session=True,  # a Ctrl-C for the server is none for it: what it was about to say would be lost
    )
    try:
        return _talk(process, stdin, time.monotonic() + patience_s)
    finally:
        process.kill()  # nothing, if it is over
        with process:  # closes our ends of its pipes, and buries it
            pass


def _talk(process: "subprocess.Popen[bytes]", left: bytes, deadline: float) -> tuple[int, bytes, bytes]:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    stdin, stdout, stderr = (one.fileno() for one in (process.stdin, process.stdout, process.stderr))
    said = {stdout: bytearray(), stderr: bytearray()}
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
                for fd in found & said.keys():
                    if not _hear(fd, said[fd]):
                        ready.unregister(fd)
        for fd, words in said.items():
            _hear(fd, words)
    finally:
        os.close(over)
    return process.wait(), bytes(said[stdout]), bytes(said[stderr])


def _write(fd: int, data: bytes) -> bytes:
    """What is left of it: nothing, if nobody reads any more."""
    try:
        return data[os.write(fd, data) :] if data else b""
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""


def _hear(fd: int, words: bytearray) -> bool:
    """Is there more to come that is worth reading?"""
    while len(words) < MOST_BYTES:
        try:
            part = os.read(fd, MOST_BYTES - len(words))
        except BlockingIOError:
            return True
        if not part:
            return False
        words += part
    return False
