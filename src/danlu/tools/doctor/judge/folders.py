"""Folders and clocks: consistency between machines, and suitable disks. Pure."""

import re
from collections.abc import Iterator, Sequence

from danlu.tools.doctor.facts import Clock, Folder, Slurm, Wishes
from danlu.tools.doctor.findings import Finding, named, note, ok, problem, unchecked, warning
from danlu.tools.doctor.texts import NodeLine, spoken_at

# File systems shared by several machines. FUSE file systems (glusterfs, juicefs, sshfs…) all count as shared.
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3?|lustre|gpfs|beegfs|ceph|glusterfs|afs|pvfs2|orangefs|panfs|wekafs|ocfs2|gfs2|9p|virtiofs|daos|fuse\..+"
)
_LOCAL_FUSE = re.compile(r"fuse\.(fuse-overlayfs|lxcfs|gvfsd-fuse|portal|squashfuse\w*)")
TIGHT_MIB, FULL_MIB = 5 * 1024, 500
# Munge credentials are valid for five minutes.
OFF_S, FAR_OFF_S, USELESS_S = 2.0, 30.0, 240.0


def is_network(kind: str) -> bool:
    return bool(_NETWORK.fullmatch(kind)) and not _LOCAL_FUSE.fullmatch(kind)


def judge_shared(folder: Folder, slurm: Slurm, nodes: Sequence[NodeLine], wishes: Wishes) -> Iterator[Finding]:
    """The folder of runs, as seen from here; only a job on each node can check the view of the nodes."""
    if folder.trouble:
        yield _unwritable("shared", folder)
        return
    elsewhere = [node.name for node in nodes if not _is_here(node, slurm)]
    if elsewhere and not is_network(folder.kind) and not folder.is_exported:
        yield problem(
            "shared.local",
            f"{folder.path} is on a disk of this machine ({_disk(folder)}), and {named(elsewhere, 3)} "
            f"{'is another' if len(elsewhere) == 1 else 'are others'}",
            "the nodes cannot see the script and the log of a run there: every job fails at its start",
            "choose a folder that all nodes mount under the same name, in danlu.toml:",
            "[engine]",
            'shared_dir = "/mnt/share/danlu"',
        )
    elif not nodes:
        where = f"{folder.path} ({_disk(folder)})"
        yield unchecked("shared.place", f"{where}: only the controller knows which machines must see this folder")
    else:
        way = "exported by NFS from here" if folder.is_exported else _disk(folder)
        here = "" if elsewhere else "; all nodes are this machine"
        yield ok("shared.place", f"{folder.path} ({way}){here}")
    if folder.squashes_root and wishes.as_submitter:
        yield problem(
            "shared.squashed",
            f"root has no root rights in {folder.path} (root_squash)",
            "the server cannot give the folder of a run to the job's owner: no job starts",
            "on the machine that exports it, for this machine alone:",
            f"/export  {slurm.host}(rw,no_root_squash)  NODES(rw,root_squash)      # /etc/exports",
        )
    if folder.closed and wishes.as_submitter and wishes.is_shared:
        yield problem(
            "shared.closed",
            f"other users may not pass through {named(folder.closed)}",
            "jobs run as their owners, who cannot reach the folders of their jobs: no job starts",
            "allow passing (not listing or reading), or choose another engine.shared_dir:",
            *(f"chmod o+x {path}" for path in folder.closed),
        )
    yield from _reach("shared", folder, wishes)
    yield from _space("shared", folder)


def judge_mark(refusal: str, hint: str) -> Iterator[Finding]:
    if refusal:
        costs = "all earlier runs would look lost, so the server refuses to start"
        yield problem("shared.other", refusal, costs, hint)


def _is_here(node: NodeLine, slurm: Slurm) -> bool:
    address = node.pairs.get("NodeAddr") or node.name
    return address in slurm.here or address.startswith("127.") or node.pairs.get("NodeHostName") in slurm.here


