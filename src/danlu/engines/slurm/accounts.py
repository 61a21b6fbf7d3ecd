"""Under which account of Slurm a job of a team goes, on clusters that keep books.

Slurm's books are not Danlu's: that nobody has made an account there for a team stops no job. It then goes under its
person's default account, as Slurm itself has it where accounts are not enforced, and a note on the job says so."""

import asyncio
import logging
import time
from dataclasses import dataclass

from danlu.engines.slurm.commands import Answer, Commands
from danlu.engines.slurm.text.messages import last_words
from danlu.engines.slurm.text.parse_cluster import ASSOCIATION_FORMAT, Association, parse_associations
from danlu.errors import EngineDown

log = logging.getLogger(__name__)

LASTS_S = 300.0
# Somebody is missing, or the database was away: an administrator may be about to change that.
AGAIN_S = 30.0
DOUBTED_S = 2.0  # the controller does not take what the books had
PATIENCE_S = 10.0
_SLURMS_OWN = "root"  # the account above all others


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose job it is, and where it goes."""

    cluster: str
    person: str
    team: str
    queue: str


@dataclass(frozen=True, slots=True)
class Choice:
    """An account; empty: the default one of the person."""

    name: str = ""
    note: str = ""


class Accounts:
    """`may_make`: what is missing is added to the books, which takes a server of root or of an operator of Slurm."""

    def __init__(
        self, commands: Commands, *, may_make: bool = False, lasts_s: float = LASTS_S, again_s: float = AGAIN_S
    ) -> None:
        self._commands = commands
        self._may_make = may_make
        self._lasts_s, self._again_s = lasts_s, again_s
        self._known: frozenset[Association] | None = None
        self._asked_at = float("-inf")
        self._made_at: dict[tuple[str, str], float] = {}
        self._asking = asyncio.Lock()
        self._making = asyncio.Lock()

    async def choose(self, payer: Payer) -> Choice:
        """One question for all people and teams, minutes apart."""
        if not payer.team:
            return Choice()
        for age_s in (self._lasts_s, self._again_s):
            await self._look(payer.cluster, age_s)
            if self._is_there(payer):
                return Choice(payer.team)
        if self._known is None:
            return Choice(payer.team)  # the controller knows the accounts too, and will say
        if self._may_make:
            async with self._making:  # of several jobs that miss it, one makes it and the others wait
                await self._make(payer)
        # Whom the books do not know at all has no default account; the name is kept where nobody is held to accounts.
        if self._is_there(payer) or payer.person not in {one.user for one in self._known}:
            return Choice(payer.team)
        return Choice(
            "", f"Slurm has no account {payer.team} for {payer.person}: it counts under their default one there"
        )

    async def instead_of(self, refused: Choice, payer: Payer) -> Choice | None:
        """Another account, after the controller did not take this one; None if there is none."""
        if not refused.name:
            return None
        await self._look(payer.cluster, min(DOUBTED_S, self._again_s))
        if self._known is None:
            return Choice("", f"Slurm did not take the account {payer.team}: it counts under their default one there")
        chosen = await self.choose(payer)
        return chosen if chosen.name != refused.name else None

    def _is_there(self, payer: Payer) -> bool:
        known, person, team = self._known or frozenset(), payer.person, payer.team
        return Association(team, person) in known or Association(team, person, payer.queue) in known

    async def _look(self, cluster: str, age_s: float) -> None:
        """What is known is at most so old, unless the database cannot be asked: then it stays as it was."""
        async with self._asking:
            if time.monotonic() - self._asked_at <= (self._again_s if self._known is None else age_s):
                return
            answer = await self._tell("-nP", "show", "assoc", f"format={ASSOCIATION_FORMAT}", f"cluster={cluster}")
            self._asked_at = time.monotonic()
            if answer is not None and answer.code == 0:
                self._known = parse_associations(answer.out)
            elif self._known is None:
                log.warning("the accounts of Slurm cannot be read: %s", _words(answer))

    async def _make(self, payer: Payer) -> None:
        """Once in a while at most; where it does not help, the default account does."""
        person, team, cluster = payer.person, payer.team, payer.cluster
        is_tried = time.monotonic() - self._made_at.get((person, team), float("-inf")) < self._lasts_s
        if self._is_there(payer) or is_tried or team == _SLURMS_OWN:
            return
        self._made_at[person, team] = time.monotonic()
        # What is there already is no harm: sacctmgr says so, and leaves it.
        await self._tell("-i", "add", "account", team, f"cluster={cluster}")
        answer = await self._tell("-i", "add", "user", person, f"account={team}", f"cluster={cluster}")
        await self._look(cluster, 0.0)
        if self._is_there(payer):
            log.info("added the account %s of %s to Slurm", team, person)
        else:
            log.warning("the account %s of %s could not be added to Slurm: %s", team, person, _words(answer))

    async def _tell(self, *words: str) -> Answer | None:
        try:
            return await self._commands.run(("sacctmgr", *words), patience_s=PATIENCE_S)
        except EngineDown:
            return None


def how_to_add(payer: Payer) -> str:
    """For an administrator of Slurm."""
    account = payer.team or "ACCOUNT"
    return f"`sacctmgr add account {account}` and `sacctmgr add user {payer.person} account={account}`"


def _words(answer: Answer | None) -> str:
    return (last_words(answer.said) or last_words(answer.out)) if answer else "sacctmgr does not answer"
