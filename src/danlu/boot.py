"""How a server process comes up: its folders, its lock, its sockets, its log, and its word to who started it."""

import argparse
import contextlib
import fcntl
import json
import logging
import logging.handlers
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import IO

from danlu import places
from danlu.config import Settings, load_settings, with_fake_gpus
from danlu.errors import DanluError, Invalid, Refused, Unreachable

log = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:7411"
DEFAULT_STATE = "/var/lib/danlu"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LOCK_PATIENCE_S = 20.0
LOG_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where this server lives and listens."""

    state_dir: str
    own_socket: str  # only its owner may open it
    shared_socket: str = ""  # every user of this machine may
    listen: str = ""

    def addresses(self, *, tls: bool) -> tuple[str, ...]:
        unix = [f"unix://{path}" for path in (self.own_socket, self.shared_socket) if path]
        return (*unix, f"http{'s' if tls else ''}://{self.listen}") if self.listen else tuple(unix)


class Ready:
    """Tells whoever started this server, through a pipe they hold, that it listens or why it does not."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def is_awaited(self) -> bool:
        return self._fd is not None

    def reached(self, where: str) -> None:
        if self._fd is None:
            sys.stderr.write(f"danlu is up: {where}\nCtrl-C stops the server; jobs go on.\n")
        self._say("ready\n")

    def failed(self, error: DanluError) -> None:
        text = f"error: {error.text}\n" + (f"\nhint: {error.hint}\n" if error.hint else "")
        if self._fd is None:
            sys.stderr.write(text)
        self._say(text)

    def _say(self, text: str) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, text.encode("utf-8", "replace"))
            os.close(self._fd)
            self._fd = None


def prepare_personal(options: argparse.Namespace) -> tuple[Settings, Place]:
    """A person's own server: state in their own folders, a socket only they may open."""
    own = places.make_private(places.state_dir())
    config, fake_gpus = _remembered_options(own, options)
    settings = load_settings(config, os.environ)
    if fake_gpus:
        settings = with_fake_gpus(settings, fake_gpus)
    state_dir = os.path.abspath(settings.server.state_dir or own)
    _check_encrypted(settings)
    place = Place(state_dir, places.server_socket(own), settings.server.socket, settings.server.listen)
    _make_folders(place)
    return settings, place


def prepare_shared(options: argparse.Namespace) -> tuple[Settings, Place]:
    """A shared installation: everything from its configuration."""
    if not options.config:
        raise Invalid("`danlu serve` needs a configuration", "danlu serve --config /etc/danlu/danlu.toml")
    settings = load_settings(options.config, os.environ)
    state_dir = os.path.abspath(settings.server.state_dir or DEFAULT_STATE)
    _check_encrypted(settings)
    listen = settings.server.listen or DEFAULT_LISTEN
    place = Place(state_dir, os.path.join(state_dir, "run", "server.sock"), settings.server.socket, listen)
    _make_folders(place)
    if settings.engine.run_as == "submitter":
        if os.getuid() != 0:
            raise Refused("only root can run jobs as the people who submit them", 'set engine.run_as = "server"')
        os.chmod(state_dir, 0o711)  # a run of a snapshot must reach its own folder below
    return settings, place


def take_lock(place: Place, ready: Ready) -> IO[str] | None:
    """The lock that makes this the one server of its state folder; None if another one serves already.
    It is the kernel's: it goes with the process, however that ends."""
    lock = open(os.path.join(place.state_dir, "server.lock"), "a+", encoding="ascii")  # noqa: SIM115
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            return lock
        except BlockingIOError:
            pass
        if answers(place.own_socket):
            if not ready.is_awaited:
                lock.seek(0)
                raise Refused(f"danlu is up already (pid {lock.read().strip()})", "`danlu status` shows it")
            ready.reached(place.own_socket)
            return None
        if time.monotonic() > deadline:
            raise Unreachable("another server holds the state folder but does not answer", f"see {place.state_dir}")
        time.sleep(0.02)  # it is coming up or going down: one of the two is over soon


def answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def unix_sockets(place: Place) -> list[socket.socket]:
    """The listening Unix sockets; leftovers of a killed server are ours to remove, as we hold the lock."""
    sockets = []
    for path, mode in ((place.own_socket, 0o600), (place.shared_socket, 0o666)):
        if path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
            os.chmod(path, mode)
            listening.listen(1024)
            sockets.append(listening)
    return sockets


def tcp_socket(listen: str) -> socket.socket:
    host, port = split_address(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        raise Unreachable(f"cannot listen on {listen}: {error.strerror}", "see server.listen") from error
    listening.listen(1024)
    return listening


def split_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"`server.listen` is HOST:PORT, not `{listen}`", f"for example {DEFAULT_LISTEN}")
    return host.strip("[]") or "0.0.0.0", int(port)


def log_to(state_dir: str | None) -> None:
    """To the state folder for a detached server, to the terminal for one in the foreground."""
    handler: logging.Handler = logging.StreamHandler()
    if state_dir:
        path = os.path.join(state_dir, "server.log")
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=2)
    logging.basicConfig(
        handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def _make_folders(place: Place) -> None:
    places.make_private(place.state_dir)
    places.make_private(os.path.dirname(place.own_socket))
    for folder, mode in (("logs", 0o700), ("snapshots", 0o700), ("work", 0o711)):
        path = os.path.join(place.state_dir, folder)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)


def _remembered_options(own: str, options: argparse.Namespace) -> tuple[str | None, str]:
    """The options of the last explicit `danlu up`: a server that a command starts by itself is the same one."""
    path = os.path.join(own, "up.json")
    fake_gpus = options.fake_gpus if options.fake_gpus is not None else os.environ.get("DANLU_FAKE_GPUS")
    if options.config is not None or fake_gpus is not None:
        config = os.path.abspath(options.config) if options.config else None
        fake_gpus = "" if fake_gpus in (None, "none") else fake_gpus
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"config": config, "fake_gpus": fake_gpus}, file)
        return config, fake_gpus
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        return kept["config"], kept["fake_gpus"]
    except (OSError, ValueError, KeyError):
        return None, ""


def _check_encrypted(settings: Settings) -> None:
    listen = settings.server.listen
    if not listen or settings.server.tls_cert or settings.server.plain_http:
        return
    if split_address(listen)[0] not in LOOPBACK:
        raise Refused(
            f"listening on {listen} without TLS would send tokens in clear",
            "set server.tls_cert and server.tls_key, or server.plain_http = true behind a proxy that encrypts",
        )
