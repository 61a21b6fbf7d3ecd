"""The nodes of a Slurm cluster and their cards. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from danlu.domain.resources import squeeze
from danlu.engines.slurm.text.parse_cluster import parse_gres
from danlu.tools.doctor.facts import Wishes
from danlu.tools.doctor.findings import Finding, named, note, ok, plural, problem, warning
from danlu.tools.doctor.texts import NodeLine, devices_of, is_set, models_in

RESTART = "in slurm.conf on every machine; then restart slurmctld and every slurmd"
_IDLE_ON_PURPOSE = frozenset({"FUTURE", "CLOUD", "MAINT", "REBOOT", "POWERING_DOWN"})


def judge_nodes(nodes: Sequence[NodeLine]) -> Iterator[Finding]:
    if not nodes:
        yield problem("nodes.none", "Slurm has no node", "no job can ever run", "describe them in slurm.conf")
        return
    closed: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if not node.facts.node.accepts_jobs:
            closed.setdefault((node.facts.state, node.facts.why), []).append(node.name)
    count = len(nodes) - sum(map(len, closed.values()))
    if count:
        yield ok("nodes.open", f"{count} of {plural(len(nodes), 'node')} take jobs")
    else:
        yield problem("nodes.closed", f"none of {plural(len(nodes), 'node')} takes jobs", "every job waits")
    for (state, why), names in closed.items():
        yield _closed(names, state, why)
    homeless = [node.name for node in nodes if not node.facts.partitions]
    if homeless:
        found = f"in no partition: {named(homeless)}"
        yield note("nodes.homeless", found, "no job can ever use them", "add them to `Nodes=` of a PartitionName")


def _closed(names: list[str], state: str, why: str) -> Finding:
    words = set(re.split(r"[+*~#!%$@^-]+", state))
    cards = "they and their cards stay idle" if len(names) > 1 else "it and its cards stay idle"
    found = f"{named(names)}: {state.lower()}" + (f", because: {why}" if why else "")
    resume = f"scontrol update NodeName={','.join(names)} State=RESUME"
    if words & _IDLE_ON_PURPOSE:
        return note("nodes.closed", found, cards)
    if re.search(r"(?i)gres.*count", why):
        do = "fewer cards than slurm.conf says: compare Gres=, gres.conf and devices, correct, and take it back"
        look = (
            f"ls /dev/nvidia[0-9]*; slurmd -G      # on {names[0]}",
            f"systemctl restart slurmd      # on {names[0]}",
        )
        return warning("nodes.invalid", found, cards, do, *look, resume)
    if words & {"INVAL", "INVALID_REG"} or re.search(r"(?i)low (realmemory|cpus|sockets)", why):
        do = (
            "it has less than slurm.conf says: compare, correct `NodeName=`, restart slurmctld and slurmd, take it back"
        )
        return warning("nodes.invalid", found, cards, do, f"slurmd -C      # on {names[0]}", resume)
    if "NOT_RESPONDING" in words or "*" in state:
        do = f"slurmd does not answer: on {names[0]}; the last command only if the node stays down when slurmd is back:"
        look = ("systemctl status slurmd", "journalctl -u slurmd -n 50")
        return warning("nodes.silent", found, cards, do, *look, resume)
    if "DRAIN" in " ".join(words):
        return warning(
            "nodes.drained", found, cards, "an administrator or Slurm drained it; when the cause is gone:", resume
        )
    if why.startswith("Not responding"):
        do = f"it did not answer for too long: if slurmd runs there again (systemctl status slurmd, on {names[0]}),"
        return warning("nodes.down", found, cards, f"{do} take it back:", resume)
    return warning("nodes.down", found, cards, "when its cause is gone:", resume)


def judge_cards(
    config: Mapping[str, str], nodes: Sequence[NodeLine], wishes: Wishes, gres_conf: str = ""
) -> Iterator[Finding]:
    kinds = {kind.strip() for kind in config.get("GresTypes", "").split(",")}
    cards: dict[str, int] = {}
    for node in nodes:
        for model, number in models_in(node.pairs.get("Gres", "")).items():
            cards[model] = cards.get(model, 0) + number
    if not cards:
        yield _no_cards(kinds)
        return
    listed = ", ".join(f"{number} × {model or 'card'}" for model, number in cards.items())
    yield ok("cards.found", f"{listed}, on {plural(len([1 for one in nodes if _cards_of(one)]), 'node')}")
    yield from _models(list(cards), nodes)
    yield from _devices(nodes, gres_conf)
    yield from _shards(kinds, nodes, wishes)
    drained = [one.name for one in nodes if is_set(one.pairs.get("GresDrain"))]
    if drained:
        yield note("cards.drained", f"Slurm has drained cards on {named(drained)}", "no job gets these cards")


def _cards_of(node: NodeLine) -> int:
    return sum(models_in(node.pairs.get("Gres", "")).values())


def _no_cards(kinds: set[str]) -> Finding:
    lacks = "GresTypes names no gpu" if "gpu" not in kinds else "no NodeName has Gres=gpu:…"
    return warning(
        "cards.none",
        f"Slurm knows of no card: {lacks}",
        "`--gpus` and `--shards` are refused, and jobs that use cards anyway collide",
        f"{RESTART} (`danlu slurm init` writes these files whole)",
        "GresTypes=gpu,shard",
        "NodeName=… Gres=gpu:rtx3090:4,shard:256",
        "NodeName=… Name=gpu Type=rtx3090 File=/dev/nvidia[0-3]    # gres.conf",
        "NodeName=… Name=shard Count=256                           # gres.conf",
    )


def _models(models: list[str], nodes: Sequence[NodeLine]) -> Iterator[Finding]:
    if "" in models:
        untyped = [one.name for one in nodes if "" in models_in(one.pairs.get("Gres", ""))]
        yield note(
            "cards.untyped",
            f"cards without a model: {named(untyped)}",
            "`--gpus rtx3090:2` is refused there; jobs there get any card",
            "name it in Gres= of slurm.conf and as Type= in gres.conf; restart slurmctld and slurmd",
            "Gres=gpu:rtx3090:4",
        )
    spellings: dict[str, list[str]] = {}
    for model in filter(None, models):
        spellings.setdefault(squeeze(model), []).append(model)
    for names in spellings.values():
        if len(names) > 1:
            yield warning(
                "cards.spelling",
                f"one model in several spellings: {named(names)}",
                "to Slurm these are different cards: a job for one spelling waits while cards of the other are idle",
                "one spelling in every Gres= and Type=; restart slurmctld and slurmd",
            )
    for model in filter(None, models):
        if model.isdigit():
            yield note(
                "cards.digits",
                f"the model {model} is a number",
                f"`sbatch --gres=gpu:{model}` asks for {model} cards. Danlu always writes the count, and is safe",
                f"a name with a letter in it is safer for all: rtx{model}",
            )
        elif not re.fullmatch(r"[A-Za-z0-9_.+-]+", model):
            yield warning(
                "cards.letters",
                f"the model `{model}` has letters that Slurm's options cannot carry",
                "`--gpus` with this model is refused",
                "letters, digits, `_`, `.` and `-` only, in Gres= and Type=",
            )


def _devices(nodes: Sequence[NodeLine], gres_conf: str) -> Iterator[Finding]:
    """Compare nodes whose cards gres.conf names. The file may leave detection to Slurm, or differ on the nodes."""
    counts = {node.name: (len(devices_of(gres_conf, node.name)), _cards_of(node)) for node in nodes}
    odd = {name: count for name, count in counts.items() if count[0] and count[0] != count[1]}
    if odd:
        name, (devices, cards) = next(iter(odd.items()))
        yield warning(
            "cards.devices",
            f"gres.conf here names {devices} cards of {name}, slurm.conf {cards}"
            + (f"; it differs on {named(odd)}" if len(odd) > 1 else ""),
            "with fewer, slurmd fails to start or Slurm drains the node; with more, some cards are never used",
            "as many in Gres= of slurm.conf as in File= of gres.conf; restart slurmctld, and slurmd on the node",
            f"NodeName={name} Name=gpu Type=… File=/dev/nvidia[0-{max(cards - 1, 0)}]    # gres.conf",
        )


def _shards(kinds: set[str], nodes: Sequence[NodeLine], wishes: Wishes) -> Iterator[Finding]:
    per_card: dict[int, list[str]] = {}
    uneven, without = [], []
    for node in nodes:
        count, shards = _cards_of(node), parse_gres(node.pairs.get("Gres", "")).shards
        if count and shards and not shards % count:
            per_card.setdefault(shards // count, []).append(node.name)
        elif count and shards:
            uneven.append(node.name)
        elif count:
            without.append(node.name)
    if uneven:
        yield warning(
            "cards.uneven",
            f"shards that do not divide by the cards: {named(uneven)}",
            "Slurm gives some cards more shards than others, and `danlu gpus` shows wrong numbers",
            "in Gres= and in gres.conf a multiple of the number of cards",
        )
    if not per_card and not uneven:
        size = wishes.shards_per_gpu
        total = next((_cards_of(node) for node in nodes if _cards_of(node)), 1) * size
        yield note(
            "cards.no_shards",
            "cards are not divided" + ("" if "shard" in kinds else ": GresTypes names no shard"),
            "`--shards` is refused: small jobs and notebooks hold a whole card each",
            f"{RESTART} (for {size} shards a card):",
            "GresTypes=gpu,shard",
            f"NodeName=… Gres=gpu:…,shard:{total}",
            f"NodeName=… Name=shard Count={total}      # gres.conf",
        )
    elif without:
        yield note("cards.no_shards", f"not divided on {named(without)}", "`--shards` jobs never run there")
    if len(per_card) > 1:
        listed = "; ".join(f"{size} on {named(names, 3)}" for size, names in sorted(per_card.items()))
        costs = "a shard is a different part of a card from node to node; quotas count them alike"
        yield note("cards.shard_sizes", f"shards of different sizes: {listed}", costs)
    elif per_card and wishes.shards_per_gpu not in per_card:
        size = next(iter(per_card))
        yield warning(
            "cards.shards_differ",
            f"Slurm divides a card into {size}, danlu.toml into {wishes.shards_per_gpu}",
            f"quotas and use count {size} shards as {size / wishes.shards_per_gpu:.2g} of a card",
            "in danlu.toml:",
            "[engine]",
            f"shards_per_gpu = {size}",
        )
