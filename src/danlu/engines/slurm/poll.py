"""One look at Slurm: everything it lists in one question, and what that look has taught us."""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from danlu.domain.resources import Seat
from danlu.engines.slurm.commands import PLAIN, Commands, is_trouble, listed_together
from danlu.engines.slurm.external import PAST_FORMAT, Others, parse_past, unexplained
from danlu.engines.slurm.ownership import NumberOf, Sorting
from danlu.engines.slurm.text.messages import last_words
from danlu.engines.slurm.text.options import Habits
from danlu.engines.slurm.text.parse_cluster import (
    NodeFacts,
    Partition,
    parse_config,
    parse_hostlist,
    parse_nodes,
    parse_partitions,
)
from danlu.engines.slurm.text.parse_jobs import (
    ACCOUNTING_FORMAT,
    QUEUE_FORMAT,
    PastJob,
    QueueLine,
    QueueReader,
    parse_accounting,
    parse_exit_codes,
    parse_job_seats,
)
from danlu.errors import EngineDown

NODES_SOON_S = 2.0  # between looks at nodes while runs come and go
PAST_TOLD_S = 600.0
FEW_OF = 20
# Everybody's looks wait for it.
BOOKS_PATIENCE_S, BOOKS_AGAIN_S = 10.0, 60.0


