"""The people in hand never know less, or more, than the disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from danlu.domain.people import AccountRequest, AuditEntry, Boost, Membership, Person, RequestState, Team
from danlu.domain.quota import Quota
from danlu.errors import Invalid, StoreDown
from danlu.state.people import Roster
from danlu.store.people_protocol import Limit, Member, NoBoost, People, PeopleChange
from danlu.store.sql import SqlStore
from tests.builders import NOW

LATER, LAST = NOW + timedelta(days=1), NOW + timedelta(days=2)
ADA, BO = Person("ada", NOW), Person("bo", NOW)


class Told:
    """Counts how often it was told that something changed."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


class BreaksOff(SqlStore):
    """The next write is done or not, and either way its answer never comes."""

    is_done: bool | None = None

    async def record(self, changed: Sequence[PeopleChange], audit: Sequence[AuditEntry] = ()) -> None:
        is_done, self.is_done = self.is_done, None
        if is_done is not False:
            await super().record(changed, audit)
        if is_done is not None:
            raise StoreDown("the database went away")


def store_at(folder: Path) -> BreaksOff:
    return BreaksOff(f"sqlite:///{folder}/danlu.db")


def seen(roster: Roster) -> People:
    """All that it shows, as the store would tell it."""
    return People(
        persons=tuple(roster.persons[name] for name in sorted(roster.persons)),
        teams=tuple(roster.teams[name] for name in sorted(roster.teams)),
        members=tuple(
            Member(user, one.team, one) for user in sorted(roster.persons) for one in roster.memberships(user)
        ),
        requests=tuple(roster.requests[one] for one in sorted(roster.requests)),
        limits=tuple(Limit(holder, roster.quotas[holder]) for holder in sorted(roster.quotas)),
        boosts=tuple(roster.boosts[one] for one in sorted(roster.boosts)),
    )


def test_what_was_written_is_shown_and_is_there_the_next_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, told = store_at(tmp_path), Told()
        await store.open()
        roster = Roster(store, await store.people(), told)
        assert (roster.stamp, told.times, seen(roster)) == (0, 0, People())
        steps: list[list[PeopleChange]] = [
            [BO, ADA, Team("nlp", NOW), Team("cv", NOW)],
            [Member("ada", "nlp", Membership("nlp")), Member("ada", "cv", Membership("cv", is_leader=True))],
            [Member("bo", "nlp", Membership("nlp")), AccountRequest("r", "li", "nlp", NOW)],
            [Limit("user:ada", Quota(gpus=2)), Limit("team:nlp", Quota(gpus=8, borrow=True))],
            [Boost("b", "ada", "nlp", "bo", "", NOW, LATER), Boost("c", "bo", "nlp", "bo", "", NOW, LATER)],
            [replace(ADA, is_enabled=False), AccountRequest("r", "li", "nlp", NOW, RequestState.REFUSED)],
            [Member("ada", "nlp", None), Limit("user:ada", None), NoBoost("b")],
            [Member("ada", "nlp", None), Limit("user:ada", None), NoBoost("b")],
        ]
        for number, step in enumerate(steps, 1):
            await roster.record(step)
            assert seen(roster) == await store.people()
            assert (roster.stamp, told.times) == (number, number)
        assert seen(Roster(store, await store.people())) == seen(roster)
        assert [one.team for one in roster.memberships("ada")] == ["cv"]
        assert roster.members("nlp") == (Member("bo", "nlp", Membership("nlp")),)
        assert roster.members("nobody's") == ()
        assert roster.memberships("nobody") == ()
        await store.close()

    asyncio.run(scenario())


def test_what_was_refused_is_not_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, told = store_at(tmp_path), Told()
        await store.open()
        roster = Roster(store, People(), told)
        with pytest.raises(Invalid):
            await roster.record([ADA, Limit("user:ada", Quota(gpus=2**70))])
        assert (seen(roster), told.times) == (People(), 0)
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_done", [True, False])
def test_a_write_whose_answer_was_lost_is_looked_up_before_the_next(tmp_path: Path, is_done: bool) -> None:
    async def scenario() -> None:
        store = store_at(tmp_path)
        await store.open()
        roster = Roster(store, People())
        store.is_done = is_done
        with pytest.raises(StoreDown):
            await roster.record([ADA])
        assert not roster.persons
        await asyncio.gather(*(roster.record([Person(f"p{i}", NOW)]) for i in range(5)))
        assert len(roster.persons) == 5 + is_done
        assert seen(roster) == await store.people()
        await store.close()

    asyncio.run(scenario())


def test_who_goes_away_leaves_what_was_written_in_sight(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_at(tmp_path)
        await store.open()
        roster = Roster(store, People())
        asking = asyncio.create_task(roster.record([ADA]))
        await asyncio.sleep(0)
        asking.cancel()
        await roster.record([BO])
        assert asking.cancelled()
        assert set(roster.persons) == {"ada", "bo"}
        await store.close()

    asyncio.run(scenario())


def test_changes_of_one_thing_are_shown_in_the_order_of_their_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_at(tmp_path)
        await store.open()
        roster = Roster(store, People())
        await asyncio.gather(*(roster.record([Limit("user:ada", Quota(gpus=i))]) for i in range(50)))
        assert roster.quotas["user:ada"] == Quota(gpus=49)
        assert seen(roster) == await store.people()
        await store.close()

    asyncio.run(scenario())


def test_a_boost_counts_from_its_beginning_until_its_end(tmp_path: Path) -> None:
    first, second = Boost("b", "ada", "", "bo", "", NOW, LATER), Boost("c", "bo", "", "bo", "", LATER, LAST)
    roster = Roster(store_at(tmp_path), People(boosts=(first, second)))
    tick = timedelta(microseconds=1)
    assert roster.boosted(NOW - tick) == frozenset()
    assert roster.boosted(NOW) == roster.boosted(LATER - tick) == {"ada"}
    assert roster.boosted(LATER) == {"bo"}
    assert roster.boosted(LAST) == frozenset()
