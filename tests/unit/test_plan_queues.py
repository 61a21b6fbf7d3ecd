"""Queues: an entry is placed only on the nodes and cards of its queue, and is told about those alone."""

from danlu.domain.job import Reason
from danlu.domain.queue import Queue
from danlu.domain.resources import Ask
from danlu.scheduler.plan import fits_ever, plan
from danlu.scheduler.snapshot import Plan, Snapshot
from tests.builders import after, holding, node, snapshot, waiting

OLD, NEW = "NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce RTX 3090"
DEV = Queue("dev", frozenset({"n1"}))
TRAIN = Queue("train", frozenset({"n2", "n3"}))
OLD_CARDS = Queue("old", models=("1080Ti",))
ANY = Queue("any")


def with_queues(*parts: object) -> Snapshot:
    queues = {queue.name: queue for queue in (DEV, TRAIN, OLD_CARDS, ANY)}
    return snapshot(*parts, queues=queues)  # type: ignore[arg-type]


def nodes_of(made: Plan) -> dict[str, str]:
    return {start.key: start.seat.node for start in made.starts}


THREE = (node("n1", gpus=2), node("n2", gpus=4), node("n3", gpus=4))


def test_an_entry_is_placed_on_the_nodes_of_its_queue() -> None:
    made = plan(
        with_queues(
            *THREE,
            waiting("a", gpus=2, queue="train"),
            waiting("b", gpus=2, queue="dev"),
            waiting("c", gpus=2, queue="dev"),
            waiting("d", cpus=2, queue="train"),
            waiting("e", shards=8, queue="train"),
            waiting("f", gpus=1, queue="any"),
            waiting("g", gpus=4),
        )
    )
    assert nodes_of(made) == {"a": "n2", "b": "n1", "d": "n2", "e": "n2", "f": "n2", "g": "n3"}
    assert made.waits["c"].reason.text == "needs 2 GPUs, 0 of 2 in queue dev are free"


def test_a_full_queue_holds_nobody_up_in_another() -> None:
    held = holding("h", node="n1", gpus=(0,), minutes=30)
    made = plan(with_queues(*THREE, held, waiting("a", gpus=2, queue="dev"), waiting("b", gpus=4, queue="train")))
    assert nodes_of(made) == {"b": "n2"}
    assert made.waits["a"].reason == Reason("no_gpus", "needs 2 GPUs, 1 of 2 in queue dev is free")
    assert made.waits["a"].estimated_at == after(30)


def test_a_promise_is_kept_within_the_queue() -> None:
    held = (holding("h", node="n1", gpus=(0,), minutes=30), holding("i", node="n2", gpus=(0,), minutes=5))
    made = plan(with_queues(*THREE, *held, waiting("a", gpus=2, queue="dev"), waiting("b", gpus=1, queue="dev")))
    assert made.waits["a"].estimated_at == after(30)
    assert made.waits["b"].reason.code == "behind"


def test_a_queue_of_some_models_uses_only_their_cards() -> None:
    mixed = node("n1", models=[NEW, OLD, NEW, OLD])
    made = plan(with_queues(mixed, waiting("a", gpus=2, queue="old"), waiting("b", gpus=1, queue="old")))
    assert [start.seat.gpus for start in made.starts] == [(1, 3)]
    assert made.waits["b"].reason.text == "needs 1 GPU, 0 of 2 in queue old are free"
    made = plan(with_queues(mixed, waiting("a", shards=64, count=3, queue="old")))
    assert [start.seat.shared_gpu for start in made.starts] == [1, 3]
    assert made.waits["a"].reason.code == "no_shards"


def test_what_the_queue_can_never_hold_says_so() -> None:
    made = plan(
        with_queues(
            *THREE, waiting("a", gpus=4, queue="dev"), waiting("b", gpus=1, queue="old"), waiting("c", queue="gone")
        )
    )
    assert [wait.reason for wait in made.waits.values()] == [
        Reason("never_fits", "asks for 4 GPUs, the largest node of queue dev has 2"),
        Reason("never_fits", "asks for 1 GPU, no node of queue old has a GPU"),
        Reason("no_queue", "queue gone does not exist (any more)"),
    ]
    assert all(wait.estimated_at is None for wait in made.waits.values())


def test_a_closed_queue_starts_nothing_and_says_why() -> None:
    shut = Queue("dev", DEV.nodes, closed="it is DOWN")
    for hands_over in (False, True):
        parts = (*THREE, waiting("a", gpus=2, queue="dev"), waiting("b", gpus=2, queue="train"))
        made = plan(snapshot(*parts, queues={"dev": shut, "train": TRAIN}, engine_places=hands_over))
        assert [start.key for start in made.starts] == ["b"]
        assert "a" not in made.handed
        assert made.waits["a"].reason == Reason("closed", "queue dev starts no jobs at present: it is DOWN")
        assert made.waits["a"].estimated_at is None, "nobody knows when it opens"


def test_a_queue_of_closed_nodes_is_not_a_small_one() -> None:
    made = plan(with_queues(node("n1", gpus=4, accepts_jobs=False), node("n2"), waiting("a", gpus=4, queue="dev")))
    assert made.waits["a"].reason.code == "closed"


def test_fits_ever_asks_the_queue() -> None:
    assert fits_ever(THREE, Ask(gpus=4), TRAIN) is None
    refusal = fits_ever(THREE, Ask(gpus=4), DEV)
    assert refusal
    assert refusal.text == "asks for 4 GPUs, the largest node of queue dev has 2"
    refusal = fits_ever([node("n1", models=[OLD])], Ask(gpus=1, gpu_model="3090"), DEV)
    assert refusal
    assert refusal.text == f"asks for 1 GPU of 3090, in queue dev is only {OLD}"
    refusal = fits_ever(THREE, Ask(gpus=1), Queue("none", frozenset({"n9"})))
    assert refusal
    assert refusal.text == "no node of queue none could run this job"
