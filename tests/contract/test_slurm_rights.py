"""Whose rights a run of Slurm has: its own person's, and nothing of the server's or of anybody else's."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from danlu.engines.base import Ending, RunState
from danlu.engines.slurm.engine import SlurmEngine
from tests.contract.engine_rigs import LIMIT_SECONDS, NEVER, with_rig
from tests.contract.slurm_rig import SlurmRig, with_own_rig
from tests.slurm.cluster import shared_cluster, slurm_cluster
from tests.slurm.releases import OLDER

pytestmark = pytest.mark.slurm
older = with_rig("slurm-22.05")
both_versions = with_rig("slurm-22.05", "slurm-24.11")
OWNER, STRANGER = "games", "news"  # are on every machine, each in a group of the same name


def as_user(user: str, script: str) -> "subprocess.CompletedProcess[str]":
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c", script]
    return subprocess.run(words, capture_output=True, text=True, cwd="/")


def folder_of(rig: Any, run_id: str) -> Path:
    return Path(rig.folder) / "shared/runs" / run_id


async def running(rig: Any, run_id: str, script: str, secret: str = "") -> Any:
    """The handle of a run of the owner's that has said `ready`."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(rig.folder), "TOKEN": secret}
    handle = await rig.start(run_id, "sh", "-c", script, user=OWNER, workdir="/", env=env)
    await rig.until_logged(run_id, "ready")
    return handle


@both_versions
async def test_a_run_is_its_persons_and_has_nothing_of_the_servers(rig: Any) -> None:
    theirs = {"PATH": "/usr/bin:/bin", "SBATCH_PARTITION": "closed", "SLURM_CONF": "/nowhere", "LD_DEBUG": "unused"}
    script = "id -un; id -Gn; umask; pwd; grep CapEff /proc/self/status; ls -l /proc/self/fd | grep -c socket; env"
    handle = await rig.start("a.1", "sh", "-c", script, user=OWNER, workdir="/", env=theirs, umask=0o027)
    end = await rig.ended(handle)
    assert end.exit_code == 0, end.reason
    name, groups, mask, folder, rights, sockets, *variables = rig.log("a.1").read_text().splitlines()
    assert (name, groups, mask, folder, rights.split()[1], sockets) == (OWNER, OWNER, "0027", "/", "0" * 16, "0")
    names = {line.partition("=")[0] for line in variables}
    assert "LD_DEBUG" in names
    assert not names & {"SBATCH_PARTITION", *(name for name in os.environ if name.startswith(("PYTEST", "DANLU_")))}
    assert f"SLURM_CONF={rig.cluster.environment['SLURM_CONF']}" in variables


