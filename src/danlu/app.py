"""The server process: prepares its place, assembles all parts, serves, and shuts down.

`python -m danlu.app up` is a personal server, `python -m danlu.app serve --config FILE` a shared server."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence

import uvloop

from danlu import __version__
from danlu.actions.installation import Installation
from danlu.actions.people.login import has_admin
from danlu.api.app import make_app
from danlu.api.connections import Lines, limits_for
from danlu.api.listener import make_server
from danlu.assembly import assembled, engine_of
from danlu.config.settings import Settings
from danlu.errors import DanluError, Unreachable
from danlu.startup import process
from danlu.store.sql import SqlStore
from danlu.unix import descriptors

log = logging.getLogger("danlu")

# After a commit, a thread must not wait 5 ms for its turn to report the commit.
SWITCH_INTERVAL_S = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m danlu.app")
    parser.add_argument("mode", choices=["up", "serve"])
    parser.add_argument("--config")
    parser.add_argument("--fake-gpus")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--ready-fd", type=int)
    options = parser.parse_args(argv)
    ready = process.Ready(options.ready_fd)
    os.umask(0o077)
    descriptors.raise_limit()
    try:
        prepare = process.prepare_shared if options.mode == "serve" else process.prepare_personal
        settings, place = prepare(options)
        process.log_to(place.state_dir if ready.is_awaited else None)
        lock = process.take_lock(place, ready)
        if lock is None:
            return 0
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        store = SqlStore(settings.store.url or f"sqlite:///{place.state_dir}/danlu.db")
        store.migrate_apart()
        with lock:
            uvloop.run(serve(settings, place, store, ready))
        return 0
    except DanluError as error:
        ready.failed(error)
        return error.exit_code
    except OSError as error:
        failure = Unreachable(f"the server could not start: {error}")
        ready.failed(failure)
        return failure.exit_code


async def serve(settings: Settings, place: process.Place, store: SqlStore, ready: process.Ready) -> None:
    """Serve until a signal or a person stops the server."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    engine, inventory = engine_of(settings, place)
    async with assembled(settings, place, store, engine, inventory, stopping.set) as (here, _):
        app = make_app(here)
        lines = Lines(limits_for(descriptors.limit()), asyncio.get_running_loop().time, here.proxies)
        servers = [(make_server(app, lines), process.unix_sockets(place))]
        if place.listen:
            remote = make_server(app, lines, tls_cert=settings.server.tls_cert, tls_key=settings.server.tls_key)
            servers.append((remote, [process.tcp_socket(place.listen)]))
        tasks = [asyncio.create_task(server.serve(sockets=sockets)) for server, sockets in servers]
        while not all(server.started for server, _ in servers):
            await asyncio.wait(tasks, timeout=0.001, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in tasks):
                raise Unreachable("the server could not listen", f"see {place.state_dir}/server.log")
        # Objects from the start stay. Later objects are mostly freed without the collector, so it may run seldom.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        log.info("danlu %s serves %s", __version__, ", ".join(here.addresses))
        ready.reached(", ".join(here.addresses), process.told_of(place, settings) + _first_admin(place, here))
        await stopping.wait()
        log.info("stopping; jobs go on")
        for server, _ in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)
        for path in filter(None, (place.own_socket, place.shared_socket)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _first_admin(place: process.Place, here: Installation) -> str:
    """How to create the first administrator of a shared installation; empty if an administrator exists."""
    if place.home or has_admin(here.context):
        return ""
    server = process.reachable(place, here.addresses[-1])
    # The code is not part of the command: every user of a machine can read the arguments of all running commands.
    return (
        "There is no administrator's account yet. This makes one, once, as long as this server runs:\n"
        f"  danlu login --server {server} --first - --user NAME\n"
        f"It asks for this code: {here.context.first.new_code()}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
