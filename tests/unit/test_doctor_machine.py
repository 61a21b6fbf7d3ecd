"""`danlu doctor`: folders, clocks, jobs that look from inside, one machine, and how it is all told."""

import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from danlu import __version__
from danlu.tools.doctor.facts import (
    Cards,
    Clock,
    DeepLook,
    Folder,
    Groups,
    Machine,
    Person,
    Probe,
    Said,
    Server,
    Slurm,
    Wishes,
)
from danlu.tools.doctor.findings import Finding, Level, named, note, ok, problem, warning
from danlu.tools.doctor.judge import machine as judge_machine
from danlu.tools.doctor.judge.folders import is_network, judge_clock, judge_mark, judge_shared, judge_state
from danlu.tools.doctor.judge.probes import clock_apart, judge_probes
from danlu.tools.doctor.look import machine as look_machine
from danlu.tools.doctor.probe import parse_probe, render_probe
from danlu.tools.doctor.report import render_report, render_summary
from danlu.tools.doctor.run import ask, in_time
from danlu.tools.doctor.texts import NodeLine, node_lines
from tests.unit.test_doctor import a_cluster, golden, levels, told

SHARED = Wishes(as_submitter=True, is_shared=True)
DISK = Folder("/srv/danlu", kind="ext4", source="/dev/sda1", free_mib=100_000)
NFS = replace(DISK, kind="nfs4", source="filer:/export")


def plain(text: str, style: str) -> str:
    return text


def far_nodes() -> list[NodeLine]:
    return node_lines(golden("scontrol-nodes", "24.11.5").replace("NodeAddr=127.0.0.1", "NodeAddr=10.0.0.9"))


# Folders and clocks


@pytest.mark.parametrize(("kind", "answer"), [
    ("nfs", True), ("nfs4", True), ("lustre", True), ("fuse.juicefs", True), ("ext4", False), ("tmpfs", False),
    ("overlay", False), ("fuse.lxcfs", False), ("xfs", False), ("", False),
])  # fmt: skip
def test_file_systems_that_several_machines_see(kind: str, answer: bool) -> None:
    assert is_network(kind) is answer


def test_the_shared_folder() -> None:
    slurm, here = a_cluster(), node_lines(golden("scontrol-nodes", "24.11.5"))
    assert levels(judge_shared(NFS, slurm, far_nodes(), SHARED)) == {"shared.place": "ok"}
    assert levels(judge_shared(DISK, slurm, here, SHARED)) == {"shared.place": "ok"}
    assert levels(judge_shared(replace(DISK, is_exported=True), slurm, far_nodes(), SHARED)) == {"shared.place": "ok"}
    lost = told(judge_shared(DISK, slurm, far_nodes(), SHARED))["shared.local"]
    assert lost.level is Level.PROBLEM
    assert "ext4 /dev/sda1), and gn1, gn2, gn3 and 1 more are others" in lost.found
    named_here = replace(slurm, here=frozenset({"gn1", "gn2", "gn3", "gn4"}))
    assert levels(judge_shared(DISK, named_here, far_nodes(), SHARED)) == {"shared.place": "ok"}
    assert levels(judge_shared(DISK, slurm, [], SHARED)) == {"shared.place": "note"}


@pytest.mark.parametrize(("change", "code", "level"), [
    ({"trouble": "Read-only file system"}, "shared.unwritable", "problem"),
    ({"squashes_root": True}, "shared.squashed", "problem"),
    ({"closed": ("/srv",)}, "shared.closed", "problem"),
    ({"reach": "others may write to /srv"}, "shared.reach", "problem"),
    ({"free_mib": 100}, "shared.space", "problem"),
    ({"free_mib": 2000}, "shared.space", "warning"),
])  # fmt: skip
def test_a_shared_folder_that_does_not_serve(change: dict[str, object], code: str, level: str) -> None:
    assert levels(judge_shared(replace(NFS, **change), a_cluster(), far_nodes(), SHARED))[code] == level  # type: ignore[arg-type]


def test_the_state_folder() -> None:
    assert levels(judge_state(DISK, Wishes())) == {"state.place": "ok"}
    assert levels(judge_state(NFS, Wishes())) == {"state.network": "warning"}
    assert levels(judge_state(NFS, Wishes(store_url="postgresql://db/danlu"))) == {"state.place": "ok"}
    assert levels(judge_state(replace(DISK, trouble="no"), Wishes())) == {"state.unwritable": "problem"}
    loose = replace(DISK, reach="others may write to /srv", reach_hint="`chmod +t /srv`")
    assert told(judge_state(loose, SHARED))["state.reach"].do == "`chmod +t /srv`"
    assert levels(judge_state(loose, Wishes())) == {"state.place": "ok"}


