"""`sinfo`: its options, and nodes and queues of Danlu in its columns."""

from __future__ import annotations

from danlu.compat.columns import Column, host_list, parse_fields, parse_format, ranges, render, span
from danlu.compat.getopt import on_command_line, parse, read_options
from danlu.compat.squeue import NO_QUEUE
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from danlu.compat.columns import Field

# `#`: as wide as the longest name.
PLAIN = "%#P %.5a %.10l %.6D %.6t %N"
SUMMARY = "%#P %.5a %.10l %.16F %N"
LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
NODES = "%#N %.6D %.#P %6t"
NODES_LONG = "%#N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
OPTIONS = read_options(
    "all.a Format=O format=o help. long.l Node.N noheader.h nodes=n partition=p states=t summarize.s usage. "
    "verbose.v version.V exact.e"
)
_ORDER = ("draining", "drained", "allocated", "mixed", "idle")
_SHORT = {"idle": "idle", "mixed": "mix", "allocated": "alloc", "drained": "drain", "draining": "drng"}
# Fields that many nodes share in one row.
_TOGETHER = "NDCAFn"


class Asked:
    def __init__(self) -> None:
        self.format, self.names = "", ""
        self.by_node = self.is_long = self.is_summary = False
        self.with_heading = True
        self.queues: list[str] | None = None
        self.nodes: list[str] | None = None
        self.states: list[str] | None = None


def read_words(words: Iterable[str]) -> tuple[Asked, set[str]]:
    given, rest = parse(on_command_line(words), OPTIONS, anywhere=True)
    if rest:
        raise Invalid(f"Unrecognized option: {rest[0][0]}", "`sinfo --help` lists the options")
    asked = Asked()
    other: set[str] = set()
    for one in given:
        listed = [item.strip() for item in one.value.split(",") if item.strip()]
        match one.name:
            case "format":
                asked.format = one.value
            case "Format":
                asked.names = one.value
            case "Node":
                asked.by_node = True
            case "long":
                asked.is_long = True
            case "summarize":
                asked.is_summary = True
            case "noheader":
                asked.with_heading = False
            case "partition":
                asked.queues = listed
            case "nodes":
                asked.nodes = listed
            case "states":
                asked.states = [word.lower() for word in listed]
            case "all" | "exact":
                pass
            case _:
                other.add(one.name)
    return asked, other


def render_sinfo(asked: Asked, nodes: Sequence[dict[str, Any]], queues: Sequence[dict[str, Any]]) -> list[str]:
    pairs = _pairs(asked, nodes, queues)
    layout = _layout(asked, pairs)
    letters = [column.letter for column in layout[1]]
    if asked.by_node:
        pairs.sort(key=lambda pair: pair["name"])
        rows = [[pair] for pair in pairs]
    else:
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        pairs.sort(key=lambda pair: (pair["place"], _ORDER.index(pair["long"])))
        for pair in pairs:
            key = tuple(FIELDS[letter][1]([pair]) for letter in letters if letter not in _TOGETHER)
            groups.setdefault(key, []).append(pair)
        rows = list(groups.values())
    return render(layout, FIELDS, rows, with_heading=asked.with_heading)


def _layout(asked: Asked, pairs: Sequence[dict[str, Any]]) -> tuple[str, list[Column]]:
    if asked.names:
        return parse_fields(asked.names, NAMES)
    text = asked.format
    if not text:
        usual = SUMMARY if asked.is_summary else LONG if asked.is_long else PLAIN
        text = (NODES_LONG if asked.is_long else NODES) if asked.by_node else usual
        nodes = max([9, *(len(pair["name"]) for pair in pairs)])
        queues = max([9, *(len(pair["queue"]) for pair in pairs)])
        text = text.replace("#N", f"{nodes}N").replace("#P", f"{queues}P")
    return parse_format(text, FIELDS)


