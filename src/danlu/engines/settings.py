"""The section `[engine]` of the configuration."""

from dataclasses import dataclass

from danlu.domain.resources import SHARDS_PER_GPU


@dataclass(frozen=True, slots=True)
class EngineSettings:
    kind: str = "local"
    node_name: str = ""
    fake_gpus: str = ""
    shards_per_gpu: int = SHARDS_PER_GPU
    cpus: int = 0  # 0: all CPUs of the machine
    memory: str = ""  # empty: all memory of the machine
    run_as: str = "auto"  # auto: "submitter" if a root server drives a cluster, else "server"
    grace: str = "30s"
    shared_dir: str = ""  # slurm: a folder with the same path on every node
    slurm_conf: str = ""  # slurm: path of its configuration, if not the default path of its commands
    slurm_accounts: str = "use"  # slurm: "make" adds missing accounts of teams to the accounting of Slurm
