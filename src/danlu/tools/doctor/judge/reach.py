"""Whether Slurm can be reached: its commands, controller, authentication and releases. Pure."""

import re
from collections.abc import Iterator, Mapping

from danlu.engines.slurm.text.messages import last_words
from danlu.tools.doctor.facts import Said, Slurm
from danlu.tools.doctor.findings import Finding, named, note, ok, plural, problem, unchecked, warning
from danlu.tools.doctor.texts import NodeLine, Version, is_set, parse_conf, parse_version, release_of

NEEDED = ("sbatch", "squeue", "scontrol", "scancel", "srun")
WANTED = ("sacct", "sacctmgr", "sdiag")
# The oldest and the newest release that Danlu's tests run on.
OLDEST, NEWEST = (22, 5), (24, 11)
SLOW_S, TOO_SLOW_S = 0.5, 2.0
_NOTHING_WORKS = (
    "no job can be submitted, seen or stopped there; running jobs continue, and Danlu keeps their last known state"
)

_FIND_CONF = "copy slurm.conf from the controller, or set its path; a lab without Slurm: `danlu slurm init`"
_FITS = "commands may not be newer than the controller, nor more than two releases older"
_COMPARE = "sha256sum /etc/munge/munge.key; date -u"


def judge_commands(slurm: Slurm) -> Iterator[Finding]:
    missing = [name for name in NEEDED if not slurm.paths.get(name)]
    if missing:
        yield problem(
            "commands.missing",
            f"not on the PATH here: {', '.join(missing)}",
            "Danlu controls Slurm through Slurm's commands, and cannot work without them",
            "install them on this machine, or set PATH for the server",
            "apt-get install slurm-client      # Debian, Ubuntu",
            "dnf install slurm                 # RHEL and its relatives, from EPEL",
        )
        return
    folders = dict.fromkeys(slurm.paths[name].rpartition("/")[0] for name in NEEDED)
    version = parse_version(slurm.version.out) if slurm.version else None
    shown = f"Slurm {'.'.join([release_of(version), *map(str, version[2:])])}" if version else "Slurm's commands"
    yield ok("commands.found", f"{shown}, in {named(folders, 2)}")
    if version and version[:2] < OLDEST:
        costs = "shards and several options came later: jobs with these are refused; the rest is untested"
        yield note("commands.version", f"{release_of(version)} is older than the releases Danlu is tested with", costs)
    elif version and version[:2] > NEWEST:
        costs = "Slurm changes its output between releases; this may be the cause of a wrong number"
        yield note("commands.version", f"{release_of(version)} is newer than the releases Danlu is tested with", costs)
    lacking = [name for name in WANTED if not slurm.paths.get(name)]
    if lacking:
        costs = "the accounting cannot be queried: neither how jobs ended, nor its own gaps"
        yield note("commands.optional", f"not on the PATH: {', '.join(lacking)}", costs)


def judge_controller(slurm: Slurm) -> Iterator[Finding]:
    if slurm.conf is None and not slurm.ping:
        yield from _no_conf(slurm)
    elif slurm.ping is None:
        yield unchecked("controller.up", "the command `scontrol` is not installed here")
    elif not slurm.ping.is_ok:
        yield from _no_answer(slurm, slurm.ping)
    else:
        yield from _answers(slurm, slurm.ping)


def _no_conf(slurm: Slurm) -> Iterator[Finding]:
    costs = "the commands do not know the controller"
    if slurm.conf_named_by:
        found = f"there is no {slurm.conf_path}, and {slurm.conf_named_by} names it"
        yield problem("controller.conf", found, costs, f"put the controller's there, or correct {slurm.conf_named_by}")
        return
    yield problem(
        "controller.conf",
        f"there is no {slurm.conf_path}" if slurm.conf_path else "no slurm.conf is here",
        costs,
        _FIND_CONF,
        "scp CONTROLLER:/etc/slurm/slurm.conf /etc/slurm/",
        'slurm_conf = "/path/slurm.conf"      # danlu.toml, in [engine]',
    )


