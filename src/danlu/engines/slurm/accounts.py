"""The Slurm account of a team's job, on clusters with accounting.

A missing account stops no job: the job uses the default account of its user, as Slurm does without enforcement, and a
note on the job tells the user."""

import asyncio
import logging
import time
from dataclasses import dataclass

from danlu.engines.slurm.commands import Answer, Commands
from danlu.engines.slurm.text.messages import last_words
from danlu.engines.slurm.text.parse_cluster import ASSOCIATION_FORMAT, Association, parse_associations
from danlu.engines.slurm.timing import Timing
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

_SLURMS_OWN = "root"  # the parent of all accounts


@dataclass(frozen=True, slots=True)
class Payer:
    """The user, team and partition of a job."""

    cluster: str
    person: str
    team: str
    queue: str


@dataclass(frozen=True, slots=True)
class Choice:
    """An account. An empty name is the user's default account."""

    name: str = ""
    note: str = ""


class Accounts:
    """`may_make`: add missing accounts to Slurm. The server then needs the rights of root or of a Slurm operator."""

    def __init__(self, commands: Commands, timing: Timing, *, may_make: bool = False) -> None:
        self._commands = commands
        self._may_make = may_make
        self._timing = timing
        self._known: frozenset[Association] | None = None
        self._asked_at = float("-inf")
        self._created_at: dict[tuple[str, str], float] = {}
        self._asking = asyncio.Lock()
        self._making = asyncio.Lock()

    async def choose(self, payer: Payer) -> Choice:
        """The account for a job. One question to Slurm, minutes apart, serves all users and teams."""
        if not payer.team:
            return Choice()
        for age_s in (self._timing.accounts_refresh_s, self._timing.accounts_retry_s):
            await self._refresh(payer.cluster, age_s)
            if self._exists(payer):
                return Choice(payer.team)
        if self._known is None:
            return Choice(payer.team)  # the controller knows the accounts too, and decides
        if self._may_make:
            async with self._making:  # the first job creates a missing account, the other jobs wait
                await self._create(payer)
        # A user without any account has no default account. Clusters without enforcement keep the team's name.
        if self._exists(payer) or payer.person not in {one.user for one in self._known}:
            return Choice(payer.team)
        return Choice(
            "", f"Slurm has no account {payer.team} for {payer.person}: the job uses the default account in Slurm"
        )

    async def fallback(self, refused: Choice, payer: Payer) -> Choice | None:
        """Another account after the controller refused this choice; None: no other account."""
        if not refused.name:
            return None
        await self._refresh(payer.cluster, min(self._timing.accounts_doubted_s, self._timing.accounts_retry_s))
        if self._known is None:
            return Choice("", f"Slurm did not take the account {payer.team}: the job uses the default account in Slurm")
        chosen = await self.choose(payer)
        return chosen if chosen.name != refused.name else None

    def _exists(self, payer: Payer) -> bool:
        known, person, team = self._known or frozenset(), payer.person, payer.team
        return Association(team, person) in known or Association(team, person, payer.queue) in known

    async def _refresh(self, cluster: str, age_s: float) -> None:
        """Read the accounts unless they are younger than `age_s`. Without an answer the known accounts stay."""
        async with self._asking:
            if time.monotonic() - self._asked_at <= (self._timing.accounts_retry_s if self._known is None else age_s):
                return
            answer = await self._sacctmgr("-nP", "show", "assoc", f"format={ASSOCIATION_FORMAT}", f"cluster={cluster}")
            self._asked_at = time.monotonic()
            if answer is not None and answer.code == 0:
                self._known = parse_associations(answer.stdout)
            elif self._known is None:
                log.warning("the accounts of Slurm cannot be read: %s", _words(answer))

    async def _create(self, payer: Payer) -> None:
        """Add the account, at most once per refresh interval."""
        person, team, cluster = payer.person, payer.team, payer.cluster
        age_s = time.monotonic() - self._created_at.get((person, team), float("-inf"))
        is_tried = age_s < self._timing.accounts_refresh_s
        if self._exists(payer) or is_tried or team == _SLURMS_OWN:
            return
        self._created_at[person, team] = time.monotonic()
        # `sacctmgr add` leaves existing accounts alone.
        await self._sacctmgr("-i", "add", "account", team, f"cluster={cluster}")
        answer = await self._sacctmgr("-i", "add", "user", person, f"account={team}", f"cluster={cluster}")
        await self._refresh(cluster, 0.0)
        if self._exists(payer):
            log.info("added the account %s of %s to Slurm", team, person)
        else:
            log.warning("the account %s of %s could not be added to Slurm: %s", team, person, _words(answer))

    async def _sacctmgr(self, *args: str) -> Answer | None:
        try:
            return await self._commands.run(("sacctmgr", *args), patience_s=self._timing.accounts_patience_s)
        except EngineDown:
            return None


def how_to_add(payer: Payer) -> str:
    """The commands for an administrator of Slurm."""
    account = payer.team or "ACCOUNT"
    return f"`sacctmgr add account {account}` and `sacctmgr add user {payer.person} account={account}`"


def _words(answer: Answer | None) -> str:
    return (last_words(answer.stderr) or last_words(answer.stdout)) if answer else "sacctmgr does not answer"
