"""Who may start within the quotas, who borrows, and who waits until runs of their own end."""

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
    Spell,
    add_up,
    amounts_of_ask,
    amounts_of_run,
)
from danlu.scheduler.snapshot import Holding, Snapshot, Waiting

Endings = list[tuple[float, list[int]]]  # from when on how much is held, if nothing is added


def hours_since(held: Holding, since: datetime, snapshot: Snapshot) -> float:
    """GPU-hours since then of a run that is not over, and so in no charge yet."""
    if held.started_at is None:
        return 0.0
    cards = amounts_of_run(held, snapshot.shards_per_gpu)[GPUS]
    so_far = max(snapshot.now - max(held.started_at, since), timedelta(0))
    return gpu_hours(0, cards, snapshot.shards_per_gpu, so_far)


class Standing(IntEnum):
    """How an entry stands to the quotas of its person and its team."""

    ENTITLED = 0  # within all of them
    BORROWS = 1  # beyond one that lets what is preemptible go beyond it
    OVER = 2  # must wait


ENTITLED, BORROWS, OVER = Standing  # looking a member up costs as much as all else for one who is over again


class Owner:
    """Somebody in a team, with preemptible entries or with others."""

    __slots__ = ("accounts", "refused_cards")

    def __init__(self, accounts: tuple[Account, ...]) -> None:
        self.accounts = accounts
        # What is held only grows during a plan: whoever asks for so much again is over again.
        self.refused_cards: float = NEVER


