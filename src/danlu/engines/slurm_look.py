"""One look at Slurm: everything it lists in one question, and what that look has taught us."""

import asyncio
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from danlu.domain.resources import Ask, Seat
from danlu.engines.base import Handle, OtherRun, RunState
from danlu.engines.slurm_commands import Commands
from danlu.engines.slurm_script import Habits, parse_comment
from danlu.engines.slurm_text import (
    ACCOUNTING_FORMAT,
    QUEUE_FORMAT,
    NodeFacts,
    Partition,
    PastJob,
    QueueLine,
    parse_accounting,
    parse_config,
    parse_gres,
    parse_hostlist,
    parse_job_seats,
    parse_nodes,
    parse_partitions,
    parse_queue,
)
from danlu.engines.slurm_words import explain_wait
from danlu.errors import EngineDown

DETAILS_PER_LOOK = 32
DETAILS_AT_ONCE = 4


@dataclass
class Look:
    """What Slurm last said. `began_at` (monotonic) is when the question was asked, not when it was answered."""

    commands: Commands
    instance: str = ""
    began_at: float = 0.0
    took_s: float = 0.0
    ours: dict[str, list[QueueLine]] = field(default_factory=dict)
    others: list[QueueLine] = field(default_factory=list)
    seats: dict[int, tuple[Seat, ...]] = field(default_factory=dict)
    nodes: list[NodeFacts] = field(default_factory=list)
    nodes_at: float = float("-inf")
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)

    async def learn(self) -> None:
        """What changes rarely: settings, queues, nodes."""
        self.config = parse_config(await self.commands.ask_or_ping("scontrol", "show", "config"))
        await self.look_at_nodes()

    async def look_at_nodes(self) -> None:
        nodes, partitions = await asyncio.gather(
            self.commands.ask_or_ping("scontrol", "-a", "-d", "-o", "show", "node"),
            self.commands.ask_or_ping("scontrol", "-a", "-o", "show", "partition"),
        )
        self.nodes, self.partitions = parse_nodes(nodes), parse_partitions(partitions)
        self.nodes_at = time.monotonic()

    async def look(self, owners: Mapping[str, int]) -> None:
        """One question for all: a busy slurmctld drops clients that ask per job. `owners` of our runs are their
        users' numbers: anyone can write the name of a run into a comment, so only its owner's job is the run."""
        began_at = time.monotonic()
        mark = secrets.token_hex(6)
        said = await self.commands.ask_or_ping("squeue", "-h", "-a", "-t", "all", "-o", f"{mark}|{QUEUE_FORMAT}")
        lines = parse_queue(said, mark)
        self.ours, self.others = {}, []
        for line in lines:
            named = parse_comment(line.comment) if line.comment else None
            if named and named[0] == self.instance and owners.get(named[1]) == line.uid:
                self.ours.setdefault(named[1], []).append(line)
            else:
                self.others.append(line)
        self.took_s = time.monotonic() - began_at
        self.began_at = began_at
        await self._look_closer(lines)

    async def _look_closer(self, lines: Iterable[QueueLine]) -> None:
        """Which cards those hold that have just begun: Slurm tells it job by job only."""
        holding = {line.number for line in lines if line.gres and not line.is_over and not line.is_waiting}
        self.seats = {number: seats for number, seats in self.seats.items() if number in holding}
        new = sorted(holding - self.seats.keys())[:DETAILS_PER_LOOK]
        for at in range(0, len(new), DETAILS_AT_ONCE):
            for number, seats in zip(
                new[at:], await asyncio.gather(*map(self._seats_of, new[at : at + DETAILS_AT_ONCE])), strict=False
            ):
                if seats:
                    self.seats[number] = seats

    async def _seats_of(self, number: int) -> tuple[Seat, ...]:
        try:
            said = await self.commands.ask("scontrol", "-d", "show", "job", str(number))
        except EngineDown:  # it may just have ended
            return ()
        return parse_job_seats(said).get(number, ())

    async def remembered(self, numbers: Collection[int]) -> dict[int, PastJob]:
        """What accounting knows of jobs that the controller has let go; nothing where it is off or away."""
        if not numbers or not self.has_accounting:
            return {}
        wanted = ",".join(map(str, sorted(numbers)))
        try:
            said = await self.commands.ask(
                "sacct", "-n", "-P", "-X", "-D", "-j", wanted, f"--format={ACCOUNTING_FORMAT}"
            )
        except EngineDown:
            return {}
        return {past.number: past for past in parse_accounting(said)}

    @property
    def cluster(self) -> str:
        return self.config.get("ClusterName", "")

    @property
    def has_accounting(self) -> bool:
        return self.config.get("AccountingStorageType", "").endswith("slurmdbd")

    @property
    def min_job_age_s(self) -> float:
        first = self.config.get("MinJobAge", "300").split()[0]
        return float(first) if first.isdigit() else 300.0

    def habits(self) -> Habits:
        default = next((one.name for one in self.partitions if one.is_default), "")
        return Habits(
            has_accounts=self.has_accounting,
            models=tuple({gpu.model: None for facts in self.nodes for gpu in facts.node.gpus}),
            longest={one.name: one.max_time for one in self.partitions},
            default_partition=default,
        )

    def other_runs(self) -> Sequence[OtherRun]:
        return [self._other(line) for line in self.others if not line.is_over]

    def _other(self, line: QueueLine) -> OtherRun:
        cards = parse_gres(line.gres)
        per_node = max(line.nodes, 1)
        names = parse_hostlist(line.nodelist)
        plain = tuple(Seat(name, max(line.cpus // per_node, 1), line.memory_mib) for name in names)
        return OtherRun(
            handle=other_handle(line),
            user=line.user,
            name=line.name,
            state=RunState.PENDING if line.is_waiting else RunState.RUNNING,
            ask=Ask(
                gpus=cards.gpus if not cards.shards else 0,
                gpu_model=cards.model or None,
                shards=cards.shards,
                cpus=max(line.cpus // per_node, 1),
                memory_mib=line.memory_mib,
                nodes=per_node,
            ),
            queue=line.partition,
            seats=() if line.is_waiting else self.seats.get(line.number) or plain,
            submitted_at=line.submitted_at,
            started_at=None if line.is_waiting else line.starts_at,
            ends_at=None if line.is_waiting else line.ends_at,
            reason=explain_wait(line.reason) if line.is_waiting else None,
        )


def other_handle(line: QueueLine) -> Handle:
    """Slurm's number alone may name another job tomorrow: the moment of its submit goes with it."""
    at = int((line.submitted_at or datetime.fromtimestamp(0, UTC)).timestamp())
    return Handle(f"slurm-job:{line.id}:{at}")
