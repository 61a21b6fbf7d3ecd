"""The files of runs in the shared folder of all nodes.

instance     the id of this installation among all installations on the cluster
heartbeat    its time is the time of the last poll
down         since when Slurm does not answer
records/     private to the server: one file per known run
runs/RUN/    read and written by the run's user on its node (see text/options.py)
trash/       folders of forgotten runs, to be removed
lock         held by the server of this folder
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
from danlu.engines.slurm.text.render import render_inside, render_rank
from danlu.errors import Invalid, Refused
from danlu.unix.become import Trash
from danlu.unix.patient_folder import PATIENCE_S, PatientFolder

log = logging.getLogger(__name__)

_MOST_BYTES = 8192
BATCH = 500  # runs per step: a working file system handles these within `folder_patience_s`
Thing = TypeVar("Thing")


@dataclass(slots=True)
class Record:
    """The server's file of a run. A change is saved before the server acts on it."""

    run_id: str
    uid: int
    at: float  # time of the start request
    cpus: int = 1
    memory_mib: int = 0
    priority: int | None = None  # None: written by a version without priorities
    is_boosted: bool = False
    nice: int | None = 0  # as last sent to Slurm; None while a command is under way
    tokens: list[str] = field(default_factory=list)  # one per submit
    number: int | None = None  # Slurm's answer to the submit
    dropped: list[int] = field(default_factory=list)  # cancelled duplicates: their ends do not count
    stop: dict[str, Any] | None = None  # content of the stop file, time, duration
    end: dict[str, Any] | None = None  # the final observation
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text and text not in self.notes:
            self.notes.append(text)


class Folders(PatientFolder):
    def __init__(self, shared_dir: str, *, patience_s: float = PATIENCE_S) -> None:
        super().__init__(shared_dir, patience_s=patience_s)
        self.instance = ""
        self._trash = Trash(f"{shared_dir}/trash")
        self._lock: IO[str] | None = None

    def open(self) -> list[Record]:
        """Prepare the folder, and read the known runs."""
        for path, mode in ((self.root, 0o711), (f"{self.root}/records", 0o700), (f"{self.root}/runs", 0o711)):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)  # independent of the umask
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
        """Two servers in a folder would cancel each other's runs as strays. The lock dies with the process."""
        file = open(f"{self.root}/lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Refused(
                f"another server works in {self.root}",
                "stop the other server; after a crash of its machine, NFS keeps the lock for some minutes",
            ) from None
        except OSError as error:
            log.warning("cannot lock %s, another server there would go unnoticed: %s", self.root, error.strerror)
        self._lock = file

    def _sweep(self, names: Collection[str]) -> None:
        """Remove the unfinished files of a killed server."""
        for name in names:
            if not name.endswith(".json"):
                with contextlib.suppress(OSError):  # NFS keeps open files
                    os.unlink(f"{self.root}/records/{name}")
        for name in os.listdir(f"{self.root}/runs"):
            if f"{name}.json" not in names:
                with contextlib.suppress(OSError):
                    self._trash.take(self.folder(name))
        self._trash.empty()

    def _records(self, names: Collection[str]) -> Iterator[Record]:
        """Raises OSError: an unreadable folder must not look like an empty folder."""
        for name in names:
            if not name.endswith(".json"):
                continue
            with open(f"{self.root}/records/{name}") as file:
                text = file.read()
            try:
                written = json.loads(text)
                # A record of another version may hold more fields.
                yield Record(**{field.name: written[field.name] for field in fields(Record) if field.name in written})
            except (ValueError, TypeError) as error:
                log.warning("cannot read the record of the run %s: %s", name, error)

    def write_heartbeat(self) -> None:
        with contextlib.suppress(OSError):
            _write(f"{self.root}/heartbeat", "")

    def write_down_since(self, at: datetime | None) -> None:
        """Save since when Slurm does not answer, for the next server; None: Slurm answers."""
        with contextlib.suppress(OSError):
            _write(f"{self.root}/down", at.isoformat() if at else "")

    def down_since(self) -> datetime | None:
        try:
            with open(f"{self.root}/down") as file:
                return datetime.fromisoformat(file.read().strip())
        except (OSError, ValueError):
            return None

    def last_heartbeat(self) -> float | None:
        try:
            return os.stat(f"{self.root}/heartbeat").st_mtime
        except OSError:
            return None

    def write(self, record: Record, *, lasts: bool = False) -> None:
        """`lasts`: survive a power failure."""
        _write(f"{self.root}/records/{record.run_id}.json", json.dumps(asdict(record)), lasts=lasts)

    def write_all(self, records: Collection[Record]) -> None:
        for record in records:
            self.write(record)

    def folder(self, run_id: str) -> str:
        return f"{self.root}/runs/{run_id}"

    def prepare(self, launch: Launch, record: Record, person: Person) -> None:
        """Create the folder and the log of a run, and save its record before the submit. Raises OSError."""
        folder = self.folder(launch.run_id)
        if not os.path.isdir(folder):
            env, left_out = render_env(launch.env)
            if left_out:
                record.note(f"variables with names that no shell accepts were left out: {', '.join(left_out)}")
            building = f"{folder}.{secrets.token_hex(4)}"
            os.mkdir(building, 0o700)
            try:
                self._fill(building, launch, env, folder, person)
                os.rename(building, folder)
            except (OSError, UnicodeError):
                shutil.rmtree(building, ignore_errors=True)
                raise
        self.write(record, lasts=True)  # without a record a run in Slurm would start a second time
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
        # A second name of the log for its user: the first name is out of the user's reach.
        os.link(launch.log_path, f"{building}/log")
        if os.getuid() == 0:
            os.chown(building, person.uid, person.gid)

    def write_stop(self, record: Record) -> None:
        """Write the stop file. `prepare` writes the file of a run without a folder. A failed write (a folder with this
        name, a full disk) does not prevent the stop, only its notice."""
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
        """NFS caches for half a minute that a file is missing. A change of the folder's attributes drops the cache."""
        with contextlib.suppress(OSError), self._entered(record) as fd:
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode))

    def _read(self, record: Record, name: str) -> str:
        """The user of a run controls this folder: follow no link, wait for no pipe."""
        try:
            with self._entered(record) as fd:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(name, flags, dir_fd=fd)
                try:
                    if not stat.S_ISREG(os.fstat(file).st_mode):
                        return ""
                    return os.read(file, _MOST_BYTES).decode("utf-8", "replace")
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
        """Move the folders to the trash. The start of a server removes the rest."""
        for run_id in run_ids:
            try:
                self._trash.take(self.folder(run_id))
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.root}/records/{run_id}.json")
            except OSError as error:
                log.warning("cannot remove the folder of the run %s yet: %s", run_id, error.strerror)
        self._trash.empty()


def batches(things: Sequence[Thing]) -> Iterator[Sequence[Thing]]:
    for start in range(0, len(things), BATCH):
        yield things[start : start + BATCH]


def check_run_id(run_id: str) -> None:
    if not run_id or "/" in run_id or run_id.startswith(".") or "\0" in run_id:
        raise Invalid(f"`{run_id}` is no valid run id")


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
            os.unlink(building)  # a full disk would collect empty files
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
