"""Commands about the server and its machines."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from time import monotonic, sleep, time

from danlu import __version__, paths
from danlu.cli import render
from danlu.cli.input.options import connect, say_trouble
from danlu.client.http import Connection, Lost, NoServer
from danlu.errors import Invalid, ServerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from danlu.cli.input.options import Values

DOWN_WITHIN_S = 30.0


def status(values: Values) -> int:
    data = connect(values, start=False).status()
    if values["json"]:
        render.as_json(data)
        return 0
    from danlu.cli.views.cluster import render_status

    render.out(render_status(data, time()))
    return 0


def nodes(values: Values) -> int:
    from danlu.cli.views.cluster import render_nodes

    client = connect(values)
    found = client.nodes()
    if values["json"]:
        render.as_json({"items": found})
        return 0
    render.out(render_nodes(found, time(), render.width()))
    say_trouble(client)
    return 0


def gpus(values: Values) -> int:
    from danlu.cli.views.cluster import render_gpus

    client = connect(values)
    found = client.nodes()
    if values["json"]:
        cards = [{"node": node["name"], **card} for node in found for card in node["gpus"]]
        render.as_json({"items": cards})
    elif any(node["gpus"] for node in found):
        render.out(render_gpus(found, time(), render.width()))
        say_trouble(client)
    else:
        render.say("no cards; `danlu up --fake-gpus 4xRTX3090` pretends to have some")
    return 0


def up(values: Values) -> int:
    options = _server_options(values)
    if values["fake_gpus"]:
        options += ["--fake-gpus", values["fake_gpus"]]
    if not values["detach"]:
        os.execv(sys.executable, [sys.executable, "-m", "danlu.app", "up", *options])
    from danlu.client import own_server

    own_server.start(options)
    render.out(f"your server is running at unix://{paths.server_socket(paths.state_dir())}")
    return 0


def serve(values: Values) -> int:
    os.execv(sys.executable, [sys.executable, "-m", "danlu.app", "serve", *_server_options(values)])


def _server_options(values: Values) -> list[str]:
    if not values["config"]:
        if values["fake"]:
            hint = "for example `danlu up --config examples/clusters/fics.toml --fake`"
            raise Invalid("`--fake` plays the nodes of a configuration, and none is named", hint)
        return []
    path = os.path.abspath(values["config"])
    if not os.path.isfile(path):
        raise Invalid(f"no configuration file `{values['config']}`", "check the path given to `--config`")
    return ["--config", path, *(["--fake"] if values["fake"] else [])]


def down(values: Values) -> int:
    # The caller's personal server, unless the command names the lab's server.
    client = connect(values, start=False, remembered=False)
    process = -1
    try:
        with contextlib.suppress(OSError):
            process = os.pidfd_open(client.status()["pid"])
        client.stop_server()
    except NoServer:
        render.out("the server is not running")
        return 0
    except Lost:
        # The server ended before the answer: stopping was the aim.
        pass
    client.close()
    until = monotonic() + DOWN_WITHIN_S
    while monotonic() < until:
        try:
            Connection(client.address, 1.0).close()
        except NoServer:
            if process >= 0:  # the server no longer listens; now its files close
                select.select([process], [], [], max(0.0, until - monotonic()))
            render.out("the server is stopped; jobs go on")
            return 0
        sleep(0.01)
    raise ServerDown(f"the server still answers after {DOWN_WITHIN_S:.0f} seconds", "`danlu status` shows its pid")


def version(values: Values) -> int:
    render.as_json({"version": __version__}) if values["json"] else render.out(f"danlu {__version__}")
    return 0