def _answers(slurm: Slurm, ping: Said) -> Iterator[Finding]:
    up = re.findall(r"Slurmctld\((\w+)\) at (\S+) is UP", ping.out)
    down = re.findall(r"Slurmctld\((\w+)\) at (\S+) is DOWN", ping.out)
    questions = [said for said in (slurm.config, slurm.nodes, slurm.queue) if said]
    slowest = max([ping.took_s, *(said.took_s for said in questions)])
    jobs = len(slurm.queue.out.split()) if slurm.queue and slurm.queue.is_ok else None
    where = ", ".join(name for _, name in up) or "slurmctld"
    queue = f", {plural(jobs, 'job')} in its queue" if jobs is not None else ""
    if slowest < SLOW_S:
        yield ok("controller.up", f"{where} answers within {max(round(slowest * 1000), 1)} ms{queue}")
    else:
        level = note if slowest < TOO_SLOW_S else warning
        yield level(
            "controller.slow",
            f"{where} takes {slowest:.1f} s for an answer{queue}",
            "Danlu asks every few seconds, and less often if the answers are slow: starts and ends appear later",
            "`sdiag` on the controller shows the most frequent callers, and how long the scheduler takes",
        )
    for role, name in down:
        costs = "if the other one fails too, nothing can be submitted, seen or stopped"
        yield warning("controller.backup", f"the {role} controller {name} is down", costs, *_look_at(name))


def _no_answer(slurm: Slurm, ping: Said) -> Iterator[Finding]:
    said = "\n".join(one.err for one in (ping, slurm.config) if one)
    names = re.findall(r"Slurmctld\(\w+\) at (\S+) is DOWN", ping.out)
    where = ", ".join(names) or "slurmctld"
    if slurm.conf_path and slurm.conf is None:
        found = f"{slurm.user.name} may not read {slurm.conf_path}"
        yield problem(
            "controller.conf", found, _NOTHING_WORKS, "there is no secret in it:", f"chmod 644 {slurm.conf_path}"
        )
    elif "onfiguration source" in said or "onfiguration file" in said:
        found = f"Slurm's commands say: {error_words(said)}"
        do = f"correct {slurm.conf_path}, or copy the controller's" if slurm.conf_path else _FIND_CONF
        yield problem("controller.conf", found, _NOTHING_WORKS, do)
    elif "ncompatible versions" in said:
        found = f"{where} answers, but does not understand commands of this release"
        yield problem("controller.version", found, _NOTHING_WORKS, f"{_FITS}: install its release here")
    elif "Zero Bytes" in said and slurm.door == "open":
        # 22.05 closes the connection without a message in both cases.
        yield problem(
            "controller.version",
            f"{where} closes the connection: it does not understand commands of this release, or the "
            "authentication fails",
            _NOTHING_WORKS,
            f"{_FITS}. The munge key must be the same, and clocks agree. Compare here and on the controller:",
            "scontrol --version",
            _COMPARE,
        )
    elif re.search(r"(?i)authentication", said) and slurm.munge and slurm.munge.is_ok:
        yield problem(
            "controller.refuses",
            f"{where} refuses the authentication, though munge works here: another key, or clocks five minutes apart",
            _NOTHING_WORKS,
            "compare here and on the controller; after another key: systemctl restart munge",
            _COMPARE,
        )
    elif re.search(r"(?i)munge|authentication", said) or (slurm.munge and not slurm.munge.is_ok):
        found = "Slurm's commands cannot authenticate (see auth)"
        yield problem("controller.down", found, _NOTHING_WORKS, "fix munge first, then check again")
    elif "is not known here" in slurm.door:
        do = "in the DNS, or in /etc/hosts of this machine; or correct SlurmctldHost in slurm.conf"
        yield problem("controller.down", f"{where} cannot be found: {slurm.door}", _NOTHING_WORKS, do)
    elif ping.is_late and slurm.door in ("", "open"):
        does = "accepts connections, but sends no answer" if slurm.door else "does not answer"
        found = f"{where} {does} for {ping.took_s:.0f} s"
        yield problem("controller.hangs", found, _NOTHING_WORKS, *_look_at(names[0] if names else "the controller"))
    else:
        found = f"{where} does not answer" + (f": {slurm.door}" if slurm.door not in ("", "open") else "")
        yield problem("controller.down", found, _NOTHING_WORKS, *_look_at(names[0] if names else "the controller"))


def error_words(said: str) -> str:
    """The error. The last line of a command's output often only repeats the failure."""
    errors = [line for line in said.splitlines() if " error: " in line]
    return last_words(errors[-1] if errors else said)


