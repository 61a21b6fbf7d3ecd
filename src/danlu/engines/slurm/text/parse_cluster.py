"""Parses Slurm's output (22.05 to 24.11) about nodes, partitions and accounts. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from danlu.domain.resources import SHARDS_PER_GPU, Gpu, Node

ASSOCIATION_FORMAT = "account,user,partition"
_CLOSED = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "UNKNOWN", "UNK", "INVAL", "MAINT"}
    | {"NOT_RESPONDING", "POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "INVALID_REG", "BLOCKED"}
    | {"RESERVED"}  # for others: Danlu's jobs ask for no reservation
)
# Limits of expanded lists: a user may request billions of GPUs.
MOST_OF_A_NODE, MOST_NODES, MOST_BRACKETS = 1 << 13, 1 << 16, 8
_NOTHING = frozenset({"", "(null)", "N/A", "None", "none", "Unknown", "NONE"})


@dataclass(frozen=True, slots=True)
class Cards:
    """The content of `gpu:a100:2(IDX:0-1),shard:a100:32(0/64,32/64)`."""

    gpus: int = 0
    model: str = ""
    indices: tuple[int, ...] = ()
    shards: int = 0
    shards_of: Mapping[int, int] = field(default_factory=dict)  # used shards by card; empty before 23.11
    shared: tuple[int, ...] = ()  # cards with used shards
    models: tuple[str, ...] = ()  # of each whole card, in Slurm's order


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node and its current use."""

    node: Node
    partitions: tuple[str, ...]
    state: str
    used: Cards
    version: str = ""
    why: str = ""  # the reason of a closed node, by an administrator or Slurm
    cpus_used: int = 0
    memory_used_mib: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    nodelist: str
    is_default: bool
    state: str
    max_time: timedelta | None  # None: no limit
    default_time: timedelta | None
    groups: frozenset[str] = frozenset()  # permitted Unix groups; empty: all
    is_for_root: bool = False
    besides: str = ""  # further conditions, by Slurm's accounting: "accounts a, b"


@dataclass(frozen=True, slots=True)
class Association:
    """A user with access to an account; with a partition: only there."""

    account: str
    user: str
    partition: str = ""


def parse_gres(text: str) -> Cards:
    """`gpu:a100:2(IDX:0-1)`, `shard:16(IDX:0)` (22.05), `shard:16(16/64,0/64)` (23.11), `gres/gpu:2`, `gres:gpu:1`."""
    gpus, model, shards = 0, "", 0
    models: list[str] = []
    indices: list[int] = []
    shards_of: dict[int, int] = {}
    shared: list[int] = []
    for part in re.split(r",(?![^()]*\))", text_or_empty(text)):
        match = re.match(r"(?:gres[:/])?(gpu|shard)((?:[:=][^:=(]*)*)(?:\(([^)]*)\))?", part)
        if not match:
            continue
        kind, words, where = match[1], [word for word in re.split(r"[:=]", match[2]) if word], match[3]
        # `gpu:3090:2` is a model of digits; `gpu:2` a number of cards.
        count = int(words.pop()) if words and _is_number(words[-1]) else 1
        type_ = words[0] if words else ""
        model = type_ or model
        if kind == "gpu":
            gpus += count
            models += [type_] * min(count, MOST_OF_A_NODE)
            indices += parse_numbers((where or "").partition("IDX:")[2])
            continue
        shards += count
        if where and re.match(r"[0-9]+/", where):
            taken = [leading_int(slot) for slot in where.split(",")]
            shards_of |= {at: number for at, number in enumerate(taken) if number}
            shared += [at for at, number in enumerate(taken) if number]
        else:
            shared += parse_numbers((where or "").partition("IDX:")[2])
    return Cards(gpus, model, tuple(indices), shards, shards_of, tuple(shared), tuple(models))


def parse_nodes(text: str) -> list[NodeFacts]:
    """From `scontrol -d -o show node --all`."""
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(line: str) -> NodeFacts:
    facts = _facts(line)
    all_of_it, used = parse_gres(facts.get("Gres", "")), parse_gres(facts.get("GresUsed", ""))
    per_card = all_of_it.shards // all_of_it.gpus if all_of_it.gpus and all_of_it.shards else SHARDS_PER_GPU
    words = re.split(r"[+*~#!%$@^-]+", facts.get("State", "UNKNOWN"))
    why = re.search(r" Reason=(.*?)(?: \[\S+@\S+\])?\s*$", line)
    star = "*" in facts.get("State", "")
    node = Node(
        name=facts["NodeName"],
        cpus=leading_int(facts.get("CPUEfctv") or facts.get("CPUTot", "0")),
        memory_mib=leading_int(facts.get("RealMemory", "0")),
        gpus=tuple(
            Gpu(at, model or all_of_it.model or "gpu", shards=per_card) for at, model in enumerate(all_of_it.models)
        ),
        accepts_jobs=not (_CLOSED & set(words)) and not star,
    )
    partitions = tuple(name for name in facts.get("Partitions", "").split(",") if name)
    return NodeFacts(
        node,
        partitions,
        facts.get("State", ""),
        used,
        facts.get("Version", ""),
        why[1] if why else "",
        cpus_used=leading_int(facts.get("CPUAlloc", "0")),
        memory_used_mib=leading_int(facts.get("AllocMem", "0")),
    )


