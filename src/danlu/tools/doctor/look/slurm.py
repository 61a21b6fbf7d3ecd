"""Observe a Slurm cluster from this machine: its commands, files and controller. Each command has a short time
limit."""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from danlu.tools.doctor.facts import Said, Slurm
from danlu.tools.doctor.judge.reach import NEEDED, WANTED
from danlu.tools.doctor.look.machine import whoami
from danlu.tools.doctor.run import USUAL_PATH, ask, together
from danlu.tools.doctor.texts import auth_socket, controller_doors, parse_conf, settings_in

# The search order of Slurm's commands; the last entries are of other distributions and of nodes without own files.
CONF_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
MUNGE_KEY = "/etc/munge/munge.key"
DOOR_PATIENCE_S = 2.0
AT_ONCE = 4

Progress = Callable[[str], None]


def find_conf(given: str = "") -> str:
    """The slurm.conf of the commands; empty if there is none."""
    wanted = given or os.environ.get("SLURM_CONF", "")
    return wanted or next((path for path in CONF_PLACES if os.path.exists(path)), "")


def look_at_slurm(given_conf: str, tell: Progress) -> Slurm:
    conf_path = find_conf(given_conf)
    conf = _read(conf_path) if conf_path else None
    settings = parse_conf(conf or "")
    path = os.environ.get("PATH", USUAL_PATH)
    seen = Slurm(
        paths={name: shutil.which(name, path=path) or "" for name in (*NEEDED, *WANTED, "munge")},
        conf_path=conf_path,
        conf=conf,
        user=whoami(),
        host=socket.gethostname().partition(".")[0],
        conf_named_by="engine.slurm_conf" if given_conf else "SLURM_CONF" if os.environ.get("SLURM_CONF") else "",
        here=_own_names(),
        munge_socket=auth_socket(settings),
        munge_key_mode=_mode(MUNGE_KEY),
        cgroup_conf=_read(os.path.join(os.path.dirname(conf_path), "cgroup.conf")) if conf_path else None,
        gres_conf=_read(os.path.join(os.path.dirname(conf_path), "gres.conf")) if conf_path else None,
    )
    if not seen.paths["scontrol"]:
        return seen
    # A missing slurm.conf makes every command wait up to a minute; even `--version` reads the file.
    if conf_path and not os.path.exists(conf_path):
        return seen
    tell("asks slurmctld …")
    return _asked(seen, list(controller_doors(settings)), tell)


def _asked(seen: Slurm, doors: list[tuple[str, int]], tell: Progress) -> Slurm:
    with together(AT_ONCE) as threads:
        ping = threads.submit(_ask, seen, "scontrol", "ping")
        munge = threads.submit(_munge, seen)
        version = threads.submit(_ask, seen, "scontrol", "--version")
        seen = replace(seen, ping=ping.result(), munge=munge.result(), version=version.result())
        assert seen.ping
        if not seen.ping.is_ok:
            # Only after a failed ping: a connection without a message is an error in the controller's log.
            seen = replace(seen, door=_knock(doors))
            # A controller that refuses gives more details; a missing controller would cost nine seconds of waiting.
            asks_more = seen.door == "open" and not ping.result().is_late
            return replace(seen, config=_ask(seen, "scontrol", "show", "config")) if asks_more else seen
        tell("reads what slurmctld knows …")
        config = threads.submit(_dated, seen, "scontrol", "show", "config")
        nodes = threads.submit(_ask, seen, "scontrol", "-a", "-d", "-o", "show", "node")
        partitions = threads.submit(_ask, seen, "scontrol", "-a", "-o", "show", "partition")
        queue = threads.submit(_ask_if_there, seen, "squeue", "-h", "-a", "-o", "%i")
        statistics = threads.submit(_ask_if_there, seen, "sdiag")
        said, asked_at = config.result()
        seen = replace(seen, config=said, asked_at=asked_at, nodes=nodes.result(), partitions=partitions.result())
        seen = replace(seen, queue=queue.result(), statistics=statistics.result())
        if settings_in(said.out).get("AccountingStorageType", "").endswith("slurmdbd"):
            tell("asks slurmdbd …")
            clusters = threads.submit(_accounts, seen, "cluster", "cluster,controlhost")
            associations = threads.submit(_accounts, seen, "assoc", "account,user")
            seen = replace(seen, clusters=clusters.result(), associations=associations.result())
    return seen


def slurm_env(seen: Slurm) -> dict[str, str]:
    env = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
    if seen.conf_path and seen.conf_path not in CONF_PLACES:
        env["SLURM_CONF"] = seen.conf_path
    return env


def _ask(seen: Slurm, *argv: str) -> Said:
    return ask([seen.paths.get(argv[0]) or argv[0], *argv[1:]], extra=slurm_env(seen))


def _dated(seen: Slurm, *argv: str) -> tuple[Said, float]:
    said = _ask(seen, *argv)
    return said, time.time()


def _ask_if_there(seen: Slurm, *argv: str) -> Said | None:
    return _ask(seen, *argv) if seen.paths.get(argv[0]) else None


def _accounts(seen: Slurm, what: str, columns: str) -> Said | None:
    return _ask_if_there(seen, "sacctmgr", "-n", "-P", "show", what, f"format={columns}")


def _munge(seen: Slurm) -> Said | None:
    if not seen.paths["munge"]:
        return None
    where = [f"--socket={seen.munge_socket}"] if seen.munge_socket else []
    return ask([seen.paths["munge"], "-n", *where])


def _knock(doors: list[tuple[str, int]]) -> str:
    """`open` if a connection to a controller address in slurm.conf succeeds; otherwise the error."""
    what = ""
    for host, port in doors:
        try:
            with socket.create_connection((host, port), timeout=DOOR_PATIENCE_S):
                return "open"
        except socket.gaierror:
            what = f"the name {host} is not known here"
        except TimeoutError:
            what = f"no connection to {host}:{port} within {DOOR_PATIENCE_S:.0f} s (a firewall?)"
        except OSError as error:
            what = f"nothing listens at {host}:{port} ({error.strerror})"
    return what


def _own_names() -> frozenset[str]:
    full = socket.gethostname()
    names = {full, full.partition(".")[0], "localhost"}
    with contextlib.suppress(OSError):
        names.update(str(found[4][0]) for found in socket.getaddrinfo(full, None))
    return frozenset(names)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode & 0o7777
    except OSError:
        return None