def off_by(seconds: float) -> Slurm:
    printed = golden("scontrol-config-confined", "24.11.5")
    at = float(printed.splitlines()[0].split()[-1])
    return a_cluster(config=Said(0, printed), asked_at=at + seconds)


def test_clocks() -> None:
    good = Clock("chrony", True, 0.0001)
    assert levels(judge_clock(good, off_by(0.9))) == {"clock.synced": "ok"}
    assert levels(judge_clock(Clock(), off_by(0.9))) == {"clock.same": "ok"}
    assert levels(judge_clock(Clock())) == {"clock.synced": "note"}
    assert levels(judge_clock(Clock("timedatectl", False))) == {"clock.free": "warning"}
    assert levels(judge_clock(Clock("chrony", True, 45.0))) == {"clock.offset": "warning"}
    assert levels(judge_clock(good, off_by(4))) == {"clock.controller": "note", "clock.synced": "ok"}
    assert levels(judge_clock(good, off_by(-40)))["clock.controller"] == "warning"
    assert levels(judge_clock(good, off_by(400)))["clock.controller"] == "problem"


# From inside

WELL = Probe(
    "gn1", took_s=0.2, asked_at=100.0, answered_at=100.2, clock=100.1, uid=0, sees_file=True, wrote_back=True,
    users={"li": 1004}, shut_cards=("/dev/nvidia0",), shm_mib=8000,
)  # fmt: skip


def seen_inside(*probes: Probe) -> list[Finding]:
    return list(judge_probes(DeepLook(probes, Person("root", 0), {"li": 1004}, "/srv/danlu", host="login")))


def test_nodes_that_are_well_inside() -> None:
    assert set(levels(seen_inside(WELL, replace(WELL, node="gn2"))).values()) == {"ok"}


@pytest.mark.parametrize(("change", "code", "level"), [
    ({"sees_file": False, "wrote_back": False}, "deep.folder", "problem"),
    ({"wrote_back": False}, "deep.read_only", "problem"),
    ({"uid": 7}, "deep.uid", "problem"),
    ({"users": {"li": 7}}, "deep.users", "problem"),
    ({"users": {"li": None}}, "deep.unknown_users", "warning"),
    ({"unknown_names": ("gn1",)}, "deep.names", "warning"),
    ({"unknown_names": ("login",)}, "deep.callback", "warning"),
    ({"clock": 95.0}, "deep.clock", "note"),
    ({"clock": 160.0}, "deep.clock", "warning"),
    ({"clock": 600.0}, "deep.clock", "problem"),
    ({"open_cards": ("/dev/nvidia1",)}, "deep.devices", "warning"),
    ({"shm_mib": 64}, "deep.shm", "warning"),
    ({"trouble": "no room there within 10 s"}, "deep.busy", "note"),
    ({"trouble": "Zero Bytes were transmitted or received"}, "deep.failed", "problem"),
])  # fmt: skip
def test_nodes_that_are_not(change: dict[str, object], code: str, level: str) -> None:
    found = told(seen_inside(WELL, replace(WELL, node="gn2", **change)))  # type: ignore[arg-type]
    assert str(found[code].level) == level
    assert "gn2" in found[code].found
    assert not found[code].found.startswith("gn1")


def test_slurm_that_takes_no_job_of_ours_says_nothing_about_its_nodes() -> None:
    refused = replace(WELL, trouble="Unable to allocate resources: Invalid account or account/partition combination")
    assert levels(seen_inside(refused, replace(refused, node="gn2"))) == {"deep.refused": "warning"}
    ours = list(judge_probes(DeepLook((refused,), Person("li", 1004), {}, "/srv/danlu")))
    assert (ours[0].code, ours[0].level) == ("deep.refused", Level.PROBLEM)
    assert ours[0].lines == ("sacctmgr -i add user li account=TEAM",)


def test_the_line_of_srun_that_says_why() -> None:
    said = "srun: error: Task launch failed on node gn2: Communication connection failure\nsrun: Job step aborted\n"
    assert "Communication connection failure" in parse_probe("gn2", Said(1, err=said), 0, 1, "word").trouble


