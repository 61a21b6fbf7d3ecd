"""How often Slurm's books are read, and what is made of them. A `sacctmgr` of our own answers, and counts."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from danlu.engines.slurm.accounts import Accounts, Choice, Payer
from danlu.engines.slurm.commands import Commands
from danlu.engines.slurm.text.parse_cluster import Association, parse_associations
from danlu.engines.slurm.timing import Timing

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
_SACCTMGR = """\
#!/bin/sh
echo "$*" >>{folder}/asked
[ ! -e {folder}/down ] || {{ echo "sacctmgr: error: Connection refused" >&2; exit 1; }}
case $* in
    *" show "*) cat {folder}/books ;;
    *"add account "*) ;;
    *"add user "*) [ ! -e {folder}/closed ] || exit 1; echo "nlp|li|" >>{folder}/books ;;
esac
"""
LI = Payer("lab", "li", "nlp", "gpu")
DEFAULT = Choice("", "Slurm has no account nlp for li: the job uses the default account in Slurm")


class Books:
    """What stands in them is `books`; `down` and `closed` are files that say what does not work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "sacctmgr"
        program.write_text(_SACCTMGR.format(folder=folder))
        program.chmod(0o755)
        self.write("lab||", "lab|li|")

    def write(self, *lines: str) -> None:
        (self.folder / "books").write_text("".join(f"{line}\n" for line in lines))

    def asked(self, word: str = "show") -> int:
        path = self.folder / "asked"
        return sum(f" {word} " in line for line in path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def with_accounts(
    books: Books, test: Callable[[Accounts], Awaitable[None]], *, may_make: bool = False, **durations: float
) -> None:
    async def play() -> None:
        commands = Commands(path=f"{books.folder}:/usr/bin:/bin")
        try:
            await test(Accounts(commands, Timing(**durations), may_make=may_make))
        finally:
            commands.close()

    asyncio.run(play())


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_the_books_are_read(version: str) -> None:
    found = parse_associations((GOLDEN / f"engine-sacctmgr-assoc-{version}.txt").read_text())
    assert found == {
        Association("root", "root"),
        Association("vision", "games"),
        Association("nlp", "games"),
        Association("vision", "news", "debug"),
    }


def test_one_question_is_enough_for_many_jobs(books: Books) -> None:
    books.write("lab|li|", "nlp|li|", "cv|wang|debug")

    async def test(accounts: Accounts) -> None:
        for _ in range(10):
            chosen = await asyncio.gather(*(accounts.choose(LI) for _ in range(5)))
            assert set(chosen) == {Choice("nlp")}
        assert await accounts.choose(Payer("lab", "wang", "cv", "debug")) == Choice("cv")
        assert await accounts.choose(Payer("lab", "wang", "", "debug")) == Choice()
        assert books.asked() == 1

    with_accounts(books, test)


def test_who_is_missing_costs_no_question_for_each_job(books: Books) -> None:
    async def test(accounts: Accounts) -> None:
        chosen = await asyncio.gather(*(accounts.choose(LI) for _ in range(20)))
        assert set(chosen) == {DEFAULT}
        assert await accounts.fallback(Choice("nlp"), LI) == DEFAULT
        assert await accounts.fallback(Choice(), LI) is None, "there is nothing below the default"
        nobody = Payer("lab", "wang", "cv", "gpu")
        assert await accounts.choose(nobody) == Choice("cv"), "who has no default account cannot fall back to it"
        assert await accounts.fallback(Choice("cv"), nobody) is None
        assert books.asked() == 1

    with_accounts(books, test)


def test_who_is_added_is_found(books: Books) -> None:
    async def test(accounts: Accounts) -> None:
        assert await accounts.choose(LI) == DEFAULT
        books.write("lab|li|", "nlp|li|")
        assert await accounts.choose(LI) == Choice("nlp")
        assert books.asked() == 3, "one at first, and two for whom it had missed"
        books.write("lab|li|")
        assert await accounts.choose(LI) == Choice("nlp"), "what was found lasts longer"
        assert await accounts.fallback(Choice("nlp"), LI) == DEFAULT, "unless Slurm does not take it"

    with_accounts(books, test, accounts_retry_s=0.0)


def test_books_that_cannot_be_read_leave_it_to_the_controller(books: Books) -> None:
    (books.folder / "down").touch()

    async def test(accounts: Accounts) -> None:
        for _ in range(5):
            assert await accounts.choose(LI) == Choice("nlp")
        instead = await accounts.fallback(Choice("nlp"), LI)
        assert instead is not None
        assert (instead.name, "did not take the account nlp" in instead.note) == ("", True)
        assert books.asked() == 1

    with_accounts(books, test)


def test_what_was_known_lasts_while_the_database_is_away(books: Books) -> None:
    async def test(accounts: Accounts) -> None:
        assert await accounts.choose(LI) == DEFAULT
        (books.folder / "down").touch()
        assert await accounts.choose(LI) == DEFAULT

    with_accounts(books, test, accounts_retry_s=0.0, accounts_refresh_s=0.0)


def test_an_account_is_made_once_where_it_may_be(books: Books) -> None:
    async def test(accounts: Accounts) -> None:
        chosen = await asyncio.gather(*(accounts.choose(LI) for _ in range(5)))
        assert set(chosen) == {Choice("nlp")}
        assert books.asked("user") == books.asked("account") == 1
        assert (await accounts.choose(Payer("lab", "li", "root", "gpu"))).name == "", "Slurm's own is not given away"
        assert books.asked("user") == 1

    with_accounts(books, test, may_make=True)


def test_an_account_that_cannot_be_made_is_not_tried_for_each_job(books: Books) -> None:
    (books.folder / "closed").touch()

    async def test(accounts: Accounts) -> None:
        for _ in range(5):
            assert await accounts.choose(LI) == DEFAULT
        assert books.asked("user") == 1

    with_accounts(books, test, may_make=True)
