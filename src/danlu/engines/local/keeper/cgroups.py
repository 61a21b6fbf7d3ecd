"""Control groups for runs: the members of a run, killing all of them at once, and the memory limit.

A group per run by mkdir and rmdir costs a third of the throughput of short runs. The keeper pools groups instead: for
each run it steps into an empty group, spawns and steps back (about 7 %, and no child can slip out before a move).
Where stepping waits for RCU (kernels without `favordynmods`), only runs with a memory limit get a group."""

import contextlib
import os
import signal
import time

from danlu.engines.local.keeper.process_tree import read_file

SLOW_STEP_SECONDS = 0.0005
KEPT_EMPTY = 64
# With thousands of runs at once, descriptors are dearer than the time to open them.
KEPT_DOORS = 128


class Group:
    """One cgroup directory. `out_of_memory` reads how many of its processes the kernel killed for memory."""

    __slots__ = ("door", "inside", "is_frozen", "is_v2", "path")

    def __init__(self, path: str, *, is_v2: bool, mount: str = "") -> None:
        self.path = path
        self.is_v2 = is_v2
        self.inside = path[len(mount) :] if mount else ""  # as /proc/PID/cgroup writes it
        self.door = -1  # an open cgroup.procs, in pooled groups
        self.is_frozen = False

    def holds(self, path: str) -> bool:
        return bool(self.is_v2 and self.inside and (path == self.inside or path.startswith(f"{self.inside}/")))

    def pids(self) -> set[int]:
        """The processes of this group, and of the groups below, which the run made."""
        found: set[int] = set()
        folders = [self.path]
        while folders:
            folder = folders.pop()
            found.update(map(int, read_file(f"{folder}/cgroup.procs").split()))
            try:
                with os.scandir(folder) as entries:
                    folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                continue
        return found

    def is_empty(self) -> bool:
        """Are this group and all groups below free of processes? A process that forks all the time is never on a list
        for long, but the kernel counts it."""
        if not self.is_v2:
            return not self.pids()
        return b"populated 1" not in read_file(f"{self.path}/cgroup.events")

    def kill(self) -> None:
        """KILL all processes of the group, unless the keeper is a member: at once where the kernel can (v2, 5.14 and
        newer), else process by process while the group is frozen, which prevents forks (v2, 5.2 and newer)."""
        if not self.is_v2 or os.getpid() in self.pids():
            return
        if not _try_write(f"{self.path}/cgroup.kill", "1"):
            self.is_frozen = _try_write(f"{self.path}/cgroup.freeze", "1")
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def thaw(self) -> None:
        if self.is_frozen:
            self.is_frozen = not _try_write(f"{self.path}/cgroup.freeze", "0")

    def out_of_memory(self) -> int:
        name = "memory.events" if self.is_v2 else "memory.oom_control"
        for line in read_file(f"{self.path}/{name}").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self) -> bool:
        try:
            for folder, _, _ in os.walk(self.path, topdown=False):
                os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:  # a process is still in the group, or just leaving
            return False
        return True


