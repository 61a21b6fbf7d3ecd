"""The active jobs in memory: the same as a plain look at all jobs, and woken watchers."""

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random
from time import perf_counter
from typing import Any

import pytest

from danlu.domain.job import ACTIVE, Dependency, Job, JobId, JobState, Reason
from danlu.state.active_jobs import ActiveJobs
from tests.builders import NOW, job

WHY = Reason("x", "x")


def tasks(array_id: str, count: int, first: int, **fields: Any) -> list[Job]:
    model = job(array_id, **fields)
    return [
        replace(model, id=JobId(f"{array_id}_{i}"), array_id=array_id, array_index=i, seq=first + i)
        for i in range(count)
    ]


def moved(one: Job, state: JobState) -> Job:
    return one.moved(state, why=WHY, at=NOW)


def test_groups_come_by_priority_then_in_order_of_submission() -> None:
    active_jobs = ActiveJobs(
        [job("c", seq=3), job("low", seq=1, priority=1), job("high", seq=9, priority=9), *tasks("arr", 3, 4)]
    )
    active_jobs.apply([job("late", seq=20), job("b", seq=2)])
    assert [group.key for group in active_jobs.groups()] == ["high", "b", "c", "arr", "late", "low"]
    arr = active_jobs.groups()[3]
    assert (arr.count, arr.seq, arr.running, arr.blocked, tuple(arr.ids)) == (
        3,
        4,
        0,
        False,
        ("arr_0", "arr_1", "arr_2"),
    )
    assert (arr.ask, arr.priority, arr.time_limit) == (arr.spec.ask, 5, None)


def test_an_array_leaves_from_the_front_and_a_retry_comes_back_in_order() -> None:
    made = tasks("arr", 6, 1)
    active_jobs = ActiveJobs(made)
    going = [moved(one, JobState.STARTING) for one in made[:4]]
    active_jobs.apply(going)
    assert active_jobs.next_ids("arr", 1) == ("arr_4",)
    active_jobs.apply(moved(one, JobState.QUEUED) for one in (going[3], going[1]))
    assert active_jobs.next_ids("arr", 3) == ("arr_1", "arr_3", "arr_4")
    assert tuple(active_jobs.groups()[0].ids) == ("arr_1", "arr_3", "arr_4", "arr_5")
    assert active_jobs.groups()[0].running == 2
    assert active_jobs.active_in("arr") == 6
    assert active_jobs.next_ids("nobody", 3) == ()


def test_a_group_that_comes_back_after_all_started_knows_what_runs() -> None:
    made = tasks("arr", 3, 1)
    active_jobs = ActiveJobs([*made, job("z", seq=9)])
    going = [moved(one, JobState.STARTING) for one in made]
    active_jobs.apply(going)
    assert [group.key for group in active_jobs.groups()] == ["z"]
    active_jobs.apply([moved(going[2], JobState.QUEUED)])
    active_jobs.apply([moved(going[0], JobState.QUEUED)])
    first = active_jobs.groups()[0]
    assert (first.key, first.seq, first.count, first.running) == ("arr", 1, 2, 1)


def test_stamps_change_with_the_group_only() -> None:
    made = tasks("arr", 3, 1)
    active_jobs = ActiveJobs([*made, job("z", seq=9)])
    before = {group.key: group.stamp for group in active_jobs.groups()}
    starting = moved(made[0], JobState.STARTING)
    active_jobs.apply([starting])
    after = {group.key: group.stamp for group in active_jobs.groups()}
    assert after["z"] == before["z"]
    assert after["arr"] != before["arr"]
    active_jobs.apply([moved(starting, JobState.RUNNING)])  # still one running
    assert {group.key: group.stamp for group in active_jobs.groups()} == after


def test_blocked_jobs_and_their_dependents() -> None:
    wait = (Dependency("first"), Dependency("other", "any"))
    made = tasks("arr", 3, 2, waiting_for=wait)
    active_jobs = ActiveJobs([job("first", seq=1), *made])
    assert active_jobs.groups()[1].blocked
    assert active_jobs.next_ids("arr", 3) == ()
    assert active_jobs.dependents("first") == ("arr_0", "arr_1", "arr_2")
    active_jobs.apply([made[1].changed(waiting_for=wait[1:])])
    assert active_jobs.dependents("first") == ("arr_0", "arr_2")
    active_jobs.apply([made[0].changed(waiting_for=())])
    assert not active_jobs.groups()[1].blocked
    assert active_jobs.groups()[1].free == 1
    assert active_jobs.next_ids("arr", 3) == ("arr_0",)
    active_jobs.apply([moved(made[2], JobState.CANCELLED)])
    assert active_jobs.dependents("first") == ()
    assert active_jobs.dependents("other") == ("arr_1",)


