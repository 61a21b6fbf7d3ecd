"""`--fake`: this machine plays all the nodes of a cluster. Jobs really run, on this machine. Everything else of the
real cluster (its database, its addresses, its disks, the person's own jobs) stays untouched."""

import contextlib
import json
import os
import zlib
from dataclasses import replace

from danlu.config.settings import ServerSettings, Settings, StoreSettings
from danlu.engines.kinds import KINDS
from danlu.errors import Invalid, Refused

_MEMORY = "fake.json"


def folder_of(base: str, config: str) -> str:
    """The folder of this file's played cluster, below the person's own folder."""
    name = os.path.basename(config).partition(".")[0] or "cluster"
    return os.path.join(base, "fake", f"{name}-{zlib.crc32(os.fsencode(config)):08x}")


def pretended(settings: Settings, config: str, folder: str, *, listen: str) -> Settings:
    """The same people, queues and rules, without access to anything outside the folder."""
    if not settings.nodes:
        raise Invalid(
            f"{config} describes no nodes that could be played",
            "write `[[nodes]]`, see examples/danlu.toml; pretend cards of this machine are `--fake-gpus`",
        )
    people = settings.people
    disk = os.path.join(folder, "disk")
    return replace(
        settings,
        server=ServerSettings(listen=listen, state_dir=folder),
        store=StoreSettings(),
        engine=replace(settings.engine, kind="local", run_as="server", fake_gpus=""),
        people=replace(
            people,
            home=f"{disk}{people.home}" if people.home else "",
            team_folder=f"{disk}{people.team_folder}" if people.team_folder else "",
        ),
    )


def make_disks(settings: Settings) -> None:
    """Create the parents of the folders of people and teams."""
    for template in (settings.people.home, settings.people.team_folder):
        if template:
            os.makedirs(os.path.dirname(template.partition("{")[0]), mode=0o755, exist_ok=True)


def refuse_unplayed(settings: Settings, config: str) -> None:
    """Without `--fake` only this machine is real."""
    if settings.engine.kind not in KINDS:
        names = " and ".join(f'"{name}"' for name in KINDS)
        raise Refused(
            f'engine.kind is "{settings.engine.kind}", and this version runs jobs with {names} only',
            f"to try this cluster on one machine: `danlu up --config {config} --fake`",
        )
    if settings.nodes and not settings.abilities.live_nodes:
        raise Refused(
            f"{config} describes nodes, and without `--fake` there is only this machine",
            f"try it: `danlu up --config {config} --fake`; for real, leave `[[nodes]]` out (see [engine])",
        )


def remembered(own: str) -> str | None:
    """The configuration that a personal server plays now, or played when the server was killed."""
    try:
        with open(os.path.join(own, _MEMORY), encoding="utf-8") as file:
            config: str = json.load(file)["config"]
            return config
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(own: str, config: str) -> None:
    """After a crash, a command that starts a server by itself plays the same cluster. The regular end calls
    `forget`."""
    with open(os.path.join(own, _MEMORY), "w", encoding="utf-8") as file:
        json.dump({"config": config}, file)


def forget(own: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(own, _MEMORY))
