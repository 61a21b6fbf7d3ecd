"""Settings from one TOML file and the environment, checked at start. `examples/danlu.toml` documents every key."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from danlu.config.cluster import NodeSettings, QueueSettings, nodes_of, queues_of
from danlu.domain.parsing import parse_duration, parse_memory_mib
from danlu.domain.quota import parse_quota
from danlu.engines.base import Abilities
from danlu.engines.kinds import KINDS, ONLY_PLAYED, abilities_of
from danlu.engines.settings import EngineSettings
from danlu.engines.slurm.kind import SlurmSettings
from danlu.errors import Invalid


@dataclass(frozen=True, slots=True)
class ServerSettings:
    listen: str = ""  # HOST:PORT
    socket: str = ""  # a Unix socket that every user of this machine may use
    tls_cert: str = ""
    tls_key: str = ""
    plain_http: bool = False  # serve tokens unencrypted to other machines
    proxies: tuple[str, ...] = ()  # trusted addresses: their X-Forwarded-For counts
    state_dir: str = ""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    url: str = ""


@dataclass(frozen=True, slots=True)
class JobSettings:
    default_time: str = ""
    snapshot_limit: str = "100M"
    snapshots_per_person: str = "20G"  # all snapshots together; 0: no limit
    log_limit: str = "10G"  # per run; 0: no limit


@dataclass(frozen=True, slots=True)
class PeopleSettings:
    opens: str = "admin"  # the role that opens accounts
    leaders_see_all: bool = False
    login_days: int = 30
    default_quota: str = ""  # for a new account: "gpus=2 jobs=20"
    home: str = ""  # "/mnt/user/{user}"
    team_folder: str = ""  # "/mnt/share/{team}"
    unix_users: str = "members"  # Unix users without an account, on the Unix socket


@dataclass(frozen=True, slots=True)
class OidcSettings:
    issuer: str = ""
    client_id: str = ""
    client_secret_file: str = ""
    redirect_url: str = ""
    scopes: str = "openid profile email groups"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    domains: tuple[str, ...] = ()  # of names like li@lab.example
    opens_accounts: bool = False
    teams: Mapping[str, str] = field(default_factory=dict)  # group: team


@dataclass(frozen=True, slots=True)
class PolicySettings:
    half_life: str = "7d"
    waiting_there: int = 100  # jobs of one person in the cluster's own queue
    max_active: int = 50_000  # jobs of one person that have not ended
    max_active_in_all: int = 500_000


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    people: PeopleSettings = field(default_factory=PeopleSettings)
    oidc: OidcSettings = field(default_factory=OidcSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    nodes: tuple[NodeSettings, ...] = ()
    queues: tuple[QueueSettings, ...] = ()

    @property
    def abilities(self) -> Abilities:
        """The abilities of the configured engine."""
        return abilities_of(self.engine.kind)

    @property
    def runs_as_submitter(self) -> bool:
        if self.engine.run_as == "auto":
            return self.abilities.runs_as_submitter and os.getuid() == 0
        return self.engine.run_as == "submitter"

    @property
    def runs_for_itself(self) -> bool:
        """The server drives a cluster with users, but cannot act as these users, and the configuration does not run
        all jobs as the server's user."""
        return self.abilities.runs_as_submitter and self.engine.run_as == "auto" and os.getuid() != 0

    @property
    def shared_dir(self) -> str:
        """The folder that the nodes of a cluster must see: logs, code, messages of runs. Empty: the state folder."""
        kind = KINDS.get(self.engine.kind)
        return kind.shared_dir(self.engine, getattr(self, self.engine.kind, None)) if kind else ""

    @property
    def grace(self) -> timedelta:
        return parse_duration(self.engine.grace, "engine.grace")

    @property
    def default_time(self) -> timedelta | None:
        return parse_duration(self.jobs.default_time, "jobs.default_time") if self.jobs.default_time else None

    @property
    def memory_mib(self) -> int:
        return parse_memory_mib(self.engine.memory) if self.engine.memory else 0

    @property
    def snapshot_limit_bytes(self) -> int:
        return parse_memory_mib(self.jobs.snapshot_limit) * 1024 * 1024

    @property
    def shelf_limit_bytes(self) -> int:
        return parse_memory_mib(self.jobs.snapshots_per_person) * 1024 * 1024

    @property
    def log_limit_bytes(self) -> int:
        return parse_memory_mib(self.jobs.log_limit) * 1024 * 1024

    @property
    def half_life(self) -> timedelta:
        return parse_duration(self.policy.half_life, "policy.half_life")


SECTIONS: dict[str, type] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "engine": EngineSettings,
    "jobs": JobSettings,
    "people": PeopleSettings,
    "oidc": OidcSettings,
    "policy": PolicySettings,
    "slurm": SlurmSettings,
}
LISTS: dict[str, type] = {"nodes": NodeSettings, "queues": QueueSettings}
_TEXTS, _PAIRS = tuple[str, ...], Mapping[str, str]
_KINDS: dict[Any, str] = {
    int: "a whole number",
    int | None: "a whole number",
    bool: "true or false",
    str: "a text in quotes",
    _TEXTS: "a list of texts",
    _PAIRS: "a table of texts",
}
_PATHS = frozenset({"state_dir", "shared_dir", "slurm_conf", "tls_cert", "tls_key", "client_secret_file"})
CHOICES = {
    "engine.kind": (*KINDS, *ONLY_PLAYED),
    "engine.run_as": ("auto", "server", "submitter"),
    "engine.slurm_accounts": ("use", "make"),
    "people.opens": ("admin", "leader"),
    "people.unix_users": ("members", "accounts"),
}