@older
async def test_variables_of_the_server_change_no_submit(rig: Any) -> None:
    """As if it was started from within a job, or by somebody with traits."""
    traits = {
        "SBATCH_PARTITION": "closed",
        "SBATCH_ACCOUNT": "none",
        "SBATCH_ARRAY_INX": "1-5",
        "SBATCH_TIMELIMIT": "1",
        "SBATCH_EXPORT": "NONE",
        "SLURM_CLUSTERS": "elsewhere",
        "SLURM_JOB_ID": "4711",
        "SQUEUE_USERS": "nobody",
        "SQUEUE_STATES": "FAILED",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in traits.items():
            patch.setenv(name, value)
        await rig.restart()
        end = await rig.ended(await rig.start("a.1", "sh", "-c", "echo $A $B", user=OWNER, workdir="/", env={"A": "a"}))
    assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    assert rig.log("a.1").read_text() == "a\n"


@older
async def test_nobody_else_reads_or_writes_what_a_run_has(rig: Any) -> None:
    handle = await running(rig, "a.1", "echo ready; exec sleep 1000", secret="s3cret")
    folder = folder_of(rig, "a.1")
    assert (folder.owner(), folder.stat().st_mode & 0o777) == (OWNER, 0o700)
    for name, mode in (("env", 0o600), ("inside", 0o600), ("log", 0o600), ("began", 0o600)):
        file = folder / name
        assert (file.owner(), file.stat().st_mode & 0o777) == (OWNER, mode), name
    assert "s3cret" in as_user(OWNER, f"cat {folder}/env").stdout
    for attack in (
        f"ls {folder.parent}",
        f"ls {folder}",
        f"cat {folder}/env",
        f"cat {folder}/log",
        f"cat {rig.log('a.1')}",
        f"echo > {folder}/stop",
        f"echo > {folder}/exit",
        f"rm {folder}/began",
        f"mv {folder} {folder}.old",
        f"ln -s /tmp {folder.parent}/b.1",
        f"mkdir {folder.parent}/c.1",
        f"ls {folder.parent.parent}/records",
        f"cat {folder.parent.parent}/records/a.1.json",
    ):
        done = as_user(STRANGER, attack)
        assert (done.returncode != 0, "s3cret" in done.stdout) == (True, False), attack
    # Its own person is as little let into the folder of all runs, or into what we know of them.
    for attack in (f"ls {folder.parent}", f"mv {folder} {folder}.old", f"ls {folder.parent.parent}/records"):
        assert as_user(OWNER, attack).returncode, attack
    assert (await rig.observe(handle)).state is RunState.RUNNING


@older
async def test_the_job_of_a_stranger_is_not_the_run_whose_name_it_bears(rig: Any) -> None:
    """Everybody can read the comment of a job, and write one."""
    handle = await running(rig, "a.1", "echo ready; exec sleep 1000")
    said = rig.cluster.ask("squeue", "--noheader", "--states=RUNNING", "--format=%k")
    forged = rig.cluster.submit("sleep 1000", f"--comment={said.strip()}", "--output=/dev/null", user=STRANGER)
    rig.cluster.wait_for(forged, "RUNNING")
    await rig.engine.stop(handle, grace=NEVER)
    assert (await rig.ended(handle)).ending is Ending.STOPPED
    assert rig.cluster.state(forged) == "RUNNING"
    await rig.engine.poll()  # the end was known by its own word, before anybody looked
    others = await rig.engine.others()
    assert [one.user for one in others if one.state is RunState.RUNNING] == [STRANGER]


@older
async def test_a_person_who_fouls_the_own_folder_harms_nobody(rig: Any) -> None:
    """What is there in place of words: folders, pipes, links to what only root may read or write."""
    precious = rig.folder / "precious"
    precious.write_text("untouched")
    precious.chmod(0o600)
    folder = folder_of(rig, "a.1")
    foul = (
        f"cd {folder}; rm -f began log env; mkdir stop began; mkfifo exit; ln -s {precious} log; ln -s {precious} env;"
        " mkdir closed; touch closed/file; chmod 0 closed; i=0;"
        " while [ $i -lt 1100 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo ready; exec sleep 1000"
    )
    handle = await running(rig, "a.1", foul)
    beside = await running(rig, "b.1", "echo ready; exec sleep 1000")
    await rig.engine.stop(handle, grace=NEVER)
    seen = await rig.ended(handle)
    assert seen.ending in (Ending.STOPPED, Ending.LOST), seen
    await rig.engine.forget([handle])
    assert not folder.exists()
    await rig.until(lambda: not any((folder.parent.parent / "trash").iterdir()))
    assert precious.read_text() == "untouched"
    assert precious.owner() == "root"
    assert (await rig.observe(beside)).state is RunState.RUNNING


@older
async def test_a_log_that_its_person_replaced_is_still_ours(rig: Any) -> None:
    secret = rig.folder / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    log = folder_of(rig, "a.1") / "log"
    handle = await running(rig, "a.1", f"echo ready; rm {log}; ln -s {secret} {log}; echo on; exec true")
    assert (await rig.ended(handle)).exit_code == 0
    assert rig.log("a.1").read_text() == "ready\non\n"
    assert not rig.log("a.1").is_symlink()


def with_commands(folder: Path, programs: dict[str, str]) -> Callable[[], SlurmRig]:
    """A rig whose commands are these scripts, and the real ones where there is none."""
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)

    class Rig(SlurmRig):
        def another_engine(self) -> Any:
            environment = self.cluster.environment
            path = f"{folder}/bin:{environment['PATH']}"
            return SlurmEngine(str(self.folder / "shared"), conf=environment["SLURM_CONF"], commands_path=path)

    return lambda: Rig(folder, OLDER, shared_cluster(OLDER))