def _disk(folder: Folder) -> str:
    return f"{folder.kind} {folder.source}".strip()


def judge_state(folder: Folder, wishes: Wishes) -> Iterator[Finding]:
    if folder.trouble:
        yield _unwritable("state", folder)
        return
    if is_network(folder.kind) and not wishes.store_url:
        yield warning(
            "state.network",
            f"{folder.path} is on a network file system ({_disk(folder)})",
            "SQLite needs file locks that network file systems do not always keep: the database may be damaged",
            "in danlu.toml, a folder on a disk of this machine (or PostgreSQL, `[store] url`):",
            "[server]",
            'state_dir = "/var/lib/danlu"',
        )
    else:
        yield ok("state.place", f"{folder.path} ({_disk(folder)})" + ("" if folder.exists else "; it will be made"))
    yield from _reach("state", folder, wishes)
    yield from _space("state", folder)


def _unwritable(topic: str, folder: Folder) -> Finding:
    costs = (
        "the server does not start" if topic == "state" else "the server cannot create folders of runs: no job starts"
    )
    key = "server.state_dir" if topic == "state" else "engine.shared_dir"
    return problem(f"{topic}.unwritable", f"{folder.path}: {folder.trouble}", costs, f"make it writable, or set {key}")


def _reach(topic: str, folder: Folder, wishes: Wishes) -> Iterator[Finding]:
    if folder.reach and wishes.as_submitter:
        costs = "they could redirect root's writes, so the server refuses to start"
        yield problem(f"{topic}.reach", folder.reach, costs, folder.reach_hint)


def _space(topic: str, folder: Folder) -> Iterator[Finding]:
    free = folder.free_mib
    if free is None or free >= TIGHT_MIB:
        return
    level = problem if free < FULL_MIB else warning
    costs = "when the disk is full, submits are refused and jobs lose the end of their logs"
    yield level(f"{topic}.space", f"{folder.path} has {free} MiB left", costs, "make room, or choose a larger disk")


def judge_clock(clock: Clock, slurm: Slurm | None = None) -> Iterator[Finding]:
    apart = None
    if slurm and slurm.config and slurm.config.is_ok:
        theirs = spoken_at(slurm.config.out)
        # The clocks are compared in whole seconds.
        apart = None if theirs is None else max(theirs - slurm.asked_at, slurm.asked_at - theirs - 1, 0.0)
    if apart is not None and apart >= OFF_S:
        yield _apart("clock.controller", f"the controller's clock and this machine's are {apart:.0f} s apart", apart)
    if clock.is_synced is False:
        yield warning(
            "clock.free",
            f"the clock of this machine is not synchronised ({clock.source})",
            "clocks drift apart: times in lists are wrong, and at five minutes Slurm refuses every request",
            "here, and on all machines of the cluster:",
            "apt-get install chrony || dnf install chrony",
            "systemctl enable --now chrony || systemctl enable --now chronyd",
        )
    elif clock.offset_s is not None and abs(clock.offset_s) >= OFF_S:
        yield _apart(
            "clock.offset", f"this clock is {abs(clock.offset_s):.1f} s off ({clock.source})", abs(clock.offset_s)
        )
    elif clock.is_synced:
        more = "" if apart is None or apart >= OFF_S else ", and the same as the controller's"
        yield ok("clock.synced", f"synchronised by {clock.source}{more}")
    elif apart is None:
        yield unchecked("clock.synced", "neither chrony nor timedatectl answers here")
    elif apart < OFF_S:
        yield ok("clock.same", "the clocks of this machine and of the controller agree to a second")


def _apart(code: str, found: str, by_s: float) -> Finding:
    level = problem if by_s >= USELESS_S else warning if by_s >= FAR_OFF_S else note
    costs = "starts, ends and waiting times are wrong by the same amount"
    if by_s >= FAR_OFF_S:
        costs = "at five minutes munge refuses every request; until then times are wrong"
    return level(code, found, costs, "let chrony keep all clocks of the cluster:", "chronyc makestep")
