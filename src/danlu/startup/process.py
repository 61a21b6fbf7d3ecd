"""How a server process starts: folders, lock, sockets, log, and the message to the process that started the server."""

import argparse
import contextlib
import fcntl
import json
import logging
import logging.handlers
import os
import pwd
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO

from danlu import paths
from danlu.config import fake_cluster
from danlu.config.cluster import nodes_of
from danlu.config.settings import Settings, load_settings, with_fake_gpus
from danlu.engines.kinds import KINDS
from danlu.errors import DanluError, Invalid, Refused, Unreachable
from danlu.unix import safe_folders

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
    own_socket: str  # for its owner only
    shared_socket: str = ""  # for every user of this machine
    listen: str = ""
    home: str = ""  # the person's own folder, for a personal server
    pretends: str = ""  # the configuration of the cluster that this machine plays
    options: tuple[str | None, str] = (None, "")  # personal server: its configuration and its fake cards
    shared_dir: str = ""  # the folder that the nodes of a cluster must see too, if not `state_dir`

    @property
    def files_dir(self) -> str:
        """The folder of logs, snapshots and work folders."""
        return self.shared_dir or self.state_dir

    @property
    def is_for_one(self) -> bool:
        """No other person can reach this server."""
        return bool(self.home) and not (self.shared_socket or self.listen)

    def addresses(self, *, tls: bool) -> tuple[str, ...]:
        unix = [f"unix://{path}" for path in (self.own_socket, self.shared_socket) if path]
        return (*unix, f"http{'s' if tls else ''}://{self.listen}") if self.listen else tuple(unix)


class Ready:
    """Tells the starting process, through a pipe, that the server listens, or the reason for a failure."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def is_awaited(self) -> bool:
        return self._fd is not None

    def reached(self, where: str, more: str = "") -> None:
        if self._fd is None:
            sys.stderr.write(f"danlu is up: {where}\n{more}Ctrl-C stops the server; jobs go on.\n")
        self._say("ready\n")

    def failed(self, error: DanluError) -> None:
        text = f": {error.text}\n" + (f"\nhint: {error.hint}\n" if error.hint else "")
        if self._fd is None:
            sys.stderr.write(f"error{text}")
        self._say(f"error {error.exit_code}{text}")

    def _say(self, text: str) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, text.encode("utf-8", "replace"))
            os.close(self._fd)
            self._fd = None


def prepare_personal(options: argparse.Namespace) -> tuple[Settings, Place]:
    """A personal server: state in the person's own folders, and a socket for this person only."""
    own = paths.make_private(paths.state_dir())
    if options.fake or (options.config is None and options.fake_gpus is None and fake_cluster.remembered(own)):
        return _prepare_pretence(options, own=own)
    config, fake_gpus = _remembered_options(own, options)
    settings = load_settings(config, os.environ)
    fake_cluster.refuse_unplayed(settings, config or "the environment")
    if fake_gpus:
        settings = with_fake_gpus(settings, fake_gpus)
    state_dir = os.path.abspath(settings.server.state_dir or own)
    _check_encrypted(settings)
    place = Place(state_dir, paths.server_socket(own), settings.server.socket, settings.server.listen, own)
    place = replace(place, options=(config, fake_gpus), shared_dir=settings.shared_dir)
    _check_people(settings, place)
    make_folders(place)
    _open_to_runs(settings, place)
    return settings, place


def _prepare_pretence(options: argparse.Namespace, *, own: str) -> tuple[Settings, Place]:
    """A cluster played by this machine. With `own`, the played cluster is the person's server while up."""
    config = os.path.abspath(options.config) if options.config else fake_cluster.remembered(own) if own else None
    if not config:
        raise Invalid(
            "`--fake` plays the nodes of a configuration", "danlu up --config examples/clusters/fics.toml --fake"
        )
    if options.fake_gpus:
        raise Invalid("`--fake` plays the cards of the file's nodes", "leave `--fake-gpus` out")
    settings = load_settings(config, os.environ)
    folder = fake_cluster.folder_of(paths.state_dir(), config)
    listen = settings.server.listen
    if listen and split_address(listen)[0] not in LOOPBACK:
        listen = ""
    if not own:
        listen = listen or DEFAULT_LISTEN
    settings = fake_cluster.pretended(settings, config, folder, listen=listen)
    socket_path = paths.server_socket(own or folder)
    place = Place(folder, socket_path, listen=listen, home=own, pretends=config)
    make_folders(place)
    fake_cluster.make_disks(settings)
    return settings, place


