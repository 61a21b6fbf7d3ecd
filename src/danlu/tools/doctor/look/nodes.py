"""Check a cluster from inside (`--deep`): run a small job on each available node, and remove all its files."""

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import replace

from danlu.tools.doctor.facts import DeepLook, Probe, Slurm
from danlu.tools.doctor.look.slurm import slurm_env
from danlu.tools.doctor.probe import ROOM_WITHIN_S, parse_probe, render_probe
from danlu.tools.doctor.run import USUAL_PATH, ask, together
from danlu.tools.doctor.texts import NodeLine, devices_of

AT_ONCE = 8
PATIENCE_S = 30.0
SEEN_WITHIN_S = 5.0  # network file systems show new files with a delay
MOST_PEOPLE, MOST_NAMES = 50, 64
_FIRST_PERSON, _LAST_PERSON = 1000, 59999

Progress = Callable[[str], None]


def look_at_nodes(
    slurm: Slurm,
    nodes: Sequence[NodeLine],
    asked: Sequence[NodeLine],
    folder: str,
    up: Sequence[str],
    tell: Progress,
) -> DeepLook:
    """Probe the nodes in `asked`, which accept jobs. `up`: the partitions that start jobs, best first."""
    people = _people()
    if not asked:
        return DeepLook((), slurm.user, people, folder, "no node of an open partition accepts jobs")
    token = secrets.token_hex(8)
    try:
        place, made = _prepared(folder, token)
    except OSError as error:
        return DeepLook((), slurm.user, people, folder, f"no file can be made in {folder} ({error.strerror})")
    try:
        with together(AT_ONCE) as threads:
            names = [socket.gethostname(), *(node.name for node in nodes[:MOST_NAMES])]
            running = []
            for node in asked:
                queue = next(name for name in up if name in node.facts.partitions)
                cards = devices_of(slurm.gres_conf or "", node.name)
                script = render_probe(list(people), names, cards)
                running.append(threads.submit(_probe, slurm, node.name, queue, script, place, token))
            probes = []
            for done in as_completed(running):
                probes.append(done.result())
                tell(f"{len(probes)} of {len(asked)} nodes have answered …")
    finally:
        shutil.rmtree(place, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                os.rmdir(path)
    probes.sort(key=lambda probe: [node.name for node in asked].index(probe.node))
    return DeepLook(tuple(probes), slurm.user, people, folder, host=socket.gethostname())


def _people() -> dict[str, int]:
    """Personal accounts of this machine, and the caller of sudo."""
    found = {one.pw_name: one.pw_uid for one in pwd.getpwall() if _FIRST_PERSON <= one.pw_uid <= _LAST_PERSON}
    with contextlib.suppress(KeyError):
        caller = pwd.getpwnam(os.environ.get("SUDO_USER", ""))
        found = {caller.pw_name: caller.pw_uid, **found}
    return dict(list(found.items())[:MOST_PEOPLE])


def _prepared(folder: str, token: str) -> tuple[str, list[str]]:
    """Make a private folder with a token file for the nodes; return the folder, and the parents made for it."""
    made: list[str] = []
    missing, at = [], folder
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at)
    for path in reversed(missing):
        os.mkdir(path, 0o711)
        made.insert(0, path)
    place = os.path.join(folder, f".danlu-doctor-{token}")
    os.mkdir(place, 0o700)
    with open(os.path.join(place, "word"), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(token)
    # With root_squash, root on a node is another user, who must be able to write here too.
    os.chmod(place, 0o1777)
    return place, made


def _probe(slurm: Slurm, node: str, queue: str, script: str, place: str, token: str) -> Probe:
    words = [
        slurm.paths.get("srun") or "srun",
        f"--nodelist={node}",
        f"--partition={queue}",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=1",
        "--mem=64M",
        "--time=1",
        f"--immediate={ROOM_WITHIN_S}",
        "--job-name=danlu-doctor",
        "--chdir=/",
        "--propagate=NONE",
        "--input=none",
        "/bin/bash",
        "-c",
        script,
        "doctor",
        place,
        f"from-{node}",
    ]
    asked_at = time.time()
    path = os.environ.get("PATH", USUAL_PATH)
    said = ask(words, extra={**slurm_env(slurm), "PATH": path}, patience_s=PATIENCE_S)
    probe = parse_probe(node, said, asked_at, time.time(), token)
    if probe.trouble or not probe.sees_file:
        return probe
    return _with_answer(probe, os.path.join(place, f"from-{node}"))


def _with_answer(probe: Probe, path: str) -> Probe:
    until = time.monotonic() + SEEN_WITHIN_S
    while not (seen := _is_written(path)) and time.monotonic() < until:
        time.sleep(0.1)
    return replace(probe, wrote_back=seen)


def _is_written(path: str) -> bool:
    # A listing asks the file server again. A lookup of the name might use a cached "not found".
    folder, name = os.path.split(path)
    try:
        return name in os.listdir(folder)
    except OSError:
        return False
