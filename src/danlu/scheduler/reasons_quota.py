"""Reasons of entries over quota, with the amounts after the plan's starts."""

from danlu.domain.amounts import render_count, render_gpus, render_memory
from danlu.domain.job import Reason
from danlu.domain.reasons import ReasonCode
from danlu.scheduler.admission import Admission
from danlu.scheduler.node_timeline import FAR
from danlu.scheduler.quota_accounts import CPUS, GPUS, JOBS, MEMORY, NOTHING, SHARDS, Account, Amounts, amounts_of_run
from danlu.scheduler.snapshot import Snapshot, Waiting


def why_over(admission: Admission, waiting: Waiting) -> Reason:
    """Why an entry over quota waits."""
    amounts, is_preemptible = admission.amounts(waiting), waiting.is_preemptible
    behind = ""
    for account in admission.accounts(waiting):
        whose, its = _whose(account.holder)
        if account.is_spent and amounts[GPUS]:
            hours = render_count(account.quota.gpu_hours or 0, "GPU-hour")
            return Reason(ReasonCode.QUOTA, f"{whose} has spent {its} {hours} of this {account.quota.period}")
        if account.borrows and is_preemptible:
            continue
        base = account.base(is_preemptible)
        kind = account.beyond(base, amounts)
        if kind is not None:
            text = _shortage(account, kind, base, amounts, admission.shards_per_gpu)
            if account.borrows:
                text += f"; `--preemptible` would let it use idle {'cards' if amounts[GPUS] else 'CPUs'}"
            return Reason(ReasonCode.QUOTA, text)
        if account.claims:
            behind = f"would exceed the quota of {whose} together with {account.claims[0].key}"
    return Reason(ReasonCode.BEHIND, f"{behind}, which was before it")


def who_fills(snapshot: Snapshot, waiting: Waiting) -> frozenset[str]:
    """The runs that hold the needed part of the first quota that the entry exceeds; empty if the ask exceeds the whole
    quota."""
    admission = Admission(snapshot, lambda _: FAR)
    amounts, is_preemptible = admission.amounts(waiting), waiting.is_preemptible
    for account in admission.accounts(waiting):
        kind = account.beyond(account.base(is_preemptible), amounts)
        if kind is None or (account.borrows and is_preemptible):
            continue
        if account.beyond(NOTHING, amounts) is not None:
            break
        runs = [held for held in account.runs if not (account.borrows and held.is_preemptible)]
        return frozenset(held.key for held in runs if amounts_of_run(held, admission.shards_per_gpu)[kind])
    return frozenset()


def whose_is_exceeded(admission: Admission, waiting: Waiting) -> str:
    """For an entry that borrows: `team nlp holds 8 of its 8 GPUs`."""
    amounts = admission.amounts(waiting)
    for account in admission.accounts(waiting):
        kind = account.beyond(account.held, amounts)
        if kind is not None:
            return _holds(account, kind, account.held, admission.shards_per_gpu)
    return ""


def _shortage(account: Account, kind: int, base: Amounts, amounts: Amounts, shards_per_gpu: int) -> str:
    wanted = _render(kind, amounts[kind], shards_per_gpu)
    if account.beyond(NOTHING, amounts) == kind:
        most = _render(kind, dict(account.limits)[kind], shards_per_gpu)
        return f"asks for {wanted}, {_whose(account.holder)[0]} may hold {most} at once"
    text = _holds(account, kind, base, shards_per_gpu)
    if kind == JOBS:
        return text
    return f"{text}, this asks for {_bare(kind, wanted)} more"


def _holds(account: Account, kind: int, base: Amounts, shards_per_gpu: int) -> str:
    whose, its = _whose(account.holder)
    most = _render(kind, dict(account.limits)[kind], shards_per_gpu)
    if kind == JOBS:
        return f"{whose} runs {base[kind]} of {its} {most} at once"
    return f"{whose} holds {_bare(kind, _render(kind, base[kind], shards_per_gpu))} of {its} {most}"


def _render(kind: int, amount: int, shards_per_gpu: int) -> str:
    if kind == GPUS:
        return render_gpus(amount / shards_per_gpu)
    if kind == MEMORY:
        return f"{render_memory(amount)} of memory"
    return render_count(amount, {SHARDS: "shard", CPUS: "CPU", JOBS: "job"}[kind])


def _bare(kind: int, rendered: str) -> str:
    """Drop the repeated unit: `3` of 4 GPUs, `3 GiB` of 4 GiB of memory."""
    return rendered.removesuffix(" of memory") if kind == MEMORY else rendered.split(" ")[0]


def _whose(holder: str) -> tuple[str, str]:
    """The display name of a holder, and its possessive pronoun."""
    kind, _, name = holder.partition(":")
    if kind == "member":
        user, _, team = name.partition("@")
        return f"{user} in team {team}", "their"
    return (f"team {name}", "its") if kind == "team" else (name, "their")
