"""Compare each entry with the quotas: it may start, it borrows, or it waits until runs of its own holder end."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import IntEnum
from operator import attrgetter

from danlu.domain.charge import gpu_hours
from danlu.domain.quota import Period, keys_of
from danlu.scheduler.node_timeline import FAR, NEVER
from danlu.scheduler.placement import end_of
from danlu.scheduler.quota_accounts import (
    CPUS,
    GPUS,
    MEMORY,
    NOTHING,
    SHARDS,
    Account,
    Amounts,
    Claim,
    Hold,
    add_up,
    amounts_of_ask,
    amounts_of_run,
)
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting

Endings = list[tuple[float, list[int]]]  # (time, amounts still held from then on if nothing starts)


def hours_since(held: Holding, since: datetime, snapshot: Snapshot) -> float:
    """GPU-hours of an unfinished run since a time; the charges in the store do not include this run yet."""
    if held.started_at is None:
        return 0.0
    cards = amounts_of_run(held, snapshot.shards_per_gpu)[GPUS]
    so_far = max(snapshot.now - max(held.started_at, since), timedelta(0))
    return gpu_hours(0, cards, snapshot.shards_per_gpu, so_far)


class Standing(IntEnum):
    """The relation of an entry to the quotas of its user and its team."""

    ENTITLED = 0  # within all quotas
    BORROWS = 1  # over a quota with `borrow`, and preemptible
    OVER = 2  # must wait


# Bound once: looking up an enum member costs as much as the rest of a repeated refusal.
ENTITLED, BORROWS, OVER = Standing


class Owner:
    """A user in a team. Preemptible entries have an owner of their own."""

    __slots__ = ("accounts", "refused_cards")

    def __init__(self, accounts: tuple[Account, ...]) -> None:
        self.accounts = accounts
        # Usage only grows during a plan, so a later ask for this many cards is refused without a check.
        self.refused_cards: float = NEVER


class Admission:
    """The quotas in force, and the standing of each entry while the plan is made."""

    def __init__(self, snapshot: Snapshot, starts_at: Callable[[str], float]) -> None:
        self._now = snapshot.now
        self._quotas = snapshot.quotas
        self.shards_per_gpu = snapshot.shards_per_gpu
        self._starts_at = starts_at
        self._accounts: dict[str, Account] = {}
        self._owners: dict[tuple[str, str, bool], Owner] = {}
        # the quota that the last entry exceeds, unless an entry waits for this quota already
        self.first_over: Account | None = None
        self.entitled: set[str] = set()  # keys of the entries in the engine's queue that are within their quotas
        self._lasting: dict[tuple[str, bool], tuple[int, float, list[int]]] = {}
        self._endings: dict[tuple[str, bool], Endings] = {}
        runs: dict[tuple[str, str, bool], list[Holding]] = {}
        for held in snapshot.holding:
            runs.setdefault((held.user, held.team, held.is_preemptible), []).append(held)
        for (user, team, is_preemptible), those in runs.items():
            accounts = self._owner(user, team, is_preemptible).accounts
            if accounts:
                amounts = list(NOTHING)
                for held in those:
                    add_up(amounts, amounts_of_run(held, self.shards_per_gpu))
                for account in accounts:
                    account.add(amounts, not is_preemptible)
                    account.runs += those
        for key, quota in snapshot.quotas.items():
            if quota.gpu_hours is not None:
                account = self._account(key)
                since = quota.period.start(snapshot.now)
                running = sum(hours_since(held, since, snapshot) for held in account.runs)
                spent = snapshot.spent.get(key, 0.0) + running
                account.is_spent = spent >= quota.gpu_hours
        self.entitled = {entry.key for entry in snapshot.pending if self._take_pending(entry) is ENTITLED}

    def _owner(self, user: str, team: str, is_preemptible: bool) -> Owner:
        owner = self._owners.get((user, team, is_preemptible))
        if owner is None:
            accounts = tuple([self._account(key) for key in keys_of(user, team) if key in self._quotas])
            owner = self._owners[user, team, is_preemptible] = Owner(accounts)
        return owner

    def accounts(self, waiting: Waiting) -> tuple[Account, ...]:
        """The quotas that apply: of the user, of the team, and of the user in the team."""
        return self._owner(waiting.user, waiting.team, waiting.is_preemptible).accounts

    def _account(self, holder: str) -> Account:
        account = self._accounts.get(holder)
        if account is None:
            account = self._accounts[holder] = Account(holder, self._quotas[holder], self.shards_per_gpu)
        return account

    def amounts(self, waiting: Waiting) -> Amounts:
        return amounts_of_ask(waiting.ask, self.shards_per_gpu)

    # While the plan is made.

    def standing(self, waiting: Waiting, until: float) -> Standing:
        """The standing of one more run of this entry if the run held its seat until `until`."""
        is_preemptible = waiting.is_preemptible
        owner = self._owners.get((waiting.user, waiting.team, is_preemptible))
        if owner is None:
            owner = self._owner(waiting.user, waiting.team, is_preemptible)
        if not owner.accounts:
            return ENTITLED
        self.first_over = None
        ask = waiting.ask
        if (ask.gpus * self.shards_per_gpu + ask.shards) * ask.nodes >= owner.refused_cards:
            return OVER
        amounts = amounts_of_ask(ask, self.shards_per_gpu)
        standing = ENTITLED
        for account in owner.accounts:
            if account.is_spent and amounts[GPUS]:
                owner.refused_cards = 1
                return OVER
            may_borrow = account.borrows and is_preemptible
            base = account.base(is_preemptible)
            kind = account.beyond(base, amounts)
            if kind is not None:
                if not may_borrow:
                    self.first_over = None if account.has_waiter else account
                    if kind == GPUS:
                        owner.refused_cards = amounts[GPUS]
                    return OVER
                standing = BORROWS
            elif (
                account.claims
                and not may_borrow
                and account.beyond_claims(base, amounts)
                and not self._leaves_claims(account, amounts, until, is_preemptible)
            ):
                return OVER
        return standing

    def has_right(self, waiting: Waiting) -> bool:
        """Whether a quota limits a resource of this ask. Only then do borrowers give resources back for the entry."""
        ask = waiting.ask
        kinds = {GPUS, SHARDS} if ask.shards else {GPUS} if ask.gpus else {CPUS, MEMORY}
        return any(kind in kinds for account in self.accounts(waiting) for kind, _ in account.limits)

    def take(self, waiting: Waiting, until: float) -> None:
        """Count a starting run of this entry. `standing` was called before."""
        accounts = self._owners[waiting.user, waiting.team, waiting.is_preemptible].accounts
        if accounts:
            amounts, is_firm = amounts_of_ask(waiting.ask, self.shards_per_gpu), not waiting.is_preemptible
            hold = Hold(amounts, min(until, FAR), is_firm)
            for account in accounts:
                account.add(amounts, is_firm)
                account.started.append(hold)

    def _take_pending(self, waiting: Waiting) -> Standing:
        """Count an entry in the engine's queue; return its standing after the entries handed over earlier."""
        until = NEVER if waiting.time_limit is None else waiting.time_limit.total_seconds()
        standing = self.standing(waiting, until)
        self.take(waiting, until)
        return standing

    def reserve(self, waiting: Waiting, until: float) -> None:
        """Keep the quota for an entitled entry with a reserved seat."""
        for account in self.accounts(waiting):
            if not (account.borrows and waiting.is_preemptible):
                account.claim(Claim(waiting.key, self.amounts(waiting), until))

    def refuse(self, waiting: Waiting, until: float) -> None:
        """Keep the quota of `first_over` for this entry, the first to wait for this quota. Otherwise smaller entries of
        the same holder would always take the freed part. Other holders are not delayed."""
        account, amounts = self.first_over, self.amounts(waiting)
        if account is not None and account.beyond(NOTHING, amounts) is None:
            account.has_waiter = True
            account.claim(Claim(waiting.key, amounts, until, waits_for=account, is_preemptible=waiting.is_preemptible))

    def _claim_at(self, claim: Claim) -> float:
        """The time of the reserved seat, or the time when enough runs of the same holder have ended."""
        if claim.at is None:
            account = claim.waits_for
            if account is None:
                claim.at = min(self._starts_at(claim.key), FAR)
            else:
                before = account.claims[: account.claims.index(claim)]
                endings = self._endings_of(account, claim.is_preemptible, before)
                claim.at = min(_first_enough(account, endings, claim.amounts), FAR)
        return claim.at

    def _leaves_claims(self, account: Account, amounts: Amounts, until: float, is_preemptible: bool) -> bool:
        """Whether the earlier claims would still find their quota at their start."""
        first, lasting = self._first_claim(account, is_preemptible)
        return until <= first or not account.beyond_claims(lasting, amounts)

    def _first_claim(self, account: Account, is_preemptible: bool) -> tuple[float, list[int]]:
        """The start of the first claim, and the amounts held now that will still be held then."""
        key = (account.holder, is_preemptible)
        moves = len(account.claims) + len(account.started)
        known = self._lasting.get(key)
        if known is None or known[0] != moves:
            first = min([self._claim_at(claim) for claim in account.claims])
            lasting = [0, 0, 0, 0, 0]
            for hold in self._holds_of(account, is_preemptible):
                if hold.end > first or hold.end >= FAR:
                    for kind in range(5):
                        lasting[kind] += hold.amounts[kind]
            known = self._lasting[key] = (moves, first, lasting)
        return known[1], known[2]

    def _holds_of(self, account: Account, is_preemptible: bool) -> Iterator[Hold]:
        only_firm = account.borrows and not is_preemptible
        for held in account.runs:
            if not (only_firm and held.is_preemptible):
                amounts = amounts_of_run(held, self.shards_per_gpu)
                yield Hold(amounts, end_of(held, self._now), not held.is_preemptible)
        for hold in account.started:
            if hold.is_firm or not only_firm:
                yield hold

    def _endings_of(self, account: Account, is_preemptible: bool, claims: list[Claim]) -> Endings:
        """The amounts that count before an entry, with these claims, over time."""
        holds = list(self._holds_of(account, is_preemptible))
        holds += [Hold(claim.amounts, self._claim_at(claim) + min(claim.lasts, FAR), True) for claim in claims]
        holds.sort(key=attrgetter("end"))
        total = [sum([hold.amounts[kind] for hold in holds]) for kind in range(5)]
        endings = [(0.0, total)]
        for hold in holds:
            total = [amount - less for amount, less in zip(total, hold.amounts, strict=True)]
            endings.append((hold.end, total))
        return endings

    # Borrowed runs.

    def borrowed(self) -> list[Holding]:
        """The preemptible runs beyond a quota, without the runs that are stopping already.

        Runs that are not preemptible fill a quota first, then preemptible runs, oldest first.
        """
        found: dict[str, Holding] = {}
        for account in self._accounts.values():
            if all(account.held[kind] <= limit for kind, limit in account.limits):
                continue
            total = list(account.firm)
            for hold in account.started:  # a start of this plan takes nothing back yet
                if hold.is_firm:
                    total = [amount - less for amount, less in zip(total, hold.amounts, strict=True)]
            stays = [held for held in account.runs if held.is_preemptible and not held.is_stopping]
            for held in sorted(stays, key=self.age_of):
                amounts = amounts_of_run(held, self.shards_per_gpu)
                if account.beyond(total, amounts) is None:
                    add_up(total, amounts)
                else:
                    found[held.key] = held
        return list(found.values())

    def age_of(self, held: Holding) -> tuple[datetime, str]:
        """A sort key. A run that is still starting is the youngest."""
        return held.started_at or self._now, held.key

    # For explanations, after the plan is made.

    def estimate(self, waiting: Waiting) -> datetime | None:
        """The time when runs of the same holders have made room for an entry; None if unknown."""
        amounts = self.amounts(waiting)
        at = self._now
        for account in self.accounts(waiting):
            if account.is_spent and amounts[GPUS]:
                at = max(at, _next_start(account.quota.period, self._now))
            elif account.borrows and waiting.is_preemptible:
                continue
            elif account.beyond(NOTHING, amounts) is not None:
                return None
            else:
                seconds = _first_enough(account, self._endings_for(account, waiting), amounts)
                if seconds >= FAR:
                    return None
                at = max(at, self._now + timedelta(seconds=seconds))
        return at if at > self._now else None

    def _endings_for(self, account: Account, waiting: Waiting) -> Endings:
        for position, claim in enumerate(account.claims):
            if claim.key == waiting.key:
                return self._endings_of(account, waiting.is_preemptible, account.claims[:position])
        key = (account.holder, waiting.is_preemptible)
        if key not in self._endings:
            self._endings[key] = self._endings_of(account, waiting.is_preemptible, account.claims)
        return self._endings[key]


def _first_enough(account: Account, endings: Endings, amounts: Amounts) -> float:
    """The first time with enough quota. Held amounts only fall over time, so a binary search works."""
    low, high = 0, len(endings) - 1
    while low < high:
        middle = (low + high) // 2
        if account.beyond(endings[middle][1], amounts) is None:
            high = middle
        else:
            low = middle + 1
    return endings[low][0]


def _next_start(period: Period, now: datetime) -> datetime:
    days = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 32}[period]
    return period.start(period.start(now) + timedelta(days=days))