class Groups:
    """All groups of one keeper. `use`: auto, on or off (pooled groups; memory limits do not depend on `use`)."""

    def __init__(self, name: str, use: str) -> None:
        self._name = f"danlu-{name}"
        self._serial = 0
        self._empty: list[Group] = []
        self.leaving: list[Group] = []
        self._home = -1
        self._doors = 0
        self._base = ""
        self._memory_bases: list[tuple[str, bool]] | None = None
        self.why_no_memory = ""
        self._mounts, self._own = _find_hierarchies()
        if use != "off" and "" in self._own:
            self._open_pool(self._own[""], forced=use == "on")

    def _open_pool(self, own: str, *, forced: bool) -> None:
        base = f"{own}/{self._name}"
        try:
            os.makedirs(base, exist_ok=True)
            self._home, self._base = os.open(f"{own}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC), base
            group = self.take()
            for _ in range(3):
                began = time.monotonic()
                if group is None or not (self.step_into(group) and self.step_back()):
                    raise OSError("the keeper may not move between its groups")
                if forced or time.monotonic() - began < SLOW_STEP_SECONDS:
                    self.give_back(group)
                    return
            raise OSError("moving between groups is slow here")
        except OSError:
            self._base = ""
            Group(base, is_v2=True).remove()  # including the trial group

    @property
    def pools(self) -> bool:
        return bool(self._base)

    def take(self) -> Group | None:
        """An empty group for a run, or None without a pool."""
        if self._empty:
            return self._empty.pop()
        if not self._base:
            return None
        self._serial += 1
        path = f"{self._base}/{os.getpid()}.{self._serial}"
        group = Group(path, is_v2=True, mount=self._mounts[""])
        try:
            os.makedirs(path)  # including the base, in case an administrator removed the base
        except OSError:
            return None
        if self._doors < KEPT_DOORS:
            try:
                group.door = os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
                self._doors += 1
            except OSError:
                return None
        return group

    def step_into(self, group: Group) -> bool:
        if group.door < 0:
            return _try_write(f"{group.path}/cgroup.procs", "0")
        try:
            os.write(group.door, b"0")
        except OSError:
            return False
        return True

    def step_back(self) -> bool:
        try:
            os.write(self._home, b"0")
        except OSError:
            self._base = ""  # never again: the keeper must not live in a run's group
            return False
        return True

    def give_back(self, group: Group) -> None:
        """Keep the group for the next run, perhaps of another person: only if the kernel reports no process inside."""
        is_ours = self._base and os.path.dirname(group.path) == self._base
        if is_ours and len(self._empty) < KEPT_EMPTY and group.is_empty():
            group.thaw()
            self._empty.append(group)
        else:
            self.discard(group)

    def discard(self, group: Group) -> None:
        if group.door >= 0:
            os.close(group.door)
            group.door = -1
            self._doors -= 1
        if not group.remove():
            self.leaving.append(group)

    def tidy(self) -> None:
        """Remove the groups that could not be removed before, and kill their remaining processes."""
        for group in self.leaving:
            group.kill()
        self.leaving = [group for group in self.leaving if not group.remove()]

    def close(self) -> None:
        for group in self._empty:
            self.discard(group)
        self.tidy()
        for base in [self._base, *(base for base, _ in self._memory_bases or ())]:
            if base:
                Group(base, is_v2=True).remove()

    def take_limited(self, memory_mib: int) -> Group | None:
        """A new group with this memory limit, or None: then `why_no_memory` holds the cause."""
        if self._memory_bases is None:
            self._memory_bases = list(self._find_memory_bases())
        limit = str(memory_mib << 20)
        for base, is_v2 in self._memory_bases:
            self._serial += 1
            mount = self._mounts["" if is_v2 else "memory"]
            group = Group(f"{base}/m{os.getpid()}.{self._serial}", is_v2=is_v2, mount=mount)
            try:
                os.mkdir(group.path)
            except OSError as error:
                self.why_no_memory = f"no group can be made in {base} ({error.strerror})"
                continue
            if _set_memory_limit(group, limit):
                return group
            self.why_no_memory = f"the memory limit of {group.path} cannot be set"
            self.discard(group)
        return None

    def _find_memory_bases(self) -> list[tuple[str, bool]]:
        found = []
        if own := self._own.get("memory"):
            if _try_make(base := f"{own}/{self._name}"):
                found.append((base, False))
        elif own := self._own.get(""):
            # A group with processes cannot distribute memory to groups below; its parent or the root can.
            for parent in dict.fromkeys((own, os.path.dirname(own), self._mounts[""])):
                if not parent.startswith(self._mounts[""]) or not _try_make(base := f"{parent}/{self._name}"):
                    continue
                _try_write(f"{parent}/cgroup.subtree_control", "+memory")
                if _try_write(f"{base}/cgroup.subtree_control", "+memory"):
                    found.append((base, True))
                elif base != self._base:
                    Group(base, is_v2=True).remove()
        if not found:
            self.why_no_memory = "this installation may not set memory limits (no writable memory cgroup)"
        return found

    def find_again(self, path: str) -> Group | None:
        """A group from the journal of an earlier keeper."""
        if not path or not os.path.isdir(path):
            return None
        is_v2 = not os.path.exists(f"{path}/memory.limit_in_bytes")
        return Group(path, is_v2=is_v2, mount=self._mounts.get("" if is_v2 else "memory", ""))

    def clear_leftovers(self) -> None:
        """Remove the empty groups of earlier keepers; the kernel refuses to remove a group in use."""
        bases = [f"{own}/{self._name}" for own in self._own.values()]
        for base in dict.fromkeys([*bases, *(f"{mount}/{self._name}" for mount in self._mounts.values())]):
            try:
                names = os.listdir(base)
            except OSError:
                continue
            for name in names:
                maker, left = name.lstrip("m").partition(".")[0], Group(f"{base}/{name}", is_v2=True)
                if maker.isdigit() and maker != str(os.getpid()) and not left.pids():
                    left.remove()


def _set_memory_limit(group: Group, limit: str) -> bool:
    if group.is_v2:
        if not _try_write(f"{group.path}/memory.max", limit):
            return False
        _try_write(f"{group.path}/memory.swap.max", "0")
        _try_write(f"{group.path}/memory.oom.group", "1")
        return True
    if not _try_write(f"{group.path}/memory.limit_in_bytes", limit):
        return False
    _try_write(f"{group.path}/memory.memsw.limit_in_bytes", limit)
    return True


def group_path_of(pid: int) -> str:
    """The group of a process in the v2 hierarchy, as the kernel writes the path: `/danlu-x/4711.1`."""
    for line in read_file(f"/proc/{pid}/cgroup").splitlines():
        if line.startswith(b"0::"):
            return os.fsdecode(line[3:])
    return ""


def _find_hierarchies() -> tuple[dict[str, str], dict[str, str]]:
    """(mount points, own folders) by controller; the empty name is v2."""
    mounts: dict[str, str] = {}
    for line in read_file("/proc/self/mounts").splitlines():
        fields = os.fsdecode(line).split()
        if len(fields) > 3 and fields[2] == "cgroup2":
            mounts.setdefault("", fields[1])
        elif len(fields) > 3 and fields[2] == "cgroup" and "memory" in fields[3].split(","):
            mounts.setdefault("memory", fields[1])
    own: dict[str, str] = {}
    for line in read_file("/proc/self/cgroup").splitlines():
        number, _, rest = os.fsdecode(line).partition(":")
        controllers, _, path = rest.partition(":")
        for name in {""} if number == "0" else {"memory"} & set(controllers.split(",")):
            folder = (mounts.get(name, "") + path).rstrip("/")
            if name in mounts and os.path.isdir(folder):
                own[name] = folder
    return mounts, own


def _try_make(path: str) -> bool:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return False
    return True


def _try_write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode("ascii"))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
