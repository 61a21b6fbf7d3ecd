"""Who may start within the quotas, who borrows, and who waits until runs of their own end."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import IntEnum

from danlu.domain.job import Reason
from danlu.domain.ledger import gpu_hours
from danlu.domain.quota import Period, Quota, team_key, user_key
from danlu.domain.resources import Ask
from danlu.scheduler.free import FAR
from danlu.scheduler.placement import end_of
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting
from danlu.scheduler.wording import render_count, render_gpus, render_memory

GPUS, SHARDS, CPUS, MEMORY, JOBS = range(5)  # cards in shards, so that parts of a card count
Amounts = Sequence[int]
_NOTHING = (0, 0, 0, 0, 0)


class Standing(IntEnum):
    """How an entry stands to the quotas of its person and its team."""

    ENTITLED = 0  # within all of them
    BORROWS = 1  # beyond one that lets what is preemptible go beyond it
    OVER = 2  # must wait


def hours_since(held: Holding, since: datetime, snapshot: Snapshot) -> float:
    """GPU-hours since then of a run that is not over, and so in no charge yet."""
    if held.started_at is None:
        return 0.0
    seats = (held.seat, *held.more)
    gpus, shards = sum(len(seat.gpus) for seat in seats), sum(seat.shards for seat in seats)
    so_far = max(snapshot.now - max(held.started_at, since), timedelta(0))
    return gpu_hours(gpus, shards, snapshot.shards_per_gpu, so_far)


class Spell:
    """Something that counts against a quota until a moment, in seconds from now."""

    __slots__ = ("amounts", "end", "is_firm")

    def __init__(self, amounts: Amounts, end: float, is_firm: bool) -> None:
        self.amounts = amounts
        self.end = end
        self.is_firm = is_firm


class Claim:
    """An entry that is next to use its holder's quota: what comes after it must leave it that."""

    __slots__ = ("amounts", "at", "key", "lasts")

    def __init__(self, key: str, amounts: Amounts, at: float | None, lasts: float) -> None:
        self.key = key
        self.amounts = amounts
        self.at = at  # None: when the seat is that it was promised
        self.lasts = lasts


class Account:
    """What one holder may hold at once, holds, and is about to hold."""

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
        held = self.held
        for kind in range(5):
            held[kind] += amounts[kind]
        if is_firm:
            firm = self.firm
            for kind in range(5):
                firm[kind] += amounts[kind]

    def claim(self, claim: Claim) -> None:
        self.claims.append(claim)
        for kind in range(5):
            self.claimed[kind] += claim.amounts[kind]

    def counts_firm(self, is_preemptible: bool) -> bool:
        """Where what is preemptible may borrow, it never takes the quota from what is not."""
        return self.borrows and not is_preemptible

    def base(self, is_preemptible: bool) -> Amounts:
        """What counts before an entry."""
        return self.firm if self.borrows and not is_preemptible else self.held

    def beyond(self, base: Amounts, amounts: Amounts) -> int | None:
        """The first kind of which this would be too much; what is not asked for is never too much."""
        for kind, limit in self.limits:
            amount = amounts[kind]
            if amount and base[kind] + amount > limit:
                return kind
        return None


