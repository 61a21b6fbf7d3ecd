"""What is written down about runs on the folder that all nodes share.

instance     who we are among the installations that use this cluster
heartbeat    when we last looked at Slurm
records/     ours alone: one file for each run that is not forgotten
runs/RUN/    the run's own, read and written by its user on its node (see slurm_script)
trash/       folders of runs that are forgotten
lock         held by the one server that works here
"""

import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import IO, Any, TypeVar

from danlu.engines.base import Launch
from danlu.engines.slurm.commands import Person
from danlu.engines.slurm.text.options import Begun, Ended, parse_begun, parse_ended, render_env
from danlu.engines.slurm.text.render import render_inside
from danlu.engines.slurm.text.render_ranks import render_rank
from danlu.errors import Invalid, Refused
from danlu.unix.become import Trash
from danlu.unix.patient_folder import PatientFolder

log = logging.getLogger(__name__)

_LONGEST_WORD = 8192
PORTION = 500  # of runs of which something is done: so many fit into our patience on any file system that works
Thing = TypeVar("Thing")


@dataclass(slots=True)
class Record:
    """A run as we know it. Every change is written down before anything is done with it."""

    run_id: str
    uid: int
    at: float  # when its start was asked for
    cpus: int = 1
    memory_mib: int = 0
    priority: int | None = None  # None: of an earlier version, which did not write it down
    is_boosted: bool = False
    nice: int | None = 0  # where Slurm has it in its queue; None while it is being told
    tokens: list[str] = field(default_factory=list)  # one for each time it was submitted
    number: int | None = None  # what Slurm called it, once it has answered
    dropped: list[int] = field(default_factory=list)  # second copies that we took back: their ends are not its own
    stop: dict[str, Any] | None = None  # how it is to end: what its script reads, when it was asked, how long it takes
    end: dict[str, Any] | None = None  # how it ended
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text and text not in self.notes:
            self.notes.append(text)