def test_how_far_a_clock_is_off_is_not_the_time_that_the_job_took() -> None:
    assert clock_apart(replace(WELL, answered_at=130.0, clock=129.0)) == 0
    assert clock_apart(replace(WELL, clock=90.0)) == 10


def test_what_a_job_asks_is_answered_by_a_real_shell(tmp_path: Path) -> None:
    """The question as nodes get it, asked here: odd names do no harm."""
    (tmp_path / "word").write_text("token")
    card = tmp_path / "card 0"
    card.write_text("")
    script = render_probe(["root", "no body; rm"], ["localhost", "no-such-machine.invalid"], [str(card), "/none"])
    argv = ["/bin/bash", "-c", script, "doctor", str(tmp_path), "from-gn1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    probe = parse_probe("gn1", Said(done.returncode, done.stdout, done.stderr), 0.0, 2e9, "token")
    assert (probe.trouble, probe.sees_file, probe.users) == ("", True, {"root": 0, "no body; rm": None})
    assert probe.unknown_names == ("no-such-machine.invalid",)
    assert probe.open_cards == (str(card),)
    assert probe.clock
    assert probe.shm_mib
    assert (tmp_path / "from-gn1").is_dir()
    assert not parse_probe("gn1", Said(0, done.stdout), 0.0, 1.0, "another").sees_file


@pytest.mark.parametrize(("said", "words"), [
    (Said(1, "", "srun: job 10 queued and waiting for resources\nsrun: error: Unable to allocate resources: "
     "Requested nodes are busy\n"), "no room there within 10 s"),
    (Said(1, "", "srun: error: Unable to allocate resources: Invalid account\n"),
     "Unable to allocate resources: Invalid account"),
    (Said(-1, "", "", 30.0, is_late=True), "no answer within 30 s"),
    (Said(127), "srun ended with 127"),
])  # fmt: skip
def test_why_a_node_was_not_asked(said: Said, words: str) -> None:
    assert parse_probe("gn1", said, 0.0, 1.0, "token").trouble == words


# One machine

MACHINE = Machine(
    host="desk", user=Person("li", 1004), python="3.11.2", kernel=(6, 18),
    cards=Cards(2, has_driver=True, driver="550.1", models=("NVIDIA A100", "NVIDIA A100")),
    groups=Groups(pools=True, holds_memory=True), memory_mib=65536, shm_mib=32768, open_files=65536,
)  # fmt: skip


def of_machine(machine: Machine, wishes: Wishes = Wishes()) -> dict[str, str]:  # noqa: B008
    judges = (judge_machine.judge_system, judge_machine.judge_local_cards, judge_machine.judge_local_rights)
    found = [one for judge in judges for one in judge(machine, wishes)]
    return levels([*found, *judge_machine.judge_groups(machine), *judge_machine.judge_shm(machine)])


def test_a_machine_that_is_well() -> None:
    assert set(of_machine(MACHINE).values()) == {"ok"}
    assert "2 × NVIDIA A100; driver 550.1" in [one.found for one in judge_machine.judge_local_cards(MACHINE, Wishes())]


@pytest.mark.parametrize(("change", "code", "level"), [
    ({"cards": Cards()}, "cards.none", "note"),
    ({"cards": Cards(2)}, "cards.no_driver", "problem"),
    ({"cards": Cards(2, has_driver=True, trouble="Driver/library version mismatch")}, "cards.driver", "problem"),
    ({"cards": replace(MACHINE.cards, closed=("/dev/nvidia0",))}, "cards.closed", "problem"),
    ({"groups": Groups(pools=True, why_no_memory="no")}, "cgroups.memory", "warning"),
    ({"groups": Groups(holds_memory=True)}, "cgroups.kill", "note"),
    ({"kernel": (5, 10)}, "cgroups.old", "note"),
    ({"kernel": (6, 1)}, "system.kernel", "note"),
    ({"shm_mib": 64}, "memory.shm", "warning"),
    ({"shm_mib": None}, "memory.shm", "warning"),
    ({"open_files": 1024}, "system.files", "warning"),
])  # fmt: skip
def test_a_machine_that_is_not(change: dict[str, object], code: str, level: str) -> None:
    assert of_machine(replace(MACHINE, **change))[code] == level  # type: ignore[arg-type]


def test_wishes_that_a_machine_cannot_fulfil() -> None:
    assert of_machine(MACHINE, Wishes(as_submitter=True))["rights.submitter"] == "problem"
    assert of_machine(replace(MACHINE, user=Person("root", 0)), Wishes(as_submitter=True))["rights.root"] == "ok"
    assert of_machine(MACHINE, Wishes(is_shared=True))["rights.one_user"] == "warning"
    bare = replace(MACHINE, has_psycopg=False)
    assert of_machine(bare, Wishes(store_url="postgresql://db/danlu"))["system.psycopg"] == "problem"
    assert of_machine(replace(MACHINE, cards=Cards()), Wishes(fake_gpus="4xA100"))["cards.fake"] == "note"


def test_a_server_that_is_there_or_not() -> None:
    up = Server("unix:///run/danlu.sock", __version__, "slurm")
    assert levels(judge_machine.judge_server(None)) == {}
    assert levels(judge_machine.judge_server(up)) == {"server.up": "ok"}
    assert levels(judge_machine.judge_server(replace(up, trouble="Slurm is away"))) == {"server.trouble": "warning"}
    assert levels(judge_machine.judge_server(replace(up, version="0.0.1"))) == {"server.version": "note"}
    assert levels(judge_machine.judge_server(replace(up, silence="no answer"))) == {"server.silent": "note"}


def test_this_machine_is_seen_and_left_as_it_was(tmp_path: Path) -> None:
    machine = look_machine.look_at_machine()
    assert machine.memory_mib > 100
    assert machine.kernel > (3, 0)
    assert list(Path("/sys/fs/cgroup").glob(f"**/danlu-doctor-{os.getpid()}")) == []
    folder = look_machine.look_at_folder(str(tmp_path / "not" / "yet"))
    assert (folder.exists, folder.trouble) == (False, "")
    assert folder.kind
    assert folder.free_mib
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o700)
    inner = tmp_path / "inner"
    inner.mkdir()
    assert str(tmp_path) in look_machine.look_at_folder(str(inner)).closed
    assert "no file can be made" in look_machine.look_at_folder("/proc/1").trouble
    tmp_path.chmod(0o777)
    if os.getuid() == 0:
        assert f"others may write to {tmp_path}" in look_machine.look_at_folder(str(inner)).reach