def prepare_shared(options: argparse.Namespace) -> tuple[Settings, Place]:
    """A shared installation: everything from its configuration."""
    if not options.config:
        raise Invalid("`danlu serve` needs a configuration", "danlu serve --config /etc/danlu/danlu.toml")
    if options.fake:
        return _prepare_pretence(options, own="")
    settings = load_settings(options.config, os.environ)
    fake_cluster.refuse_unplayed(settings, options.config)
    state_dir = os.path.abspath(settings.server.state_dir or DEFAULT_STATE)
    _check_encrypted(settings)
    listen = settings.server.listen or DEFAULT_LISTEN
    place = Place(state_dir, os.path.join(state_dir, "run", "server.sock"), settings.server.socket, listen)
    place = replace(place, shared_dir=settings.shared_dir)
    _check_people(settings, place)
    make_folders(place)
    _open_to_runs(settings, place)
    return settings, place


def _check_people(settings: Settings, place: Place) -> None:
    """Check that the jobs of all possible users can run as intended. Call this before root creates folders."""
    is_root = os.getuid() == 0
    if settings.runs_as_submitter and is_root:
        for folder in {place.state_dir, place.files_dir}:
            safe_folders.check_out_of_reach(folder)
    if place.is_for_one:
        return
    if settings.runs_as_submitter and not is_root:
        raise Refused("only root can run jobs as the people who submit them", 'set engine.run_as = "server"')
    if not settings.runs_as_submitter and is_root and settings.abilities.runs_as_submitter:
        raise Refused(
            "jobs of everybody would run as root, on every node of the cluster",
            "leave engine.run_as out: jobs then run as who submits them; or do not run the server as root",
        )


def _open_to_runs(settings: Settings, place: Place) -> None:
    """Runs of other users must reach their own folders below."""
    if settings.runs_as_submitter and not place.is_for_one:
        safe_folders.check_gives_away(place.files_dir)
        os.chmod(place.files_dir, 0o711)


def take_lock(place: Place, ready: Ready) -> IO[str] | None:
    """The lock of the only server of a state folder; None if another server is up already.
    The kernel releases the lock when the process ends, in any way."""
    # A played cluster has its own folders, but is the person's server while up: a person has a single server.
    folder = place.home if place.pretends and place.home else place.state_dir
    lock = open(os.path.join(folder, "server.lock"), "a+", encoding="ascii")  # noqa: SIM115
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
            if place.pretends and place.home and fake_cluster.remembered(place.home) != place.pretends:
                raise Refused("your server is up already, and commands would no longer reach it", _beside(place))
            if not ready.is_awaited:
                lock.seek(0)
                raise Refused(f"danlu is up already (pid {lock.read().strip()})", "`danlu status` shows it")
            ready.reached(place.own_socket)
            return None
        if time.monotonic() > deadline:
            raise Unreachable("another server holds the state folder but does not answer", f"see {place.state_dir}")
        time.sleep(0.02)  # the other server is starting or stopping: soon up or gone


@contextlib.contextmanager
def remembered(place: Place) -> Iterator[None]:
    """Remember the options of this server for servers that a command starts by itself. Only a running server is
    remembered: a refused configuration must not block later commands. A played cluster is forgotten at its
    regular end; later commands start the person's own server."""
    if place.home and place.pretends:
        fake_cluster.remember(place.home, place.pretends)
    elif place.home:
        fake_cluster.forget(place.home)
        _remember_options(place)
    try:
        yield
    finally:
        if place.home:
            fake_cluster.forget(place.home)


_ONE_USER = """\
warning: all jobs run as the user of this server: whoever may submit one can read all logs and act as an administrator.
For a lab: run the server as root with `run_as = "submitter"` in [engine], see docs/install.md.
"""


_ONLY_ONE = """\
warning: this server does not run as root, so it submits jobs to {engine} as {user} only, and refuses those of others.
For a lab: run it as root, see docs/install.md.
"""


def server_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


def told_of(place: Place, settings: Settings) -> str:
    """Notes for the person who starts the server."""
    if not place.pretends:
        if place.is_for_one or settings.runs_as_submitter:
            return ""
        if not settings.runs_for_itself:
            return _ONE_USER
        return _ONLY_ONE.format(user=server_user(), engine=KINDS[settings.engine.kind].title)
    count = len(nodes_of(settings.nodes))
    nodes = "1 node" if count == 1 else f"{count} nodes"
    return f"This machine plays the {nodes} of {place.pretends}: `danlu nodes`, `danlu queues`.\n"