def _look_at(name: str) -> tuple[str, ...]:
    return f"on {name}:", "systemctl status slurmctld", "journalctl -u slurmctld -n 50"


def judge_auth(slurm: Slurm, config: Mapping[str, str]) -> Iterator[Finding]:
    if slurm.ping is None or (slurm.conf_path and slurm.conf is None):
        return  # the socket and the method would be guesses
    conf = parse_conf(slurm.conf or "")
    kind = config.get("AuthType") or conf.get("authtype") or "auth/munge"
    if kind == "auth/none":
        yield problem(
            "auth.none",
            "AuthType=auth/none: Slurm does not authenticate requests",
            "anyone on the network can submit, read and stop jobs as any user",
            "in slurm.conf on every machine, with one munge key for all; restart all daemons",
            "AuthType=auth/munge",
        )
        return
    if kind != "auth/munge":
        answers = bool(slurm.ping and slurm.ping.is_ok)
        yield ok("auth.kind", f"{kind}, and it works") if answers else unchecked("auth.kind", f"{kind} is not known")
        return
    yield from _munge(slurm)
    if slurm.munge_key_mode is not None and slurm.munge_key_mode & 0o077:
        yield problem(
            "auth.key",
            f"/etc/munge/munge.key can be read by others (mode {slurm.munge_key_mode:04o})",
            "a reader of this key can act as any user of the cluster, even root",
            "here; and make a new key for all machines if untrusted users had accounts",
            "chmod 400 /etc/munge/munge.key",
        )


def _munge(slurm: Slurm) -> Iterator[Finding]:
    said = slurm.munge
    if said is None:
        if slurm.ping and slurm.ping.is_ok:
            yield ok("auth.munge", "munge works: the controller authenticates requests")
        else:
            yield unchecked("auth.munge", "the command `munge` is not installed here")
    elif said.is_ok:
        yield ok("auth.munge", "munge works on this machine")
    else:
        where = slurm.munge_socket or "/run/munge/munge.socket.2"
        words = "it does not answer" if said.is_late else last_words(said.err.replace("munge: ", ""))
        yield problem(
            "auth.munge",
            f"munge does not work here: {words}",
            f"every command of Slurm fails, some of them after a minute (socket {where})",
            "on this machine; the key must be the same on all machines",
            "systemctl restart munge",
            "munge -n | unmunge",
        )


def judge_versions(slurm: Slurm, config: Mapping[str, str], nodes: list[NodeLine]) -> Iterator[Finding]:
    ours = parse_version(slurm.version.out) if slurm.version else None
    controller = parse_version(config.get("SLURM_VERSION", ""))
    if not controller:
        return
    by_release: dict[str, list[str]] = {}
    for node in nodes:
        version = parse_version(node.facts.version)
        if version:
            by_release.setdefault(release_of(version), []).append(node.name)
    theirs = release_of(controller)
    odd = {release: names for release, names in by_release.items() if release != theirs}
    if ours and release_of(ours) != theirs:
        yield from _odd_commands(ours, controller)
    for release, names in odd.items():
        is_newer = (parse_version(release) or ()) > controller[:2]
        level = warning if is_newer else note
        yield level(
            "versions.nodes",
            f"slurmd is {release} on {named(names)}, the controller is {theirs}",
            "a node that is newer than its controller may not register"
            if is_newer
            else "shards, limits and what "
            "lists show differ from node to node; more than two releases apart they do not talk at all",
            "update in this order: slurmdbd, slurmctld, nodes, commands",
        )
    if not odd and (not ours or release_of(ours) == theirs):
        yield ok("versions.same", f"one release everywhere: {theirs}")


def _odd_commands(ours: Version, controller: Version) -> Iterator[Finding]:
    found = f"the commands here are {release_of(ours)}, the controller is {release_of(controller)}"
    costs = "this works now, but not after an update of the controller by two more releases"
    if ours[:2] > controller[:2]:
        costs = "commands newer than the controller are not supported: some fail, some print different output"
    yield note("versions.commands", found, costs, "install the controller's release on this machine")


def is_asked(config: Mapping[str, str]) -> bool:
    return is_set(config.get("SLURM_VERSION"))
