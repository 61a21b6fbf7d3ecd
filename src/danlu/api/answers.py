"""The shapes of answers, for the OpenAPI document. `bodies` and `present_*` make the answers; a test checks
that answers and shapes agree."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class ReasonOut(Answer):
    code: str
    text: str


class AskOut(Answer):
    gpus: int
    gpu_model: str | None
    shards: int
    cpus: int
    memory_mib: int
    shm_mib: int
    nodes: int


class SeatOut(Answer):
    node: str
    gpus: list[int]
    shared_gpu: int | None
    shards: int


class JobOut(Answer):
    id: str
    seq: int
    number: str
    user: str
    name: str
    state: str
    reason: ReasonOut
    place: int | None
    estimated_at: str | None
    command: list[str] | None
    workdir: str | None
    env: dict[str, str] | None
    is_cut: bool
    log_path: str | None
    labels: dict[str, str]
    ask: AskOut
    priority: int
    time_limit_s: int | None
    signal: str | None
    retries: int
    attempt: int
    after: list[str]
    array: str
    array_id: str
    array_index: int | None
    snapshot: str
    queue: str
    team: str
    preemptible: bool
    interactive: bool
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    stop_requested_at: str | None
    exit_code: int | None
    notes: list[str]
    run_id: str
    node: str | None
    gpus: list[int]
    shared_gpu: int | None
    seats: list[SeatOut]


class PastRunOut(Answer):
    attempt: int
    state: str
    reason: ReasonOut
    started_at: str | None
    ended_at: str
    exit_code: int | None
    node: str


class ShownJob(JobOut):
    runs: list[PastRunOut]
    run_folder: str | None
    engine_id: str | None


class ShownArray(Answer):
    id: str
    array: bool
    count: int
    states: dict[str, int]
    items: list[JobOut]


class Submitted(Answer):
    id: str
    jobs: list[JobOut]
    count: int


class ListedJob(JobOut):
    tasks: dict[str, int] | None = None


class JobPage(Answer):
    items: list[ListedJob]
    next: int | None
    trouble: str | None


class Stopped(Answer):
    items: list[JobOut]
    count: int


class Waited(Answer):
    done: bool
    items: list[JobOut]
    count: int
    states: dict[str, int]


class Removed(Answer):
    removed: int


class AlternativeOut(Answer):
    changes: dict[str, str | int | bool]
    options: str
    text: str
    seat: SeatOut


class DryRun(Answer):
    fits_now: bool
    seat: SeatOut | None
    reason: ReasonOut | None
    estimated_at: str | None
    is_guess: bool
    alternatives: list[AlternativeOut]


class HolderOut(Answer):
    id: str
    user: str
    team: str
    node: str
    gpus: list[int]
    shards: int
    ends_at: str | None
    is_other: bool


class CloneOut(AlternativeOut):
    command: str


class WhyOut(Answer):
    id: str
    state: str
    reason: ReasonOut
    place: int | None
    estimated_at: str | None
    is_guess: bool
    holders: list[HolderOut]
    alternatives: list[CloneOut]


class ExternalOut(Answer):
    id: str
    user: str
    name: str
    state: str
    reason: ReasonOut | None
    estimated_at: str | None
    ask: AskOut
    tasks: int
    queue: str
    submitted_at: str | None
    started_at: str | None
    ends_at: str | None
    seats: list[SeatOut]


class OtherList(Answer):
    items: list[ExternalOut]


class GpuOut(Answer):
    index: int
    model: str
    memory_mib: int
    use: str
    shards: int
    shards_free: int
    holders: list[HolderOut]


class CardOut(GpuOut):
    node: str


class NodeOut(Answer):
    name: str
    cpus: int
    cpus_free: int
    memory_mib: int
    memory_free_mib: int
    accepts_jobs: bool
    state: str
    why_closed: str
    holders: list[HolderOut]
    gpus: list[GpuOut]


class NodeList(Answer):
    items: list[NodeOut]
    trouble: str | None


class QueueCards(Answer):
    model: str
    total: int
    free: int
    shards_free: int


class QueueOut(Answer):
    name: str
    default: bool
    interactive: bool
    may_use: bool
    why_not: str
    closed: str
    takes_jobs: bool
    users: list[str]
    teams: list[str]
    groups: list[str]
    besides: str
    nodes: list[str]
    cards: list[QueueCards]
    cpus: int
    cpus_free: int
    running: int
    waiting: int
    max_gpus: int | None
    max_shards: int | None
    max_cpus: int | None
    max_memory_mib: int | None
    max_time_s: int | None
    default_time_s: int | None
    default_priority: int | None
    max_priority: int | None


class QueueList(Answer):
    items: list[QueueOut]
    trouble: str | None


class Status(Answer):
    version: str
    pid: int
    address: str
    addresses: list[str]
    engine: str
    pretends: str | None
    runs_as: str
    is_shut: bool
    state_dir: str
    started_at: str
    user: str
    role: str
    trouble: str | None
    jobs: dict[str, int]
    nodes: list[NodeOut]
    cards: list[CardOut]


class Announced(Answer):
    id: str
    missing: list[str]


class Health(Answer):
    ok: bool
    code: str | None


class Stopping(Answer):
    stopping: bool


class ProblemOut(Answer):
    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str
