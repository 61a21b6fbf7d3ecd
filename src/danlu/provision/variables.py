"""The environment variables of a run: its cards, its id, its share, its ask."""

import zlib
from collections.abc import Mapping

from danlu.domain.job import Job
from danlu.domain.resources import MEETING_PORTS, Seat

_ALWAYS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def run_variables(
    job: Job, seat: Seat | None, inherited: Mapping[str, str], *, login: Mapping[str, str], shards_per_gpu: int
) -> dict[str, str]:
    """The complete environment of a run: the submitter's variables, the login variables, `--env`, Danlu's variables.
    Without a seat, the engine chooses the seat and sets the variables for node and cards."""
    spec, ask = job.spec, job.spec.ask
    visible = () if seat is None else seat.gpus if seat.shared_gpu is None else (seat.shared_gpu,)
    variables = {**_ALWAYS, **inherited, **login, **dict(spec.env)}
    variables |= {
        # CUDA numbers cards by speed by default; Danlu uses the numbers of the driver, by position on the bus.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, visible)),
        "DANLU_JOB_ID": job.id,
        "DANLU_JOB_NUMBER": str(job.seq),
        "DANLU_RUN_ID": job.run_id,
        "DANLU_ATTEMPT": str(job.attempt),
        "DANLU_JOB_NAME": spec.name,
        "DANLU_USER": job.user,
        "DANLU_NODE": seat.node if seat else "",
        "DANLU_QUEUE": spec.queue,
        "DANLU_TEAM": spec.team,
        "DANLU_WORKDIR": spec.workdir,
        "DANLU_GPUS": str(ask.gpus),
        "DANLU_GPU_MODEL": ask.gpu_model or "",
        "DANLU_SHARDS": str(ask.shards),
        "DANLU_SHARDS_PER_GPU": str(shards_per_gpu),
        "DANLU_CPUS": str(ask.cpus),
        "DANLU_MEMORY_MIB": str(ask.memory_mib),
        "DANLU_NODES": str(ask.nodes),
        "DANLU_TIME_LIMIT_S": str(int(spec.time_limit.total_seconds())) if spec.time_limit else "",
    }
    if job.array_index is not None:
        variables |= {"DANLU_ARRAY_ID": job.array_id, "DANLU_ARRAY_INDEX": str(job.array_index)}
        variables |= {"DANLU_ARRAY_NUMBER": str(job.group_number)}
    if seat is not None:
        variables = _one_node(job.run_id) | variables
    # Output reaches the log line by line; a training script's progress must not sit in a buffer.
    variables.setdefault("PYTHONUNBUFFERED", "1")
    return variables


def _one_node(run_id: str) -> dict[str, str]:
    """Variables for torchrun: the same command line works on a single node and on several nodes. Without RANK and
    similar variables: a script with RANK acts as one of several processes, and starts none for the other cards."""
    port = MEETING_PORTS[zlib.crc32(run_id.encode()) % len(MEETING_PORTS)]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NNODES": "1", "NODE_RANK": "0"}
