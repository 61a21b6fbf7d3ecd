"""Several nodes at once, or not at all."""

from danlu.domain.job import Reason
from danlu.domain.queue import Queue
from danlu.domain.resources import Ask
from danlu.scheduler.plan import fits_ever, plan
from danlu.scheduler.reservations import MAX_WIDE_RESERVATIONS
from danlu.scheduler.snapshot import Plan
from tests.builders import after, holding, node, snapshot, waiting

FOUR = [node(f"n{i}", gpus=4) for i in range(4)]


def nodes_of(made: Plan) -> dict[str, list[str]]:
    return {start.key: [seat.node for seat in (start.seat, *start.more)] for start in made.starts}


def test_it_sits_on_distinct_nodes() -> None:
    made = plan(snapshot(*FOUR, waiting("a", gpus=2, nodes=4), waiting("b", gpus=2, nodes=3), waiting("c", gpus=3)))
    found = nodes_of(made)
    assert sorted(found["a"]) == ["n0", "n1", "n2", "n3"]
    assert len(set(found["b"])) == 3
    assert "c" in made.waits
    shards = plan(snapshot(*FOUR, holding("h", node="n0", shared_gpu=0, shards=1), waiting("s", shards=8, nodes=4)))
    assert sorted(nodes_of(shards)["s"]) == ["n0", "n1", "n2", "n3"]
    cpus = plan(snapshot(*FOUR, waiting("c", cpus=60, nodes=2, count=3)))
    assert len(cpus.starts) == 2


def test_it_waits_until_all_of_them_are_there() -> None:
    held = [holding(f"h{i}", node=f"n{i}", gpus=range(3), minutes=10 * (i + 1)) for i in range(3)]
    made = plan(snapshot(*FOUR, *held, waiting("a", gpus=2, nodes=3, minutes=60)))
    assert made.starts == ()
    assert made.waits["a"].reason == Reason("no_nodes", "needs 3 nodes with 2 GPUs each, 1 has them free")
    assert made.waits["a"].estimated_at == after(20)


def test_its_seats_are_kept_on_all_of_them() -> None:
    held = [holding(f"h{i}", node=f"n{i}", gpus=range(4), minutes=30) for i in range(2)]
    wide = waiting("wide", gpus=4, nodes=4)
    late = [waiting("long", gpus=4, minutes=31, count=4), waiting("short", gpus=4, minutes=30, count=4)]
    made = plan(snapshot(*FOUR, *held, wide, *late))
    assert [(start.key, start.seat.node) for start in made.starts] == [("short", "n2"), ("short", "n3")]
    assert made.waits["wide"].estimated_at == after(30)


def test_a_far_promise_is_kept_from_what_never_ends() -> None:
    made = plan(
        snapshot(*FOUR, holding("h", node="n0", gpus=(0,)), waiting("wide", gpus=4, nodes=4), waiting("a", gpus=1))
    )
    assert made.starts == ()
    assert made.waits["wide"].estimated_at is None
    assert made.waits["a"].reason.code == "behind"


def test_held_seats_of_one_run_on_several_nodes_are_all_held() -> None:
    wide = holding("h", node="n0", gpus=range(4), minutes=5)
    run = type(wide)(wide.key, wide.seat, wide.ends_at, more=(holding(node="n1", gpus=range(4)).seat,))
    made = plan(snapshot(*FOUR[:2], run, waiting("a", gpus=1)))
    assert made.starts == ()
    assert made.waits["a"].estimated_at == after(5)


def test_what_can_never_be_together() -> None:
    assert fits_ever(FOUR, Ask(gpus=4, nodes=4)) is None
    refusal = fits_ever([*FOUR, node("small", gpus=1)], Ask(gpus=2, nodes=5))
    assert refusal == Reason("never_fits", "asks for 5 nodes with 2 GPUs each, 4 have them")
    refusal = fits_ever(FOUR, Ask(gpus=2, nodes=2), Queue("dev", frozenset({"n1"})))
    assert refusal == Reason("never_fits", "asks for 2 nodes with 2 GPUs each, 1 of queue dev has them")
    refusal = fits_ever(FOUR, Ask(gpus=5, nodes=2))
    assert refusal == Reason("never_fits", "asks for 5 GPUs, the largest node has 4")


def test_many_of_them_hold_up_nothing_but_what_they_are_promised() -> None:
    held = [holding(f"h{i}", node=f"n{i}", gpus=range(4), minutes=30) for i in range(4)]
    wide = [waiting(f"w{i}", gpus=4, nodes=2, minutes=10) for i in range(MAX_WIDE_RESERVATIONS + 3)]
    made = plan(snapshot(*FOUR, *held, *wide))
    assert [made.waits[entry.key].estimated_at for entry in wide[:4]] == [after(30), after(30), after(40), after(40)]
    assert made.waits[wide[-1].key].estimated_at is not None
