"""Settings from one TOML file and the environment, checked at start. `examples/danlu.toml` documents every key."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from danlu.domain.resources import SHARDS_PER_GPU
from danlu.domain.written import parse_duration, parse_memory_mib
from danlu.errors import Invalid


@dataclass(frozen=True, slots=True)
class ServerSettings:
    listen: str = ""  # HOST:PORT
    socket: str = ""  # a Unix socket that every user of this machine may use
    tls_cert: str = ""
    tls_key: str = ""
    plain_http: bool = False  # serve tokens unencrypted to other machines
    state_dir: str = ""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    url: str = ""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    kind: str = "local"
    node_name: str = ""
    fake_gpus: str = ""
    shards_per_gpu: int = SHARDS_PER_GPU
    cpus: int = 0  # 0: what the machine has
    memory: str = ""  # empty: what the machine has
    run_as: str = "server"
    grace: str = "30s"


@dataclass(frozen=True, slots=True)
class JobSettings:
    default_time: str = ""
    snapshot_limit: str = "100M"


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    jobs: JobSettings = field(default_factory=JobSettings)

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


SECTIONS: dict[str, type] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "engine": EngineSettings,
    "jobs": JobSettings,
}
_KINDS: dict[Any, str] = {int: "a whole number", bool: "true or false", str: "a text in quotes"}
_PATHS = frozenset({"state_dir", "tls_cert", "tls_key"})
CHOICES = {"engine.kind": ("local",), "engine.run_as": ("server", "submitter")}


def load_settings(path: str | None, environ: Mapping[str, str]) -> Settings:
    """Read the file (if any), let `DANLU_SECTION_KEY` variables win, refuse what is wrong by name."""
    document: dict[str, Any] = {}
    if path:
        document = _read_toml(path)
    _refuse_unknown(document, SECTIONS, "section", path or "")
    sections = {}
    for name, kind in SECTIONS.items():
        given = document.get(name, {})
        if not isinstance(given, dict):
            raise Invalid(f"`{name}` in {path} must be a section", f"write `[{name}]` on a line of its own")
        _refuse_unknown(given, {f.name: f for f in fields(kind)}, f"key in [{name}]", path or "")
        sections[name] = kind(**_checked(name, kind, given, environ, path or "the environment"))
    settings = Settings(**sections)
    # Reading each once refuses nonsense now and not at the first job.
    _ = settings.grace, settings.default_time, settings.memory_mib, settings.snapshot_limit_bytes
    if bool(settings.server.tls_cert) != bool(settings.server.tls_key):
        raise Invalid("TLS needs both server.tls_cert and server.tls_key", "set both, or neither")
    return settings


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
) -> dict[str, str | int]:
    values: dict[str, str | int] = {}
    for spec in fields(kind):
        full = f"{section}.{spec.name}"
        value: Any = given.get(spec.name)
        written = environ.get(f"DANLU_{section}_{spec.name}".upper())
        if written is not None:
            value = _from_environment(written, spec.type)
        if value is None:
            continue
        if type(value) is not spec.type:
            raise Invalid(f"`{full}` in {path} must be {_KINDS[spec.type]}, not {value!r}")
        if isinstance(value, int) and value < 0:
            raise Invalid(f"`{full}` in {path} must be 0 or more, not {value}")
        if full in CHOICES and value not in CHOICES[full]:
            raise Invalid(f"`{full}` in {path} is {value!r}", f"one of: {', '.join(CHOICES[full])}")
        values[spec.name] = os.path.expanduser(value) if spec.name in _PATHS else value
    return values


def _from_environment(written: str, kind: object) -> str | int:
    if kind is int and written.isdecimal():
        return int(written)
    if kind is bool and written in {"true", "false"}:
        return written == "true"
    return written