class Folders(PatientFolder):
    def __init__(self, shared_dir: str) -> None:
        super().__init__(shared_dir)
        self.instance = ""
        self._trash = Trash(f"{shared_dir}/trash")
        self._lock: IO[str] | None = None

    def open(self) -> list[Record]:
        """Make ready; what is known of runs from before."""
        for path, mode in ((self.root, 0o711), (f"{self.root}/records", 0o700), (f"{self.root}/runs", 0o711)):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)  # whatever our mask is
        self._take_lock()
        self._trash.open()
        try:
            with open(f"{self.root}/instance") as file:
                self.instance = file.read().strip()
        except FileNotFoundError:
            self.instance = secrets.token_hex(4)
            _write(f"{self.root}/instance", f"{self.instance}\n")
        names = {*os.listdir(f"{self.root}/records")}
        self._sweep(names)
        return list(self._records(names))

    def close(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        """Two servers would take each other's runs for strays, and cancel them. The lock dies with the process."""
        file = open(f"{self.root}/lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Refused(
                f"another server works in {self.root}",
                "stop that one; of a machine that died, a network file system keeps the lock for some minutes",
            ) from None
        except OSError as error:
            log.warning("whether another server works in %s cannot be known: %s", self.root, error.strerror)
        self._lock = file

    def _sweep(self, names: Collection[str]) -> None:
        """What was being made when a server was killed."""
        for name in names:
            if not name.endswith(".json"):
                with contextlib.suppress(OSError):  # NFS keeps what somebody has open
                    os.unlink(f"{self.root}/records/{name}")
        for name in os.listdir(f"{self.root}/runs"):
            if f"{name}.json" not in names:
                with contextlib.suppress(OSError):
                    self._trash.take(self.folder(name))
        self._trash.empty()

    def _records(self, names: Collection[str]) -> Iterator[Record]:
        """A folder that cannot be read must not look like one with nothing in it: OSError is not suppressed."""
        for name in names:
            if not name.endswith(".json"):
                continue
            with open(f"{self.root}/records/{name}") as file:
                text = file.read()
            try:
                written = json.loads(text)
                # One that another version wrote may hold more.
                yield Record(**{field.name: written[field.name] for field in fields(Record) if field.name in written})
            except (ValueError, TypeError) as error:
                log.warning("what was written down of the run %s cannot be read: %s", name, error)

    def beat(self) -> None:
        with contextlib.suppress(OSError):
            _write(f"{self.root}/heartbeat", "")

    def write_down_since(self, at: datetime | None) -> None:
        """Since when Slurm does not answer, for a server that starts meanwhile; None: it does."""
        with contextlib.suppress(OSError):
            _write(f"{self.root}/down", at.isoformat() if at else "")

    def down_since(self) -> datetime | None:
        try:
            with open(f"{self.root}/down") as file:
                return datetime.fromisoformat(file.read().strip())
        except (OSError, ValueError):
            return None

    def last_beat(self) -> float | None:
        try:
            return os.stat(f"{self.root}/heartbeat").st_mtime
        except OSError:
            return None

    def write(self, record: Record, *, lasts: bool = False) -> None:
        """`lasts`: also if the power fails the moment after."""
        _write(f"{self.root}/records/{record.run_id}.json", json.dumps(asdict(record)), lasts=lasts)

    def write_all(self, records: Collection[Record]) -> None:
        for record in records:
            self.write(record)

    def folder(self, run_id: str) -> str:
        return f"{self.root}/runs/{run_id}"

    def prepare(self, launch: Launch, record: Record, person: Person) -> None:
        """The run's folder, its log, and the record that it may have been submitted. Raises OSError."""
        folder = self.folder(launch.run_id)
        if not os.path.isdir(folder):
            env, left_out = render_env(launch.env)
            if left_out:
                record.note(f"variables that no shell can pass on were left out: {', '.join(left_out)}")
            building = f"{folder}.{secrets.token_hex(4)}"
            os.mkdir(building, 0o700)
            try:
                self._fill(building, launch, env, folder, person)
                os.rename(building, folder)
            except (OSError, UnicodeError):
                shutil.rmtree(building, ignore_errors=True)
                raise
        self.write(record, lasts=True)  # Slurm may run on without us: a run that nobody remembers would be begun again
        if record.stop:
            self.write_stop(record)

    def _fill(self, building: str, launch: Launch, env: str, folder: str, person: Person) -> None:
        files = {"env": env, "inside": render_inside(launch, folder)}
        if launch.ask.nodes > 1:
            files["rank"] = render_rank(folder)
        for name, text in files.items():
            _create(f"{building}/{name}", text, person)
        os.makedirs(os.path.dirname(launch.log_path), mode=0o700, exist_ok=True)
        log = os.open(launch.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with contextlib.closing(os.fdopen(log, "ab")):
            _give(log, person)
        # A second name of the log where its user may reach it; what they do to theirs does not touch ours.
        os.link(launch.log_path, f"{building}/log")
        if os.getuid() == 0:
            os.chown(building, person.uid, person.gid)

    def write_stop(self, record: Record) -> None:
        """Whoever has no folder yet gets the word with it; whoever has none any more needs none. A user who makes it
        impossible (a folder of this name, no room left) is stopped all the same, without the word."""
        text = record.stop["text"] if record.stop else ""
        with contextlib.suppress(OSError), self._entered(record) as fd:
            name = f".stop.{secrets.token_hex(4)}"
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
            with os.fdopen(file, "w") as out:
                if os.getuid() == 0:
                    os.fchown(file, record.uid, -1)
                out.write(text)
            os.replace(name, "stop", src_dir_fd=fd, dst_dir_fd=fd)

    def begun(self, record: Record) -> Begun | None:
        return parse_begun(self._read(record, "began"))

    def ended(self, record: Record) -> Ended | None:
        return parse_ended(self._read(record, "exit"))

    def freshen(self, record: Record) -> None:
        """A network file system believes for half a minute that a file is not there for which it has asked in vain. It
        asks again when something of the folder was changed through it."""
        with contextlib.suppress(OSError), self._entered(record) as fd:
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode))

    def _read(self, record: Record, name: str) -> str:
        """The user of a run may put anything there: no link is followed, no pipe waited for."""
        try:
            with self._entered(record) as fd:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(name, flags, dir_fd=fd)
                try:
                    if not stat.S_ISREG(os.fstat(file).st_mode):
                        return ""
                    return os.read(file, _LONGEST_WORD).decode("utf-8", "replace")
                finally:
                    os.close(file)
        except OSError:
            return ""

    @contextlib.contextmanager
    def _entered(self, record: Record) -> Iterator[int]:
        fd = os.open(self.folder(record.run_id), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def forget(self, run_ids: Collection[str]) -> None:
        """What cannot be moved away stays, and goes when a server starts."""
        for run_id in run_ids:
            try:
                self._trash.take(self.folder(run_id))
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.root}/records/{run_id}.json")
            except OSError as error:
                log.warning("what is left of the run %s stays for now: %s", run_id, error.strerror)
        self._trash.empty()


def portions(things: Sequence[Thing]) -> Iterator[Sequence[Thing]]:
    for start in range(0, len(things), PORTION):
        yield things[start : start + PORTION]


def check_run_id(run_id: str) -> None:
    if not run_id or "/" in run_id or run_id.startswith(".") or "\0" in run_id:
        raise Invalid(f"a run cannot be called `{run_id}`")


def _write(path: str, text: str, *, lasts: bool = False) -> None:
    building = f"{path}.{secrets.token_hex(4)}"
    try:
        with open(building, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            if lasts:
                file.flush()
                os.fsync(file.fileno())
        os.replace(building, path)
        if lasts:
            _sync_folder(os.path.dirname(path))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(building)  # a full disk would be filled with empty ones
        raise


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _create(path: str, text: str, person: Person) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        _give(fd, person)


def _give(fd: int, person: Person) -> None:
    if os.getuid() == 0:
        os.fchown(fd, person.uid, person.gid)
