"""Polls Slurm: one command lists all jobs, a few more read nodes, seats and accounting."""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from danlu.domain.resources import Seat
from danlu.engines.slurm.commands import MACHINE_READABLE, Commands, is_unreachable, number_lists
from danlu.engines.slurm.external import PAST_FORMAT, ExternalJobs, parse_past, unexplained
from danlu.engines.slurm.ownership import JobOwnership, NumberOf
from danlu.engines.slurm.text.messages import last_words
from danlu.engines.slurm.text.options import ClusterTraits
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
from danlu.engines.slurm.timing import Timing
from danlu.errors import EngineDown

FEW_OF = 20


@dataclass
class Poller:
    """Slurm's last answers. `began_at` (monotonic) is the time of the question, not of the answer."""

    commands: Commands
    timing: Timing = Timing()
    began_at: float = 0.0
    took_s: float = 0.0  # the shorter of the last two polls: one slow answer is no busy controller
    listed: int = 0  # jobs in Slurm's memory, ended jobs included
    jobs: JobOwnership = field(init=False)
    external: ExternalJobs = field(default_factory=ExternalJobs)
    seats: dict[int, tuple[Seat, ...]] = field(default_factory=dict)
    nodes: list[NodeFacts] = field(default_factory=list)
    nodes_at: float = float("-inf")
    moved_at: float = float("-inf")  # last change of the jobs on nodes
    has_new_nodes: bool = False  # the last poll read the nodes too
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    settings_at: float = float("-inf")
    _last_took_s: float = 0.0
    _reader: QueueReader = field(default_factory=QueueReader)
    _placed_numbers: frozenset[int] = frozenset()
    _past_until: float = float("-inf")
    _accounting_retry_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.jobs = JobOwnership(lingers_s=self.timing.lingers_s)

    async def read_settings(self) -> None:
        """Read the rarely changing facts: settings, queues, nodes."""
        self.config = parse_config(await self.commands.query_or_ping("scontrol", "show", "config"))
        await self.read_nodes()
        self.settings_at = time.monotonic()

    async def read_nodes(self) -> None:
        nodes, partitions = await asyncio.gather(
            self.commands.query_or_ping("scontrol", "-a", "-d", "-o", "show", "node"),
            self.commands.query_or_ping("scontrol", "-a", "-o", "show", "partition"),
        )
        self.nodes, self.partitions = parse_nodes(nodes), parse_partitions(partitions)
        self.nodes_at = time.monotonic()

    async def poll(self, owner_of: NumberOf, begun_number: NumberOf) -> None:
        """One question for all jobs: a busy slurmctld drops clients with a question per job."""
        began_at = time.monotonic()
        mark = secrets.token_hex(6)
        output = await self.commands.query_or_ping("squeue", "-h", "-a", "-t", "all", "-o", f"{mark}|{QUEUE_FORMAT}")
        fresh = self._reader.read(output, mark)
        self.jobs.update(fresh, self._reader.gone, began_at=began_at, owner_of=owner_of, begun_number=begun_number)
        self.listed = self._reader.count
        took_s = time.monotonic() - began_at
        self.took_s, self._last_took_s = min(took_s, self._last_took_s), took_s
        self.began_at = began_at
        await self._refresh_placed()
        if time.monotonic() > self._past_until:
            self.external.past = []
        self.external.update(self.jobs.others.values(), self.seats)

    async def _refresh_placed(self) -> None:
        """Refresh the nodes and seats of running jobs."""
        numbers = frozenset(line.number for line in self.jobs.placed.values())
        if numbers != self._placed_numbers:
            self._placed_numbers, self.moved_at = numbers, self.began_at
        # Limited: on a busy cluster every poll would read the nodes.
        self.has_new_nodes = (
            self.moved_at > self.nodes_at and self.began_at - self.nodes_at > self.timing.refresh_nodes_busy_s
        )
        if self.has_new_nodes:
            await self.read_nodes()
        await self._read_seats()

    async def read_past(self, since: float) -> None:
        """Read external jobs from accounting that Slurm may have dropped since `since`. Raises EngineDown."""
        if not self.has_accounting or time.time() - since < 0.8 * self.min_job_age_s:
            return
        # Ten seconds earlier: sacct has whole seconds, and duplicates count once.
        mark, begin = secrets.token_hex(6), datetime.fromtimestamp(int(since) - 10, UTC)
        output = await self.commands.query(
            "sacct", "-n", "-P", "-X", "-D", "-a", f"--starttime={begin:%Y-%m-%dT%H:%M:%S}", f"--delimiter={mark}",
            f"--format={PAST_FORMAT}",
        )  # fmt: skip
        self.external.past = await self.commands.in_thread(parse_past, output, mark, self.jobs.instance, begin)
        self._past_until = time.monotonic() + self.timing.past_shown_s

    async def _read_seats(self) -> None:
        """Read the GPUs of newly started jobs: Slurm shows GPUs per job only. Jobs without GPUs in their request are
        read too if a node has used GPUs of unknown jobs."""
        self.seats = {number: seats for number, seats in self.seats.items() if number in self._placed_numbers}
        new = sorted(line.number for line in self.jobs.placed.values() if line.gres and line.number not in self.seats)
        is_fresh = self.nodes_at > self.moved_at
        if is_fresh and (puzzling := unexplained(self.nodes, self.seats.values())):
            new += [
                line.number
                for line in self.jobs.placed.values()
                if not line.gres and line.number not in self.seats and puzzling & {*parse_hostlist(line.nodelist)}
            ]
        if new:
            with contextlib.suppress(EngineDown):
                found = parse_job_seats(await self._show_jobs(new, "-d"))
                lines = {line.number: line for line in self.jobs.placed.values()}
                self.seats |= {number: found[number] for number in new if _are_of(found.get(number, ()), lines[number])}

    async def exit_codes(self, numbers: Collection[int]) -> dict[int, int]:
        """Exit codes by job number, perhaps of more jobs. Raises EngineDown."""
        return parse_exit_codes(await self._show_jobs(numbers, "-o")) if numbers else {}

    async def _show_jobs(self, numbers: Collection[int], option: str) -> str:
        """`scontrol show job` with one command: for each of a few jobs, or for all jobs if that is less work. A missing
        job does not spoil the answer for the other jobs. Raises EngineDown."""
        is_few = len(numbers) * FEW_OF <= max(self.listed, FEW_OF)
        asked = "".join(f"show job {number}\n" for number in numbers) if is_few else "show job\n"
        answer = await self.commands.run(("scontrol", option), stdin=asked, extra=MACHINE_READABLE)
        if is_unreachable(answer):
            raise EngineDown(f"Slurm does not answer: {last_words(answer.stderr)}")
        return re.sub(r"(?m)^(scontrol: )+", "", answer.stdout)

    async def accounting_of(self, numbers: Collection[int]) -> list[PastJob]:
        """Jobs from accounting after the controller dropped them; empty without accounting. Raises EngineDown."""
        if not numbers or not self.has_accounting:
            return []
        if time.monotonic() < self._accounting_retry_at:
            raise EngineDown("Slurm's accounting did not answer a moment ago")
        words = ("sacct", "-n", "-P", "-X", "-D", f"--format={ACCOUNTING_FORMAT}", "-j")
        found: list[PastJob] = []
        try:
            for some in number_lists(numbers):
                found += parse_accounting(
                    await self.commands.query(*words, some, patience_s=self.timing.accounting_patience_s)
                )
        except EngineDown:
            self._accounting_retry_at = time.monotonic() + self.timing.accounting_retry_s
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
        output = self.config.get("MaxJobCount", "")
        return int(output) if output.isdigit() else 10_000

    def traits(self) -> ClusterTraits:
        default = next((one.name for one in self.partitions if one.is_default), "")
        return ClusterTraits(
            has_accounts=self.has_accounting,
            models=tuple({gpu.model: None for facts in self.nodes for gpu in facts.node.gpus}),
            longest={one.name: one.max_time for one in self.partitions},
            default_partition=default,
            reaches_all=self.config.get("ProctrackType", "").endswith("linuxproc"),
            enforces_memory=self._holds_memory,
        )

    @property
    def _holds_memory(self) -> bool:
        is_confined = "cgroup" in self.config.get("TaskPlugin", "") and self.config.get("ConstrainRAMSpace") == "yes"
        return is_confined or "OverMemoryKill" in self.config.get("JobAcctGatherParams", "")


def _are_of(seats: Collection[Seat], line: QueueLine) -> bool:
    """True: these seats match the listed nodes. A COMPLETING job is listed with its remaining nodes only."""
    nodes, listed = {seat.node for seat in seats}, {*parse_hostlist(line.nodelist)}
    return bool(nodes) and (nodes == listed or (line.state == "COMPLETING" and nodes >= listed))
