"""The section `[engine]` of the configuration."""

from dataclasses import dataclass

from danlu.domain.resources import SHARDS_PER_GPU


@dataclass(frozen=True, slots=True)
class EngineSettings:
    kind: str = "local"
    node_name: str = ""
    fake_gpus: str = ""
    shards_per_gpu: int = SHARDS_PER_GPU
    cpus: int = 0  # 0: what the machine has
    memory: str = ""  # empty: what the machine has
    run_as: str = "auto"  # "submitter" where a server of root drives a cluster, else "server"
    grace: str = "30s"
    shared_dir: str = ""  # slurm: a folder that every node sees under the same name
    slurm_conf: str = ""  # slurm: where its configuration is, if not where its commands look
    slurm_accounts: str = "use"  # slurm: "make" adds accounts of teams that are missing to its books
