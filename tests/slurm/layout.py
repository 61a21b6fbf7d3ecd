"""What a cluster is, and the text of its configuration. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """Nodes `gn1`… with equal cards. `settings` are lines of slurm.conf that replace or add to ours."""

    nodes: int = 2
    cards: int = 4
    model: str = "rtx3090"
    shards_per_card: int = 64
    cpus: int = 32
    memory_mib: int = 64000
    accounting: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"gn{number}" for number in range(1, self.nodes + 1))


@dataclass(frozen=True)
class Ports:
    """A block of ports that nobody else uses."""

    first: int
    count: int = 20

    @property
    def controller(self) -> int:
        return self.first

    @property
    def accounting(self) -> int:
        return self.first + 1

    @property
    def database(self) -> int:
        return self.first + 2

    def nodes(self, count: int) -> str:
        assert 3 + count <= self.count, "more nodes than ports"
        return f"[{self.first + 3}-{self.first + 2 + count}]"


CONTROLLER = "ctl"
# For bad days: it gives up in seconds what it should wait for longer on a busy machine. While it waits for one node it
# hears no other, so that nodes must be given more than twice the time of a message.
IMPATIENT = {"MessageTimeout": "3", "BatchStartTimeout": "1", "SlurmdTimeout": "9"}
PARTITIONS = """\
PartitionName=gpu Nodes={nodes} Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP
PartitionName=debug Nodes=gn1 MaxTime=00:30:00 PriorityTier=10 State=UP
PartitionName=closed Nodes={nodes} State=DOWN
"""


def render_slurm_conf(layout: Layout, folder: str, ports: Ports, plugins: str | None) -> str:
    nodes = f"gn[1-{layout.nodes}]"
    settings = {
        "ClusterName": "testc",
        "SlurmctldHost": f"{CONTROLLER}(127.0.0.1)",
        "SlurmctldPort": str(ports.controller),
        # From these numbers follow the ports that ranks meet on, and the names of cgroups, both of the whole machine.
        "FirstJobId": str(10 * ports.first),
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        # The shortest life of a credential that Slurm allows: a requeued job waits twice as long.
        "AuthInfo": f"socket={folder}/munge/socket,cred_expire=5",
        "SlurmUser": "slurm",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "sched_min_interval=0,batch_sched_delay=0,bf_interval=2,sched_interval=5",
        "ReturnToService": "2",
        "SlurmctldTimeout": "10",
        "SlurmdTimeout": "30",
        "MessageTimeout": "10",
        "InactiveLimit": "0",
        "KillWait": "3",
        "MinJobAge": "300",
        "MailProg": "/bin/true",
        # Without it each job takes all the memory of its node, and nothing shares.
        "DefMemPerCPU": "1000",
        "GresTypes": "gpu,shard",
        "SlurmdParameters": "config_overrides",
        **({"PluginDir": plugins} if plugins else {}),
        **(_accounting(folder, ports) if layout.accounting else _no_accounting(folder)),
        **layout.settings,
    }
    gres = f"gpu:{layout.model}:{layout.cards},shard:{layout.cards * layout.shards_per_card}" if layout.cards else ""
    node = (
        f"NodeName={nodes} NodeHostname={nodes} NodeAddr=127.0.0.1 Port={ports.nodes(layout.nodes)} "
        f"CPUs={layout.cpus} Boards=1 SocketsPerBoard=2 CoresPerSocket={layout.cpus // 2} ThreadsPerCore=1 "
        f"RealMemory={layout.memory_mib} {f'Gres={gres} ' if gres else ''}State=UNKNOWN"
    )
    lines = [f"{name}={value}" for name, value in settings.items()]
    return "\n".join([*lines, node, PARTITIONS.format(nodes=nodes)])


def _no_accounting(folder: str) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/none",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{folder}/log/jobcomp.txt",
    }


def _accounting(folder: str, ports: Ports) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(ports.accounting),
        "AccountingStoragePass": f"{folder}/munge/socket",
        "AccountingStorageTRES": "gres/gpu,gres/shard",
        "AccountingStorageEnforce": "associations,limits,qos,safe",
        "PriorityType": "priority/multifactor",
        "PriorityWeightAge": "1000",
        "PriorityWeightFairshare": "10000",
        "PriorityWeightQOS": "100000",
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
    }


def render_gres_conf(layout: Layout, folder: str) -> str:
    if not layout.cards:
        return "AutoDetect=off\n"
    nodes = f"NodeName=gn[1-{layout.nodes}]"
    return (
        "AutoDetect=off\n"
        f"{nodes} Name=gpu Type={layout.model} File={folder}/dev/nvidia[0-{layout.cards - 1}]\n"
        f"{nodes} Name=shard Count={layout.cards * layout.shards_per_card}\n"
    )


def render_slurmdbd_conf(folder: str, ports: Ports, plugins: str | None) -> str:
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "DbdHost": CONTROLLER,
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(ports.accounting),
        "SlurmUser": "slurm",
        "LogFile": f"{folder}/log/slurmdbd.log",
        "PidFile": f"{folder}/run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": str(ports.database),
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm_acct_db",
        **({"PluginDir": plugins} if plugins else {}),
    }
    return "\n".join([*(f"{name}={value}" for name, value in settings.items()), ""])


def render_hosts(layout: Layout, machine: str) -> str:
    """The nodes find each other by name, as on a real network. So does the controller find who asks it, on this
    machine: it tries for ten seconds otherwise, and hears nobody meanwhile."""
    return f"127.0.0.1 localhost {CONTROLLER} {' '.join(layout.names)} {machine}\n"
