"""Real Slurm's own words, written anew beside this file: `python -m tests.golden.slurm.capture [VERSION...]`, as root.

`NAME-VERSION.txt` is what one command printed; `NAME-VERSION.json` is a list of commands with what each printed and how
it ended. Commands run as the engine runs them, with times in seconds since 1970. Takes two minutes a version.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from danlu.engines.slurm.text.parse_jobs import ACCOUNTING_FORMAT, QUEUE_FORMAT
from tests.slurm.cage import wait_until
from tests.slurm.cluster import SlurmCluster, slurm_cluster
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

HERE = Path(__file__).parent
MARK = "MARK"  # begins each record of the queue
MEMBER, STRANGER = "games", "news"  # people of this machine: one with an account in Slurm, one without
QUEUE = ("squeue", "--noheader", "--all", "--states=all", f"--format={MARK}|{QUEUE_FORMAT}")


class Album:
    """Writes what a cluster says to files that bear its version."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster
        self._version = cluster.ask("squeue", "--version").split()[-1]

    def keep(self, name: str, *command: str) -> None:
        self.write(f"{name}-{self._version}.txt", self.cluster.call(*command).stdout)

    def keep_all(self, name: str, commands: Sequence[Sequence[str]], user: str | None = None) -> None:
        kept = []
        for command in commands:
            done = self.cluster.call(*command, user=user)
            kept.append(
                {"command": list(command), "code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
            )
        self.write(f"{name}-{self._version}.json", json.dumps(kept, indent=1, ensure_ascii=False) + "\n")

    def write(self, name: str, text: str) -> None:
        (HERE / name).write_text(text)
        sys.stderr.write(f"{name}: {len(text)} characters\n")


def capture(version: str) -> None:
    os.environ["SLURM_TIME_FORMAT"] = "%s"
    for layout, take in (
        (Layout(nodes=4, accounting=True), _with_accounting),
        (Layout(accounting=True), _with_rules),
        (Layout(), _without_accounting),
    ):
        cluster = slurm_cluster(version, layout)
        try:
            take(Album(cluster))
        finally:
            cluster.close()


def _with_accounting(album: Album) -> None:
    cluster = album.cluster
    _make_accounts(cluster)
    cluster.ask("scontrol", "update", "nodename=gn3", "state=drain", "reason=fan of card 2 | loud")
    album.keep("sinfo-gres-empty", "sinfo", "--noheader", "--Node", "--Format=NodeList:|,Gres:|,GresUsed:|,StateLong:|")
    limited = cluster.submit("sleep 600", "--time=1", "--job-name=limited")
    _fill(cluster)
    cluster.kill_node_daemon("gn4")
    album.keep("squeue", *QUEUE)
    album.keep("squeue-tasks", *QUEUE, "--array")
    album.keep("squeue-start", "squeue", "--noheader", "--start", f"--format={MARK}|{QUEUE_FORMAT}")
    album.keep("squeue-default", "squeue")
    album.keep("scontrol-jobs", "scontrol", "--details", "show", "job")
    album.keep("scontrol-jobs-lines", "scontrol", "--details", "--oneliner", "show", "job")
    album.keep("sinfo-gres", "sinfo", "--noheader", "--Node", "--Format=NodeList:|,Gres:|,GresUsed:|,StateLong:|")
    album.keep("scontrol-partitions", "scontrol", "--oneliner", "show", "partition", "--all")
    album.keep("scontrol-config", "scontrol", "show", "config")
    album.keep("scontrol-assoc", "scontrol", "show", "assoc_mgr", "flags=assoc")
    album.keep(
        "sacctmgr-assoc", "sacctmgr", "--noheader", "--parsable2", "show", "assoc", "format=account,user,grptres"
    )
    _refusals(album)
    cluster.wait_for_node("gn4", "DOWN+NOT_RESPONDING", seconds=120)
    album.keep("scontrol-nodes", "scontrol", "--details", "--oneliner", "show", "node", "--all")
    album.keep("sinfo", "sinfo", "--noheader", "--all", "--Node", "--format=%N|%P|%T|%E|%c|%m|%G")
    cluster.wait_for(limited, "TIMEOUT", seconds=180)
    columns = f"--format={ACCOUNTING_FORMAT}"
    wait_until(lambda: "TIMEOUT" in cluster.ask("sacct", "--allusers"), "accounting has the timeout")
    album.keep("squeue-over", *QUEUE)
    album.keep("sacct", "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--duplicates", columns)
    album.keep("sacct-steps", "sacct", "--noheader", "--parsable2", "--allusers", columns)
    cluster.accounting.kill_daemon()
    album.keep_all("accounting-down", [("sacct", "--allusers"), ("sacctmgr", "show", "assoc"), ("squeue",)])


def _make_accounts(cluster: SlurmCluster) -> None:
    cluster.ask("sacctmgr", "-i", "add", "account", "vision", "set", "GrpTRES=gres/gpu=2,gres/shard=32")
    cluster.ask("sacctmgr", "-i", "add", "user", MEMBER, "account=vision")


def _fill(cluster: SlurmCluster) -> None:
    """Jobs of every kind: that run, wait for every reason, and are over."""
    submit = cluster.submit
    ends = [
        (submit("exit 0", "--job-name=good"), "COMPLETED"),
        (submit("exit 7", "--job-name=bad"), "FAILED"),
        (submit("kill -9 $$", "--job-name=killed"), "FAILED"),
    ]
    submit("true", "--job-name=no-log", "--output=/proc/nowhere/log")
    for job, state in ends:
        cluster.wait_for(job, state)
    on = "--nodelist=gn1"
    running = [
        submit("sleep 600", on, "--gres=gpu:rtx3090:1", "--comment=run r-1", "--job-name=one card"),
        submit("sleep 600", on, "--gres=shard:16", "--job-name=shards-16"),
        submit("sleep 600", on, "--gres=shard:48", "--job-name=shards-48"),
        submit("sleep 600", on, "--gres=shard:32", "--job-name=shards-32", "--time=1-02:00:00"),
        submit("sleep 600", "--nodes=2", "--gres=gpu:1", "--ntasks-per-node=2", "--job-name=two-nodes"),
        submit("sleep 600", "--gres=gpu:1", "--job-name=member", "--account=vision", user=MEMBER),
        submit(
            "sleep 600", "--partition=debug", "--cpus-per-task=3", "--mem=1500", "--job-name=名字|a b", "--comment=x|y"
        ),
        submit("sleep 600", "--job-name=line\nbreak", "--comment=MARK|9|9"),
    ]
    for job in running:
        cluster.wait_for(job, "RUNNING")
    array = submit("sleep 600", "--array=0-5:1%2", "--job-name=array")
    wait_until(lambda: cluster.state(array).count("RUNNING") == 2, "two tasks of the array run")
    gone = submit("sleep 600", "--job-name=cancelled")
    cluster.wait_for(gone, "RUNNING")
    cluster.ask("scancel", gone)
    cluster.wait_for(gone, "CANCELLED")
    _make_wait(cluster, first=running[0])


def _make_wait(cluster: SlurmCluster, first: str) -> None:
    submit = cluster.submit
    by_reason = {
        "JobHeldUser": submit("true", "--hold", "--job-name=held"),
        "Dependency": submit("true", f"--dependency=afterok:{first}", "--job-name=after"),
        "BeginTime": submit("true", "--begin=now+2hours", "--job-name=later"),
        "PartitionDown": submit("true", "--partition=closed", "--job-name=closed"),
        "ReqNodeNotAvail": submit("true", "--nodelist=gn3", "--job-name=drained-node"),
        "AssocGrpGRES": submit("true", "--gres=gpu:2", "--account=vision", "--job-name=over-quota", user=MEMBER),
        "Resources": submit("true", "--nodes=2", "--gres=gpu:4", "--job-name=no-room"),
        "Priority": submit("true", "--nodes=2", "--gres=gpu:4", "--nice=100", "--job-name=behind"),
    }
    for word, job in by_reason.items():
        reason: Callable[[], str] = lambda job=job: cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%r")  # type: ignore[misc]  # noqa: E731
        try:
            wait_until(lambda reason=reason, word=word: word in reason(), f"reason {word}", seconds=15)  # type: ignore[misc]
        except AssertionError:
            sys.stderr.write(f"wanted {word}, got {reason()}\n")


def _refusals(album: Album) -> None:
    script = str(album.cluster.folder / "jobs/script")
    Path(script).write_text("#!/bin/sh\ntrue\n")
    bare = str(album.cluster.folder / "jobs/bare")
    Path(bare).write_text("true\n")
    options: list[tuple[str, ...]] = [
        ("--partition=nosuch",), ("--gres=gpu:9",), ("--gres=gpu:a100:1",), ("--gres=tpu:1",), ("--gres=shard:65",),
        ("--gres=shard:999",), ("--gres=gpu:1,shard:1",), ("--time=nonsense",),
        ("--partition=debug", "--time=09:00:00"),
        ("--account=nosuch",), ("--qos=nosuch",), ("--nodelist=gn9",), ("--nodes=9",), ("--mem=999G",),
        ("--cpus-per-task=99",), ("--constraint=nosuch",), ("--dependency=afterok:999999",), ("--array=0-99999999",),
        ("--nosuch",), ("--reservation=nosuch",), ("--nice=-10",), ("--partition=gpu,nosuch",),
        ("--licenses=nosuch:1",),
    ]  # fmt: skip
    commands = [("sbatch", "--parsable", *given, script) for given in options]
    others = [
        ("sbatch", bare), ("scancel", "999999"), ("scontrol", "show", "job", "999999"), ("squeue", "--jobs=999999"),
        ("squeue", "--noheader", "--jobs=999999,1"), ("scontrol", "update", "jobid=1", "priority=99"),
        ("sinfo", "-p", "nosuch"),
        ("scontrol", "hold", "999999"), ("scontrol", "show", "node", "gn9"), ("sacct", "--jobs=999999"),
    ]  # fmt: skip
    album.keep_all("refusals", [*commands, *others], user=MEMBER)
    album.keep_all("refusals-no-account", [("sbatch", script), ("srun", "true")], user=STRANGER)


def _with_rules(album: Album) -> None:
    """What is refused, or waits for ever, for who somebody is; and what a plugin of the site refuses."""
    cluster = album.cluster
    _make_accounts(cluster)
    script = str(cluster.folder / "jobs/script")
    Path(script).write_text("#!/bin/sh\ntrue\n")
    here = ("sbatch", "--parsable", "--partition=debug", script)
    usual = {"AllowGroups": "ALL", "RootOnly": "NO", "AllowQos": "ALL", "AllowAccounts": "ALL", "Hidden": "NO"}
    rules = {"AllowGroups": STRANGER, "RootOnly": "YES", "AllowQos": "nosuch", "AllowAccounts": "root", "Hidden": "YES"}
    change = ("scontrol", "update", "partitionname=debug")
    waits = ("squeue", "--noheader", "--all", "--states=PENDING", "--format=%r")
    for name, value in rules.items():
        cluster.ask(*change, f"{name}={value}")
        album.keep_all(f"refusals-{name}", [here], user=MEMBER)
        time.sleep(2)  # until it was looked at
        if cluster.ask(*waits):
            album.keep(f"squeue-{name}", *waits)
        cluster.ask(*change, f"{name}={usual[name]}")
        cluster.call("scancel", f"--user={MEMBER}")
    cluster.ask(*change, *(f"{name}={value}" for name, value in rules.items()))
    album.keep("scontrol-partition-rules", "scontrol", "--oneliner", "show", "partition", "--all")
    cluster.ask(*change, *(f"{name}={value}" for name, value in usual.items()))
    limit = ("sacctmgr", "-i", "modify")
    cluster.ask(*limit, "user", MEMBER, "set", "MaxSubmitJobs=0")
    album.keep_all("refusals-MaxSubmitJobs", [here], user=MEMBER)
    cluster.ask(*limit, "user", MEMBER, "set", "MaxSubmitJobs=-1")
    cluster.ask(*limit, "qos", "normal", "set", "flags=DenyOnLimit", "MaxWall=10")
    album.keep_all("refusals-MaxWall", [("sbatch", "--parsable", "--time=600", script)], user=MEMBER)
    cluster.ask(*limit, "qos", "normal", "set", "MaxWall=-1")
    add_site_plugin(cluster)
    said = [("sbatch", "--parsable", f"--comment={word}", script) for word in ("many", "queue", "mute")]
    album.keep_all("refusals-site", said, user=MEMBER)
    waiting = cluster.submit("true", "--hold")
    cluster.kill_controller()
    album.keep_all("update-controller-down", [("scontrol", "update", f"jobid={waiting}", "nice=5")])


def add_site_plugin(cluster: SlurmCluster) -> None:
    """One with a mind of its own about certain jobs, and words like the controller's own."""
    (cluster.folder / "job_submit.lua").write_text(_SITE_PLUGIN)
    conf = cluster.folder / "slurm.conf"
    conf.write_text(f"{conf.read_text()}\nJobSubmitPlugins=lua\n")
    cluster.stop_controller()
    cluster.start_controller()


_SITE_PLUGIN = """\
function slurm_job_submit(job, partitions, uid)
    if job.comment == "many" or job.name == "many" then
        slurm.log_user("You requested too many GPUs.\\nRead our page about configuration.")
        return slurm.ERROR
    elseif job.comment == "queue" then
        slurm.log_user("Not on a Monday")
        return 2000
    elseif job.comment == "mute" then
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def _without_accounting(album: Album) -> None:
    cluster = album.cluster
    job = cluster.submit("exit 3", "--gres=gpu:1", "--job-name=bad")
    cluster.wait_for(job, "FAILED")
    shared = cluster.submit("sleep 600", "--gres=shard:16", "--job-name=shards")
    cluster.wait_for(shared, "RUNNING")
    album.keep("squeue-no-accounting", *QUEUE)
    album.keep("scontrol-jobs-no-accounting", "scontrol", "--details", "show", "job")
    album.keep("scontrol-config-no-accounting", "scontrol", "show", "config")
    album.keep("scontrol-nodes-no-accounting", "scontrol", "--details", "--oneliner", "show", "node", "--all")
    completed = ("sacct", "--completion", "--noheader", "--parsable2", f"--format={ACCOUNTING_FORMAT}")
    album.keep_all("no-accounting", [("sacct",), completed, ("sacctmgr", "show", "assoc")])
    script = str(cluster.folder / "jobs/script")
    Path(script).write_text("#!/bin/sh\ntrue\n")
    questions = [("scontrol", "ping"), ("squeue",), ("sbatch", script), ("scancel", job), ("scontrol", "show", "node")]
    time.sleep(1)  # the older one forgets what it has not saved yet
    cluster.kill_controller()
    album.keep_all("controller-down", questions)
    cluster.start_controller()
    cluster.hang_controller()
    album.keep_all("controller-hung", questions)
    cluster.continue_controller()


if __name__ == "__main__":
    for wanted in sys.argv[1:] or (OLDER, NEWER):
        capture(wanted)