def test_old_versions_are_skipped() -> None:
    one = job("a", seq=1)
    starting = moved(one, JobState.STARTING)
    active_jobs = ActiveJobs([starting])
    active_jobs.apply([one, starting])
    assert active_jobs.jobs == {"a": starting}
    assert active_jobs.active_in("a") == 1
    active_jobs.apply([moved(starting, JobState.LOST), moved(job("unknown"), JobState.CANCELLED)])
    assert active_jobs.jobs == {}
    assert active_jobs.active_in("a") == 0


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_plain_look_at_all_jobs(seed: int) -> None:
    random = Random(seed)
    active_jobs, known = ActiveJobs(), dict[str, Job]()
    seq = 1
    for step in range(150):
        if random.random() < 0.4:
            wait = tuple(Dependency(ref) for ref in random.sample(["g1", "g2", "nobody"], random.choice([0, 0, 1, 2])))
            fields = {"priority": random.choice([1, 5, 9]), "waiting_for": wait}
            count = random.choice([1, 1, 5])
            new = tasks(f"g{step}", count, seq, **fields) if count > 1 else [job(f"g{step}", seq=seq, **fields)]
            seq += count
        else:
            new = [_step(one, random) for one in random.sample(list(known.values()), min(len(known), 3))]
        active_jobs.apply(new)
        for one in new:
            known[one.id] = one
            if one.state.is_ended:
                del known[one.id]
        _assert_same(active_jobs, known)


def _step(one: Job, random: Random) -> Job:
    if one.state is JobState.QUEUED:
        if random.random() < 0.3:
            return one.changed(waiting_for=one.waiting_for[1:])
        return moved(one, random.choice([JobState.STARTING, JobState.STARTING, JobState.CANCELLED]))
    if one.state is JobState.STARTING:
        return moved(one, random.choice([JobState.RUNNING, JobState.QUEUED]))
    return moved(one, random.choice([JobState.SUCCEEDED, JobState.QUEUED, JobState.FAILED]))


def _assert_same(active_jobs: ActiveJobs, known: dict[str, Job]) -> None:
    queued = sorted((one for one in known.values() if one.state is JobState.QUEUED), key=lambda one: one.seq)
    holding = {one.id for one in known.values() if one.state.is_given}
    assert dict(active_jobs.jobs) == known
    assert {one.id for one in active_jobs.holding()} == holding
    assert active_jobs.counts() == {state: sum(one.state is state for one in known.values()) for state in ACTIVE}
    groups: dict[str, list[Job]] = {}
    for one in queued:
        groups.setdefault(one.group, []).append(one)
    assert {group.key: tuple(group.ids) for group in active_jobs.groups()} == {
        key: tuple(one.id for one in found) for key, found in groups.items()
    }
    assert [group.order for group in active_jobs.groups()] == sorted(group.order for group in active_jobs.groups())
    running = Counter(known[one].group for one in holding)
    for group in active_jobs.groups():
        found = groups[group.key]
        free = tuple(one.id for one in found if not one.waiting_for)
        assert (group.count, group.running, group.free) == (len(found), running[group.key], len(free))
        assert group.blocked is (not free)
        assert group.seq <= found[0].seq
        assert active_jobs.next_ids(group.key, 2) == free[:2]
        assert active_jobs.group(group.key) is group
    for ref in ("g1", "g2", "nobody"):
        waiting = {one.id for one in queued if any(it.on == ref for it in one.waiting_for)}
        assert set(active_jobs.dependents(ref)) == waiting
    active = Counter(one.group for one in known.values())
    assert all(active_jobs.active_in(key) == active[key] for key in [*active, "g1", "nobody"])


def test_watchers_wake_at_the_next_change_of_job_or_array() -> None:
    async def story() -> None:
        made = tasks("arr", 2, 1)
        active_jobs = ActiveJobs([*made, job("a", seq=9)])
        of_job, of_array, other = active_jobs.watch("arr_1"), active_jobs.watch("arr"), active_jobs.watch("a")
        twin, left = active_jobs.watch("arr_1"), active_jobs.watch("arr_1")
        left.cancel()
        starting = moved(made[1], JobState.STARTING)
        active_jobs.apply([starting])
        assert await of_job == await of_array == await twin == starting
        assert not other.done()
        again = active_jobs.watch("arr")
        active_jobs.apply([starting])  # nothing new
        assert not again.done()
        active_jobs.apply([moved(made[0], JobState.CANCELLED)])
        assert (await again).id == "arr_0"
        other.cancel()
        await asyncio.sleep(0)
        assert active_jobs._watchers == {}

    asyncio.run(story())


def test_a_change_costs_the_same_however_long_the_queue_is() -> None:
    def seconds(length: int) -> float:
        made = [*tasks("arr", length, 1), *(job(f"j{i}", seq=length + i) for i in range(length // 10))]
        active_jobs = ActiveJobs(made)
        best = 1.0
        for one in made[:300]:
            starting = moved(one, JobState.STARTING)
            ended = moved(starting, JobState.SUCCEEDED)
            begun = perf_counter()
            active_jobs.apply([starting])
            active_jobs.next_ids("arr", 1)
            active_jobs.apply([ended])
            best = min(best, perf_counter() - begun)
        return best

    assert seconds(50_000) < 5 * seconds(500)
