"""Teams of Danlu and accounts of Slurm, on real clusters that keep books and hold people to them."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from danlu.domain.resources import Ask
from danlu.engines.base import Ending, Handle, Observation, RunState
from danlu.engines.slurm.engine import SlurmEngine
from tests.contract.engine_rigs import LIMIT_SECONDS
from tests.contract.slurm_rig import SlurmRig, with_own_rig
from tests.slurm.cage import wait_until
from tests.slurm.cluster import SlurmCluster, shared_cluster, slurm_cluster
from tests.slurm.layout import Layout
from tests.slurm.releases import NEWER, OLDER

pytestmark = pytest.mark.slurm
both_versions = pytest.mark.parametrize("version", [OLDER, NEWER])


class BooksRig(SlurmRig):
    def __init__(self, folder: Path, cluster: SlurmCluster, *, makes_accounts: bool = False) -> None:
        self._makes_accounts = makes_accounts
        super().__init__(folder, cluster.release.version, cluster)

    def another_engine(self) -> SlurmEngine:
        environment = self.cluster.environment
        return SlurmEngine(
            str(self.folder / "shared"),
            conf=environment["SLURM_CONF"],
            commands_path=environment["PATH"],
            makes_accounts=self._makes_accounts,
        )

    async def begin(self, run_id: str, user: str, team: str, *command: str, **particulars: Any) -> Handle:
        launch = self.launch(run_id, *(command or ("true",)), user=user, team=team, workdir="/", **particulars)
        await self.engine.start([launch])
        return launch.handle

    def account(self, run_id: str) -> str:
        """Under which account Slurm has the run."""
        said = self.cluster.ask("squeue", "--noheader", "--states=all", "--format=%k %a")
        own = f"danlu:{self.engine._folders.instance}:{run_id}"  # others on this cluster had runs of that name
        return next((line.split()[1] for line in said.splitlines() if line.split()[0] == own), "")


def on(cluster: SlurmCluster, test: Callable[[BooksRig], Awaitable[None]], **options: Any) -> None:
    with_own_rig(lambda folder: BooksRig(folder, cluster, **options), test)


def add(cluster: SlurmCluster, user: str, *accounts: str) -> None:
    """Somebody who may use these accounts; the first is the default one."""
    for account in accounts:
        cluster.call("sacctmgr", "-i", "add", "account", account)
        cluster.call("sacctmgr", "-i", "add", "user", user, f"account={account}")
    known = "scontrol", "show", "assoc_mgr", "flags=assoc", f"users={user}"
    wait_until(lambda: all(f"Account={one} " in cluster.ask(*known) for one in accounts), "slurmctld knows them")


async def end_of(rig: BooksRig, handle: Handle) -> Observation:
    seen = await rig.ended(handle)
    assert seen.reason is not None
    return seen


@both_versions
def test_a_job_goes_under_the_account_of_its_team(version: str) -> None:
    cluster = shared_cluster(version, accounting=True)
    add(cluster, "games", "lab", "vision")

    async def test(rig: BooksRig) -> None:
        of_team = await rig.begin("a.1", "games", "vision")
        of_nobody = await rig.begin("b.1", "games", "")
        for handle in (of_team, of_nobody):
            end = await end_of(rig, handle)
            assert (end.ending, end.exit_code, end.notes) == (Ending.EXITED, 0, ())
        assert (rig.account("a.1"), rig.account("b.1")) == ("vision", "lab")

    on(cluster, test)


@both_versions
def test_a_team_without_an_account_stops_no_job(version: str) -> None:
    cluster = shared_cluster(version, accounting=True)
    add(cluster, "games", "lab")

    async def test(rig: BooksRig) -> None:
        handles = await asyncio.gather(*(rig.begin(f"a{at}.1", "games", "nobodys") for at in range(4)))
        for handle in handles:
            end = await end_of(rig, handle)
            assert (end.ending, end.exit_code) == (Ending.EXITED, 0)
            assert end.notes == ("Slurm has no account nobodys for games: the job uses the default account in Slurm",)
        assert rig.account("a0.1") == "lab"
        assert "nobodys" not in cluster.ask("sacctmgr", "-nP", "show", "account"), "nothing was made unasked"

    on(cluster, test)


@both_versions
def test_who_has_no_account_at_all_is_told_what_would_help(version: str) -> None:
    cluster = shared_cluster(version, accounting=True)

    async def test(rig: BooksRig) -> None:
        end = await end_of(rig, await rig.begin("a.1", "uucp", "vision"))
        assert end.ending is Ending.NOT_STARTED
        assert end.reason is not None
        assert end.reason.code == "slurm_account"
        assert "sacctmgr add user uucp account=vision" in end.reason.full_text
        add(cluster, "uucp", "vision")
        # The books were read a moment ago; Slurm itself knows better at once.
        again = await end_of(rig, await rig.begin("b.1", "uucp", "vision"))
        assert (again.ending, again.notes) == (Ending.EXITED, ())

    on(cluster, test)


@both_versions
def test_accounts_are_made_where_the_configuration_says_so(version: str) -> None:
    cluster = shared_cluster(version, accounting=True)

    async def test(rig: BooksRig) -> None:
        handles = [await rig.begin(f"a{at}.1", "news", "fresh") for at in range(3)]
        for handle in handles:
            end = await end_of(rig, handle)
            assert (end.ending, end.notes) == (Ending.EXITED, ()), end.reason
        assert {rig.account(f"a{at}.1") for at in range(3)} == {"fresh"}
        assert "fresh|news" in cluster.ask("sacctmgr", "-nP", "show", "assoc", "format=account,user")

    on(cluster, test, makes_accounts=True)


def test_an_account_that_is_taken_away_meanwhile() -> None:
    cluster = shared_cluster(OLDER, accounting=True)
    add(cluster, "mail", "lab", "leaving")

    async def test(rig: BooksRig) -> None:
        await end_of(rig, await rig.begin("a.1", "mail", "leaving"))
        cluster.ask("sacctmgr", "-i", "delete", "user", "mail", "account=leaving")
        # The books were read a moment ago, and not for every job.
        async with asyncio.timeout(LIMIT_SECONDS):
            for at in itertools.count():
                end = await end_of(rig, await rig.begin(f"b{at}.1", "mail", "leaving"))
                if end.ending is Ending.EXITED:
                    break
                assert end.reason is not None
                assert end.reason.code == "slurm_account"
        assert end.notes == ("Slurm has no account leaving for mail: the job uses the default account in Slurm",)

    on(cluster, test)


def test_without_the_database_the_controller_still_knows_the_accounts() -> None:
    cluster = shared_cluster(OLDER, accounting=True)
    add(cluster, "games", "lab", "vision")
    cluster.accounting.kill_daemon()

    async def test(rig: BooksRig) -> None:
        known = await end_of(rig, await rig.begin("a.1", "games", "vision"))
        assert (known.ending, known.notes, rig.account("a.1")) == (Ending.EXITED, (), "vision")
        other = await end_of(rig, await rig.begin("b.1", "games", "nobodys"))
        assert (other.ending, rig.account("b.1")) == (Ending.EXITED, "lab")
        assert other.notes == ("Slurm did not take the account nobodys: the job uses the default account in Slurm",)

    on(cluster, test)


def test_where_nobody_is_held_to_accounts_the_team_stands_in_the_books() -> None:
    cluster = slurm_cluster(NEWER, Layout(accounting=True, settings={"AccountingStorageEnforce": "nosteps"}))
    try:

        async def test(rig: BooksRig) -> None:
            end = await end_of(rig, await rig.begin("a.1", "games", "vision"))
            assert (end.ending, end.notes) == (Ending.EXITED, ())
            assert rig.account("a.1") == "vision"

        on(cluster, test)
    finally:
        cluster.close()


def test_a_limit_of_the_account_is_told_as_one() -> None:
    cluster = shared_cluster(OLDER, accounting=True)
    cluster.call("sacctmgr", "-i", "add", "account", "narrow", "set", "GrpTRES=gres/gpu=1")
    add(cluster, "games", "narrow")

    async def test(rig: BooksRig) -> None:
        handle = await rig.begin("a.1", "games", "narrow", ask=Ask(gpus=2))

        async def why() -> str:
            seen = (await rig.engine.observe([handle])).get(handle)
            return seen.reason.code if seen and seen.state is RunState.PENDING and seen.reason else ""

        async with asyncio.timeout(LIMIT_SECONDS):
            while await why() != "quota":
                await asyncio.sleep(0.05)
        seen = (await rig.engine.observe([handle]))[handle]
        assert seen.reason is not None
        assert "its account in Slurm" in seen.reason.full_text

    on(cluster, test)
