"""Slurm's client commands: argument lists, a clean environment, a limit in time, as the right user.

What runs as a person is that person's process: they may stop it, read along, hold its pipes open, and write into them.
So it is given nothing of ours (`env`, `become`), and what it says is believed about their own run only."""

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
from danlu.errors import EngineDown
from danlu.unix.become import as_user
from danlu.unix.descriptors import with_usual_limit

USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A controller that is busy with a large queue answers late; sbatch itself gives up after MessageTimeout.
PATIENCE_S = 60.0
# Times as seconds since 1970, and lists of numbers whole.
PLAIN = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
PING_AFTER_S = 1.5
NUMBERS_AT_ONCE = 5000  # Linux passes no longer word to a command than 128 KiB
AT_ONCE = 8
Given = ParamSpec("Given")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    said: str  # what it wrote to stderr


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a command runs as."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @classmethod
    def named(cls, name: str) -> "Person":
        """Raises KeyError if there is no such Unix user. An empty name is who we are."""
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell)


class Commands:
    """`path` leads to the client commands, and jobs begin with it; `conf` is SLURM_CONF. By default: as in our own."""

    def __init__(self, *, path: str = "", conf: str = "") -> None:
        # Whoever may write where we happen to be must not choose what root runs: no `.`, no empty part.
        given = (path or os.environ.get("PATH", USUAL_PATH)).split(":")
        self.path = ":".join(part for part in given if part.startswith("/")) or USUAL_PATH
        self.conf = conf or os.environ.get("SLURM_CONF", "")
        # Threads and not the loop's own processes: those cannot change their user on every loop.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="slurm")
        self._questions: set[subprocess.Popen[bytes]] = set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        # Nobody waits for an answer any more, and without a controller they would try for long.
        for process in list(self._questions):
            process.kill()

    def find(self, command: str) -> str:
        return shutil.which(command, path=self.path) or command

    def env(self, person: Person | None = None) -> dict[str, str]:
        """Of a command. A job inherits it from its `sbatch`, so there is no more in it than every login has."""
        found = {"PATH": self.path, "LANG": "C.UTF-8"}
        if self.conf:
            found["SLURM_CONF"] = self.conf
        if person:
            found |= {"HOME": person.home, "USER": person.name, "LOGNAME": person.name, "SHELL": person.shell}
        return found

    async def apart(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """In a thread of the engine: the default ones may be busy with requests that people make."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(do, *given, **named))

    async def ask(self, *argv: str, patience_s: float = PATIENCE_S) -> str:
        """What a question is answered. Raises EngineDown where it is not."""
        answer = await self.run(argv, extra=PLAIN, patience_s=patience_s)
        if answer.code:
            words = last_words(answer.said) or f"{argv[0]} ended with {answer.code}"
            raise EngineDown(f"Slurm does not answer: {words}")
        return answer.out

    async def ask_or_ping(self, *argv: str) -> str:
        """As `ask`, but a controller that is gone is noticed at once: clients try for nine seconds."""
        asked = asyncio.create_task(self.ask(*argv))
        try:
            while not asked.done():
                await asyncio.wait({asked}, timeout=PING_AFTER_S)
                if (not asked.done() or asked.exception()) and not await self.is_up():
                    raise EngineDown("the controller of Slurm cannot be reached")
        finally:
            asked.cancel()
        return await asked

    async def is_up(self) -> bool:
        """Is somebody at the controller's door? One that only hangs counts as up."""
        try:
            answer = await self.run(("scontrol", "ping"), patience_s=5)
        except EngineDown:
            return True
        return answer.code == 0 and ("UP" in answer.out or "hung" in answer.out)

    async def run(
        self,
        argv: Sequence[str],
        *,
        person: Person | None = None,
        stdin: str = "",
        extra: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Answer:
        env = {**self.env(person), **(extra or {})}
        words = (self.find(argv[0]), *argv[1:])
        loop = asyncio.get_running_loop()
        try:
            if person is None:
                return await loop.run_in_executor(self._threads, self._ask, words, env, stdin, patience_s)
            return await loop.run_in_executor(self._threads, _run_as, person, words, env, stdin, patience_s)
        except subprocess.TimeoutExpired:
            raise EngineDown(f"Slurm does not answer: {argv[0]} took more than {patience_s:.0f} seconds") from None
        except FileNotFoundError:
            raise EngineDown(f"the command {argv[0]} of Slurm is not here", "install Slurm's client commands") from None
        except OSError as error:
            raise EngineDown(f"{argv[0]} cannot be run: {error.strerror}") from None
        except RuntimeError:  # the threads are gone
            raise EngineDown("the Slurm engine is closed") from None

    def _ask(self, argv: tuple[str, ...], env: dict[str, str], stdin: str, patience_s: float) -> Answer:
        pipe = subprocess.PIPE
        given = pipe if stdin else subprocess.DEVNULL
        program, words = with_usual_limit(argv[0], argv)
        # Not a pipe: a command with much to say would wait for its reader again and again.
        with (
            open(os.memfd_create("answer"), "r+b") as file,
            subprocess.Popen(
                words, executable=program, env=env, cwd="/", stdin=given, stdout=file, stderr=pipe
            ) as process,
        ):
            self._questions.add(process)
            try:
                _, said = process.communicate(stdin.encode() or None, timeout=patience_s)
            finally:
                process.kill()  # nothing, if it is over
                self._questions.discard(process)
            file.seek(0)
            return Answer(process.returncode, _text(file.read()), _text(said))


def _run_as(person: Person, argv: tuple[str, ...], env: dict[str, str], stdin: str, patience_s: float) -> Answer:
    given = stdin.encode("utf-8", "surrogateescape")
    code, out, said = run_child(*become(person, argv[0], argv), env, given, patience_s)
    return Answer(code, _text(out), _text(said))


def may_become(person: Person) -> bool:
    return os.getuid() in (0, person.uid)


def become(person: Person, program: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The program and words that run it as somebody else: rights are dropped before anything of theirs is read.
    Raises PermissionError, and FileNotFoundError if there is no such command."""
    if not os.path.isabs(program):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if person.uid == os.getuid():
        return program, list(words)
    if not may_become(person):
        raise PermissionError(errno.EPERM, f"only a server of root can run it as {person.name}")
    return as_user(person.uid, person.gid, os.getgrouplist(person.name, person.gid), program, words)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def listed_together(numbers: Collection[int]) -> Iterator[str]:
    """`7,8,9`: as few words as will do."""
    ordered = sorted(numbers)
    for start in range(0, len(ordered), NUMBERS_AT_ONCE):
        yield ",".join(map(str, ordered[start : start + NUMBERS_AT_ONCE]))


def is_trouble(answer: Answer) -> bool:
    """Did it fail for the controller's sake and not for the asker's?"""
    return answer.code != 0 and is_out_of_reach(answer.said)
