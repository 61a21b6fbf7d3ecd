"""One look at Slurm: everything it lists in one question, and what that look has taught us."""

import asyncio
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from danlu.domain.resources import Seat
from danlu.engines.slurm_commands import Commands
from danlu.engines.slurm_others import Others, unexplained
from danlu.engines.slurm_script import Habits, parse_comment
from danlu.engines.slurm_text import (
    ACCOUNTING_FORMAT,
    QUEUE_FORMAT,
    NodeFacts,
    Partition,
    PastJob,
    QueueLine,
    QueueReader,
    parse_accounting,
    parse_config,
    parse_hostlist,
    parse_job_seats,
    parse_nodes,
    parse_partitions,
)
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
    others_told: Others = field(default_factory=Others)
    seats: dict[int, tuple[Seat, ...]] = field(default_factory=dict)
    nodes: list[NodeFacts] = field(default_factory=list)
    nodes_at: float = float("-inf")
    moved_at: float = float("-inf")  # when it was last seen that somebody came or left
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    _reader: QueueReader = field(default_factory=QueueReader)
    _holding: frozenset[int] = frozenset()
    _buried: dict[int, tuple[str, float]] = field(default_factory=dict)

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
        lines = self._reader.read(said, mark)
        self.ours, self.others = {}, []
        for line in lines:
            named = parse_comment(line.comment) if line.comment else None
            run_id = named[1] if named and named[0] == self.instance else ""
            if run_id and owners.get(run_id) == line.uid:
                self.ours.setdefault(run_id, []).append(line)
            elif not run_id or not self._is_left_over(line, run_id):
                self.others.append(line)
        if self._buried:
            listed = {line.number for line in lines}
            self._buried = {
                number: (run_id, at)
                for number, (run_id, at) in self._buried.items()
                if number in listed or at > began_at
            }
        self.took_s = time.monotonic() - began_at
        self.began_at = began_at
        holding = [line for line in lines if not line.is_over and not line.is_waiting]
        numbers = frozenset(line.number for line in holding)
        if numbers != self._holding:
            self._holding, self.moved_at = numbers, began_at
        await self._look_closer(holding)
        self.others_told.tell(self.others, self.seats)

    def bury(self, number: int, run_id: str) -> None:
        """A run of ours is over and forgotten. Slurm lists its job for a while, and it is nobody else's."""
        self._buried[number] = run_id, time.monotonic()

    def _is_left_over(self, line: QueueLine, run_id: str) -> bool:
        """Of a run that was ours. A job that only says so, and goes on, is somebody's."""
        is_going = line.is_over or line.state == "COMPLETING"
        return is_going or self._buried.get(line.number, ("", 0.0))[0] == run_id

    async def _look_closer(self, holding: Sequence[QueueLine]) -> None:
        """Which cards those hold that have just begun: Slurm tells it job by job only. Some do not even say that they
        asked for any; they are asked about where cards are taken and nobody is known to have them."""
        self.seats = {number: seats for number, seats in self.seats.items() if number in self._holding}
        new = sorted(line.number for line in holding if line.gres and line.number not in self.seats)
        if puzzling := unexplained(self.nodes, self.seats.values()):
            new += [
                line.number
                for line in holding
                if not line.gres and line.number not in self.seats and puzzling & {*parse_hostlist(line.nodelist)}
            ]
        new = new[:DETAILS_PER_LOOK]
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

    @property
    def max_job_count(self) -> int:
        said = self.config.get("MaxJobCount", "")
        return int(said) if said.isdigit() else 10_000

    def habits(self) -> Habits:
        default = next((one.name for one in self.partitions if one.is_default), "")
        return Habits(
            has_accounts=self.has_accounting,
            models=tuple({gpu.model: None for facts in self.nodes for gpu in facts.node.gpus}),
            longest={one.name: one.max_time for one in self.partitions},
            default_partition=default,
            reaches_all=self.config.get("ProctrackType", "").endswith("linuxproc"),
            holds_memory=self._holds_memory,
        )

    @property
    def _holds_memory(self) -> bool:
        is_confined = "cgroup" in self.config.get("TaskPlugin", "") and self.config.get("ConstrainRAMSpace") == "yes"
        return is_confined or "OverMemoryKill" in self.config.get("JobAcctGatherParams", "")
