"""Limits, usage and claims of a quota holder."""

from collections.abc import Sequence

from danlu.domain.quota import Quota
from danlu.domain.resources import Ask
from danlu.scheduler.snapshot import Holding

GPUS, SHARDS, CPUS, MEMORY, JOBS = range(5)  # GPUS is counted in shards, because part of a card counts too
Amounts = Sequence[int]
NOTHING: Amounts = (0, 0, 0, 0, 0)


def amounts_of_ask(ask: Ask, shards_per_gpu: int) -> Amounts:
    """The amounts of a run, over all its nodes, for the comparison with a quota."""
    nodes = ask.nodes
    if nodes == 1:
        return ask.gpus * shards_per_gpu + ask.shards, ask.shards, ask.cpus, ask.memory_mib, 1
    shards = ask.shards * nodes
    return ask.gpus * nodes * shards_per_gpu + shards, shards, ask.cpus * nodes, ask.memory_mib * nodes, 1


def amounts_of_run(held: Holding, shards_per_gpu: int) -> Amounts:
    if held.ask is not None:
        return amounts_of_ask(held.ask, shards_per_gpu)
    seat = held.seat
    gpus, shards, cpus, memory = len(seat.gpus), seat.shards, seat.cpus, seat.memory_mib
    for seat in held.more:
        gpus += len(seat.gpus)
        shards += seat.shards
        cpus += seat.cpus
        memory += seat.memory_mib
    return gpus * shards_per_gpu + shards, shards, cpus, memory, 1


class Hold:
    """Amounts that count against a quota until `end`, in seconds from now."""

    __slots__ = ("amounts", "end", "is_firm")

    def __init__(self, amounts: Amounts, end: float, is_firm: bool) -> None:
        self.amounts = amounts
        self.end = end
        self.is_firm = is_firm


class Claim:
    """The share of a quota that the next entry of the holder will use. Later entries must leave this share free."""

    __slots__ = ("amounts", "at", "is_preemptible", "key", "lasts", "waits_for")

    def __init__(
        self,
        key: str,
        amounts: Amounts,
        lasts: float,
        *,
        waits_for: "Account | None" = None,
        is_preemptible: bool = False,
    ) -> None:
        self.key = key
        self.amounts = amounts
        self.lasts = lasts
        self.waits_for = waits_for  # set if the entry waits for quota; None: for its reserved seat
        self.is_preemptible = is_preemptible
        self.at: float | None = None  # start of use; computed on first request


class Account:
    """A quota, and the amounts counted against the quota."""

    __slots__ = (
        "borrows", "claimed", "claims", "firm", "has_waiter", "held", "holder", "is_spent", "limits", "quota", "runs",
        "started",
    )  # fmt: skip

    def __init__(self, holder: str, quota: Quota, shards_per_gpu: int) -> None:
        self.holder = holder
        self.quota = quota
        self.borrows = quota.borrow
        gpus = None if quota.gpus is None else quota.gpus * shards_per_gpu
        limits = (gpus, quota.shards, quota.cpus, quota.memory_mib, quota.jobs)
        self.limits = tuple((kind, limit) for kind, limit in enumerate(limits) if limit is not None)
        self.held = [0, 0, 0, 0, 0]
        self.firm = [0, 0, 0, 0, 0]  # the part of `held` by non-preemptible runs
        self.is_spent = False  # the GPU-hours of the period are used up
        self.runs: list[Holding] = []
        self.started: list[Hold] = []  # by this plan
        self.claims: list[Claim] = []
        self.claimed = [0, 0, 0, 0, 0]
        self.has_waiter = False  # a claim belongs to an entry waiting for this quota

    def add(self, amounts: Amounts, is_firm: bool) -> None:
        add_up(self.held, amounts)
        if is_firm:
            add_up(self.firm, amounts)

    def claim(self, claim: Claim) -> None:
        self.claims.append(claim)
        add_up(self.claimed, claim.amounts)

    def base(self, is_preemptible: bool) -> Amounts:
        """The amounts that count before an entry. If the quota allows borrowing, preemptible runs do not count against
        non-preemptible entries."""
        return self.firm if self.borrows and not is_preemptible else self.held

    def beyond(self, base: Amounts, amounts: Amounts) -> int | None:
        """The first resource kind over its limit, or None. A kind without an ask is never over."""
        for kind, limit in self.limits:
            amount = amounts[kind]
            if amount and base[kind] + amount > limit:
                return kind
        return None

    def beyond_claims(self, base: Amounts, amounts: Amounts) -> bool:
        """Whether the amounts exceed a limit together with all claims."""
        claimed = self.claimed
        for kind, limit in self.limits:
            amount = amounts[kind]
            if amount and base[kind] + claimed[kind] + amount > limit:
                return True
        return False


def add_up(total: list[int], amounts: Amounts) -> None:
    cards, shards, cpus, memory, jobs = amounts
    total[0] += cards
    total[1] += shards
    total[2] += cpus
    total[3] += memory
    total[4] += jobs