def _beside(place: Place) -> str:
    """How to start the played cluster beside the running server."""
    return (
        "`danlu down` stops it (its jobs go on); or have both, with a folder for this one: "
        f"`DANLU_HOME=/tmp/{os.path.basename(place.state_dir)} danlu up --config {place.pretends} --fake`, "
        "and the same DANLU_HOME before the commands that are for it"
    )


def answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def unix_sockets(place: Place) -> list[socket.socket]:
    """The listening Unix sockets. The lock allows this process to remove leftovers of a killed server."""
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


def reachable(place: Place, address: str) -> str:
    """The address as a person would type it: a client cannot connect to `every interface`."""
    host, port = split_address(place.listen)
    if host not in ("0.0.0.0", "::"):
        return address
    return f"{address.partition('://')[0]}://{socket.getfqdn()}:{port}"


def read_secret(key: str, path: str) -> str:
    """The content of the file named by the setting `key`; empty without a file."""
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read `{key}` {path}: {getattr(error, 'strerror', None) or 'not a text'}") from error
    if not secret:
        raise Invalid(f"`{key}` {path} is empty", "it holds the secret, and nothing else")
    return secret


def log_to(state_dir: str | None) -> None:
    """A detached server logs to the state folder, a server in the foreground to the terminal."""
    handler: logging.Handler = logging.StreamHandler()
    if state_dir:
        path = os.path.join(state_dir, "server.log")
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=2)
    level = logging.DEBUG if os.environ.get("DANLU_DEBUG") else logging.INFO
    logging.basicConfig(handlers=[handler], level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Below INFO, the WebSocket libraries log whole requests, including tokens.
    for name in ("uvicorn", "websockets"):
        logging.getLogger(name).setLevel(logging.INFO)
    # The messages of these libraries at each start do not help the reader of the log.
    for name in ("alembic", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    log.debug("DANLU_DEBUG is set: more is written down")


_SQUASHED = "it must belong to the server's user; on NFS see `no_root_squash` in docs/administration.md"


def make_folders(place: Place) -> None:
    paths.make_private(place.state_dir)
    paths.make_private(os.path.dirname(place.own_socket))
    if place.shared_dir:
        try:
            safe_folders.recognise(place.state_dir, place.shared_dir)
            safe_folders.make_way_to(place.shared_dir)  # runs of other users pass through these folders
            paths.make_private(place.shared_dir)
            safe_folders.mark(place.state_dir, place.shared_dir)
        except PermissionError as error:
            raise Refused(f"the shared folder cannot be made ready: {error}", _SQUASHED) from error
    for folder, mode in (("logs", 0o700), ("snapshots", 0o700), ("work", 0o711)):
        path = os.path.join(place.files_dir, folder)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)


def _remembered_options(own: str, options: argparse.Namespace) -> tuple[str | None, str]:
    """The given options, or the options of the last explicit `danlu up`: a server that a command starts by itself is
    the same server."""
    fake_gpus = options.fake_gpus if options.fake_gpus is not None else os.environ.get("DANLU_FAKE_GPUS")
    if options.config is not None or fake_gpus is not None:
        config = os.path.abspath(options.config) if options.config else None
        return config, "" if fake_gpus in (None, "none") else fake_gpus
    try:
        with open(os.path.join(own, "up.json"), encoding="utf-8") as file:
            kept = json.load(file)
        return kept["config"], kept["fake_gpus"]
    except (OSError, ValueError, KeyError):
        return None, ""


def _remember_options(place: Place) -> None:
    config, fake_gpus = place.options
    path = os.path.join(place.home, "up.json")
    if config or fake_gpus or os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"config": config, "fake_gpus": fake_gpus}, file)


def _check_encrypted(settings: Settings) -> None:
    listen = settings.server.listen
    if not listen or settings.server.tls_cert or settings.server.plain_http:
        return
    if split_address(listen)[0] not in LOOPBACK:
        raise Refused(
            f"listening on {listen} without TLS would send tokens in clear",
            "set server.tls_cert and server.tls_key, or server.plain_http = true behind a proxy that encrypts",
        )
