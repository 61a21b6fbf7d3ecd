"""`danlu queues`: the queues, their free resources, and their rules."""

from __future__ import annotations

from danlu.cli import render
from danlu.cli.input.options import connect, say_trouble
from danlu.cli.text import render_duration, render_facts, render_mib, render_table
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from danlu.cli.input.options import Values

    Data = dict[str, Any]


def queues(values: Values) -> int:
    client = connect(values)
    found = client.queues()
    if values["words"]:
        found = [_named(found, values["words"][0])]
    if values["json"]:
        render.as_json({"items": found})
    elif values["words"]:
        render.out(render_queue(found[0]))
    elif found:
        render.out(render_queues(found, render.width()))
        say_trouble(client)
        if render.is_terminal(2):
            render.say("* for jobs that name none; `danlu queues NAME` shows all of its rules", "dim")
    elif client.trouble:
        render.say(f"which queues there are is not known: {client.trouble}", "yellow")
    else:
        render.say("no queues: every job may use everything")
    return 0


def _named(found: Sequence[Data], name: str) -> Data:
    for queue in found:
        if queue["name"] == name:
            return queue
    from difflib import get_close_matches

    names = [queue["name"] for queue in found]
    near = get_close_matches(name, names, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(names)}" if names else "there are none here"
    raise Invalid(f"no queue `{name}`", hint)


def render_queues(queues: Sequence[Data], width: int | None) -> str:
    rows: list[list[str]] = []
    for queue in queues:
        first, *others = _cards(queue)
        rows.append(
            [
                queue["name"] + ("*" if queue["default"] else ""),
                first,
                str(len(queue["nodes"])),
                f"{queue['running']}/{queue['waiting']}",
                "yes" if queue["may_use"] and not queue["closed"] else "no",
                _rules(queue),
            ]
        )
        rows += [["", cards, "", "", "", ""] for cards in others]  # a row per model: names are long
    return render_table(["QUEUE", "CARDS FREE", "NODES", "RUN/WAIT", "OPEN", "RULES"], rows, width)


def _cards(queue: Data) -> list[str]:
    if queue["max_gpus"] == 0 and queue["max_shards"] == 0:
        return ["none"]
    return [f"{cards['free']}/{cards['total']} {cards['model']}" for cards in queue["cards"]] or ["none"]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _rules(queue: Data) -> str:
    """The rules in a few words, most important first: the end may be cut."""
    rules = [_closed(queue)] if queue["closed"] else []
    if whom := _whom(queue):
        rules.append("for " + ", ".join(whom))
    if not queue["interactive"]:
        rules.append("not interactive")
    if queue["max_gpus"] is not None:
        rules.append(_count(queue["max_gpus"], "gpu") if queue["max_gpus"] else "no gpus")
    if queue["max_shards"] is not None:
        rules.append(_count(queue["max_shards"], "shard") if queue["max_shards"] else "no shards")
    if queue["max_time_s"]:
        rules.append(render_duration(queue["max_time_s"]))
    if queue["max_cpus"] is not None:
        rules.append(_count(queue["max_cpus"], "cpu"))
    if queue["max_memory_mib"] is not None:
        rules.append(render_mib(queue["max_memory_mib"]))
    return ", ".join(rules)


def _closed(queue: Data) -> str:
    """`closed: it is DOWN in Slurm (jobs may wait)`."""
    return f"closed: {queue['closed']} ({'jobs may wait' if queue['takes_jobs'] else 'takes none'})"


def _whom(queue: Data) -> list[str]:
    besides = [queue["besides"]] if queue["besides"] else []
    return [*queue["teams"], *queue["users"], *(f"group {name}" for name in queue["groups"]), *besides]


def render_queue(queue: Data) -> str:
    """The block of `danlu queues NAME`."""
    cards = [
        f"{cards['free']} of {cards['total']} {cards['model']} free, {cards['shards_free']} shards"
        for cards in queue["cards"]
    ]
    longest, default = queue["max_time_s"], queue["default_time_s"]
    facts = [
        ("queue", queue["name"] + (" (for jobs that name none)" if queue["default"] else "")),
        ("you", "may use it" if queue["may_use"] else queue["why_not"]),
        ("closed", _closed(queue).removeprefix("closed: ") if queue["closed"] else ""),
        ("for", ", ".join(_whom(queue)) or "everybody"),
        ("nodes", _folded(queue["nodes"])),
        ("cards", "\n".join(cards) or "none"),
        ("cpus", f"{queue['cpus_free']} of {queue['cpus']} free"),
        ("jobs", f"{queue['running']} running, {queue['waiting']} waiting"),
        ("one job", _largest(queue)),
        ("time", _unless_said(default and render_duration(default), longest and render_duration(longest))),
        ("priority", _unless_said(queue["default_priority"], queue["max_priority"])),
        ("interactive", "yes" if queue["interactive"] else "no"),
    ]
    return render_facts(facts)


def _folded(names: Sequence[str]) -> str:
    lines, line = [], ""
    for name in names:
        if line and len(line) + len(name) > 60:
            lines.append(line + ",")
            line = ""
        line += f", {name}" if line else name
    return "\n".join([*lines, line])


def _largest(queue: Data) -> str:
    most = [
        _count(queue[key], word)
        for key, word in (("max_gpus", "gpu"), ("max_shards", "shard"), ("max_cpus", "cpu"))
        if queue[key] is not None
    ]
    if queue["max_memory_mib"] is not None:
        most.append(render_mib(queue["max_memory_mib"]) or "0")
    return f"at most {', '.join(most)}" if most else ""


def _unless_said(default: object, most: object) -> str:
    parts = [f"{default} unless said"] if default else []
    return ", ".join([*parts, f"at most {most}"] if most else parts)