def test_a_shared_folder_that_is_not_the_one_of_before(tmp_path: Path) -> None:
    state, shared = tmp_path / "state", tmp_path / "shared"
    state.mkdir()
    shared.mkdir()
    assert list(judge_mark(*look_machine.look_at_mark(str(state), str(shared)))) == []
    (state / "shared.id").write_text("a word\n")
    found = told(judge_mark(*look_machine.look_at_mark(str(state), str(shared))))["shared.other"]
    assert "is it mounted?" in found.do


def test_commands_that_are_late_or_missing() -> None:
    late = ask(["sh", "-c", "echo began; sleep 60 & sleep 60"], patience_s=3)
    assert (late.is_late, late.is_ok, late.out) == (True, False, "began\n")
    assert late.took_s < 20
    assert ask(["no-such-command"]).code == 127


def test_a_look_that_does_not_come_back() -> None:
    never = threading.Event()
    assert in_time(never.wait, None, 0.05) is None
    assert in_time(lambda: "seen", None, 60) == "seen"


# How it is told


def test_the_report_fits_eighty_columns_and_keeps_lines_to_copy_whole() -> None:
    line = "SchedulerParameters=" + "x" * 90
    findings = [
        ok("commands.found", "all of them"),
        warning("limits.devices", "word " * 40, "costs " * 40, "do " * 40, line),
        ok("clock.same", "right"),
        note("queues.state", "night: \x1b[31mDOWN"),
    ]
    report = render_report(findings, plain, 80)
    shown = report.splitlines()
    assert [one for one in shown if len(one) > 80] == [f"             {line}"]
    assert shown[0] == "ok       commands  all of them"
    assert shown[1] == ""
    assert "    costs  costs costs" in report
    assert "\x1b" not in report
    assert render_report(findings, lambda text, style: f"<{style}>{text}" if style else text).startswith("<green>ok")


def test_the_summary_counts_and_concludes() -> None:
    fine = [ok("a.b", "x")]
    assert render_summary(fine, plain) == "1 fine\nno problems: ready to use"
    assert "1 warning, 1 fine\nno problem" in render_summary([*fine, warning("a.c", "x", "y")], plain)
    assert render_summary([problem("a.d", "x", "y")] * 2, plain).startswith("2 problems, 0 fine\nproblems stop jobs")
    assert named(["a", "b", "c"], 2) == "a, b and 1 more"
