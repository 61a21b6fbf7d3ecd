"""What one holder of a quota may hold, holds, and is about to hold."""

from collections.abc import Sequence

from danlu.domain.quota import Quota
from danlu.domain.resources import Ask
from danlu.scheduler.snapshot import Holding

GPUS, SHARDS, CPUS, MEMORY, JOBS = range(5)  # cards in shards, so that parts of a card count
Amounts = Sequence[int]
NOTHING: Amounts = (0, 0, 0, 0, 0)


def amounts_of_ask(ask: Ask, shards_per_gpu: int) -> Amounts:
    """What one run of it counts for; every node of several counts."""
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


class Spell:
    """Something that counts against a quota until a moment, in seconds from now."""

    __slots__ = ("amounts", "end", "is_firm")

    def __init__(self, amounts: Amounts, end: float, is_firm: bool) -> None:
        self.amounts = amounts
        self.end = end
        self.is_firm = is_firm


class Claim:
    """An entry that is next to use its holder's quota: what comes after it must leave it that."""

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
        self.waits_for = waits_for  # the account, if it waits for quota; else for its promised seat
        self.is_preemptible = is_preemptible
        self.at: float | None = None  # when it will be used, once somebody asked


class Account:
    """One quota, and what counts against it."""

    __slots__ = (
        "begun", "borrows", "claimed", "claims", "firm", "has_waiter", "held", "holder", "is_spent", "limits", "quota",
        "runs",
    )  # fmt: skip

    def __init__(self, holder: str, quota: Quota, shards_per_gpu: int) -> None:
        self.holder = holder
        self.quota = quota
        self.borrows = quota.borrow
        gpus = None if quota.gpus is None else quota.gpus * shards_per_gpu
        limits = (gpus, quota.shards, quota.cpus, quota.memory_mib, quota.jobs)
        self.limits = tuple((kind, limit) for kind, limit in enumerate(limits) if limit is not None)
        self.held = [0, 0, 0, 0, 0]
        self.firm = [0, 0, 0, 0, 0]  # of it, by runs that are not preemptible
        self.is_spent = False  # the GPU-hours of the period are used up
        self.runs: list[Holding] = []
        self.begun: list[Spell] = []  # started by this plan
        self.claims: list[Claim] = []
        self.claimed = [0, 0, 0, 0, 0]
        self.has_waiter = False  # one of the claims is of an entry that waits for this quota

    def add(self, amounts: Amounts, is_firm: bool) -> None:
        add_up(self.held, amounts)
        if is_firm:
            add_up(self.firm, amounts)

    def claim(self, claim: Claim) -> None:
        self.claims.append(claim)
        add_up(self.claimed, claim.amounts)

    def base(self, is_preemptible: bool) -> Amounts:
        """What counts before an entry: where what is preemptible may borrow, it never takes the quota from what is
        not."""
        return self.firm if self.borrows and not is_preemptible else self.held

    def beyond(self, base: Amounts, amounts: Amounts) -> int | None:
        """The first kind of which this would be too much; what is not asked for is never too much."""
        for kind, limit in self.limits:
            amount = amounts[kind]
            if amount and base[kind] + amount > limit:
                return kind
        return None

    def beyond_claims(self, base: Amounts, amounts: Amounts) -> bool:
        """Would it be too much together with all that is claimed?"""
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
