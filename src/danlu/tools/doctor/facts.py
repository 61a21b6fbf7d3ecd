"""Observations of a machine or a cluster, without a judgement. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Said:
    """Output and exit code of an external command."""

    code: int
    out: str = ""
    err: str = ""
    took_s: float = 0.0
    is_late: bool = False  # stopped at the time limit

    @property
    def is_ok(self) -> bool:
        return self.code == 0 and not self.is_late


@dataclass(frozen=True, slots=True)
class Wishes:
    """The settings that the checks depend on."""

    queues: tuple[str, ...] = ()
    has_default_queue: bool = False
    has_default_time: bool = False
    grace: timedelta = timedelta(seconds=30)
    shards_per_gpu: int = 64
    as_submitter: bool = False
    makes_accounts: bool = False  # the server adds accounts of teams to Slurm's accounting
    is_shared: bool = False  # other users than its owner use the server
    fake_gpus: str = ""
    store_url: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    path: str
    exists: bool = True
    trouble: str = ""  # why files cannot be written
    kind: str = ""  # type of the file system: ext4, nfs4…
    source: str = ""  # /dev/sda1, or filer:/export
    is_exported: bool = False  # this machine exports the folder by NFS
    free_mib: int | None = None
    closed: tuple[str, ...] = ()  # parent folders that other users may not enter
    squashes_root: bool = False  # root's files get another owner, or cannot be given to another user
    reach: str = ""  # users who could replace this folder; a root server refuses to start with it
    reach_hint: str = ""


@dataclass(frozen=True, slots=True)
class Clock:
    """`source`: the program that was asked; empty: none available."""

    source: str = ""
    is_synced: bool | None = None
    offset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A Danlu server that is configured or running here."""

    address: str
    version: str = ""
    engine: str = ""
    trouble: str = ""  # reported by its engine
    silence: str = ""  # why the server does not answer


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    uid: int

    @property
    def is_root(self) -> bool:
        return self.uid == 0


@dataclass(frozen=True, slots=True)
class Cards:
    """NVIDIA cards as reported by this machine's driver."""

    on_bus: int = 0
    has_driver: bool = False
    driver: str = ""
    trouble: str = ""
    models: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()  # devices without access for this user


@dataclass(frozen=True, slots=True)
class Groups:
    """The cgroup features available to this user."""

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
    """Output of Slurm's commands, and related files. None: not asked, or not readable."""

    paths: Mapping[str, str]
    conf_path: str
    conf: str | None
    user: Person
    host: str
    conf_named_by: str = ""  # the setting or variable with the value conf_path; empty: a default path
    here: frozenset[str] = frozenset()  # names and addresses of this machine
    door: str = ""  # result of a connection to the controller's port: `open`, or the error
    version: Said | None = None
    ping: Said | None = None
    config: Said | None = None
    asked_at: float = 0.0  # local time of the answer in `config`
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
    """Observations of a small job on a node."""

    node: str
    trouble: str = ""  # why the job did not run
    took_s: float = 0.0
    asked_at: float = 0.0  # local clock, before and after
    answered_at: float = 0.0
    clock: float | None = None  # the node's clock
    uid: int | None = None
    sees_file: bool = False
    wrote_back: bool = False
    users: Mapping[str, int | None] = field(default_factory=dict)  # user name -> uid on the node; None: unknown there
    unknown_names: tuple[str, ...] = ()  # host names of nodes, or of this machine, that do not resolve on the node
    open_cards: tuple[str, ...] = ()  # cards that the job could open without requesting a card
    shut_cards: tuple[str, ...] = ()
    shm_mib: int | None = None


@dataclass(frozen=True, slots=True)
class DeepLook:
    probes: tuple[Probe, ...]
    user: Person
    users: Mapping[str, int]  # user name -> uid on this machine
    folder: str
    trouble: str = ""  # why no job ran
    host: str = ""  # this machine, as in the host name of waiting commands
