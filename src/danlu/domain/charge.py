"""Usage of ended runs, and how past usage decays."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from danlu.domain.job import Job


@dataclass(frozen=True, slots=True)
class Charge:
    """The usage record of one ended run: user, resources, start and end. The record outlives the job."""

    run_id: str  # with the attempt; for a run from outside Danlu: the engine's own id
    user: str
    team: str
    queue: str
    submitted_at: datetime
    started_at: datetime
    ended_at: datetime
    gpus: int
    shards: int  # of one card
    shards_per_gpu: int
    cpus: int
    memory_mib: int
    time_limit: timedelta | None = None

    @property
    def gpu_hours(self) -> float:
        return gpu_hours(self.gpus, self.shards, self.shards_per_gpu, self.ended_at - self.started_at)


def charge_of(job: Job, started_at: datetime, ended_at: datetime, shards_per_gpu: int) -> Charge:
    """The charge of the job's current run, which has just ended."""
    spec, ask = job.spec, job.spec.ask
    return Charge(
        run_id=f"{job.id}.{job.attempt}",  # if the engine restarts a run, each start has its own charge
        user=job.user,
        team=spec.team,
        queue=spec.queue,
        submitted_at=job.submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        gpus=ask.gpus * ask.nodes,
        shards=ask.shards * ask.nodes,
        shards_per_gpu=shards_per_gpu,
        cpus=ask.cpus * ask.nodes,
        memory_mib=ask.memory_mib * ask.nodes,
        time_limit=spec.time_limit,
    )


def gpu_hours(gpus: int, shards: int, shards_per_gpu: int, held: timedelta) -> float:
    return (gpus + shards / shards_per_gpu) * held.total_seconds() / 3600


def faded(hours: float, age: timedelta, half_life: timedelta) -> float:
    """The part of `hours` that still counts after `age`."""
    return float(hours * 0.5 ** (max(age, timedelta(0)) / half_life))
