"""Observations of small jobs on the nodes (`--deep`). Pure."""

import re
from collections.abc import Iterator

from danlu.tools.doctor.facts import DeepLook, Probe
from danlu.tools.doctor.findings import Finding, named, note, ok, plural, problem, warning
from danlu.tools.doctor.judge.folders import FAR_OFF_S, OFF_S, USELESS_S
from danlu.tools.doctor.judge.shares import IN_CGROUP_CONF

SMALL_SHM_MIB = 1024


def judge_probes(look: DeepLook) -> Iterator[Finding]:
    if look.trouble:
        yield note("deep.none", f"not checked: {look.trouble}")
        return
    heard = [probe for probe in look.probes if not probe.trouble]
    if heard:
        slowest = max(probe.took_s for probe in heard)
        yield ok("deep.ran", f"a job ran on {plural(len(heard), 'node')}, the slowest within {slowest:.1f} s")
    yield from _silent(look)
    if heard:
        yield from _folder(look, heard)
        yield from _people(look, heard)
        yield from _names(look, heard)
        yield from _clocks(heard)
        yield from _cards(heard)
        yield from _memory(heard)


def _silent(look: DeepLook) -> Iterator[Finding]:
    by_trouble: dict[str, list[str]] = {}
    for probe in look.probes:
        if probe.trouble:
            by_trouble.setdefault(probe.trouble, []).append(probe.node)
    for trouble, names in by_trouble.items():
        if re.search(r"(?i)invalid (account|qos)|permission denied|not permitted|policy", trouble):
            costs = "the nodes could not be checked from inside; a server of the same user can run no job either"
            # A root server submits jobs as other users.
            level = warning if look.user.is_root else problem
            found = f"Slurm accepts no job of {look.user.name}: {trouble}"
            if "account" in trouble:
                add = f"sacctmgr -i add user {look.user.name} account=TEAM"
                yield level("deep.refused", found, costs, "a Slurm administrator can add this user:", add)
            else:
                yield level("deep.refused", found, costs)
        elif trouble.startswith("no room"):
            yield note("deep.busy", f"not checked: {named(names)}: {trouble}")
        else:
            costs = "jobs that Slurm places there may fare no better"
            do = f"the log of slurmd on {names[0]} says more:"
            yield problem(
                "deep.failed",
                f"{named(names)}: no job could be run: {trouble}",
                costs,
                do,
                "journalctl -u slurmd -n 50",
            )


def _folder(look: DeepLook, heard: list[Probe]) -> Iterator[Finding]:
    blind = [probe.node for probe in heard if not probe.sees_file]
    mute = [probe.node for probe in heard if probe.sees_file and not probe.wrote_back]
    if blind:
        yield problem(
            "deep.folder",
            f"{look.folder} is not the same folder on {named(blind)}",
            "a run there cannot see its script and its log, and fails at its start",
            "mount it there under the same name, or choose another in danlu.toml:",
            "[engine]",
            'shared_dir = "/mnt/share/danlu"',
        )
    if mute:
        costs = "a run there cannot report its start and its end"
        yield problem(
            "deep.read_only", f"{look.folder} cannot be written on {named(mute)}", costs, "mount it with `rw`"
        )
    if not blind and not mute:
        yield ok("deep.folder", f"every node reads and writes {look.folder}")


