"""Runs that did not come through Danlu: read from Slurm's lists, laid on cards, charged once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from danlu.actions.jobs.external import is_others
from danlu.domain.resources import Ask, Seat
from danlu.engines.base import ExternalRun, Handle, NodeNow, RunState
from danlu.engines.slurm.external import (
    ExternalJobs,
    node_now,
    one_task,
    other_handle,
    other_run,
    parse_past,
    stop_words,
    unexplained,
)
from danlu.engines.slurm.text.parse_cluster import parse_nodes
from danlu.engines.slurm.text.parse_jobs import QueueLine, QueueReader, parse_job_seats
from danlu.loops.external_usage import ExternalUsage, in_books, reckon
from danlu.state.inventory import Inventory
from danlu.state.occupancy import Fill, Sitting, fill, unknown_seats
from tests.builders import node

GOLDEN = Path(__file__).parents[1] / "golden/slurm"
VERSIONS = ("22.05.8", "24.11.5")
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def lines(version: str) -> dict[str, QueueLine]:
    text = (GOLDEN / f"engine-squeue-{version}.txt").read_text()
    return {line.id: line for line in QueueReader().read(text, "@MARK@")}


@pytest.mark.parametrize(("version", "job", "array"), [(VERSIONS[0], "16", "17"), (VERSIONS[1], "2", "3")])
def test_lines_of_a_queue_become_runs(version: str, job: str, array: str) -> None:
    found = {name: other_run(line, ()) for name, line in lines(version).items()}
    waits = found[f"{array}_[2-4]"]
    assert (waits.id, waits.tasks, waits.state, waits.seats) == (f"slurm:{array}_[2-4]", 3, RunState.PENDING, ())
    assert waits.reason is not None
    assert (waits.reason.code, waits.started_at, waits.ask.gpus) == ("no_room", None, 4)
    wide = found[job]
    assert (wide.state, wide.ask.shards, wide.ask.nodes, wide.name) == (RunState.RUNNING, 16, 2, "odd|name")
    assert [(seat.node, seat.cpus) for seat in wide.seats] == [("gn1", 1), ("gn2", 1)]
    assert wide.ends_at is not None
    assert wide.started_at is not None
    assert wide.ends_at - wide.started_at == HOUR
    task = found[f"{array}_1"]
    assert (task.id, task.tasks, task.ask.gpu_model) == (f"slurm:{array}_1", 1, "a100")


def line_of(**fields: Any) -> QueueLine:
    given: dict[str, Any] = {
        "id": "17", "number": 17, "state": "RUNNING", "uid": 1000, "user": "li", "partition": "gpu", "nodes": 1,
        "nodelist": "n1", "cpus": 4, "memory_mib": 1000, "gres": "", "submitted_at": AT, "starts_at": AT + HOUR,
        "ends_at": AT + 3 * HOUR, "reason": "None", "comment": "", "name": "bert",
    }  # fmt: skip
    return QueueLine(**given | fields)


def test_cards_that_were_asked_for_by_job_are_known_from_the_seats() -> None:
    run = other_run(line_of(), (Seat("n1", 4, 4000, gpus=(1, 2)),))
    assert (run.ask.gpus, run.ask.cpus, run.ask.memory_mib) == (2, 4, 4000)
    run = other_run(line_of(nodes=2, nodelist="n[1-2]"), (Seat("n1", 2, shared_gpu=0, shards=8), Seat("n2", 2)))
    assert (run.ask.gpus, run.ask.shards) == (0, 8)


def test_one_that_is_over_has_no_seat_and_says_when_it_ended() -> None:
    run = other_run(line_of(state="CANCELLED"), (Seat("n1", 4, gpus=(1,)),))
    assert (run.state, run.seats, run.started_at, run.ends_at) == (RunState.ENDED, (), AT + HOUR, AT + 3 * HOUR)
    assert other_run(line_of(state="CANCELLED", nodelist=""), ()).started_at is None, "it was stopped before it began"


def test_a_handle_is_of_one_job_for_ever() -> None:
    assert other_handle(line_of()) == other_handle(line_of(state="COMPLETING", ends_at=None))
    assert other_handle(line_of()) != other_handle(line_of(submitted_at=AT + HOUR)), "the number was given again"
    assert other_handle(line_of()) != other_handle(line_of(uid=1001))
    waits = line_of(id="17_[4-9%2]")
    assert other_handle(waits) == other_handle(line_of(id="17_[5-9%2]")), "a task of it has begun"
    assert other_handle(waits) != other_handle(line_of(id="17"))


def test_what_is_stopped_is_what_the_handle_means() -> None:
    waits, runs = line_of(id="17_[4-9%2]", state="PENDING"), line_of(id="17_3", number=21)
    assert stop_words(waits, other_handle(waits)) == ("scancel", "--user=1000", "--state=PENDING", "17")
    assert stop_words(runs, other_handle(runs)) == ("scancel", "--user=1000", "17_3")
    assert stop_words(runs, other_handle(waits)) == ()
    together = other_run(waits, ())
    assert one_task(together, "slurm:17_3") is None
    assert one_task(together, "slurm:18_5") is None
    assert one_task(together, "slurm:17") is None
    for odd in ("slurm:17_\u0665", "slurm:17_+5", "slurm:17_" + "5" * 5000, "slurm:17_5;id"):
        assert one_task(together, odd) is None, "no number that Slurm would read otherwise"
    assert one_task(other_run(runs, ()), "slurm:17_3") is None
    task = one_task(together, "slurm:17_5")
    assert task
    assert (task.id, task.tasks) == ("slurm:17_5", 1)
    assert stop_words(waits, task.handle) == ("scancel", "17_5")
    begun = line_of(id="17_5", number=23)
    assert stop_words(begun, task.handle) == ("scancel", "--user=1000", "17_5"), "it has begun meanwhile"
    assert stop_words(line_of(id="17_[6-9%2]", state="PENDING"), task.handle) == (), "it is no longer among them"
    assert stop_words(replace(waits, submitted_at=AT + HOUR), task.handle) == (), "the number was given again"


def test_what_did_not_change_is_not_made_anew() -> None:
    told = ExternalJobs()
    some = [line_of(), line_of(id="18", number=18, state="PENDING", reason="Resources")]
    told.update(some, {})
    first = told.runs
    assert told.has_changed
    told.update([line_of(), replace(some[1], starts_at=AT + 5 * HOUR)], {})
    assert told.runs[0] is first[0]
    assert not told.has_changed, "an estimate is no news"
    assert told.runs[1].estimated_at == AT + 5 * HOUR
    told.update([line_of(), replace(some[1], reason="Priority")], {})
    assert told.has_changed
    told.update([line_of(), replace(some[1], reason="Priority")], {17: (Seat("n1", 4, gpus=(0,)),)})
    assert told.has_changed, "now it is known where it sits"
    told.update([line_of()], {17: (Seat("n1", 4, gpus=(0,)),)})
    assert told.has_changed
    told.update([line_of()], {17: (Seat("n1", 4, gpus=(0,)),)})
    assert not told.has_changed


def test_nodes_in_the_words_of_either_release() -> None:
    older, newer = (
        {one.node.name: one for one in parse_nodes((GOLDEN / f"engine-scontrol-node-{version}.txt").read_text())}
        for version in VERSIONS
    )
    assert node_now(older["gn1"]) == NodeNow("MIXED", "", 2, 2000, (0, 1), {2: 1})
    assert node_now(newer["gn1"]) == NodeNow("MIXED+PLANNED", "", 2, 2000, (0, 1), {2: 16})
    assert node_now(older["gn3"]).why == "bad fan, card 2"
    seats = parse_job_seats((GOLDEN / f"engine-scontrol-job-{VERSIONS[1]}.txt").read_text())
    assert unexplained(newer.values(), seats.values()) == frozenset()
    assert unexplained(newer.values(), [seats[2]]) == {"gn1", "gn3"}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_ended_while_nobody_looked(version: str) -> None:
    text = (GOLDEN / f"engine-sacct-past-{version}.txt").read_text()
    found = {one.id: one for one in parse_past(text, "@MARK@", "another", datetime.fromtimestamp(0, UTC))}
    assert set(found) == {"slurm:1", "slurm:2_1", "slurm:2_2", "slurm:3", "slurm:4"}
    assert {one.state for one in found.values()} == {RunState.ENDED}
    assert (found["slurm:3"].ask.gpus, found["slurm:3"].ask.cpus, found["slurm:2_1"].ask.shards) == (3, 2, 16)
    run = found["slurm:1"]
    assert run.started_at is not None
    assert run.ends_at is not None
    assert (run.user, run.queue) == ("root", "gpu")
    assert timedelta(seconds=2) <= run.ends_at - run.started_at <= timedelta(seconds=3)
    never = text.replace("@MARK@gn1@MARK@", "@MARK@None assigned@MARK@")
    assert {one.id for one in parse_past(never, "@MARK@", "another", run.started_at)} == {"slurm:3", "slurm:4"}
    assert "slurm:1" not in {one.id for one in parse_past(text, "@MARK@", "x", run.started_at)}, "it is our own"
    assert {one.id for one in parse_past(text, "@MARK@", "x", run.ends_at)} <= {"slurm:4"}, "the others ended before"
    assert parse_past(text, "@OTHER@", "x", run.started_at) == [], "nobody can write what begins a field"


CARDS = node("n1", gpus=4)


def sits(key: str, *gpus: int, wants: int = 0, shards: int = 0, shared: int | None = None) -> Sitting:
    seat = Seat("n1", 1, gpus=gpus, shared_gpu=shared, shards=shards if shared is not None else 0)
    return Sitting(key, seat, wants or len(gpus), shards)


def test_cards_are_whole_shared_or_free() -> None:
    found = fill(CARDS, [sits("a", 0, 1), sits("b", shards=16, shared=2), sits("c", shards=32, shared=2)], None)
    assert found == {
        0: Fill(True, 0, ("a",)), 1: Fill(True, 0, ("a",)), 2: Fill(False, 48, ("b", "c")), 3: Fill(False, 0, ()),
    }  # fmt: skip


def test_what_the_node_says_is_taken_is_not_free() -> None:
    now = NodeNow(gpus=(0,), shards={2: 48})
    found = fill(CARDS, [sits("b", shards=16, shared=2)], now)
    assert (found[0], found[2], found[3]) == (Fill(True, 0, ()), Fill(False, 48, ("b",)), Fill(False, 0, ()))
    assert fill(CARDS, [], now)[2] == Fill(False, 48, ())
    assert unknown_seats("n1", [Seat("n1", 1, shared_gpu=2, shards=16)], now) == [
        Seat("n1", 0, gpus=(0,)), Seat("n1", 0, shared_gpu=2, shards=32),
    ]  # fmt: skip


def test_who_alone_can_have_the_cards_has_them() -> None:
    now = NodeNow(gpus=(0, 3), shards={1: 1})
    found = fill(CARDS, [sits("whole", wants=2), sits("part", shards=8), sits("none")], now)
    assert (found[0].keys, found[3].keys) == (("whole",), ("whole",))
    assert found[1] == Fill(False, 8, ("part",)), "22.05 says which card, the run how many"
    two = fill(CARDS, [sits("x", wants=1), sits("y", wants=1)], now)
    assert (two[0], two[3]) == (Fill(True, 0, ()), Fill(True, 0, ())), "either may have either"


def test_only_what_takes_room_is_news_for_the_plan() -> None:
    inventory = Inventory(is_known=False)
    waits = other(state=RunState.PENDING, seats=())
    stamps = []
    for others, now in (
        ([], {}),
        ([waits], {}),
        ([other()], {}),
        ([other()], {}),
        ([other()], {"n1": NodeNow("DOWN")}),
    ):
        inventory.heard([CARDS], {}, others, now)
        stamps.append(inventory.stamp)
    assert stamps == [1, 1, 2, 2, 3]
    inventory.heard([CARDS], {}, [other(state=RunState.ENDED, seats=())])
    assert inventory.others == ()


def other(**fields: Any) -> ExternalRun:
    given: dict[str, Any] = {
        "id": "slurm:17", "handle": Handle("x"), "user": "li", "name": "bert", "state": RunState.RUNNING,
        "ask": Ask(gpus=2, cpus=4), "queue": "gpu", "seats": (Seat("n1", 4, gpus=(0, 1)),), "submitted_at": AT - HOUR,
        "started_at": AT, "ends_at": AT + 4 * HOUR,
    }  # fmt: skip
    return ExternalRun(**given | fields)


def over(run: ExternalRun, after: timedelta) -> ExternalRun:
    return replace(run, state=RunState.ENDED, seats=(), ends_at=(run.started_at or AT) + after)


def counted(before: ExternalUsage, *seen: ExternalRun, now: datetime = AT + 2 * HOUR, **options: Any) -> ExternalUsage:
    return reckon(before, seen, now=now, shards_per_gpu=64, **options)


def test_a_run_is_charged_when_it_is_over_and_once() -> None:
    first = counted(ExternalUsage(), other())
    assert first.charges == ()
    second = counted(first, over(other(), HOUR))
    (charge,) = second.charges
    assert (charge.run_id, charge.user, charge.queue, charge.team) == ("slurm:17@1767268800", "li", "gpu", "")
    assert (charge.submitted_at, charge.started_at, charge.ended_at) == (AT - HOUR, AT, AT + HOUR)
    assert (charge.gpus, charge.cpus, charge.gpu_hours, charge.time_limit) == (2, 4, 2.0, 4 * HOUR)
    assert is_others(charge.run_id)
    third = counted(second, over(other(), HOUR))
    assert third.charges == ()
    assert counted(third).charges == ()


def test_one_that_was_never_seen_running_is_charged_too() -> None:
    (charge,) = counted(ExternalUsage(), over(other(), HOUR)).charges
    assert (charge.gpu_hours, charge.time_limit) == (2.0, None)
    assert counted(ExternalUsage(), over(other(started_at=None), HOUR)).charges == ()
    assert len(counted(ExternalUsage(), over(other(), timedelta(0))).charges) == 1, "a short one is one"


def test_one_that_the_engine_has_forgotten_is_charged_to_now() -> None:
    (charge,) = counted(counted(ExternalUsage(), other()), now=AT + 3 * HOUR).charges
    assert charge.ended_at == AT + 3 * HOUR


def test_after_a_restart_the_books_are_believed() -> None:
    (charge,) = counted(ExternalUsage(), over(other(), HOUR)).charges
    known = in_books([charge, replace(charge, run_id="k3fz82aw.1")], AT + 2 * HOUR)
    assert known.charged == {charge.run_id}
    again = counted(known, over(other(), HOUR), over(other(started_at=AT + HOUR), HOUR))
    assert [one.started_at for one in again.charges] == [AT + HOUR], "begun again, it is another run"
    assert in_books([charge], AT + timedelta(days=30)).charged == frozenset()
    named = replace(charge, run_id="pods:li/train@1767268800")
    assert in_books([named], AT + 2 * HOUR, "pods:").charged == {named.run_id}, "an engine that does not number runs"


def test_only_cards_count_on_ones_own_machine() -> None:
    plain = other(ask=Ask(cpus=8), seats=(Seat("n1", 8),))
    assert len(counted(ExternalUsage(), over(plain, HOUR)).charges) == 1
    assert counted(ExternalUsage(), over(plain, HOUR), charges_all=False).charges == ()
    assert len(counted(ExternalUsage(), over(other(), HOUR), charges_all=False).charges) == 1


@pytest.mark.parametrize("ref", ["slurm:17", "slurm:17_3", "slurm:17_[4-9%2]"])
def test_names_of_others(ref: str) -> None:
    assert is_others(ref)


@pytest.mark.parametrize("ref", ["k3fz82aw", "k3fz82aw_7", "@", "@~1", "slurm:", "Slurm:17", "slurm:17 18", ":17"])
def test_names_of_no_others(ref: str) -> None:
    assert not is_others(ref)


def test_an_engine_that_does_not_number_runs_has_a_prefix() -> None:
    assert not is_others("pods:li/train")
    assert is_others("pods:li/train", "pods:")
    assert is_others("slurm:17", "pods:"), "of the engine before"
    assert not any(is_others(ref, "pods:") for ref in ("pods:", "pods: x", "k3fz82aw"))