class Admission:
    """The quotas in force, and how each entry stands to them as the plan goes on."""

    def __init__(self, snapshot: Snapshot, starts_at: Callable[[str], float]) -> None:
        self._now = snapshot.now
        self._quotas = snapshot.quotas
        self.shards_per_gpu = snapshot.shards_per_gpu
        self._starts_at = starts_at
        self._accounts: dict[str, Account] = {}
        self._owners: dict[tuple[str, str, bool], Owner] = {}
        self.first_over: Account | None = None  # whose quota the last entry is beyond, if nobody waits for it yet
        self.entitled: set[str] = set()  # of those that wait in the engine's queue
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
        """Those of the person, of the team, and of the person in the team that have a quota."""
        return self._owner(waiting.user, waiting.team, waiting.is_preemptible).accounts

    def _account(self, holder: str) -> Account:
        account = self._accounts.get(holder)
        if account is None:
            account = self._accounts[holder] = Account(holder, self._quotas[holder], self.shards_per_gpu)
        return account

    def amounts(self, waiting: Waiting) -> Amounts:
        return amounts_of_ask(waiting.ask, self.shards_per_gpu)

    # As the plan goes.

    def standing(self, waiting: Waiting, until: float) -> Standing:
        """How one more run of this entry would stand, if it held its seat until then."""
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
        """Is there a quota that speaks of what it asks for? Then what others borrowed is given back for it."""
        ask = waiting.ask
        kinds = {GPUS, SHARDS} if ask.shards else {GPUS} if ask.gpus else {CPUS, MEMORY}
        return any(kind in kinds for account in self.accounts(waiting) for kind, _ in account.limits)

    def take(self, waiting: Waiting, until: float) -> None:
        """Count a run of this entry, whose standing is known, that starts."""
        accounts = self._owners[waiting.user, waiting.team, waiting.is_preemptible].accounts
        if accounts:
            amounts, is_firm = amounts_of_ask(waiting.ask, self.shards_per_gpu), not waiting.is_preemptible
            spell = Spell(amounts, min(until, FAR), is_firm)
            for account in accounts:
                account.add(amounts, is_firm)
                account.begun.append(spell)

    def _take_pending(self, waiting: Waiting) -> Standing:
        """Count an entry that waits in the engine's queue; how it stands beside those that came there before it."""
        until = NEVER if waiting.time_limit is None else waiting.time_limit.total_seconds()
        standing = self.standing(waiting, until)
        self.take(waiting, until)
        return standing

    def promise(self, waiting: Waiting, until: float) -> None:
        """Keep the quota for an entitled entry that is promised a seat."""
        for account in self.accounts(waiting):
            if not (account.borrows and waiting.is_preemptible):
                account.claim(Claim(waiting.key, self.amounts(waiting), until))

    def refuse(self, waiting: Waiting, until: float) -> None:
        """Keep the quota of `first_over` for this entry, the first to wait for it: else smaller ones of the same holder
        would always take what comes free. Others are not held up."""
        account, amounts = self.first_over, self.amounts(waiting)
        if account is not None and account.beyond(NOTHING, amounts) is None:
            account.has_waiter = True
            account.claim(Claim(waiting.key, amounts, until, waits_for=account, is_preemptible=waiting.is_preemptible))

    def _claim_at(self, claim: Claim) -> float:
        """When the promised seat is, or when enough of the holder's own has ended."""
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
        """Would those that claimed the quota before find it when their time comes?"""
        first, lasting = self._first_claim(account, is_preemptible)
        return until <= first or not account.beyond_claims(lasting, amounts)

    def _first_claim(self, account: Account, is_preemptible: bool) -> tuple[float, list[int]]:
        """When the first of the claims begins, and how much of what is held now will still be held then."""
        key = (account.holder, is_preemptible)
        moves = len(account.claims) + len(account.begun)
        known = self._lasting.get(key)
        if known is None or known[0] != moves:
            first = min([self._claim_at(claim) for claim in account.claims])
            lasting = [0, 0, 0, 0, 0]
            for spell in self._spells(account, is_preemptible):
                if spell.end > first or spell.end >= FAR:
                    for kind in range(5):
                        lasting[kind] += spell.amounts[kind]
            known = self._lasting[key] = (moves, first, lasting)
        return known[1], known[2]

    def _spells(self, account: Account, is_preemptible: bool) -> Iterator[Spell]:
        only_firm = account.borrows and not is_preemptible
        for held in account.runs:
            if not (only_firm and held.is_preemptible):
                amounts = amounts_of_run(held, self.shards_per_gpu)
                yield Spell(amounts, end_of(held, self._now), not held.is_preemptible)
        for spell in account.begun:
            if spell.is_firm or not only_firm:
                yield spell

    def _endings_of(self, account: Account, is_preemptible: bool, claims: list[Claim]) -> Endings:
        """How what counts before an entry, these claims included, comes to its end."""
        spells = list(self._spells(account, is_preemptible))
        spells += [Spell(claim.amounts, self._claim_at(claim) + min(claim.lasts, FAR), True) for claim in claims]
        spells.sort(key=attrgetter("end"))
        total = [sum([spell.amounts[kind] for spell in spells]) for kind in range(5)]
        endings = [(0.0, total)]
        for spell in spells:
            total = [amount - less for amount, less in zip(total, spell.amounts, strict=True)]
            endings.append((spell.end, total))
        return endings

    # What was borrowed.

    def borrowed(self) -> list[Holding]:
        """The preemptible runs that are beyond a quota, less those that are leaving already.

        What is not preemptible uses a quota first, then the oldest of what is.
        """
        found: dict[str, Holding] = {}
        for account in self._accounts.values():
            if all(account.held[kind] <= limit for kind, limit in account.limits):
                continue
            total = list(account.firm)
            for spell in account.begun:  # what this plan starts takes nothing back yet
                if spell.is_firm:
                    total = [amount - less for amount, less in zip(total, spell.amounts, strict=True)]
            stays = [held for held in account.runs if held.is_preemptible and not held.is_stopping]
            for held in sorted(stays, key=self.age_of):
                amounts = amounts_of_run(held, self.shards_per_gpu)
                if account.beyond(total, amounts) is None:
                    add_up(total, amounts)
                else:
                    found[held.key] = held
        return list(found.values())

    def age_of(self, held: Holding) -> tuple[datetime, str]:
        """What is only being started is the youngest."""
        return held.started_at or self._now, held.key

    # For people, when the plan is made.

    def estimate(self, waiting: Waiting) -> datetime | None:
        """When runs of its own holders have made room for an entry; None if nobody can say."""
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
    """The first moment at which there is quota enough. What is held only falls, so it can be halved for."""
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