def load_settings(path: str | None, environ: Mapping[str, str]) -> Settings:
    """Read the file (if any); `DANLU_SECTION_KEY` variables override the file. Refuse a wrong key or value by name."""
    document = _read_toml(path) if path else {}
    where = path or "the environment"
    _refuse_unknown(document, SECTIONS | LISTS, "section", where)
    found: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        given = document.get(name, {})
        if not isinstance(given, dict):
            raise Invalid(f"`{name}` in {path} must be a section", f"write `[{name}]` on a line of its own")
        _refuse_unknown(given, {f.name: f for f in fields(kind)}, f"key in [{name}]", where)
        found[name] = kind(**_checked(name, kind, given, environ, where))
    for name, kind in LISTS.items():
        found[name] = tuple(_listed(name, kind, document.get(name, []), where))
    settings = Settings(**found)
    _refuse_nonsense(settings)
    return settings


def _listed(name: str, kind: type, given: Any, path: str) -> Iterator[Any]:
    """Each `[[name]]` of the file."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise Invalid(f"`{name}` in {path} must be a list of sections", f"write `[[{name}]]` before each of them")
    for place, one in enumerate(given, 1):
        what = f"`{one['name']}`" if isinstance(one.get("name"), str) and one["name"] else f"number {place}"
        _refuse_unknown(one, {f.name: f for f in fields(kind)}, f"key in [[{name}]] {what}", path)
        if not one.get("name"):
            raise Invalid(f"[[{name}]] {what} in {path} has no `name`")
        yield kind(**_checked(name, kind, one, {}, path))


def _refuse_nonsense(settings: Settings) -> None:
    """Read each value now, to refuse an invalid value at the start and not at the first job."""
    _ = settings.grace, settings.default_time, settings.memory_mib, settings.snapshot_limit_bytes, settings.half_life
    _ = settings.log_limit_bytes, settings.shelf_limit_bytes
    if bool(settings.server.tls_cert) != bool(settings.server.tls_key):
        raise Invalid("TLS needs both server.tls_cert and server.tls_key", "set both, or neither")
    people, oidc = settings.people, settings.oidc
    for key in ("waiting_there", "max_active", "max_active_in_all"):
        if getattr(settings.policy, key) < 1:
            raise Invalid(f"`policy.{key}` must be 1 or more, not 0")
    if people.login_days < 1:
        raise Invalid("`people.login_days` must be 1 or more, not 0")
    parse_quota(people.default_quota.split())
    _check_folder("people.home", people.home, "{user}")
    _check_folder("people.team_folder", people.team_folder, "{team}")
    if oidc.issuer and not oidc.issuer.startswith(("https://", "http://")):
        raise Invalid(f"`oidc.issuer` is a URL, not `{oidc.issuer}`", "for example https://sso.example.org/realms/lab")
    if bool(oidc.issuer) != bool(oidc.client_id):
        raise Invalid("sign-on needs both oidc.issuer and oidc.client_id", "set both, or neither")
    for domain in oidc.domains:
        if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", domain):
            raise Invalid(f"`oidc.domains` is a list of domains, and `{domain}` is none", 'for example ["lab.example"]')
    for name, kind in KINDS.items():
        kind.check_section(getattr(settings, name, None))
    nodes = nodes_of(settings.nodes, shards_per_gpu=settings.engine.shards_per_gpu)
    if nodes:
        queues_of(settings.queues, nodes)


def _check_folder(key: str, template: str, mark: str) -> None:
    if template and (not template.startswith("/") or template.replace(mark, "") == template):
        raise Invalid(f"`{key}` is an absolute path with {mark} in it, not `{template}`")
    if re.search(r"[{}]", template.replace(mark, "")):
        raise Invalid(f"`{key}` knows only {mark}, not what is in `{template}`")
    if {".", ".."} & set(template.split("/")):
        raise Invalid(f"`{key}` does not stay in its place: `{template}`", "leave `.` and `..` out")


def with_fake_gpus(settings: Settings, fake_gpus: str) -> Settings:
    return replace(settings, engine=replace(settings.engine, fake_gpus=fake_gpus))


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise Invalid(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from error


def _refuse_unknown(given: Mapping[str, Any], known: Mapping[str, Any], what: str, path: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
            raise Invalid(f"unknown {what}: `{name}` in {path}", hint, code="unknown_key")


def _checked(
    section: str, kind: type, given: Mapping[str, Any], environ: Mapping[str, str], path: str
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for spec in fields(kind):
        full = f"{section}.{spec.name}"
        value: Any = given.get(spec.name)
        written = environ.get(f"DANLU_{section}_{spec.name}".upper())
        if written is not None and spec.type is not _PAIRS:
            value = _from_environment(written, spec.type)
        if value is None:
            continue
        if not _is_of(value, spec.type):
            raise Invalid(f"`{full}` in {path} must be {_KINDS[spec.type]}, not {value!r}")
        if isinstance(value, int) and value < 0:
            raise Invalid(f"`{full}` in {path} must be 0 or more, not {value}")
        if full in CHOICES and value not in CHOICES[full]:
            raise Invalid(f"`{full}` in {path} is {value!r}", f"one of: {', '.join(CHOICES[full])}")
        if isinstance(value, list):
            value = tuple(value)
        values[spec.name] = os.path.expanduser(value) if spec.name in _PATHS else value
    return values


def _is_of(value: Any, kind: Any) -> bool:
    """Strict: true is not a number, and a text is not a list of texts."""
    if kind == _TEXTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if kind == _PAIRS:
        return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    return type(value) is (int if kind == int | None else kind)


def _from_environment(written: str, kind: object) -> str | int:
    if kind is int and written.isdecimal():
        return int(written)
    if kind is bool and written in {"true", "false"}:
        return written == "true"
    return written