def parse_partitions(text: str) -> list[Partition]:
    """From `scontrol -o show partition --all`."""
    found = []
    for line in text.splitlines():
        facts = _facts(line)
        if "PartitionName" in facts:
            found.append(
                Partition(
                    name=facts["PartitionName"],
                    nodelist=text_or_empty(facts.get("Nodes", "")),
                    is_default=facts.get("Default") == "YES",
                    state=facts.get("State", ""),
                    max_time=parse_limit(facts.get("MaxTime", "")),
                    default_time=parse_limit(facts.get("DefaultTime", "")),
                    groups=frozenset(_names(facts.get("AllowGroups", ""))),
                    is_for_root=facts.get("RootOnly") == "YES",
                    besides=_besides(facts),
                )
            )
    return found


def _besides(facts: Mapping[str, str]) -> str:
    kinds = {"AllowAccounts": "accounts", "DenyAccounts": "no accounts", "AllowQos": "QOS", "DenyQos": "no QOS"}
    asked = {words: _names(facts.get(key, "")) for key, words in kinds.items()}
    return "; ".join(f"{words} {', '.join(names)}" for words, names in asked.items() if names)


def _names(text: str) -> list[str]:
    """`ALL` means no restriction."""
    return [] if text == "ALL" else [name for name in text_or_empty(text).split(",") if name]


def parse_config(text: str) -> dict[str, str]:
    """From `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_associations(text: str) -> frozenset[Association]:
    """`sacctmgr -nP show assoc format=ASSOCIATION_FORMAT`; accounts without a user are left out."""
    rows = (line.split("|") for line in text.splitlines())
    return frozenset(Association(*row) for row in rows if len(row) == 3 and row[1])


def parse_time(text: str) -> datetime | None:
    """Seconds since 1970, by SLURM_TIME_FORMAT=%s."""
    return datetime.fromtimestamp(int(text), UTC) if re.fullmatch(r"\d{1,11}", text) and int(text) else None


def parse_limit(text: str) -> timedelta | None:
    """`1-00:00:00`, `08:00:00`, `30` (minutes); no limit is None."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        return None
    days, first, second, third = (int(part) if part else None for part in match.groups())
    if days is not None or third is not None:
        return timedelta(days=days or 0, hours=first or 0, minutes=second or 0, seconds=third or 0)
    return timedelta(minutes=first or 0, seconds=second or 0)


def parse_memory(text: str) -> int:
    """`1000M`, `4G`, `62.50G`, `0` in MiB."""
    match = re.match(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if not match:
        return 0
    return round(float(match[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20, "P": 1 << 30}[match[2]])


def parse_hostlist(text: str) -> tuple[str, ...]:
    """`gn[1-3,7],login` -> gn1 gn2 gn3 gn7 login; leading zeros stay, several brackets multiply."""
    names = (name for part in re.split(r",(?![^\[]*\])", text_or_empty(text)) if part for name in _expand(part))
    return tuple(islice(names, MOST_NODES))


def _expand(part: str) -> Iterator[str]:
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", part)
    if not match or part.count("[") > MOST_BRACKETS:
        yield part
        return
    for span in match[2].split(","):
        first, dash, last = span.partition("-")
        numbers: Iterable[str] = [first]
        if dash and _is_number(first) and _is_number(last):
            numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
        for number in numbers:
            for rest in _expand(match[3]):
                yield f"{match[1]}{number}{rest}"


def _facts(line: str) -> dict[str, str]:
    return dict(re.findall(r"(?:^| )([A-Za-z/:]+)=(\S*)", line))


def parse_numbers(text: str, most: int = MOST_OF_A_NODE) -> list[int]:
    """`0-2,5` -> 0 1 2 5."""
    found: list[int] = []
    for span in text.split(","):
        first, dash, last = span.partition("-")
        if _is_number(first):
            end = int(last) if dash and _is_number(last) else int(first)
            found += range(int(first), min(end + 1, int(first) + most - len(found)))
    return found


def _is_number(text: str) -> bool:
    """ASCII digits only, and few: `²` is a digit too, and Python refuses thousands of digits."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def text_or_empty(text: str) -> str:
    """Empty for Slurm's words for nothing."""
    return "" if text in _NOTHING else text


def leading_int(text: str) -> int:
    """The number at the start; 0 without."""
    match = re.match(r"[0-9]{1,18}", text)
    return int(match[0]) if match else 0
