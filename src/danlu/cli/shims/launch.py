"""`ilaunch` and `zlaunch`: run a command in the foreground, as `danlu run` does."""

from __future__ import annotations

from danlu.cli import render
from danlu.client import Client
from danlu.compat import launchers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from danlu.compat.launchers import Launch


def ilaunch(words: list[str]) -> int:
    return _run("ilaunch", launchers.read_ilaunch(words), launchers.ILAUNCH_HELP)


def zlaunch(words: list[str]) -> int:
    return _run("zlaunch", launchers.read_zlaunch(words), launchers.ZLAUNCH_HELP)


def _run(name: str, launch: Launch, help: str) -> int:
    if launch.wants == "help":
        render.out(help)
        return 0
    client = Client(start=True)
    queues = [str(queue["name"]) for queue in client.queues()] if launch.queue or launch.wants == "list" else []
    if launch.wants == "list":
        for queue in queues:
            render.out(queue)
        return 0
    if not launch.command:
        render.out(f"{name}: no command to run; `{name} --help` explains")
        return 0
    options: Any = dict(launch.options)
    if launch.queue:
        options["queue"] = launchers.chosen_queue(launch.queue, queues)
        if not queues:
            launch.notes.append(f"queue `{launch.queue}` has no effect: this server has no queues")
    for note in launch.notes:
        render.say(f"{name}: {note}", "dim")
    from danlu.cli.commands.run import follow

    return follow(client, client.body(launch.command, options), {"quiet": False, "json": False})