@dataclass
class Look:
    """What Slurm last said. `began_at` (monotonic) is when the question was asked, not when it was answered."""

    commands: Commands
    began_at: float = 0.0
    took_s: float = 0.0  # the shorter of the last two: a controller that hung once is not a busy one
    listed: int = 0  # how many jobs it has in its memory, those that are over included
    jobs: Sorting = field(default_factory=Sorting)
    others_told: Others = field(default_factory=Others)
    seats: dict[int, tuple[Seat, ...]] = field(default_factory=dict)
    nodes: list[NodeFacts] = field(default_factory=list)
    nodes_at: float = float("-inf")
    moved_at: float = float("-inf")  # when it was last seen that somebody came or left
    has_new_nodes: bool = False  # the last look was also one at the nodes
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    learned_at: float = float("-inf")
    _last_took_s: float = 0.0
    _reader: QueueReader = field(default_factory=QueueReader)
    _holding: frozenset[int] = frozenset()
    _past_until: float = float("-inf")
    _books_again_at: float = float("-inf")

    async def learn(self) -> None:
        """What changes rarely: settings, queues, nodes."""
        self.config = parse_config(await self.commands.ask_or_ping("scontrol", "show", "config"))
        await self.look_at_nodes()
        self.learned_at = time.monotonic()

    async def look_at_nodes(self) -> None:
        nodes, partitions = await asyncio.gather(
            self.commands.ask_or_ping("scontrol", "-a", "-d", "-o", "show", "node"),
            self.commands.ask_or_ping("scontrol", "-a", "-o", "show", "partition"),
        )
        self.nodes, self.partitions = parse_nodes(nodes), parse_partitions(partitions)
        self.nodes_at = time.monotonic()

    async def look(self, owner_of: NumberOf, begun_as: NumberOf) -> None:
        """One question for all: a busy slurmctld drops clients that ask per job. See `Sorting.sort`."""
        began_at = time.monotonic()
        mark = secrets.token_hex(6)
        said = await self.commands.ask_or_ping("squeue", "-h", "-a", "-t", "all", "-o", f"{mark}|{QUEUE_FORMAT}")
        fresh = self._reader.read(said, mark)
        self.jobs.sort(fresh, self._reader.gone, began_at=began_at, owner_of=owner_of, begun_as=begun_as)
        self.listed = self._reader.count
        took_s = time.monotonic() - began_at
        self.took_s, self._last_took_s = min(took_s, self._last_took_s), took_s
        self.began_at = began_at
        await self._look_around()
        if time.monotonic() > self._past_until:
            self.others_told.past = []
        self.others_told.tell(self.jobs.others.values(), self.seats)

    async def _look_around(self) -> None:
        """Where those are that have a place, and what that leaves."""
        numbers = frozenset(line.number for line in self.jobs.holding.values())
        if numbers != self._holding:
            self._holding, self.moved_at = numbers, self.began_at
        # Again and again on a busy cluster, but not with every look.
        self.has_new_nodes = self.moved_at > self.nodes_at and self.began_at - self.nodes_at > NODES_SOON_S
        if self.has_new_nodes:
            await self.look_at_nodes()
        await self._look_closer()

    async def look_back(self, since: float) -> None:
        """At what ended while nobody looked, if Slurm may list it no more and keeps books. Raises EngineDown."""
        if not self.has_accounting or time.time() - since < 0.8 * self.min_job_age_s:
            return
        # Somewhat earlier: its seconds are whole ones, and who is told of twice is counted once.
        mark, begin = secrets.token_hex(6), datetime.fromtimestamp(int(since) - 10, UTC)
        said = await self.commands.ask(
            "sacct", "-n", "-P", "-X", "-D", "-a", f"--starttime={begin:%Y-%m-%dT%H:%M:%S}", f"--delimiter={mark}",
            f"--format={PAST_FORMAT}",
        )  # fmt: skip
        self.others_told.past = await self.commands.apart(parse_past, said, mark, self.jobs.instance, begin)
        self._past_until = time.monotonic() + PAST_TOLD_S

    async def _look_closer(self) -> None:
        """Which cards those hold that have just begun: Slurm tells it job by job only. Some do not even say that they
        asked for any; they are asked about where cards are taken and nobody is known to have them."""
        self.seats = {number: seats for number, seats in self.seats.items() if number in self._holding}
        new = sorted(line.number for line in self.jobs.holding.values() if line.gres and line.number not in self.seats)
        is_fresh = self.nodes_at > self.moved_at
        if is_fresh and (puzzling := unexplained(self.nodes, self.seats.values())):
            new += [
                line.number
                for line in self.jobs.holding.values()
                if not line.gres and line.number not in self.seats and puzzling & {*parse_hostlist(line.nodelist)}
            ]
        if new:
            with contextlib.suppress(EngineDown):
                found = parse_job_seats(await self._shown(new, "-d"))
                lines = {line.number: line for line in self.jobs.holding.values()}
                self.seats |= {number: found[number] for number in new if _are_of(found.get(number, ()), lines[number])}

    async def exit_codes(self, numbers: Collection[int]) -> dict[int, int]:
        """Of these jobs, if they are still listed, and maybe of others. Raises EngineDown."""
        return parse_exit_codes(await self._shown(numbers, "-o")) if numbers else {}

    async def _shown(self, numbers: Collection[int], option: str) -> str:
        """What is to be said of these jobs, with one command: about each of a few, or about all that are listed if that
        is less work. One of them may just have ended: what is said of the others counts. Raises EngineDown."""
        is_few = len(numbers) * FEW_OF <= max(self.listed, FEW_OF)
        asked = "".join(f"show job {number}\n" for number in numbers) if is_few else "show job\n"
        answer = await self.commands.run(("scontrol", option), stdin=asked, extra=PLAIN)
        if is_trouble(answer):
            raise EngineDown(f"Slurm does not answer: {last_words(answer.said)}")
        return re.sub(r"(?m)^(scontrol: )+", "", answer.out)

    async def remembered(self, numbers: Collection[int]) -> list[PastJob]:
        """What accounting knows of jobs that the controller has let go; nothing where it is off. Raises EngineDown."""
        if not numbers or not self.has_accounting:
            return []
        if time.monotonic() < self._books_again_at:
            raise EngineDown("Slurm's books did not answer a moment ago")
        words = ("sacct", "-n", "-P", "-X", "-D", f"--format={ACCOUNTING_FORMAT}", "-j")
        found: list[PastJob] = []
        try:
            for some in listed_together(numbers):
                found += parse_accounting(await self.commands.ask(*words, some, patience_s=BOOKS_PATIENCE_S))
        except EngineDown:
            self._books_again_at = time.monotonic() + BOOKS_AGAIN_S
            raise
        return found

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


def _are_of(seats: Collection[Seat], line: QueueLine) -> bool:
    """Are they where Slurm lists it? One that is being cleared away is listed with the nodes that are left."""
    nodes, listed = {seat.node for seat in seats}, {*parse_hostlist(line.nodelist)}
    return bool(nodes) and (nodes == listed or (line.state == "COMPLETING" and nodes >= listed))
