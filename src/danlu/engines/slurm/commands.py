"""Slurm's client commands: argument lists, a clean environment, a time limit, the right user.

A command with a user's rights is that user's process: the user can stop it, read its pipes and write into them. The
command therefore gets nothing of the server (`env`, `become`), and its answer counts only for the user's own run."""

import asyncio
import errno
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from danlu.engines.slurm.child import run_child
from danlu.engines.slurm.text.messages import is_out_of_reach, last_words
from danlu.engines.slurm.timing import Timing
from danlu.errors import EngineDown
from danlu.unix.become import as_user
from danlu.unix.descriptors import with_usual_limit

USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Times in seconds since 1970, and complete lists of numbers.
MACHINE_READABLE = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
NUMBERS_AT_ONCE = 5000  # Linux limits an argument to 128 KiB
AT_ONCE = 8
Given = ParamSpec("Given")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Person:
    """The Unix user of a command."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @classmethod
    def named(cls, name: str) -> "Person":
        """Raises KeyError for an unknown Unix user. An empty name means the user of the server."""
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell)


class Commands:
    """`path` is the search path of the commands and of jobs, `conf` is SLURM_CONF; the defaults come from the server's
    environment."""

    def __init__(self, *, path: str = "", conf: str = "", timing: Timing = Timing()) -> None:
        self._timing = timing
        # Only absolute folders: a program in the current folder must never run as root.
        given = (path or os.environ.get("PATH", USUAL_PATH)).split(":")
        self.path = ":".join(part for part in given if part.startswith("/")) or USUAL_PATH
        self.conf = conf or os.environ.get("SLURM_CONF", "")
        # Threads: not every event loop can start a process as another user.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="slurm")
        self._running: set[subprocess.Popen[bytes]] = set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        # Without a controller these commands would retry for long.
        for process in list(self._running):
            process.kill()

    def find(self, command: str) -> str:
        return shutil.which(command, path=self.path) or command

    def env(self, person: Person | None = None) -> dict[str, str]:
        """The environment of a command. A job inherits the variables of `sbatch`: only those of a plain login."""
        found = {"PATH": self.path, "LANG": "C.UTF-8"}
        if self.conf:
            found["SLURM_CONF"] = self.conf
        if person:
            found |= {"HOME": person.home, "USER": person.name, "LOGNAME": person.name, "SHELL": person.shell}
        return found

    async def in_thread(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Run in a thread of the engine: requests of people may fill the default threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(do, *given, **named))

    async def query(self, *argv: str, patience_s: float | None = None) -> str:
        """The answer of a read-only command. Raises EngineDown without an answer."""
        answer = await self.run(argv, extra=MACHINE_READABLE, patience_s=patience_s)
        if answer.code:
            text = last_words(answer.stderr) or f"{argv[0]} ended with {answer.code}"
            raise EngineDown(f"Slurm does not answer: {text}")
        return answer.stdout

    async def query_or_ping(self, *argv: str) -> str:
        """As `query`, but ping a silent controller: clients retry a dead controller for nine seconds."""
        asked = asyncio.create_task(self.query(*argv))
        try:
            while not asked.done():
                await asyncio.wait({asked}, timeout=self._timing.ping_after_s)
                if (not asked.done() or asked.exception()) and not await self.is_up():
                    raise EngineDown("the controller of Slurm cannot be reached")
        finally:
            asked.cancel()
        return await asked

    async def is_up(self) -> bool:
        """True also for a controller that hangs."""
        try:
            answer = await self.run(("scontrol", "ping"), patience_s=self._timing.ping_patience_s)
        except EngineDown:
            return True
        return answer.code == 0 and ("UP" in answer.stdout or "hung" in answer.stdout)

    async def run(
        self,
        argv: Sequence[str],
        *,
        person: Person | None = None,
        stdin: str = "",
        extra: Mapping[str, str] | None = None,
        patience_s: float | None = None,
    ) -> Answer:
        env = {**self.env(person), **(extra or {})}
        command = (self.find(argv[0]), *argv[1:])
        patience_s = self._timing.command_patience_s if patience_s is None else patience_s
        loop = asyncio.get_running_loop()
        try:
            if person is None:
                return await loop.run_in_executor(self._threads, self._run_own, command, env, stdin, patience_s)
            return await loop.run_in_executor(self._threads, _run_as, person, command, env, stdin, patience_s)
        except subprocess.TimeoutExpired:
            raise EngineDown(f"Slurm does not answer: {argv[0]} took more than {patience_s:.0f} seconds") from None
        except FileNotFoundError:
            raise EngineDown(
                f"this machine lacks the Slurm command {argv[0]}", "install Slurm's client commands"
            ) from None
        except OSError as error:
            raise EngineDown(f"{argv[0]} cannot be run: {error.strerror}") from None
        except RuntimeError:  # the threads are closed
            raise EngineDown("the Slurm engine is closed") from None

    def _run_own(self, argv: tuple[str, ...], env: dict[str, str], stdin: str, patience_s: float) -> Answer:
        pipe = subprocess.PIPE
        given = pipe if stdin else subprocess.DEVNULL
        program, words = with_usual_limit(argv[0], argv)
        # A file instead of a pipe: a long answer would wait for its reader again and again.
        with (
            open(os.memfd_create("answer"), "r+b") as file,
            subprocess.Popen(
                words, executable=program, env=env, cwd="/", stdin=given, stdout=file, stderr=pipe
            ) as process,
        ):
            self._running.add(process)
            try:
                _, stderr = process.communicate(stdin.encode() or None, timeout=patience_s)
            finally:
                process.kill()  # no effect on an ended process
                self._running.discard(process)
            file.seek(0)
            return Answer(process.returncode, _text(file.read()), _text(stderr))


def _run_as(person: Person, argv: tuple[str, ...], env: dict[str, str], stdin: str, patience_s: float) -> Answer:
    given = stdin.encode("utf-8", "surrogateescape")
    code, stdout, stderr = run_child(*become(person, argv[0], argv), env, given, patience_s)
    return Answer(code, _text(stdout), _text(stderr))


def may_become(person: Person) -> bool:
    return os.getuid() in (0, person.uid)


def become(person: Person, program: str, argv: Sequence[str]) -> tuple[str, list[str]]:
    """The program and arguments for a run as this user: rights are dropped before any file of the user is read.
    Raises PermissionError, and FileNotFoundError for a missing command."""
    if not os.path.isabs(program):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if person.uid == os.getuid():
        return program, list(argv)
    if not may_become(person):
        raise PermissionError(errno.EPERM, f"only a server with root rights can run commands as {person.name}")
    return as_user(person.uid, person.gid, os.getgrouplist(person.name, person.gid), program, argv)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def number_lists(numbers: Collection[int]) -> Iterator[str]:
    """`7,8,9`: as few arguments as possible."""
    ordered = sorted(numbers)
    for start in range(0, len(ordered), NUMBERS_AT_ONCE):
        yield ",".join(map(str, ordered[start : start + NUMBERS_AT_ONCE]))


def is_unreachable(answer: Answer) -> bool:
    """True: the command failed because of the controller, not because of its arguments."""
    return answer.code != 0 and is_out_of_reach(answer.stderr)