def _people(look: DeepLook, heard: list[Probe]) -> Iterator[Finding]:
    wrong = [probe.node for probe in heard if probe.uid != look.user.uid]
    other: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for probe in heard:
        for name, uid in probe.users.items():
            if uid is None:
                missing.setdefault(name, []).append(probe.node)
            elif uid != look.users[name]:
                other.setdefault(name, []).append(probe.node)
    do = "one source for all machines (LDAP, or the same lines in /etc/passwd and /etc/group)"
    if wrong:
        found = f"{look.user.name} has another uid on {named(wrong)}"
        yield problem("deep.uid", found, "jobs run as another user, who cannot read their files", do)
    if other:
        places = dict.fromkeys(node for nodes in other.values() for node in nodes)
        found = f"{named(other)}: another uid on {named(places)} than here"
        yield problem("deep.users", found, "their jobs read and write files of another user", do)
    if missing:
        places = dict.fromkeys(node for nodes in missing.values() for node in nodes)
        found = f"{named(missing)}: unknown on {named(places)}"
        yield warning("deep.unknown_users", found, "their jobs fail there", do)
    if look.users and not (wrong or other or missing):
        yield ok(
            "deep.users",
            f"{plural(len(look.users), 'person', 'people')} of this machine have the same uid on every node",
        )


def _names(look: DeepLook, heard: list[Probe]) -> Iterator[Finding]:
    do = "in the DNS, or in /etc/hosts of every node and of the controller"
    deaf = [probe.node for probe in heard if look.host in probe.unknown_names]
    if deaf:
        costs = "when an `srun` or `danlu exec` from here ends, Slurm looks for its machine, for ten seconds each time"
        yield warning("deep.callback", f"the name of this machine, {look.host}, is unknown on {named(deaf)}", costs, do)
    lost = {probe.node: [name for name in probe.unknown_names if name != look.host] for probe in heard}
    nodes = [node for node, names in lost.items() if names]
    if nodes:
        listed = named(dict.fromkeys(name for names in lost.values() for name in names))
        found = f"{named(nodes, 3)}: the names {listed} do not resolve there"
        yield warning("deep.names", found, "jobs on several nodes do not find each other (MASTER_ADDR)", do)


def _clocks(heard: list[Probe]) -> Iterator[Finding]:
    off = {probe.node: by for probe in heard if (by := clock_apart(probe)) is not None and by >= OFF_S}
    if not off:
        yield ok("deep.clock", "the clocks of all nodes agree with this one")
        return
    worst = max(off.values())
    level = problem if worst >= USELESS_S else warning if worst >= FAR_OFF_S else note
    listed = named([f"{node} by {by:.0f} s" for node, by in off.items()])
    costs = "starts and ends are shown wrong; at five minutes munge refuses every request of that node"
    yield level(
        "deep.clock",
        f"wrong clocks: {listed}",
        costs,
        "on these nodes:",
        "systemctl status chronyd",
        "chronyc makestep",
    )


def clock_apart(probe: Probe) -> float | None:
    """The least possible offset in seconds: the node's clock was read between question and answer."""
    if probe.clock is None:
        return None
    return max(probe.asked_at - probe.clock, probe.clock - probe.answered_at, 0.0)


def _cards(heard: list[Probe]) -> Iterator[Finding]:
    loose = {probe.node: probe.open_cards for probe in heard if probe.open_cards}
    if loose:
        first = next(iter(loose.values()))
        yield warning(
            "deep.devices",
            f"a job without cards could open {named(first, 2)} on {named(loose)}",
            "jobs can use cards of other jobs: the constraint is not in force there",
            f"{IN_CGROUP_CONF} (with TaskPlugin=task/cgroup in slurm.conf)",
            "ConstrainDevices=yes",
        )
    elif held := [probe.node for probe in heard if probe.shut_cards]:
        yield ok("deep.devices", f"jobs cannot open cards they did not request ({plural(len(held), 'node')})")


def _memory(heard: list[Probe]) -> Iterator[Finding]:
    small = {
        probe.node: probe.shm_mib for probe in heard if probe.shm_mib is not None and probe.shm_mib < SMALL_SHM_MIB
    }
    if small:
        listed = named([f"{node} ({size} MiB)" for node, size in small.items()])
        costs = "data loaders with several workers fail with `Bus error`"
        yield warning(
            "deep.shm", f"/dev/shm is small on {listed}", costs, "there:", "mount -o remount,size=50% /dev/shm"
        )
