"""Parses Slurm's output (22.05 to 24.11) about jobs. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from danlu.domain.resources import Seat
from danlu.engines.slurm.text.parse_cluster import (
    MOST_NODES,
    leading_int,
    parse_gres,
    parse_hostlist,
    parse_memory,
    parse_numbers,
    parse_time,
    text_or_empty,
)

# Comment and name come last: users choose their content.
QUEUE_FORMAT = "%i|%A|%T|%U|%u|%P|%D|%N|%C|%m|%b|%V|%S|%e|%r|%k|%j"
# Without the job name: a name with line breaks could forge another job.
ACCOUNTING_FORMAT = "JobIDRaw,State,ExitCode,Start,End,User"
# Final states. A job in any other state, except the waiting states, holds its nodes.
OVER = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED",
    }
)  # fmt: skip
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
SEATLESS = OVER | WAITING


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A job as `squeue` lists it."""

    id: str  # `17`, `17_3`, or `17_[4-9]` for pending array tasks
    number: int  # for commands; of a pending array: the array's number
    state: str
    uid: int
    user: str
    partition: str
    nodes: int
    nodelist: str
    cpus: int
    memory_mib: int
    gres: str
    submitted_at: datetime | None
    starts_at: datetime | None  # pending job: Slurm's estimate
    ends_at: datetime | None
    reason: str
    comment: str
    name: str

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job from accounting."""

    number: int
    state: str
    exit_code: int | None
    started_at: datetime | None
    ended_at: datetime | None
    user: str


class QueueReader:
    """Reads one list after the other, and finds the differences: an unchanged job stays the same object."""

    def __init__(self) -> None:
        self._known: dict[str, QueueLine | None] = {}
        self._records: list[str] = []
        self.fresh: list[QueueLine] = []
        self.gone: list[QueueLine] = []

    @property
    def count(self) -> int:
        return len(self._records)

    def read(self, text: str, mark: str) -> list[QueueLine]:
        """New or changed jobs; `gone` holds their old lines and the missing jobs. Every record begins with `mark`, a
        fresh secret: a line break in a name forges no record."""
        records = ("\n" + text).removesuffix("\n").split(f"\n{mark}|")[1:]
        self.fresh, self.gone = [], []
        if records == self._records:
            return self.fresh
        known = self._known
        new = [record for record in dict.fromkeys(records) if record not in known]
        for record in known.keys() - set(records):
            if line := known.pop(record):
                self.gone.append(line)
        for record in new:
            parts = record.split("|", 16)
            known[record] = line = _queue_line(parts) if len(parts) == 17 else None
            if line:
                self.fresh.append(line)
        self._records = records
        return self.fresh


def _queue_line(parts: list[str]) -> QueueLine:
    shown, number, state, uid, user, partition, nodes, nodelist, cpus, memory, gres, *rest = parts
    submitted, starts, ends, reason, comment, name = rest
    return QueueLine(
        id=shown,
        number=leading_int(number),
        state=state.split()[0] if state else "",
        uid=leading_int(uid),
        user=user,
        partition=partition,
        nodes=leading_int(nodes) or 1,
        nodelist=text_or_empty(nodelist),
        cpus=leading_int(cpus),
        memory_mib=parse_memory(memory),
        gres=text_or_empty(gres),
        submitted_at=parse_time(submitted),
        starts_at=parse_time(starts),
        ends_at=parse_time(ends),
        reason=reason.strip("()"),
        comment=text_or_empty(comment),
        name=name,
    )


def parse_job_seats(text: str) -> dict[int, tuple[Seat, ...]]:
    """From `scontrol -d show job`: nodes and GPUs of each running job. A name with line breaks can forge a record:
    contradicting records count as unknown."""
    found: dict[int, tuple[Seat, ...]] = {}
    doubted: set[int] = set()
    for record in re.split(r"(?m)^(?=JobId=)", text):
        number = re.match(r"JobId=([0-9]{1,10})(?![0-9])", record)
        if not number:
            continue
        lines = re.finditer(
            r"^\s+Nodes=(\S{1,4096}) CPU_IDs=(\S{0,4096}) Mem=([0-9]{1,18})(?: GRES=(\S*))?", record, re.MULTILINE
        )
        seats = tuple(islice((seat for line in lines for seat in _seats(line)), MOST_NODES))
        is_clear = len({seat.node for seat in seats}) == len(seats)
        if found.setdefault(int(number[1]), seats) != seats or not is_clear:
            doubted.add(int(number[1]))
    return found | dict.fromkeys(doubted, ())


def _seats(line: "re.Match[str]") -> Iterator[Seat]:
    cards = parse_gres(line[4] or "")
    shared = cards.shared[0] if cards.shared else None
    for node in parse_hostlist(line[1]):
        yield Seat(
            node=node,
            cpus=len(parse_numbers(line[2])),
            memory_mib=int(line[3]),
            gpus=cards.indices if not cards.shards else (),
            shared_gpu=shared if cards.shards else None,
            shards=cards.shards,
        )


def parse_accounting(text: str) -> list[PastJob]:
    """From `sacct -n -P -X --format=ACCOUNTING_FORMAT`."""
    found = []
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 6 and parts[0].isdigit():
            code = re.fullmatch(r"(\d+):(\d+)", parts[2])
            found.append(
                PastJob(
                    number=int(parts[0]),
                    state=parts[1].split()[0] if parts[1] else "",
                    exit_code=_exit_code(code) if code else None,
                    started_at=parse_time(parts[3]),
                    ended_at=parse_time(parts[4]),
                    user=parts[5],
                )
            )
    return found


def parse_exit_codes(text: str) -> dict[int, int]:
    """By job number, from `scontrol -o show job`; 128+N after signal N."""
    found: dict[int, set[int]] = {}
    for line in text.split("\n"):
        number = re.match(r"JobId=([0-9]{1,10}) ", line)
        codes = re.findall(r" ExitCode=[0-9]{1,5}:[0-9]{1,5} ", line)
        # A line with two exit codes, or two lines of a job: perhaps forged in a job name. Ignored.
        if number and len(codes) == 1 and (code := re.search(r"(\d+):(\d+)", codes[0])):
            found.setdefault(int(number[1]), set()).add(_exit_code(code))
    return {number: codes.pop() for number, codes in found.items() if len(codes) == 1}


def _exit_code(code: "re.Match[str]") -> int:
    return 128 + int(code[2]) if int(code[2]) else int(code[1])
