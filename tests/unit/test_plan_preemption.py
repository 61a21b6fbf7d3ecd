"""What was borrowed is given back: to whom, by whom, and no more than must."""

from dataclasses import replace
from datetime import timedelta

from danlu.domain.job import Reason
from danlu.domain.quota import Quota
from danlu.domain.resources import Node
from danlu.scheduler.plan import plan
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Stop, Waiting
from tests.builders import NOW, after, holding, node, snapshot, waiting

QUOTAS = {"team:cv": Quota(gpus=4, borrow=True), "team:nlp": Quota(gpus=4, borrow=True)}


def loan(card: int, *, age: int, cards: int = 1, **fields: object) -> Holding:
    """A preemptible run of team nlp that began so many minutes ago."""
    began = NOW - timedelta(minutes=age)
    common = {"team": "nlp", "user": "wang", "is_preemptible": True, "started_at": began}
    return holding(f"loan{card}", gpus=range(card, card + cards), **(common | fields))  # type: ignore[arg-type]


def own(key: str = "own", **fields: object) -> Waiting:
    return waiting(key, team="cv", user="li", **fields)  # type: ignore[arg-type]


def with_quotas(*parts: Node | Waiting | Holding) -> Snapshot:
    return snapshot(*parts, quotas=QUOTAS)


def stopped(made: Plan) -> list[str]:
    return [stop.key for stop in made.stops]


EIGHT = node(gpus=8)
# Quota 4: the four oldest are within it, the four youngest (4 to 7) are borrowed.
EIGHT_RUNS = [loan(card, age=100 - card) for card in range(8)]


def test_the_youngest_borrowed_run_leaves_for_the_owner() -> None:
    made = plan(with_quotas(EIGHT, *EIGHT_RUNS, own(gpus=1)))
    assert made.stops == (Stop("loan7", "own"),)
    assert made.starts == ()
    assert made.waits["own"].reason == Reason("reclaiming", "1 borrowed card is being given back")


def test_as_many_leave_as_are_needed() -> None:
    made = plan(with_quotas(EIGHT, *EIGHT_RUNS, own(gpus=3)))
    assert stopped(made) == ["loan7", "loan6", "loan5"]
    assert made.waits["own"].reason.text == "3 borrowed cards are being given back"


def test_what_is_free_counts() -> None:
    made = plan(with_quotas(EIGHT, *EIGHT_RUNS[:7], own(gpus=2)))
    assert stopped(made) == ["loan6"]


def test_no_more_leave_than_must() -> None:
    runs = [loan(0, age=90, cards=4), loan(4, age=50, cards=3), loan(7, age=10)]
    assert stopped(plan(with_quotas(EIGHT, *runs, own(gpus=3)))) == ["loan4"]


def test_on_another_node_nobody_leaves() -> None:
    nodes = (node("n1", gpus=4), node("n2", gpus=4))
    firm = holding("firm", node="n1", gpus=range(3), team="x")
    runs = [loan(3, age=1), *(loan(card, age=50 + card, node="n2") for card in range(4))]
    quotas = {"team:cv": Quota(gpus=4), "team:nlp": Quota(gpus=0, borrow=True)}
    made = plan(snapshot(*nodes, firm, *runs, own(gpus=2), quotas=quotas))
    assert stopped(made) == ["loan0", "loan1"]


def test_what_is_within_the_quota_stays() -> None:
    made = plan(with_quotas(node(gpus=4), *EIGHT_RUNS[:4], own(gpus=1)))
    assert made.stops == ()
    assert made.waits["own"].reason.code == "no_gpus"


def test_what_is_not_preemptible_stays_and_uses_the_quota_first() -> None:
    firm = [replace(run, is_preemptible=False) for run in EIGHT_RUNS[4:]]
    made = plan(with_quotas(EIGHT, *EIGHT_RUNS[:4], *firm, own(gpus=4)))
    assert stopped(made) == ["loan3", "loan2", "loan1", "loan0"]
    made = plan(with_quotas(EIGHT, *(replace(run, is_preemptible=False) for run in EIGHT_RUNS), own(gpus=4)))
    assert made.stops == ()


def test_for_half_of_what_is_wanted_nobody_leaves() -> None:
    firm = holding("firm", gpus=range(5), team="x")
    made = plan(
        snapshot(EIGHT, firm, *EIGHT_RUNS[5:], own(gpus=4), quotas=QUOTAS | {"team:nlp": Quota(gpus=0, borrow=True)})
    )
    assert made.stops == ()
    assert made.waits["own"].reason.code == "no_gpus"


def test_only_who_has_a_quota_of_it_gets_anything_back() -> None:
    stranger = waiting("stranger", gpus=1, team="guests")
    assert plan(with_quotas(EIGHT, *EIGHT_RUNS, stranger)).stops == ()
    few_cpus = replace(EIGHT, cpus=8)
    assert plan(with_quotas(few_cpus, *EIGHT_RUNS, own(cpus=1))).stops == ()
    quotas = QUOTAS | {"team:cv": Quota(cpus=4)}
    assert plan(snapshot(few_cpus, *EIGHT_RUNS, own(cpus=1), quotas=quotas)).stops == (Stop("loan7", "own"),)


