"""What `danlu slurm init` writes really boots: played by one machine, and installed as on a real one."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import Installation
from tests.slurm.cage import Cage
from tests.slurm.places import Place
from tests.slurm.releases import NEWER, OLDER, Release, slurm_release

pytestmark = pytest.mark.slurm

EXAMPLES = Path(__file__).parents[2] / "examples" / "clusters"
LAB = """
[slurm]
cluster = "lab"
shared = "{shared}"
[engine]
shards_per_gpu = 8
[[nodes]]
name = "a[1-2]"
gpus = "2xRTX 3090,1xA100"
cpus = 24
[[nodes]]
name = "old"
cpus = 4
memory = "8G"
[[queues]]
name = "train"
nodes = ["a*"]
default = true
max_time = "1d"
[[queues]]
name = "login"
max_mem = "4G"
"""


@pytest.fixture
def place() -> Iterator[Place]:
    slurm_release(OLDER)  # says what is missing
    made = Place()
    yield made
    made.close()


def init(config: Path, out: Path, *options: str) -> list[str]:
    """What it says to do next."""
    argv = [sys.executable, "-m", "danlu.cli.main", "slurm", "init", str(config), "--out", str(out), "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    steps: list[str] = json.loads(done.stdout)["next"]
    return steps


class Played:
    """A cluster of `--try-here`, up; whatever it leaves running ends with us."""

    def __init__(self, config: Path, place: Place, release: Release) -> None:
        self.folder = place.folder / "slurm"
        self.steps = init(config, self.folder, "--try-here", "--port", str(place.ports.first))
        if release.plugins:
            with (self.folder / "slurm.conf").open("a") as file:
                file.write(f"PluginDir={release.plugins}\n")
        self.environ = {"PATH": release.search_path, "SLURM_CONF": str(self.folder / "slurm.conf")}
        shutil.copy("/etc/hosts", place.folder / "hosts")
        self._said = place.folder / "said"
        self._cage = Cage(place.folder / "hosts", self._said, place.lock)

    def __enter__(self) -> "Played":
        try:
            self._try("up")
        except BaseException as error:
            for path in (self.folder / "log").glob("slurm*.log"):
                error.add_note(f"--- {path}\n{path.read_text()[-2000:]}")
            self._cage.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._try("down")
            left = dict(self._cage.processes())
        finally:
            self._cage.end()
        assert self._said.read_text().endswith("\ndown\n")
        assert left == {}

    def _try(self, word: str) -> None:
        script = str(self.folder / "try.sh")
        self._cage.run(socket.gethostname(), "sh", script, word, env=self.environ, seconds=150)

    def call(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, env=os.environ | self.environ, capture_output=True, text=True, timeout=150)

    def ask(self, *command: str) -> str:
        done = self.call(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_this_machine_plays_the_cluster(
    place: Place, here: Installation, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = place.folder / "only-on-real-machines"
    (place.folder / "nodes.toml").write_text(LAB.format(shared=shared))
    with Played(place.folder / "nodes.toml", place, slurm_release(version)) as cluster:
        nodes = set(cluster.ask("sinfo", "-h", "-N", "-o", "%N %T %c %m %R").splitlines())
        assert {"a1 idle 24 62260 train", "a2 idle 24 62260 train", "old idle 4 7168 login"} <= nodes
        # Cards by number and by model, shares of one, memory of those who ask for none, the default queue.
        see = 'echo "$CUDA_VISIBLE_DEVICES $SLURM_JOB_PARTITION"'
        assert cluster.ask("srun", "--gres=gpu:A100:1", "sh", "-c", see) == "2 train"
        assert cluster.ask("srun", "--gres=gpu:RTX_3090:2", "sh", "-c", see) == "0,1 train"
        assert cluster.ask("srun", "--gres=shard:8", "sh", "-c", see) in ("0 train", "1 train", "2 train")
        memory = cluster.ask("srun", "-p", "login", "-w", "old", "sh", "-c", "scontrol show job $SLURM_JOB_ID")
        assert "MinMemoryCPU=1792M" in memory
        both = cluster.ask("srun", "-N", "2", "-l", "sh", "-c", "echo $SLURMD_NODENAME")
        assert sorted(both.splitlines()) == ["0: a1", "1: a2"]
        assert "Requested node configuration is not available" in cluster.call("srun", "--gres=gpu:4", "true").stderr
        submit = "sbatch --parsable --output=/dev/null --wrap true"
        assert "TimeLimit=1-00:00:00" in cluster.ask("sh", "-c", f"scontrol show job $({submit})")
        assert "PriorityType            = priority/basic" in cluster.ask("scontrol", "show", "config")
        # Nothing was ignored or refused while the files were read.
        log = (cluster.folder / "log" / "slurmctld.log").read_text()
        words = ("gnoring", "eprecated", "defunct", "nrecognized")
        assert [line for line in log.splitlines() if any(word in line for word in words)] == []
        # The same file is Danlu's configuration, in the environment that is said.
        monkeypatch.setenv("PATH", cluster.environ["PATH"])
        for step in cluster.steps:
            for name, _, value in (word.partition("=") for word in step.split()[1:] if step.startswith("export ")):
                monkeypatch.setenv(name, value)
        assert cluster.steps[-1] == f"danlu up --detach --config {place.folder / 'nodes.toml'}"
        own, here.home = here.home, Path(os.environ["DANLU_HOME"])
        runs_jobs(here, place.folder / "nodes.toml")
        assert not shared.exists()
        assert not own.exists()
        assert here.home.parent == cluster.folder
        assert (cluster.folder / "shared" / "logs").is_dir()


def runs_jobs(here: Installation, config: Path) -> None:
    """Cards by number and by model, several nodes, and rules of a queue that Slurm's own cannot express."""
    here.danlu("up", "--detach", "--config", config)
    see = ("--", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $SLURM_JOB_PARTITION"')
    assert here.danlu("run", "--gpus", "1", *see).text in ("0 train", "1 train", "2 train")
    assert here.danlu("run", "--gpus", "a100:1", *see).text == "2 train"
    assert sorted(here.danlu("run", "--nodes", "2", "--", "printenv", "DANLU_NODE").text.split()) == ["a1", "a2"]
    refused = here.danlu("run", "--queue", "login", "--mem", "5G", "--", "true", code=3).talk
    assert refused.startswith("error: queue `login` gives one job at most 4 GiB of memory, this one asks for 5 GiB\n")
    here.danlu("down")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_example_clusters_boot(place: Place, path: Path) -> None:
    with Played(path, place, slurm_release(OLDER)) as cluster:
        assert cluster.ask("srun", "--gres=gpu:1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0"


# One machine of its own: names, network, processes, devices and system folders that only it sees.
_MACHINE = """\
set -eu
folder=$1 name=$2 books=$3
mount -t proc proc /proc
# Its own /tmp: the database names files there after its process number, which on other machines is another's too.
mount --bind "$folder" /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$folder"
mount --bind /mnt "$folder"
ip link set lo up
ip addr add 10.77.0.1/32 dev lo
hostname "$name"
mount --bind "$folder/hosts" /etc/hosts
for place in /etc/slurm /etc/munge /var/lib/slurm /var/log/slurm /var/lib/munge /var/log/munge /var/lib/mysql /run; do
    mkdir -p $place
    mount -t tmpfs tmpfs $place
done
chown munge:munge /etc/munge /var/lib/munge /var/log/munge
chmod 700 /etc/munge /var/lib/munge /var/log/munge
mount -t tmpfs -o mode=755 tmpfs /dev
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 nvidia0:195:0 nvidia1:195:1; do
    IFS=: read -r name major minor <<END
$device
END
    mknod -m 666 "/dev/$name" c "$major" "$minor"
done
mkdir /dev/shm
ln -s /proc/self/fd /dev/fd
if [ "$books" = accounting ]; then
    mkdir /run/mysqld
    chown mysql:mysql /run/mysqld /var/lib/mysql
    mariadb-install-db --user=mysql --skip-test-db >/dev/null
fi
cd "$folder/slurm"
sh rollout.sh
# Idle alone is not enough: what runs before the node has told its version may lose its output.
timeout 60 sh -c 'until sinfo -h -o "%T %v" | grep -q "^idle [0-9]"; do sleep 0.1; done' || tail /var/log/slurm/*.log
sinfo -h -o 'state %T'
scontrol show node "$name" | grep -i reason || true
srun --gres=gpu:1 sh -c 'echo "given $CUDA_VISIBLE_DEVICES $SLURM_STEP_GPUS"'
# The card that was not given cannot be opened; the one that was has no driver behind it, which is another answer.
srun --gres=gpu:1 sh -c 'for n in 0 1; do (: </dev/nvidia$n) 2>&1 | sed "s/.*: /card $n: /"; done'
srun --mem=64 python3 -c 'x = b"x" * (500 << 20); print("unlimited")' || echo "memory $?"
job=$(sbatch --parsable -o /dev/null --wrap 'setsid sleep 7654 & setsid sh -c "sleep 7654 & sleep 7654" & sleep 7654')
timeout 60 sh -c 'until [ "$(pgrep -fxc "sleep 7654")" -ge 4 ]; do sleep 0.1; done' || echo "the job has not begun"
scancel "$job"
timeout 60 sh -c 'while pgrep -fx "sleep 7654"; do sleep 0.1; done' >/dev/null && echo "nothing left"
if [ "$books" = accounting ]; then
    timeout 60 sh -c 'until sacct -a -n -X -j 1 -o state,alloctres%60 | grep COMPLETED; do sleep 0.2; done'
fi
sh rollout.sh >/dev/null && ls /etc/slurm
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("books", ["accounting", "none"])
def test_the_scripts_make_a_machine_a_cluster_that_holds_jobs_to_what_they_got(place: Place, books: str) -> None:
    """With cgroups: cores, memory and cards."""
    folder, name = place.folder, f"m{place.number}"
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    (folder / "nodes.toml").write_text(
        f"[slurm]\naccounting = {'true' if books == 'accounting' else 'false'}\n"
        f'[[nodes]]\nname = "{name}"\ncpus = {os.cpu_count()}\nmemory = "{memory_mib}M"\ngpus = "2xRTX3090"\n'
    )
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n10.77.0.1 {name}\n")
    init(folder / "nodes.toml", folder / "slurm")
    # It ends with us, and its groups of processes bear its name: other runs of the tests have machines too.
    unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts"]
    unshare += ["--net", "--propagation", "slave"]
    remove_groups(name)
    with (folder / "said").open("w+") as out:
        try:
            command = [*unshare, "sh", "-c", _MACHINE, "sh", str(folder), name, books]
            path = {"PATH": os.defpath + ":/usr/sbin:/sbin"}
            subprocess.run(command, stdout=out, stderr=out, timeout=280, env=path, pass_fds=[place.lock.fileno()])
        finally:
            remove_groups(name)
        out.seek(0)
        said = out.read()
    assert "state idle" in said, said
    assert "given 0 0" in said, said
    assert "card 1: Operation not permitted" in said, said
    assert "card 0: Operation not permitted" not in said, said
    assert "\nmemory " in said, said
    assert "unlimited" not in said, said
    assert "has not begun" not in said, said
    assert "nothing left" in said, said
    # Twice is fine, and replaces nothing that has not changed.
    secret = "\nslurmdbd.conf" if books == "accounting" else ""
    assert said.rstrip().endswith(f"cgroup.conf\ngres.conf\nslurm.conf{secret}"), said
    assert ("gres/gpu=1" in said) == (books == "accounting"), said


def remove_groups(machine: str) -> None:
    for place in Path("/sys/fs/cgroup").glob(f"*/slurm_{machine}"):
        subprocess.run(["find", str(place), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], check=False)
