"""What was seen of a machine or a cluster, before anybody says what it means. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Said:
    """What a command of others printed, and how it ended."""

    code: int
    out: str = ""
    err: str = ""
    took_s: float = 0.0
    is_late: bool = False  # it was stopped because it took too long

    @property
    def is_ok(self) -> bool:
        return self.code == 0 and not self.is_late


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the configuration asks for, as far as checks depend on it."""

    queues: tuple[str, ...] = ()
    has_default_queue: bool = False
    has_default_time: bool = False
    grace: timedelta = timedelta(seconds=30)
    shards_per_gpu: int = 64
    as_submitter: bool = False
    makes_accounts: bool = False  # the server adds accounts of teams to Slurm's books
    is_shared: bool = False  # people other than its owner use the server
    fake_gpus: str = ""
    store_url: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    path: str
    exists: bool = True
    trouble: str = ""  # why nothing can be written there
    kind: str = ""  # of its file system: ext4, nfs4…
    source: str = ""  # /dev/sda1, or filer:/export
    is_exported: bool = False  # this machine serves it to others by NFS
    free_mib: int | None = None
    closed: tuple[str, ...] = ()  # folders on the way that other users may not pass
    squashes_root: bool = False  # what root writes there belongs to somebody else, or cannot be given away
    reach: str = ""  # who else could put another folder in its place; a server of root does not start there
    reach_hint: str = ""


@dataclass(frozen=True, slots=True)
class Clock:
    """`source` is who was asked; empty: nobody here knows."""

    source: str = ""
    is_synced: bool | None = None
    offset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A Danlu server that is configured or running here."""

    address: str
    version: str = ""
    engine: str = ""
    trouble: str = ""  # of its engine
    silence: str = ""  # why it does not answer


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    uid: int

    @property
    def is_root(self) -> bool:
        return self.uid == 0


@dataclass(frozen=True, slots=True)
class Cards:
    """NVIDIA cards as this machine's driver shows them."""

    on_bus: int = 0
    has_driver: bool = False
    driver: str = ""
    trouble: str = ""
    models: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()  # devices that this user may not open


@dataclass(frozen=True, slots=True)
class Groups:
    """What the kernel lets this user do with cgroups."""

    pools: bool = False
    holds_memory: bool = False
    why_no_memory: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    host: str
    user: Person
    python: str
    kernel: tuple[int, int]
    cards: Cards
    groups: Groups
    memory_mib: int
    shm_mib: int | None
    open_files: int
    has_psycopg: bool = True


@dataclass(frozen=True, slots=True)
class Slurm:
    """What Slurm's commands said, and what lies beside them. None: not asked, or not readable."""

    paths: Mapping[str, str]
    conf_path: str
    conf: str | None
    user: Person
    host: str
    conf_named_by: str = ""  # the setting or the variable that names conf_path; empty: it is where it always is
    here: frozenset[str] = frozenset()  # names and addresses of this machine
    door: str = ""  # what became of a connection to the controller's port: open, or why not
    version: Said | None = None
    ping: Said | None = None
    config: Said | None = None
    asked_at: float = 0.0  # when the question for `config` was answered, by our clock
    nodes: Said | None = None
    partitions: Said | None = None
    queue: Said | None = None
    statistics: Said | None = None
    clusters: Said | None = None
    associations: Said | None = None
    munge: Said | None = None
    munge_socket: str = ""
    munge_key_mode: int | None = None
    cgroup_conf: str | None = None
    gres_conf: str | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What a small job saw on a node."""

    node: str
    trouble: str = ""  # why there was none
    took_s: float = 0.0
    asked_at: float = 0.0  # our clock, before and after
    answered_at: float = 0.0
    clock: float | None = None  # the node's
    uid: int | None = None
    sees_file: bool = False
    wrote_back: bool = False
    users: Mapping[str, int | None] = field(default_factory=dict)  # numbers of people there; None: unknown
    unknown_names: tuple[str, ...] = ()  # of nodes, and of this machine, that do not resolve there
    open_cards: tuple[str, ...] = ()  # devices of cards that it could open without having asked for one
    shut_cards: tuple[str, ...] = ()
    shm_mib: int | None = None


@dataclass(frozen=True, slots=True)
class DeepLook:
    probes: tuple[Probe, ...]
    user: Person
    users: Mapping[str, int]  # people of this machine: their numbers here
    folder: str
    trouble: str = ""  # why none was made
    host: str = ""  # this machine, as commands that wait for a node call themselves