def test_one_person_whose_commands_hang_holds_up_no_other() -> None:
    folder = Path(tempfile.mkdtemp(prefix="danlu-rig-", dir="/tmp"))
    folder.chmod(0o755)
    hung = f"""\
if [ "$(id -un)" = {OWNER} ]; then
    : > {folder}/hung/$$
    while [ ! -e {folder}/freed ]; do sleep 0.1; done
    exit 1
fi
PATH={shared_cluster(OLDER).environment["PATH"]} exec sbatch "$@"
"""
    make = with_commands(folder, {"sbatch": hung})
    (folder / "hung").mkdir()
    (folder / "hung").chmod(0o777)

    async def body() -> None:
        rig = make()
        await rig.open()
        try:
            launches = [rig.launch(f"h{at}.1", "true", user=OWNER, workdir="/") for at in range(10)]
            await rig.engine.start(launches)
            await rig.until(lambda: len(list((folder / "hung").iterdir())) == 2)
            async with asyncio.timeout(LIMIT_SECONDS):
                end = await rig.ended(await rig.start("a.1", "true", user=STRANGER, workdir="/"))
            assert end.exit_code == 0
            assert len(list((folder / "hung").iterdir())) == 2
        finally:
            (folder / "freed").touch()
            await rig.close()

    try:
        asyncio.run(body())
    finally:
        shutil.rmtree(folder)


@older
async def test_a_full_shared_folder_holds_things_up_and_loses_nothing(rig: Any) -> None:
    going = await rig.start("a.1", "sh", "-c", "sleep 1000", user=OWNER, workdir="/")
    shared = rig.folder / "shared"
    # A small disk in the place of the folder with our records; runs are elsewhere.
    records = shared / "records"
    kept = {file.name: file.read_bytes() for file in records.iterdir()}
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(records)], check=True)
    try:
        for name, data in kept.items():
            (records / name).write_bytes(data)
        assert subprocess.run(["sh", "-c", f"cat /dev/zero > {records}/filler"], capture_output=True).returncode
        launch = rig.launch("b.1", "true", user=OWNER, workdir="/")
        await rig.engine.start([launch])
        await rig.engine.stop(going, grace=NEVER)
        await rig.until(lambda: (folder_of(rig, "a.1") / "exit").exists())
        assert (await rig.engine.observe([going]))[going].state is RunState.RUNNING, "its end is not written down yet"
        names = {*kept, "filler"}
        await rig.until(lambda: {file.name for file in records.iterdir()} == names)  # nothing is left by those who try
        (records / "filler").unlink()
        assert (await rig.ended(going)).ending is Ending.STOPPED

        async def ended() -> Any:
            seen = (await rig.engine.observe([launch.handle])).get(launch.handle)
            if seen and seen.state is RunState.UNKNOWN:
                await rig.engine.start([launch])
            return seen if seen and seen.state is RunState.ENDED else None

        async with asyncio.timeout(LIMIT_SECONDS):
            while not (end := await ended()):
                await asyncio.sleep(0.05)
        assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
    finally:
        await rig.close()
        subprocess.run(["umount", str(records)], check=True)


@pytest.mark.parametrize("where", ["controller", "node"])
def test_a_person_whom_another_machine_does_not_know(where: str) -> None:
    """The controller says who somebody is: it must know them, or starts their jobs in vain; nodes take its word."""
    cluster = slurm_cluster(OLDER)
    users = cluster.folder / "passwd"
    everybody = Path("/etc/passwd").read_text().splitlines(keepends=True)
    users.write_text("".join(line for line in everybody if not line.startswith(f"{OWNER}:")))
    hide = f"mount --bind {users} /etc/passwd"
    if where == "controller":
        cluster._cage.run("ctl", "sh", "-c", hide)
    else:
        cluster.stop_node_daemon("gn1")
        program, step = cluster.release.program("slurmd"), cluster.release.program("slurmstepd")
        daemon = f"{program} -d {step} -f {cluster.folder}/slurm.conf -N gn1"
        cluster._cage.run("gn1", "unshare", "--mount", "sh", "-c", f"{hide} && exec {daemon}")
        cluster.wait_for_node("gn1", "IDLE")

    async def test(rig: SlurmRig) -> None:
        launch = rig.launch("a.1", "id", "-u", user=OWNER, workdir="/", queue="debug")  # on gn1 only
        await rig.engine.start([launch])

        async def told() -> bool:
            seen = (await rig.engine.observe([launch.handle])).get(launch.handle)
            if where == "node":
                return bool(seen and seen.state is RunState.ENDED)
            return bool(seen and seen.reason and "have the user" in seen.reason.text)

        async with asyncio.timeout(LIMIT_SECONDS):
            while not await told():
                await asyncio.sleep(0.05)
        if where == "node":
            assert rig.log("a.1").read_text().split() == [str(pwd.getpwnam(OWNER).pw_uid)]

    try:
        with_own_rig(lambda folder: SlurmRig(folder, OLDER, cluster), test)
    finally:
        cluster.close()