def test_a_borrower_gets_nothing_back() -> None:
    held = holding("h", node="n2", gpus=range(4), team="cv")
    made = plan(with_quotas(EIGHT, node("n2", gpus=4), held, *EIGHT_RUNS, own(gpus=1, is_preemptible=True)))
    assert made.stops == ()
    assert made.waits["own"].reason.code == "no_gpus"


def test_runs_that_leave_already_are_enough() -> None:
    leaving = replace(EIGHT_RUNS[7], is_stopping=True, ends_at=after(1))
    at = with_quotas(EIGHT, *EIGHT_RUNS[:7], leaving, own(gpus=1))
    made = plan(at)
    assert made.stops == ()
    assert made.waits["own"].reason == Reason("reclaiming", "1 borrowed card is being given back")
    assert made.waits["own"].estimated_at == after(1)
    more = plan(replace(at, waiting=(own("first", gpus=1, seq=1), own("second", gpus=1, seq=2))))
    assert more.stops == (Stop("loan6", "second"),)


def test_nobody_slips_into_what_is_given_back() -> None:
    runs = [*EIGHT_RUNS[:6], loan(6, age=1, cards=2)]
    entries = (
        own(gpus=1),
        waiting("later", gpus=1, team="nlp", is_preemptible=True),
        waiting("short", gpus=1, team="x", minutes=5),
    )
    made = plan(with_quotas(EIGHT, *runs, *entries))
    assert stopped(made) == ["loan6"]
    assert made.starts == ()
    leaving = replace(runs[-1], is_stopping=True, ends_at=after(1))
    made = plan(with_quotas(EIGHT, *runs[:-1], leaving, *entries))
    assert made.stops == ()
    assert made.waits["own"].estimated_at == after(1)
    made = plan(with_quotas(EIGHT, *runs[:-1], *entries))
    assert [start.key for start in made.starts] == ["own", "short"]


def test_every_task_of_an_array_gets_its_due() -> None:
    made = plan(with_quotas(EIGHT, *EIGHT_RUNS, own(gpus=1, count=9)))
    assert stopped(made) == ["loan7", "loan6", "loan5", "loan4"]
    assert made.waits["own"].reason.text == "4 borrowed cards are being given back"


def test_several_entries_get_different_runs() -> None:
    made = plan(with_quotas(EIGHT, *EIGHT_RUNS, own("a", gpus=2), own("b", gpus=1), own("c", gpus=2)))
    assert made.stops == (Stop("loan7", "a"), Stop("loan6", "a"), Stop("loan5", "b"))
    assert made.waits["c"].reason.code in ("quota", "behind")


def test_shards_and_whole_cards_come_back_too() -> None:
    parts = [
        holding(f"part{i}", shared_gpu=i % 2, shards=32, team="nlp", is_preemptible=True, started_at=after(-i))
        for i in range(4)
    ]
    quotas = {"team:cv": Quota(gpus=2), "team:nlp": Quota(gpus=0, borrow=True)}
    assert stopped(plan(snapshot(node(gpus=2), *parts, own(shards=16), quotas=quotas))) == ["part0"]
    assert stopped(plan(snapshot(node(gpus=2), *parts, own(gpus=1), quotas=quotas))) == ["part0", "part2"]
    assert len(stopped(plan(snapshot(node(gpus=2), *parts, own(gpus=2), quotas=quotas)))) == 4


def test_several_nodes_come_back_together() -> None:
    nodes = [node(f"n{i}", gpus=2) for i in range(3)]
    runs = [loan(0, age=i, cards=2, node=f"n{i}") for i in range(3)]
    runs = [replace(run, key=f"loan{i}") for i, run in enumerate(runs)]
    quotas = {"team:cv": Quota(gpus=4), "team:nlp": Quota(gpus=0, borrow=True)}
    made = plan(snapshot(*nodes, *runs, own(gpus=2, nodes=2), quotas=quotas))
    assert stopped(made) == ["loan0", "loan1"]
    assert made.waits["own"].reason.text == "4 borrowed cards are being given back"
    wide = replace(runs[0], more=(runs[1].seat,))
    made = plan(snapshot(*nodes, wide, runs[2], own(gpus=2, nodes=2), quotas=quotas))
    assert stopped(made) == ["loan0"]
    free = plan(snapshot(*nodes, *runs[:2], own(gpus=2, nodes=2), quotas=quotas))
    assert stopped(free) == ["loan0"]


def test_cpus_that_a_borrowed_run_holds_come_back_with_its_cards() -> None:
    small = node(gpus=2, cpus=8)
    runs = [loan(0, age=9, cpus=7)]
    quotas = {"team:cv": Quota(gpus=2), "team:nlp": Quota(gpus=0, borrow=True)}
    assert stopped(plan(snapshot(small, *runs, own(gpus=1, cpus=4), quotas=quotas))) == ["loan0"]