class Admission:
    """The quotas in force, and how each entry stands to them as the plan goes on."""

    def __init__(self, snapshot: Snapshot, starts_at: Callable[[str], float]) -> None:
        self._now = snapshot.now
        self._quotas = snapshot.quotas
        self._shards_per_gpu = snapshot.shards_per_gpu
        self._starts_at = starts_at
        self._accounts: dict[str, Account] = {}
        self._of: dict[tuple[str, str], tuple[Account, ...]] = {}
        for held in snapshot.holding:
            accounts = self._of.get((held.user, held.team))
            if accounts is None:
                accounts = self.accounts(held.user, held.team)
            if accounts:
                amounts = self.amounts_of(held)
                for account in accounts:
                    account.add(amounts, not held.is_preemptible)
                    account.runs.append(held)
        for key, quota in snapshot.quotas.items():
            spender = self._account(key) if quota.gpu_hours is not None else None
            if spender:
                since = quota.period.start(snapshot.now)
                running = sum(hours_since(held, since, snapshot) for held in spender.runs)
                spent = snapshot.spent.get(key, 0.0) + running
                spender.is_spent = spent >= (quota.gpu_hours or 0)

    def accounts(self, user: str, team: str) -> tuple[Account, ...]:
        """Those of the person and the team that have a quota."""
        accounts = self._of.get((user, team))
        if accounts is None:
            keys = ([user_key(user)] if user else []) + ([team_key(team)] if team else [])
            found = [self._account(key) for key in keys]
            accounts = self._of[user, team] = tuple([account for account in found if account])
        return accounts

    def _account(self, holder: str) -> Account | None:
        if holder not in self._quotas:
            return None
        account = self._accounts.get(holder)
        if account is None:
            account = self._accounts[holder] = Account(holder, self._quotas[holder], self._shards_per_gpu)
        return account

    def borrowed(self) -> list[Holding]:
        """The preemptible runs that are beyond a quota, less those that are leaving already.

        What is not preemptible uses a quota first, then the oldest of what is.
        """
        found: dict[str, Holding] = {}
        for account in self._accounts.values():
            if all(account.held[kind] <= limit for kind, limit in account.limits):
                continue
            total = [0, 0, 0, 0, 0]
            for held in sorted(account.runs, key=lambda held: (held.is_preemptible, *self.age_of(held))):
                if held.is_stopping:
                    continue
                amounts = self.amounts_of(held)
                if held.is_preemptible and account.beyond(total, amounts) is not None:
                    found[held.key] = held
                    continue
                for kind in range(5):
                    total[kind] += amounts[kind]
        return list(found.values())

    def age_of(self, held: Holding) -> tuple[datetime, str]:
        """What is only being started is the youngest."""
        return held.started_at or self._now, held.key

    def _amounts(self, ask: Ask) -> Amounts:
        nodes = ask.nodes
        shards = ask.shards * nodes
        cards = ask.gpus * nodes * self._shards_per_gpu + shards
        return cards, shards, ask.cpus * nodes, ask.memory_mib * nodes, 1

    def amounts_of(self, held: Holding) -> Amounts:
        seat = held.seat
        gpus, shards, cpus, memory = len(seat.gpus), seat.shards, seat.cpus, seat.memory_mib
        for seat in held.more:
            gpus += len(seat.gpus)
            shards += seat.shards
            cpus += seat.cpus
            memory += seat.memory_mib
        return gpus * self._shards_per_gpu + shards, shards, cpus, memory, 1

    # As the plan goes.

    def standing(self, waiting: Waiting, until: float) -> Standing:
        """How one more run of this entry would stand, if it held its seat until then."""
        accounts = self._of.get((waiting.user, waiting.team))
        if accounts is None:
            accounts = self.accounts(waiting.user, waiting.team)
        if not accounts:
            return Standing.ENTITLED
        amounts = self._amounts(waiting.ask)
        is_preemptible = waiting.is_preemptible
        standing = Standing.ENTITLED
        for account in accounts:
            if account.is_spent and amounts[GPUS]:
                return Standing.OVER
            may_borrow = account.borrows and is_preemptible
            if account.beyond(account.base(is_preemptible), amounts) is not None:
                if not may_borrow:
                    return Standing.OVER
                standing = Standing.BORROWS
            elif account.claims and not may_borrow and not self._leaves_claims(account, amounts, until, is_preemptible):
                return Standing.OVER
        return standing

    def has_right(self, waiting: Waiting) -> bool:
        """Is there a quota that speaks of what it asks for? Then what others borrowed is given back for it."""
        ask = waiting.ask
        kinds = {GPUS, SHARDS} if ask.shards else {GPUS} if ask.gpus else {CPUS, MEMORY}
        return any(kind in kinds for account in self.accounts(waiting.user, waiting.team) for kind, _ in account.limits)

    def take(self, waiting: Waiting, until: float) -> None:
        """Count a run of this entry that starts."""
        amounts, is_firm = self._amounts(waiting.ask), not waiting.is_preemptible
        for account in self.accounts(waiting.user, waiting.team):
            account.add(amounts, is_firm)
            account.begun.append(Spell(amounts, min(until, FAR), is_firm))

    def promise(self, waiting: Waiting, until: float) -> None:
        """Keep the quota for an entitled entry that is promised a seat."""
        amounts = self._amounts(waiting.ask)
        for account in self.accounts(waiting.user, waiting.team):
            if not (account.borrows and waiting.is_preemptible):
                account.claim(Claim(waiting.key, amounts, None, until))

    def refuse(self, waiting: Waiting, until: float) -> None:
        """Keep the quota for the first of those that wait for it: else smaller ones of the same holder would always
        take what comes free. Others are not held up."""
        amounts = None
        for account in self.accounts(waiting.user, waiting.team):
            if account.has_waiter or account.is_spent or (account.borrows and waiting.is_preemptible):
                continue
            amounts = amounts or self._amounts(waiting.ask)
            if account.beyond(_NOTHING, amounts) is None:
                if account.beyond(account.base(waiting.is_preemptible), amounts) is None:
                    continue
                at = self._ready_at(account, waiting.key, amounts, waiting.is_preemptible)
                account.claim(Claim(waiting.key, amounts, at, until))
                account.has_waiter = True

    def _claim_at(self, claim: Claim) -> float:
        if claim.at is None:
            claim.at = self._starts_at(claim.key)
        return min(claim.at, FAR)

    def _leaves_claims(self, account: Account, amounts: Amounts, until: float, is_preemptible: bool) -> bool:
        """Would those that claimed the quota before find it when their time comes?"""
        together = [one + other for one, other in zip(account.base(is_preemptible), account.claimed, strict=True)]
        if account.beyond(together, amounts) is None:
            return True
        first = min(self._claim_at(claim) for claim in account.claims)
        if until <= first:
            return True
        lasting = list(account.claimed)
        for spell in self._spells(account, is_preemptible):
            if spell.end > first or spell.end >= FAR:
                for kind in range(5):
                    lasting[kind] += spell.amounts[kind]
        return account.beyond(lasting, amounts) is None

    def _spells(self, account: Account, is_preemptible: bool) -> Iterator[Spell]:
        only_firm = account.counts_firm(is_preemptible)
        for held in account.runs:
            if not (only_firm and held.is_preemptible):
                yield Spell(self.amounts_of(held), end_of(held, self._now), not held.is_preemptible)
        for spell in account.begun:
            if spell.is_firm or not only_firm:
                yield spell

    def _ready_at(self, account: Account, key: str, amounts: Amounts, is_preemptible: bool) -> float:
        """When enough of the holder's own has ended, and of what it is about to start."""
        spells = list(self._spells(account, is_preemptible))
        for claim in account.claims:
            if claim.key == key:
                break
            spells.append(Spell(claim.amounts, self._claim_at(claim) + min(claim.lasts, FAR), True))
        spells.sort(key=lambda spell: -spell.end)
        total = [sum(spell.amounts[kind] for spell in spells) for kind in range(5)]
        at = 0.0
        while account.beyond(total, amounts) is not None and spells:
            ended = spells.pop()
            at = ended.end
            for kind in range(5):
                total[kind] -= ended.amounts[kind]
        return at

    # For people.

    def estimate(self, waiting: Waiting) -> datetime | None:
        """When runs of its own holders have made room for an entry; None if nobody can say."""
        amounts = self._amounts(waiting.ask)
        at = self._now
        for account in self.accounts(waiting.user, waiting.team):
            if account.is_spent and amounts[GPUS]:
                at = max(at, _next_start(account.quota.period, self._now))
            elif account.borrows and waiting.is_preemptible:
                continue
            elif account.beyond(_NOTHING, amounts) is not None:
                return None
            else:
                seconds = self._ready_at(account, waiting.key, amounts, waiting.is_preemptible)
                if seconds >= FAR:
                    return None
                at = max(at, self._now + timedelta(seconds=seconds))
        return at if at > self._now else None

    def reason(self, waiting: Waiting) -> Reason:
        """Why an entry that is over waits, in numbers as they are after the plan's starts."""
        amounts, is_preemptible = self._amounts(waiting.ask), waiting.is_preemptible
        behind = ""
        for account in self.accounts(waiting.user, waiting.team):
            if account.is_spent and amounts[GPUS]:
                hours, period = render_count(account.quota.gpu_hours or 0, "GPU-hour"), account.quota.period
                whose, its = _whose(account.holder)
                return Reason("quota", f"{whose} has spent {its} {hours} of this {period}")
            if account.borrows and is_preemptible:
                continue
            base = account.base(is_preemptible)
            kind = account.beyond(base, amounts)
            if kind is not None:
                return Reason("quota", self._shortage(account, kind, base, amounts, is_preemptible))
            if account.claims:
                behind = f"would exceed the quota of {_whose(account.holder)[0]} together with {account.claims[0].key}"
        return Reason("behind", f"{behind}, which was before it")

    def borrows_from(self, waiting: Waiting) -> str:
        """Whose quota an entry goes beyond: `team nlp holds 8 of its 8 GPUs`."""
        amounts = self._amounts(waiting.ask)
        for account in self.accounts(waiting.user, waiting.team):
            kind = account.beyond(account.held, amounts)
            if kind is not None:
                return self._holds(account, kind, account.held)
        return ""

    def _shortage(self, account: Account, kind: int, base: Amounts, amounts: Amounts, is_preemptible: bool) -> str:
        wanted = self._render(kind, amounts[kind])
        if account.beyond(_NOTHING, amounts) == kind:
            most = self._render(kind, dict(account.limits)[kind])
            text = f"asks for {wanted}, {_whose(account.holder)[0]} may hold {most} at once"
        else:
            text = self._holds(account, kind, base)
            if kind != JOBS:
                text += (
                    f", this asks for {wanted.split(' ')[0]} more" if kind != MEMORY else f", this asks for {wanted}"
                )
        if account.borrows and not is_preemptible:
            text += f"; `--preemptible` would let it use idle {'cards' if amounts[GPUS] else 'CPUs'}"
        return text

    def _holds(self, account: Account, kind: int, base: Amounts) -> str:
        whose, its = _whose(account.holder)
        most = self._render(kind, dict(account.limits)[kind])
        if kind == JOBS:
            return f"{whose} runs {base[kind]} of {its} {most} at once"
        held = self._render(kind, base[kind])
        return f"{whose} holds {held if kind == MEMORY else held.split(' ')[0]} of {its} {most}"

    def _render(self, kind: int, amount: int) -> str:
        if kind == GPUS:
            return render_gpus(amount / self._shards_per_gpu)
        if kind == MEMORY:
            return f"{render_memory(amount)} of memory"
        return render_count(amount, {SHARDS: "shard", CPUS: "CPU", JOBS: "job"}[kind])


def _whose(holder: str) -> tuple[str, str]:
    """A holder as people say it, and what is theirs."""
    kind, _, name = holder.partition(":")
    return (f"team {name}", "its") if kind == "team" else (name, "their")


def _next_start(period: Period, now: datetime) -> datetime:
    days = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 32}[period]
    return period.start(period.start(now) + timedelta(days=days))
