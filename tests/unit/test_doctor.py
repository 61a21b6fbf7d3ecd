"""`danlu doctor` on what real Slurm clusters printed, and on small variations of it."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from danlu.config.cluster import nodes_of, queues_of
from danlu.config.settings import load_settings
from danlu.tools.doctor.checks import wishes_of
from danlu.tools.doctor.facts import Person, Said, Slurm, Wishes
from danlu.tools.doctor.findings import Finding, Level
from danlu.tools.doctor.judge.accounts import judge_accounting, judge_rights
from danlu.tools.doctor.judge.nodes import judge_cards, judge_nodes
from danlu.tools.doctor.judge.order import judge_order, judge_trouble
from danlu.tools.doctor.judge.queues import judge_queues, open_queues
from danlu.tools.doctor.judge.reach import NEEDED, judge_auth, judge_commands, judge_controller, judge_versions
from danlu.tools.doctor.judge.shares import judge_limits, judge_sharing
from danlu.tools.doctor.texts import NodeLine, controller_doors, devices_of, models_in, node_lines, parse_conf, records
from danlu.tools.doctor.texts import settings_in as config_of
from danlu.tools.slurm_setup.blueprint import blueprint_of
from danlu.tools.slurm_setup.side_files import render_cgroup_conf
from danlu.tools.slurm_setup.slurm_conf import render_slurm_conf

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
VERSIONS = ["22.05.8", "24.11.5"]
ROOT, LI = Person("root", 0), Person("li", 1004)


def golden(name: str, version: str) -> str:
    return (GOLDEN / f"{name}-{version}.txt").read_text()


def said_in(name: str, version: str) -> list[Said]:
    kept = json.loads((GOLDEN / f"{name}-{version}.json").read_text())
    return [Said(one["code"], one["stdout"], one["stderr"]) for one in kept]


def a_cluster(release: str = "24.11.5", **changes: Any) -> Slurm:
    seen = Slurm(
        paths={name: f"/usr/bin/{name}" for name in (*NEEDED, "sacct", "sacctmgr", "sdiag")},
        conf_path="/etc/slurm/slurm.conf",
        conf="ClusterName=testc\nSlurmctldHost=ctl(127.0.0.1)\n",
        user=ROOT,
        host="login",
        door="open",
        version=Said(0, f"slurm-wlm {release}\n"),
        ping=Said(0, "Slurmctld(primary) at ctl is UP\n", took_s=0.004),
        config=Said(0, golden("scontrol-config-confined", release)),
        munge=Said(0, "MUNGE:x:\n"),
    )
    return replace(seen, **changes)


def settings(name: str = "scontrol-config-confined", version: str = "24.11.5", **changes: str) -> dict[str, str]:
    return {**config_of(golden(name, version)), **changes}


def nodes(version: str = "24.11.5", *changes: tuple[str, str]) -> list[NodeLine]:
    text = golden("scontrol-nodes", version)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return node_lines(text)


def partitions(version: str = "24.11.5", *changes: tuple[str, str]) -> list[dict[str, str]]:
    text = golden("scontrol-partitions", version)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return records(text)


def told(findings: Iterable[Finding]) -> dict[str, Finding]:
    """By code. Whatever is not fine says what it costs, or that it was not looked at."""
    found = {one.code: one for one in findings}
    for one in found.values():
        assert one.level is Level.OK or one.costs or one.found.startswith("not checked"), one
    return found


def levels(findings: Iterable[Finding]) -> dict[str, str]:
    return {code: str(one.level) for code, one in told(findings).items()}


# Reading


def test_files_of_slurm_are_read_as_slurm_reads_them() -> None:
    text = "# a comment\nSlurmctldHost = one(10.0.0.1) # why\nslurmctldhost=two\nSlurmctldPort=7000-7003\n"
    text += "TaskPlugin=task/\\\ncgroup\nNodeName=n1 CPUs=4\n"
    conf = parse_conf(text)
    assert conf["slurmctldport"] == "7000-7003"
    assert "nodename" not in conf
    assert list(controller_doors(conf)) == [("two", 7000)]
    assert list(controller_doors(parse_conf("SlurmctldHost=one(10.0.0.1)"))) == [("10.0.0.1", 6817)]
    gres = "AutoDetect=off\nNodeName=gn[1-2] Name=gpu Type=a File=/dev/nvidia[0-1]\nName=gpu File=/dev/nvidia9 # all\n"
    gres += "NodeName=gn1 Name=shard Count=64\n"
    assert devices_of(gres, "gn2") == ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia9")
    assert devices_of(gres, "gn3") == ("/dev/nvidia9",)


@pytest.mark.parametrize(("gres", "models"), [
    ("gpu:rtx3090:4,shard:rtx3090:256", {"rtx3090": 4}), ("gpu:4", {"": 4}), ("gpu:3090:2", {"3090": 2}),
    ("gpu:a100:2(S:0-1),gpu:t4:1,shard:192", {"a100": 2, "t4": 1}), ("gpu", {"": 1}), ("(null)", {}), ("", {}),
])  # fmt: skip
def test_models_of_a_node(gres: str, models: dict[str, int]) -> None:
    assert models_in(gres) == models


# Reach


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_that_answers(version: str) -> None:
    slurm = a_cluster(version)
    assert told(judge_commands(slurm))["commands.found"].found == f"Slurm {version}, in /usr/bin"
    assert levels(judge_controller(slurm)) == {"controller.up": "ok"}
    assert levels(judge_auth(slurm, settings(version=version))) == {"auth.munge": "ok"}
    assert levels(judge_versions(slurm, settings(version=version), nodes(version))) == {"versions.same": "ok"}


def test_no_commands_of_slurm() -> None:
    slurm = a_cluster(paths={}, conf=None, conf_path="", ping=None, config=None, version=None, munge=None)
    assert "sbatch, squeue" in told(judge_commands(slurm))["commands.missing"].found
    assert levels(judge_controller(slurm)) == {"controller.conf": "problem"}
    assert levels(judge_auth(slurm, {})) == {}


@pytest.mark.parametrize(("version", "level"), [("21.08.5", "note"), ("23.02.1", None), ("26.05.0", "note")])
def test_releases_that_nobody_tested_are_noted(version: str, level: str | None) -> None:
    slurm = a_cluster(version=Said(0, f"slurm {version}\n"))
    assert levels(judge_commands(slurm)).get("commands.version") == level


@pytest.mark.parametrize("version", VERSIONS)
def test_a_controller_that_is_down(version: str) -> None:
    slurm = a_cluster(version, ping=said_in("controller-down", version)[0], config=None, door="nothing listens at c:1")
    found = told(judge_controller(slurm))["controller.down"]
    assert found.level is Level.PROBLEM
    assert found.found == "ctl does not answer: nothing listens at c:1"
    assert "systemctl status slurmctld" in found.lines


def test_a_controller_that_hangs_or_is_slow() -> None:
    hung = a_cluster(ping=Said(-1, took_s=4.0, is_late=True), config=None)
    assert "sends no answer for 4 s" in told(judge_controller(hung))["controller.hangs"].found
    unknown = told(judge_controller(replace(hung, door="the name ctl is not known here")))["controller.down"]
    assert unknown.found == "slurmctld cannot be found: the name ctl is not known here"
    assert "/etc/hosts" in unknown.do
    shut = told(judge_controller(replace(hung, door="no connection to ctl:1 within 2 s (a firewall?)")))
    assert "a firewall?" in shut["controller.down"].found
    assert levels(judge_controller(a_cluster(queue=Said(0, "1\n2\n", took_s=1.0)))) == {"controller.slow": "note"}
    slow = told(judge_controller(a_cluster(queue=Said(0, "1\n2\n", took_s=3.0))))["controller.slow"]
    assert (slow.level, slow.found) == (Level.WARNING, "ctl takes 3.0 s for an answer, 2 jobs in its queue")
    backup = a_cluster(ping=Said(0, "Slurmctld(primary) at a is UP\nSlurmctld(backup) at b is DOWN\n"))
    assert levels(judge_controller(backup)) == {"controller.up": "ok", "controller.backup": "warning"}


@pytest.mark.parametrize("version", VERSIONS)
def test_commands_of_another_release_are_told_from_a_controller_that_is_down(version: str) -> None:
    ping, config = said_in("other-release", version)
    assert levels(judge_controller(a_cluster(version, ping=ping, config=config))) == {"controller.version": "problem"}


@pytest.mark.parametrize("version", VERSIONS)
def test_munge_that_is_down_is_the_cause(version: str) -> None:
    late = Said(-1, took_s=4.0, is_late=True)
    slurm = a_cluster(version, ping=late, config=None, munge=said_in("munge-down", version)[0])
    assert "see auth" in told(judge_controller(slurm))["controller.down"].found
    found = told(judge_auth(slurm, {}))["auth.munge"]
    assert found.level is Level.PROBLEM
    assert re.search(r"here: Failed to connect to .*: Connection refused", found.found)


def test_a_controller_that_does_not_believe_who_asks() -> None:
    """Munge works here, and has another key; an old controller says no more than to another release."""
    down = Said(1, "Slurmctld(primary) at ctl is DOWN\n")
    said = Said(1, err="slurm_load_ctl_conf error: Protocol authentication error\n")
    found = told(judge_controller(a_cluster(ping=down, config=said)))["controller.refuses"]
    assert (found.level, "another key, or clocks" in found.found) == (Level.PROBLEM, True)
    said = Said(1, err="slurm_load_ctl_conf error: Zero Bytes were transmitted or received\n")
    found = told(judge_controller(a_cluster(ping=down, config=said)))["controller.version"]
    assert "or the authentication fails" in found.found
    assert "sha256sum /etc/munge/munge.key; date -u" in found.lines


def test_a_slurm_conf_that_does_not_serve() -> None:
    named = a_cluster(conf=None, conf_path="/no/slurm.conf", conf_named_by="SLURM_CONF", ping=None)
    assert "and SLURM_CONF names it" in told(judge_controller(named))["controller.conf"].found
    fatal = "scontrol: fatal: Unable to process configuration file\n"
    closed = a_cluster(conf=None, user=LI, ping=Said(1, err=fatal), config=None, munge=Said(1, err="munge: no socket"))
    assert told(judge_controller(closed))["controller.conf"].found == "li may not read /etc/slurm/slurm.conf"
    assert levels(judge_auth(closed, {})) == {}
    odd = Said(1, err=f"scontrol: error: Parsing error at unrecognized key: SelctType\n{fatal}")
    assert "SelctType" in told(judge_controller(a_cluster(ping=odd, config=None)))["controller.conf"].found


def test_who_is_who() -> None:
    assert levels(judge_auth(a_cluster(munge_key_mode=0o644), settings()))["auth.key"] == "problem"
    assert levels(judge_auth(a_cluster(munge_key_mode=0o400), settings())) == {"auth.munge": "ok"}
    assert levels(judge_auth(a_cluster(), settings(AuthType="auth/none"))) == {"auth.none": "problem"}
    assert levels(judge_auth(a_cluster(), settings(AuthType="auth/slurm"))) == {"auth.kind": "ok"}


def test_releases_that_differ() -> None:
    mixed = nodes(
        "24.11.5", ("NodeHostName=gn2 Port=20104 Version=24.11.5", "NodeHostName=gn2 Port=20104 Version=23.02.6")
    )
    found = told(judge_versions(a_cluster(), settings(), mixed))
    assert found["versions.nodes"].found == "slurmd is 23.02 on gn2, the controller is 24.11"
    assert "versions.same" not in found
    older = a_cluster(version=Said(0, "slurm 22.05.8"))
    assert levels(judge_versions(older, settings(), nodes())) == {"versions.commands": "note"}


# Nodes and cards


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_that_take_no_jobs(version: str) -> None:
    found = told(judge_nodes(nodes(version)))
    assert found["nodes.open"].found == "2 of 4 nodes take jobs"
    assert found["nodes.drained"].found == "gn3: idle+drain, because: fan of card 2 | loud"
    assert found["nodes.drained"].lines == ("scontrol update NodeName=gn3 State=RESUME",)
    assert "gn4" in found["nodes.silent"].found
    assert "systemctl status slurmd" in found["nodes.silent"].lines
    heard = nodes(version, ("DOWN+NOT_RESPONDING", "DOWN"))
    assert "if slurmd runs there again" in told(judge_nodes(heard))["nodes.down"].do
    closed = [node for node in nodes(version) if not node.facts.node.accepts_jobs]
    assert levels(judge_nodes(closed))["nodes.closed"] == "problem"
    assert levels(judge_nodes([])) == {"nodes.none": "problem"}


def test_a_machine_with_less_than_its_line_says() -> None:
    reason = "gres/gpu count reported lower than configured (0 < 4)"
    small = nodes("24.11.5", ("State=IDLE+DRAIN", "State=IDLE+DRAIN+INVALID_REG"), ("fan of card 2 | loud", reason))
    found = told(judge_nodes(small))["nodes.invalid"]
    assert reason in found.found
    assert [line.split("      #")[0] for line in found.lines] == [
        "ls /dev/nvidia[0-9]*; slurmd -G",
        "systemctl restart slurmd",
        "scontrol update NodeName=gn3 State=RESUME",
    ]
    small = nodes("24.11.5", ("State=IDLE+DRAIN", "State=IDLE+DRAIN+INVALID_REG"), ("fan of card 2 | loud", "Low CPUs"))
    assert told(judge_nodes(small))["nodes.invalid"].lines[0].startswith("slurmd -C")


@pytest.mark.parametrize("version", VERSIONS)
def test_cards_that_are_as_they_should_be(version: str) -> None:
    found = told(judge_cards(settings(version=version), nodes(version), Wishes()))
    assert {code: one.found for code, one in found.items()} == {"cards.found": "16 × rtx3090, on 4 nodes"}


def test_a_gres_conf_with_other_cards_than_slurm_conf() -> None:
    def judged(gres_conf: str) -> dict[str, Finding]:
        return told(judge_cards(settings(), nodes(), Wishes(), gres_conf))

    same = "NodeName=gn[1-4] Name=gpu Type=rtx3090 File=/dev/nvidia[0-3]\n"
    assert "cards.devices" not in judged(same)
    assert "cards.devices" not in judged("AutoDetect=nvml\n")
    fewer = "NodeName=gn2 Name=gpu Type=rtx3090 File=/dev/nvidia[0-1]\n"
    assert judged(fewer)["cards.devices"].found == "gres.conf here names 2 cards of gn2, slurm.conf 4"
    more = judged(same.replace("0-3", "0-7"))["cards.devices"].found
    assert more == "gres.conf here names 8 cards of gn1, slurm.conf 4; it differs on gn1, gn2, gn3, gn4"


@pytest.mark.parametrize(("gres", "config", "code", "level"), [
    ("(null)", {}, "cards.none", "warning"),
    ("gpu:4,shard:256", {}, "cards.untyped", "note"),
    ("gpu:3090:4,shard:256", {}, "cards.digits", "note"),
    ("gpu:rtx;3090:4,shard:256", {}, "cards.letters", "warning"),
    ("gpu:rtx3090:4", {"GresTypes": "gpu"}, "cards.no_shards", "note"),
    ("gpu:rtx3090:4,shard:250", {}, "cards.uneven", "warning"),
    ("gpu:rtx3090:4,shard:32", {}, "cards.shards_differ", "warning"),
])  # fmt: skip
def test_cards_that_are_not(gres: str, config: dict[str, str], code: str, level: str) -> None:
    changed = nodes("24.11.5", ("Gres=gpu:rtx3090:4,shard:rtx3090:256", f"Gres={gres}"))
    assert levels(judge_cards(settings(**config), changed, Wishes()))[code] == level


def test_one_model_in_two_spellings() -> None:
    text = golden("scontrol-nodes", "24.11.5").replace("Gres=gpu:rtx3090:4", "Gres=gpu:RTX_3090:4", 1)
    found = told(judge_cards(settings(), node_lines(text), Wishes()))["cards.spelling"]
    assert found.found == "one model in several spellings: RTX_3090, rtx3090"
    divided = golden("scontrol-nodes", "24.11.5").replace("shard:rtx3090:256", "shard:rtx3090:32", 1)
    assert "8 on gn1" in told(judge_cards(settings(), node_lines(divided), Wishes()))["cards.shard_sizes"].found


# What jobs get, and are held to


@pytest.mark.parametrize("version", VERSIONS)
def test_a_confined_cluster_holds_jobs_to_their_share(version: str) -> None:
    config = settings(version=version)
    assert levels(judge_sharing(config, nodes(version), partitions(version))) == {"sharing.parts": "ok"}
    found = told(judge_limits(a_cluster(version), config, has_cards=True))
    assert found["limits.held"].found == "the kernel limits jobs to their cards, memory and cores"
    assert found["limits.processes"].level is Level.OK


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_without_cgroups_says_what_it_costs(version: str) -> None:
    found = told(judge_limits(a_cluster(version), settings("scontrol-config", version), has_cards=True))
    assert {code: str(one.level) for code, one in found.items()} == {
        "limits.processes": "warning",
        "limits.cgroup": "warning",
    }
    assert "ProctrackType=proctrack/cgroup" in found["limits.processes"].lines
    assert "all cards" in found["limits.cgroup"].costs


def test_what_is_not_constrained() -> None:
    loose = settings(ConstrainDevices="no", ConstrainRAMSpace="no", ConstrainCores="no")
    assert levels(judge_limits(a_cluster(), loose, has_cards=True)) == {
        "limits.processes": "ok", "limits.devices": "warning", "limits.memory": "warning", "limits.cores": "note",
    }  # fmt: skip
    assert "limits.devices" not in levels(judge_limits(a_cluster(), loose, has_cards=False))
    silent = {name: value for name, value in settings().items() if not name.startswith("Constrain")}
    assert levels(judge_limits(a_cluster(), silent, has_cards=True))["limits.constraints"] == "note"
    beside = a_cluster(cgroup_conf="constrainDevices = Yes\nConstrainRAMSpace=yes # memory\n")
    found = levels(judge_limits(beside, silent, has_cards=True))
    assert found == {"limits.processes": "ok", "limits.cores": "note", "limits.held": "ok"}


def test_how_nodes_are_shared_out() -> None:
    linear = settings(SelectType="select/linear")
    assert levels(judge_sharing(linear, nodes(), partitions())) == {"sharing.linear": "problem"}
    uncounted = told(judge_sharing(settings(SelectTypeParameters="CR_CORE"), nodes(), partitions()))
    assert uncounted["sharing.memory"].level is Level.WARNING
    config = settings()
    del config["DefMemPerCPU"]
    config["DefMemPerNode"] = "UNLIMITED"
    greedy = told(judge_sharing(config, nodes(), partitions()))["sharing.default_memory"]
    assert greedy.lines == ("DefMemPerCPU=2000",)
    assert greedy.found == "no default for memory in gpu, debug, closed"
    own = partitions("24.11.5", ("DefMemPerNode=UNLIMITED", "DefMemPerCPU=500"))
    assert levels(judge_sharing(config, nodes(), own)) == {"sharing.parts": "ok"}


# Queues


@pytest.mark.parametrize("version", VERSIONS)
def test_queues(version: str) -> None:
    found = told(judge_queues(partitions(version), Wishes(has_default_time=True)))
    assert found["queues.up"].found == "gpu, debug; gpu is the default"
    assert found["queues.state"].found == "closed: DOWN"
    assert found["queues.state"].costs == "jobs for it wait and do not start"
    assert set(found) == {"queues.up", "queues.state"}
    drained = [{**one, "State": "DRAIN"} if one["Default"] == "YES" else one for one in partitions(version)]
    state = next(one for one in judge_queues(drained, Wishes()) if one.found == "gpu: DRAIN")
    assert state.level is Level.WARNING
    assert state.costs == "Danlu refuses jobs for it; gpu is the default of jobs without `--queue`"


@pytest.mark.parametrize(("change", "wishes", "code", "level"), [
    (("Default=YES", "Default=NO"), Wishes(), "queues.no_default", "warning"),
    (("OverSubscribe=NO", "OverSubscribe=EXCLUSIVE"), Wishes(), "queues.exclusive", "warning"),
    (("OverSubscribe=NO", "OverSubscribe=FORCE:4"), Wishes(), "queues.oversubscribed", "warning"),
    (("State=UP", "State=DRAIN"), Wishes(), "queues.closed", "problem"),
    (("RootOnly=NO", "RootOnly=YES"), Wishes(), "queues.root_only", "warning"),
    (("AllowAccounts=ALL", "AllowAccounts=nlp"), Wishes(), "queues.restricted", "note"),
    (("TotalNodes=1", "TotalNodes=0"), Wishes(), "queues.empty", "warning"),
    (("DefaultTime=01:00:00", "DefaultTime=NONE"), Wishes(), "queues.endless", "note"),
    (("Default=YES", "Default=YES"), Wishes(queues=("gpu", "night")), "queues.unknown", "warning"),
])  # fmt: skip
def test_queues_that_surprise(change: tuple[str, str], wishes: Wishes, code: str, level: str) -> None:
    assert levels(judge_queues(partitions("24.11.5", change), wishes))[code] == level
    assert levels(judge_queues([], wishes)) == {"queues.none": "problem"}


def test_the_queue_in_which_a_look_is_taken() -> None:
    assert open_queues(partitions()) == ["gpu", "debug"]
    other = partitions("24.11.5", ("PartitionName=gpu AllowGroups=ALL", "PartitionName=gpu AllowGroups=nlp"))
    assert open_queues([{**one, "Default": "NO"} for one in other]) == ["debug", "gpu"]


# Order and bad days


def test_the_order_that_danlu_wants() -> None:
    good = settings(PriorityType="priority/basic", SchedulerParameters="batch_sched_delay=0,bf_window=1440")
    assert levels(judge_order(good, partitions())) == {"order.backfill": "ok"}
    assert levels(judge_order({**good, "SchedulerType": "sched/builtin"}, partitions())) == {"order.builtin": "warning"}
    slow = told(judge_order({**good, "SchedulerParameters": "bf_continue"}, partitions()))["order.delay"]
    assert slow.lines == ("SchedulerParameters=bf_continue,batch_sched_delay=0",)
    long = partitions("24.11.5", ("MaxTime=00:30:00", "MaxTime=7-00:00:00"))
    window = told(judge_order(good, long))["order.window"]
    assert window.lines == ("SchedulerParameters=batch_sched_delay=0,bf_window=10080,bf_resolution=300",)
    assert levels(judge_order({**good, "PreemptType": "preempt/qos"}, partitions())) == {"order.preempt": "note"}


def test_nice_that_has_no_effect() -> None:
    """Seen on both releases: with small weights every priority is 1, nice or not."""
    config = settings(PriorityType="priority/multifactor", SchedulerParameters="batch_sched_delay=0")
    weights = {name: "0" for name in config if name.startswith("PriorityWeight")}
    assert "has no effect" in told(judge_order({**config, **weights}, partitions()))["order.nice"].costs
    some = {**config, **weights, "PriorityWeightAge": "10000"}
    assert "the lowest" in told(judge_order(some, partitions()))["order.nice"].costs
    shares = {**config, **weights, "PriorityWeightFairShare": "100000"}
    assert levels(judge_order(shares, partitions())) == {"order.two_masters": "note"}
    age = {**config, **weights, "PriorityWeightAge": "100000"}
    assert levels(judge_order(age, partitions())) == {"order.backfill": "ok"}


@pytest.mark.parametrize(("changes", "code", "level"), [
    ({"MinJobAge": "300 sec"}, "trouble.ready", "ok"),
    ({"MinJobAge": "120 sec"}, "trouble.forgets", "note"),
    ({"MinJobAge": "10 sec"}, "trouble.forgets", "warning"),
    ({"MinJobAge": "0 sec"}, "trouble.never_forgets", "warning"),
    ({"SlurmdTimeout": "20 sec"}, "trouble.timeout", "warning"),
    ({"SlurmdTimeout": "0 sec"}, "trouble.never_down", "warning"),
    ({"MaxJobCount": "1000"}, "trouble.few", "note"),
    ({"ReturnToService": "0"}, "trouble.return", "note"),
    ({"JobRequeue": "0"}, "trouble.requeue", "note"),
    ({"KillWait": "5 sec"}, "trouble.grace", "note"),
    ({"JobSubmitPlugins": "lua"}, "trouble.plugins", "note"),
    ({"EnforcePartLimits": "NO"}, "trouble.part_limits", "note"),
])  # fmt: skip
def test_bad_days(changes: dict[str, str], code: str, level: str) -> None:
    config = settings(**{"KillWait": "30 sec", "EnforcePartLimits": "ALL", **changes})
    assert levels(judge_trouble(a_cluster(), config, Wishes())) == {code: level}


def test_a_queue_that_is_nearly_full() -> None:
    config = settings(KillWait="30 sec", EnforcePartLimits="ALL", MaxJobCount="10")
    slurm = a_cluster(queue=Said(0, "1\n2\n3\n4\n5\n6\n7\n8\n9\n"))
    assert levels(judge_trouble(slurm, config, Wishes())) == {"trouble.full": "warning"}


# Accounts and rights


@pytest.mark.parametrize("version", VERSIONS)
def test_accounting(version: str) -> None:
    off = settings("scontrol-config-no-accounting", version)
    assert levels(judge_accounting(a_cluster(version), off, Wishes(), has_cards=True)) == {"accounting.off": "note"}
    on = settings("scontrol-config", version)
    people = Said(0, golden("sacctmgr-assoc", version))
    slurm = a_cluster(
        version,
        clusters=Said(0, "testc|127.0.0.1\n"),
        associations=people,
        statistics=Said(0, golden("sdiag", version)),
    )
    found = told(judge_accounting(slurm, on, Wishes(), has_cards=True))
    assert {code: str(one.level) for code, one in found.items()} == {
        "accounting.database": "ok",
        "accounting.enforced": "note",
    }
    assert "1 person, " in found["accounting.enforced"].found
    down = said_in("accounting-down", version)[1]
    lost = told(judge_accounting(replace(slurm, clusters=down, associations=down), on, Wishes(), has_cards=True))
    assert set(lost) == {"accounting.database"}
    assert "Connection refused" in lost["accounting.database"].found


def test_accounting_that_leaves_something_out() -> None:
    on = settings("scontrol-config", AccountingStorageEnforce="none")
    slurm = a_cluster(clusters=Said(0, "testc|h\n"), statistics=Said(0, "DBD Agent queue size: 20000\n"))
    assert levels(judge_accounting(slurm, on, Wishes(), has_cards=True)) == {"accounting.behind": "warning"}
    strange = replace(slurm, clusters=Said(0, "other|h\n"))
    assert told(judge_accounting(strange, on, Wishes(), has_cards=True))["accounting.cluster"].lines == (
        "sacctmgr -i add cluster testc",
    )
    blind = {**on, "AccountingStorageTRES": "cpu,mem", "JobAcctGatherType": "(null)"}
    assert {"accounting.cards", "accounting.gather"} <= levels(
        judge_accounting(slurm, blind, Wishes(), has_cards=True)
    ).keys()
    assert "accounting.cards" not in levels(judge_accounting(slurm, blind, Wishes(), has_cards=False))
    nobody = {**on, "AccountingStorageEnforce": "associations"}
    alone = replace(slurm, associations=Said(0, "root|\nroot|root\n"))
    assert levels(judge_accounting(alone, nobody, Wishes(), has_cards=True))["accounting.enforced"] == "warning"
    makes = wishes_of(load_settings(None, {"DANLU_ENGINE_SLURM_ACCOUNTS": "make"}), is_shared=True)
    added = told(judge_accounting(alone, nobody, makes, has_cards=True))["accounting.enforced"]
    assert (str(added.level), added.found.partition("; ")[2]) == ("note", "the server adds those of teams")
    assert added.costs == "Slurm refuses only users without a team and without a Slurm account"
    assert "sacctmgr -i add account TEAM" not in added.lines
    by_li = told(judge_accounting(replace(alone, user=LI), nobody, makes, has_cards=True))["accounting.enforced"]
    assert by_li.costs.endswith("; adding accounts needs a server run by root or by a Slurm operator")
    assert levels(judge_accounting(replace(slurm, clusters=None), on, Wishes(), has_cards=True)) == {
        "accounting.database": "note"
    }


def test_what_the_server_may_do() -> None:
    assert levels(judge_rights(a_cluster(), settings(), Wishes(as_submitter=True))) == {"rights.root": "ok"}
    assert levels(judge_rights(a_cluster(), settings(), Wishes(is_shared=True))) == {"rights.as_root": "warning"}
    assert levels(judge_rights(a_cluster(), settings(), Wishes())) == {"rights.own": "ok"}
    li = a_cluster(user=LI)
    assert levels(judge_rights(li, settings(), Wishes())) == {"rights.one_user": "note"}
    assert levels(judge_rights(li, settings(), Wishes(is_shared=True))) == {"rights.one_user": "warning"}
    assert levels(judge_rights(li, settings(), Wishes(as_submitter=True))) == {"rights.submitter": "problem"}
    hidden = settings(PrivateData="jobs,usage")
    assert levels(judge_rights(li, hidden, Wishes()))["rights.private"] == "warning"
    assert "rights.private" not in levels(judge_rights(a_cluster(), hidden, Wishes(as_submitter=True)))


def test_every_code_is_documented() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "doctor.md").read_text()
    sources = "".join(path.read_text() for path in sorted((root / "src" / "danlu" / "tools" / "doctor").rglob("*.py")))
    codes = set(re.findall(r'(?:ok|note|warning|problem|unchecked|level|_apart)\(\s*"([a-z]+\.[a-z_]+)"', sources))
    assert len(codes) > 100
    assert {code for code in codes if f"`{code}`" not in page} == set()
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", page[page.index("## All checks") :]))
    made = {f"{topic}.{what}" for topic in ("shared", "state") for what in ("space", "unwritable", "reach")}
    assert named - codes == made


@pytest.mark.parametrize("books", ["true", "false"])
def test_the_doctor_is_content_with_what_slurm_init_writes(tmp_path: Path, books: str) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(f'[slurm]\naccounting = {books}\n[[nodes]]\nname = "n[1-2]"\ngpus = "4xRTX3090"\n')
    wanted = load_settings(str(file), {})
    machines = nodes_of(wanted.nodes)
    plan = blueprint_of(wanted, machines, queues_of(wanted.queues, machines))
    written = dict(re.findall(r"(?m)^([A-Z]\w+)=(\S+)$", render_slurm_conf(plan)))
    held = dict(re.findall(r"(?m)^(Constrain\w+)=(\S+)$", render_cgroup_conf(plan)))
    config = {**settings("scontrol-config-no-accounting"), **written, **held}
    queues = records("\n".join(re.findall(r"(?m)^PartitionName=.*$", render_slurm_conf(plan))))
    found = [
        *judge_sharing(config, nodes(), queues),
        *judge_limits(a_cluster(), config, has_cards=True),
        *judge_queues(queues, Wishes(has_default_time=True)),
        *judge_order(config, queues),
        *judge_trouble(a_cluster(), config, Wishes()),
        *judge_accounting(a_cluster(clusters=Said(0, "danlu|n1\n")), config, Wishes(), has_cards=True),
    ]
    assert [one for one in found if one.level in (Level.WARNING, Level.PROBLEM)] == []
    assert {one.code for one in found if one.level is Level.NOTE} <= {"accounting.off"}
