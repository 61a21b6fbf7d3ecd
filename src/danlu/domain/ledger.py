"""What was used, and how past use fades."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from danlu.domain.job import Job


@dataclass(frozen=True, slots=True)
class Charge:
    """One run that is over: who held what, from when to when. Kept when the job itself is forgotten."""

    run_id: str
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
    """What the run that the job is in, and that is over now, has used."""
    seat, spec = job.seat, job.spec
    assert seat is not None
    return Charge(
        run_id=job.run_id,
        user=job.user,
        team=spec.team,
        queue=spec.queue,
        submitted_at=job.submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        gpus=len(seat.gpus),
        shards=seat.shards,
        shards_per_gpu=shards_per_gpu,
        cpus=seat.cpus,
        memory_mib=seat.memory_mib,
        time_limit=spec.time_limit,
    )


def gpu_hours(gpus: int, shards: int, shards_per_gpu: int, held: timedelta) -> float:
    return (gpus + shards / shards_per_gpu) * held.total_seconds() / 3600


def faded(hours: float, age: timedelta, half_life: timedelta) -> float:
    """What counts today of hours that were used so long ago."""
    return float(hours * 0.5 ** (max(age, timedelta(0)) / half_life))