def _pairs(asked: Asked, nodes: Sequence[dict[str, Any]], queues: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each node in each queue that it belongs to."""
    by_name = {node["name"]: node for node in nodes}
    everywhere = {"name": NO_QUEUE, "default": True, "nodes": list(by_name), "max_time_s": None, "closed": ""}
    found = []
    for place, queue in enumerate(queues or [everywhere]):
        if asked.queues is not None and queue["name"] not in asked.queues:
            continue
        for name in queue["nodes"]:
            node = by_name.get(name)
            if node is None or (asked.nodes is not None and name not in asked.nodes):
                continue
            long = _state(node)
            if asked.states is not None and not {long, _SHORT[long]} & set(asked.states):
                continue
            shown = queue["name"] + ("*" if queue["default"] else "")
            limit = span(queue["max_time_s"]) if queue["max_time_s"] else "infinite"
            avail = "down" if queue["closed"] else "up"
            found.append({**node, "queue": shown, "limit": limit, "avail": avail, "long": long, "place": place})
    return found


def _state(node: dict[str, Any]) -> str:
    if not node["accepts_jobs"]:
        return "draining" if node["holders"] else "drained"
    if not node["holders"] and node["cpus_free"] == node["cpus"]:
        return "idle"
    return "allocated" if node["cpus_free"] <= 0 else "mixed"


def _counted(pairs: Sequence[dict[str, Any]]) -> tuple[int, int, int, int]:
    used = sum(pair["long"] in ("mixed", "allocated", "draining") for pair in pairs)
    idle = sum(pair["long"] == "idle" for pair in pairs)
    return used, idle, len(pairs) - used - idle, len(pairs)


def _cpus(pairs: Sequence[dict[str, Any]]) -> str:
    total = sum(pair["cpus"] for pair in pairs)
    used = sum(pair["cpus"] - pair["cpus_free"] for pair in pairs)
    away = sum(pair["cpus_free"] for pair in pairs if not pair["accepts_jobs"])
    return f"{used}/{total - used - away}/{away}/{total}"


def _by_model(pair: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for card in pair["gpus"]:
        found.setdefault(str(card["model"]).replace(" ", "_"), []).append(card)
    return found


def gres(pair: dict[str, Any]) -> str:
    """`gpu:RTX3090:5,shard:RTX3090:320`."""
    models = _by_model(pair)
    parts = [f"gpu:{model}:{len(cards)}" for model, cards in models.items()]
    parts += [f"shard:{model}:{sum(card['shards'] for card in cards)}" for model, cards in models.items()]
    return ",".join(parts) or "(null)"


def gres_used(pair: dict[str, Any]) -> str:
    """`gpu:RTX3090:1(IDX:0),shard:RTX3090:32(0/64,32/64)`."""
    parts, shards = [], []
    for model, cards in _by_model(pair).items():
        whole = [card["index"] for card in cards if card["use"] == "exclusive"]
        parts.append(f"gpu:{model}:{len(whole)}(IDX:{ranges(whole) or 'N/A'})")
        used = [card["shards"] - card["shards_free"] if card["use"] == "shared" else 0 for card in cards]
        fill = ",".join(f"{part}/{card['shards']}" for part, card in zip(used, cards, strict=True))
        shards.append(f"shard:{model}:{sum(used)}({fill})")
    return ",".join(parts + shards) or "(null)"


# A row is a list of nodes in a queue.
FIELDS: dict[str, Field] = {
    "P": ("PARTITION", lambda row: row[0]["queue"]),
    "R": ("PARTITION", lambda row: row[0]["queue"].rstrip("*")),
    "a": ("AVAIL", lambda row: row[0]["avail"]),
    "l": ("TIMELIMIT", lambda row: row[0]["limit"]),
    "D": ("NODES", lambda row: str(len(row))),
    "t": ("STATE", lambda row: _SHORT[row[0]["long"]]),
    "T": ("STATE", lambda row: row[0]["long"]),
    "N": ("NODELIST", lambda row: host_list([pair["name"] for pair in row])),
    "n": ("HOSTNAMES", lambda row: host_list([pair["name"] for pair in row])),
    "G": ("GRES", lambda row: gres(row[0])),
    "U": ("GRES_USED", lambda row: gres_used(row[0])),
    "C": ("CPUS(A/I/O/T)", _cpus),
    "A": ("NODES(A/I)", lambda row: "/".join(map(str, _counted(row)[:2]))),
    "F": ("NODES(A/I/O/T)", lambda row: "/".join(map(str, _counted(row)))),
    "c": ("CPUS", lambda row: str(row[0]["cpus"])),
    "m": ("MEMORY", lambda row: str(row[0]["memory_mib"])),
    "e": ("FREE_MEM", lambda row: str(row[0]["memory_free_mib"])),
    "z": ("S:C:T", lambda row: f"1:{row[0]['cpus']}:1"),
    "E": ("REASON", lambda row: row[0]["why_closed"] or "none"),
    "f": ("AVAIL_FEATURES", lambda row: "(null)"),
    "d": ("TMP_DISK", lambda row: "0"),
    "w": ("WEIGHT", lambda row: "1"),
    "O": ("CPU_LOAD", lambda row: "N/A"),
    "s": ("JOB_SIZE", lambda row: "1-infinite"),
    "r": ("ROOT", lambda row: "no"),
    "h": ("OVERSUBS", lambda row: "NO"),
    "g": ("GROUPS", lambda row: "all"),
    "i": ("RESERVATION", lambda row: ""),
}
NAMES = {
    "partition": "P", "partitionname": "R", "available": "a", "time": "l", "nodes": "D", "statecompact": "t",
    "statelong": "T", "state": "t", "nodelist": "N", "nodehost": "n", "gres": "G", "gresused": "U", "cpusstate": "C",
    "nodeai": "A", "nodeaiot": "F", "cpus": "c", "memory": "m", "freemem": "e", "reason": "E", "features": "f",
    "disk": "d", "weight": "w", "cpusload": "O", "socketcorethread": "z",
}  # fmt: skip
