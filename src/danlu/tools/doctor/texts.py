"""Parsers of Slurm files and lists for the doctor. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from danlu.engines.slurm.text.parse_cluster import NodeFacts, parse_config, parse_hostlist, parse_nodes

Version = tuple[int, ...]


def parse_version(text: str) -> Version | None:
    """`slurm-wlm 22.05.8` -> (22, 5, 8)."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else None


def release_of(version: Version) -> str:
    """(22, 5, 8) -> `22.05`: versions of the same release are compatible."""
    return f"{version[0]}.{version[1]:02d}"


def parse_conf(text: str) -> dict[str, str]:
    """The plain settings of slurm.conf or cgroup.conf, by lower-case name; the last value counts."""
    joined = re.sub(r"\\\n", " ", text)
    found = {}
    for line in joined.splitlines():
        match = re.match(r"\s*([A-Za-z]\w*(?:\[\d+\])?)\s*=\s*(.*)", re.sub(r"#.*", "", line))
        if match and match[1].lower() not in ("nodename", "partitionname", "downnodes", "frontendname"):
            found[match[1].lower()] = match[2].strip().strip('"')
    return found


def auth_socket(settings: Mapping[str, str]) -> str:
    """The socket in `AuthInfo`."""
    found = re.search(r"socket=([^,\s]+)", settings.get("authinfo") or settings.get("AuthInfo") or "")
    return found[1] if found else ""


def controller_doors(settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The addresses of the controllers in slurm.conf."""
    port = re.match(r"\d+", settings.get("slurmctldport", ""))
    for name, value in settings.items():
        if re.fullmatch(r"slurmctldhost(\[\d+\])?|controlmachine", name):
            address = re.fullmatch(r"[^(]*\(([^)]+)\)", value)
            yield address[1] if address else value, int(port[0]) if port else 6817


def devices_of(gres_conf: str, node: str) -> tuple[str, ...]:
    """The device files of a node's cards in gres.conf."""
    found: list[str] = []
    for line in re.sub(r"\\\n", " ", gres_conf).splitlines():
        facts = {name.lower(): value for name, value in re.findall(r"(\w+)=(\S+)", re.sub(r"#.*", "", line))}
        if facts.get("name", "").lower() != "gpu" or "file" not in facts:
            continue
        if "nodename" not in facts or node in parse_hostlist(facts["nodename"]):
            found += parse_hostlist(facts["file"])
    return tuple(dict.fromkeys(found))


def records(text: str) -> list[dict[str, str]]:
    """The lines of `scontrol -o show …`, each as its pairs."""
    return [dict(re.findall(r"(?:^| )([A-Za-z/:]+)=(\S*)", line)) for line in text.splitlines() if "=" in line]


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node as listed by `scontrol`, with the pairs that the engine ignores."""

    facts: NodeFacts
    pairs: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.facts.node.name


def node_lines(text: str) -> list[NodeLine]:
    lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
    return [
        NodeLine(facts, pairs)
        for facts, pairs in zip(parse_nodes("\n".join(lines)), records("\n".join(lines)), strict=True)
    ]


def models_in(gres: str) -> dict[str, int]:
    """Cards per model in `gpu:a100:2,gpu:rtx3090:4,shard:384`. The name of an unknown model is empty."""
    found: dict[str, int] = {}
    for part in re.split(r",(?![^()]*\))", gres):
        match = re.match(r"gpu(?::([^:(]*[^:(\d][^:(]*|\d+(?=:)))?(?::(\d+))?", part)
        if match:
            found[match[1] or ""] = found.get(match[1] or "", 0) + int(match[2] or 1)
    return found


def seconds_in(text: str) -> int | None:
    """`300 sec` -> 300."""
    found = re.match(r"(\d+)(?: sec)?$", text)
    return int(found[1]) if found else None


def parameter(text: str, name: str) -> str | None:
    """The value of a parameter in `a=1,b,c=2`; empty without a value, None if absent."""
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.strip() == name:
            return value.strip()
    return None


def is_set(text: str | None) -> bool:
    """Whether a value is set. `(null)` and the like mean unset."""
    return (text or "").lower() not in ("", "(null)", "none", "n/a")


def spoken_at(config: str) -> float | None:
    """The controller's clock when printing its settings."""
    found = re.match(r"Configuration data as of (\d{9,11})\s", config)
    return float(found[1]) if found else None


def settings_in(config: str) -> dict[str, str]:
    """`scontrol show config`, with the cgroup settings at its end, if any."""
    return parse_config(config)
