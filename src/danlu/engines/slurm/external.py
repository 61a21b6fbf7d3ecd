"""External jobs (submitted without Danlu) as runs, and nodes with Slurm's own states. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Seat
from danlu.engines.base import ExternalRun, Handle, NodeNow, RunState
from danlu.engines.slurm.text.messages import explain_wait
from danlu.engines.slurm.text.parse_cluster import NodeFacts, parse_gres, parse_hostlist, parse_numbers, parse_time
from danlu.engines.slurm.text.parse_jobs import QueueLine

Seats = tuple[Seat, ...]
PREFIX = "slurm:"  # of the ids that people use for jobs of Slurm
MOST_TASKS = 4_000_001  # per array
# SubmitLine comes last: users choose its content.
PAST_FORMAT = "JobID,User,Partition,Submit,Start,End,State,NCPUS,NodeList,AllocTRES,SubmitLine"


# Ten thousand jobs share a few reasons and requests.
_explained, _cards = lru_cache(4096)(explain_wait), lru_cache(4096)(parse_gres)


@dataclass(frozen=True, slots=True)
class _Listed:
    line: QueueLine
    seats: Seats
    run: ExternalRun


class ExternalJobs:
    """The external jobs after each poll. An unchanged job stays the same object: a queue of ten thousand jobs costs
    little."""

    def __init__(self) -> None:
        self._listed: dict[str, _Listed] = {}
        self.past: list[ExternalRun] = []  # ended between two servers; from accounting
        self.has_changed = False  # since the poll before: a job came, left or changed its state

    @property
    def runs(self) -> list[ExternalRun]:
        return [*(listed.run for listed in self._listed.values()), *self.past]

    def update(self, lines: Iterable[QueueLine], seats: Mapping[int, Seats]) -> None:
        listed: dict[str, _Listed] = {}
        has_changed = False
        for line in lines:
            found = seats.get(line.number, ())
            known = self._listed.get(line.id)
            if known is None or known.seats != found or (known.line is not line and known.line != line):
                before, known = known, _Listed(line, found, other_run(line, found))
                has_changed |= before is None or _standing(before.run) != _standing(known.run)
            listed[line.id] = known
        self.has_changed = has_changed or listed.keys() != self._listed.keys()
        self._listed = listed


def _standing(run: ExternalRun) -> tuple[RunState, Seats, Reason | None]:
    """The facts whose changes people see at once. Estimates change all the time."""
    return run.state, run.seats, run.reason


def other_handle(line: QueueLine) -> Handle:
    """Number, submit time and owner: Slurm reuses numbers. The handle of pending array tasks stays the same while
    their list shrinks."""
    at = int((line.submitted_at or datetime.fromtimestamp(0, UTC)).timestamp())
    name = f"{line.number}_[]" if "[" in line.id else line.id
    return Handle(f"slurm-job:{name}:{at}:{line.uid}")


def other_run(line: QueueLine, seats: Seats) -> ExternalRun:
    """`seats` with GPUs, if already read from Slurm."""
    state = RunState.ENDED if line.is_over else RunState.PENDING if line.is_waiting else RunState.RUNNING
    has_begun = not line.is_waiting and bool(line.nodelist)
    per_node = max(line.cpus // line.nodes, 1)
    if state is not RunState.RUNNING:
        seats = ()
    elif not seats:
        seats = tuple(Seat(name, per_node, line.memory_mib) for name in parse_hostlist(line.nodelist))
    return ExternalRun(
        id=f"{PREFIX}{line.id}",
        handle=other_handle(line),
        user=line.user,
        name=line.name,
        state=state,
        ask=_ask(line, per_node, seats),
        queue=line.partition,
        seats=seats,
        submitted_at=line.submitted_at,
        started_at=line.starts_at if has_begun else None,
        ends_at=None if line.is_waiting else line.ends_at,
        reason=_explained(line.reason) if line.is_waiting else None,
        estimated_at=line.starts_at if line.is_waiting else None,
        tasks=len(_tasks(line.id)) or 1,
    )


def _ask(line: QueueLine, per_node: int, seats: Seats) -> Ask:
    """The request per node. The queue line names GPUs only for `--gres`; the seats name all GPUs."""
    cards = _cards(line.gres)
    gpus, shards = cards.gpus if not cards.shards else 0, cards.shards
    if not (gpus or shards):
        gpus = max((len(seat.gpus) for seat in seats), default=0)
        shards = 0 if gpus else max((seat.shards for seat in seats), default=0)
    return Ask(
        gpus=gpus,
        gpu_model=cards.model or None,
        shards=shards,
        cpus=per_node,
        memory_mib=max((seat.memory_mib for seat in seats), default=line.memory_mib),
        nodes=line.nodes,
    )


def _tasks(job: str) -> list[int]:
    """The task numbers in `17_[4-9,12%2]`."""
    _, _, listed = job.partition("[")
    return parse_numbers(listed.rstrip("]").partition("%")[0], MOST_TASKS)


def parse_past(text: str, mark: str, instance: str, since: datetime) -> list[ExternalRun]:
    """From `sacct -n -P -X -D -a --delimiter=MARK --format=PAST_FORMAT`: external jobs with an end after `since`."""
    found = []
    ours = f"--comment=danlu:{instance}:"
    for record in text.splitlines():
        parts = record.split(mark, 10)
        if len(parts) == 11 and ours not in parts[10]:
            run = _past_run(parts)
            has_begun = run.started_at is not None and not parts[8].startswith("None")
            if run.user and has_begun and run.ends_at and run.ends_at >= since:
                found.append(run)
    return found


def _past_run(parts: list[str]) -> ExternalRun:
    job, user, partition, submitted, starts, ends, _, cpus, _, tres, _ = parts
    cards = parse_gres(",".join(word for word in tres.split(",") if word.startswith("gres/")))
    # The sum over all nodes: nodes may differ.
    ask = Ask(gpus=cards.gpus if not cards.shards else 0, shards=cards.shards, cpus=max(int(cpus or 1), 1))
    return ExternalRun(
        id=f"{PREFIX}{job}",
        handle=Handle(f"slurm-job:{job}:{submitted}"),
        user=user,
        name="",
        state=RunState.ENDED,
        ask=ask,
        queue=partition,
        submitted_at=parse_time(submitted),
        started_at=parse_time(starts),
        ends_at=parse_time(ends),
    )


def one_task(together: ExternalRun, ref: str) -> ExternalRun | None:
    """The task `slurm:17_5` of an array with pending tasks."""
    name = ref.removeprefix(PREFIX)
    if not _is_task(name, together.id.removeprefix(PREFIX)):
        return None
    handle = Handle(together.handle.replace("_[]:", f"_{name.partition('_')[2]}:"))
    return replace(together, id=ref, handle=handle, tasks=1)


def stop_words(line: QueueLine, handle: Handle) -> tuple[str, ...]:
    """The `scancel` command if this line holds the handle's job. `--user` protects other users: Slurm reuses
    numbers."""
    owner = f"--user={line.uid}"
    if other_handle(line) == handle:
        return "scancel", owner, *(("--state=PENDING", str(line.number)) if "[" in line.id else (line.id,))
    name = handle.split(":")[1]
    if _is_task(name, line.id) and other_handle(replace(line, id=name)) == handle:
        return "scancel", name  # with any further option, Slurm cancels all pending tasks of the array
    return ()


def _is_task(name: str, together: str) -> bool:
    """Is `17_5` in `17_[4-9%2]`?"""
    asked = re.fullmatch(r"([0-9]{1,10})_([0-9]{1,10})", name)
    return asked is not None and together.startswith(f"{asked[1]}_[") and int(asked[2]) in _tasks(together)


def node_now(facts: NodeFacts) -> NodeNow:
    used = facts.used
    # Slurm before 23.11 lists the cards with used shards, without their numbers.
    shards = {index: used.shards_of.get(index, 1) for index in used.shared}
    return NodeNow(facts.state, facts.why, facts.cpus_used, facts.memory_used_mib, used.indices, shards)


def unexplained(facts: Iterable[NodeFacts], seats: Iterable[Seats]) -> frozenset[str]:
    """Nodes with used GPUs of unknown jobs."""
    known = {
        (seat.node, index)
        for one in seats
        for seat in one
        for index in (*seat.gpus, *(() if seat.shared_gpu is None else (seat.shared_gpu,)))
    }
    return frozenset(
        one.node.name
        for one in facts
        if any((one.node.name, index) not in known for index in (*one.used.indices, *one.used.shared))
    )
