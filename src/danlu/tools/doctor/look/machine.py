"""Observe this machine: its cards, cgroups, folders and clock, and the Danlu server here."""

import contextlib
import importlib.util
import os
import platform
import pwd
import re
import resource
import secrets
import socket
from collections.abc import Callable

from danlu.client import Client
from danlu.engines.local.keeper.cgroups import Groups as KeeperGroups
from danlu.errors import DanluError, Refused
from danlu.monitor.machine import DRIVER_SIGNS
from danlu.tools.doctor.facts import Cards, Clock, Folder, Groups, Machine, Person, Server
from danlu.tools.doctor.run import ask, in_time
from danlu.unix import safe_folders

SERVER_PATIENCE_S = 3.0
_LEAST_MEMORY_MIB = 64
_SOMEBODY = 65534
_NVIDIA, _DISPLAYS = "0x10de", "0x03"


def look_at_machine() -> Machine:
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return Machine(
        host=socket.gethostname().partition(".")[0],
        user=whoami(),
        python=platform.python_version(),
        kernel=(int(release[1]), int(release[2])) if release else (0, 0),
        cards=look_at_cards(),
        groups=look_at_groups(),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        shm_mib=_size_mib("/dev/shm"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        has_psycopg=importlib.util.find_spec("psycopg") is not None,
    )


def whoami() -> Person:
    uid = os.getuid()
    try:
        return Person(pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        return Person(str(uid), uid)


def look_at_cards() -> Cards:
    on_bus = _cards_on_bus()
    if not any(os.path.exists(sign) for sign in DRIVER_SIGNS):
        return Cards(on_bus)
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            driver = _text(pynvml.nvmlSystemGetDriverVersion())
            handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
            models = tuple(_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Cards(on_bus, has_driver=True, trouble=str(error))
    devices = [
        entry.path for entry in os.scandir("/dev") if re.fullmatch(r"nvidia\d+|nvidiactl|nvidia-uvm", entry.name)
    ]
    closed = tuple(sorted(path for path in devices if not os.access(path, os.R_OK | os.W_OK)))
    return Cards(on_bus, has_driver=True, driver=driver, models=models, closed=closed)


def _cards_on_bus() -> int:
    count = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir("/sys/bus/pci/devices"):
            kinds = _read(f"{entry.path}/vendor"), _read(f"{entry.path}/class")
            count += (kinds[0] or "").strip() == _NVIDIA and (kinds[1] or "").startswith(_DISPLAYS)
    return count


def look_at_groups() -> Groups:
    """Create and remove cgroups, as the keeper would."""
    groups = KeeperGroups(f"doctor-{os.getpid()}", "auto")
    try:
        limited = groups.take_limited(_LEAST_MEMORY_MIB)
        if limited:
            groups.discard(limited)
        return Groups(groups.pools, limited is not None, groups.why_no_memory)
    finally:
        groups.close()


def look_at_folder(path: str) -> Folder:
    """Try to create a file in the folder, or in its nearest existing parent, and remove the file."""
    silent = Folder(path, trouble="it does not answer; is its file server down?")
    return in_time(lambda: _folder(os.path.abspath(path)), silent)


def look_at_mark(state_dir: str, shared_dir: str) -> tuple[str, str]:
    """The refusal, and its hint, of a server that was started here before with another shared folder; or empty
    texts."""
    return in_time(lambda: _refusal(lambda: safe_folders.recognise(state_dir, shared_dir)), ("", ""))


def _folder(path: str) -> Folder:
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    kind, source = _mounted(place)
    trouble, squashes_root = _tried(place)
    reach, reach_hint = _reach(path)
    free_mib = None
    with contextlib.suppress(OSError):
        stat = os.statvfs(place)
        free_mib = stat.f_bavail * stat.f_frsize >> 20
    return Folder(
        path,
        exists=place == path,
        trouble=trouble,
        kind=kind,
        source=source,
        is_exported=_is_exported(place),
        free_mib=free_mib,
        closed=tuple(_closed(place, is_ours=place == path)),
        squashes_root=squashes_root,
        reach=reach,
        reach_hint=reach_hint,
    )


def _tried(place: str) -> tuple[str, bool]:
    name = os.path.join(place, f".danlu-doctor-{secrets.token_hex(4)}")
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return f"no file can be made in {place} ({error.strerror})", False
    try:
        return "", os.getuid() == 0 and not _is_given_away(fd)
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(name)


def _is_given_away(fd: int) -> bool:
    with contextlib.suppress(OSError):
        os.fchown(fd, _SOMEBODY, -1)
        return os.fstat(fd).st_uid == _SOMEBODY
    return False


def _reach(path: str) -> tuple[str, str]:
    """The refusal of a root server at start, and its hint; or empty texts."""
    return _refusal(lambda: safe_folders.check_out_of_reach(path)) if os.getuid() == 0 else ("", "")


def _refusal(check: Callable[[], None]) -> tuple[str, str]:
    try:
        check()
    except Refused as refused:
        return refused.text, refused.hint
    except OSError:  # not readable for us
        pass
    return "", ""


def _closed(place: str, *, is_ours: bool) -> list[str]:
    """Parent folders that other users may not enter. The last folder belongs to the server, which opens it by
    itself."""
    found = []
    parent = os.path.dirname(place) if is_ours else place
    while parent != "/":
        with contextlib.suppress(OSError):
            if not os.stat(parent).st_mode & 0o001:
                found.append(parent)
        parent = os.path.dirname(parent)
    return found[::-1]


def _mounted(path: str) -> tuple[str, str]:
    """Type and source of the file system of a path."""
    path = os.path.realpath(path)
    best, found = -1, ("", "")
    for line in (_read("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= best and kinds[0] != "autofs":
            best, found = len(point), (kinds[0], kinds[1])
    return found


def _is_exported(path: str) -> bool:
    path = os.path.realpath(path)
    for line in (_read("/var/lib/nfs/etab") or _read("/proc/fs/nfsd/exports") or "").splitlines():
        point = line.split("\t")[0].split(" ")[0]
        if point.startswith("/") and (path == point or path.startswith(point.rstrip("/") + "/")):
            return True
    return False


def look_at_clock() -> Clock:
    tracking = ask(["chronyc", "-n", "tracking"])
    if tracking.is_ok:
        offset = re.search(r"System time\s*:\s*([\d.]+) seconds (fast|slow)", tracking.out)
        synced = re.search(r"Leap status\s*:\s*(.*)", tracking.out)
        return Clock("chrony", bool(synced and "Not" not in synced[1]), float(offset[1]) if offset else None)
    shown = ask(["timedatectl", "show"])
    synced = re.search(r"NTPSynchronized=(\w+)", shown.out)
    return Clock("timedatectl", synced[1] == "yes") if synced else Clock()


def look_at_server(addresses: list[str]) -> Server | None:
    """The first existing server. A missing socket is no server."""
    for address in addresses:
        if address.startswith("unix://") and not os.path.exists(address.removeprefix("unix://")):
            continue
        try:
            told = Client(address, start=False, timeout=SERVER_PATIENCE_S).status()
        except DanluError as error:
            return Server(address, silence=error.text)
        return Server(address, str(told["version"]), str(told["engine"]), str(told.get("trouble") or ""))
    return None


def _size_mib(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize >> 20


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _text(found: "bytes | str") -> str:
    return found.decode() if isinstance(found, bytes) else found
