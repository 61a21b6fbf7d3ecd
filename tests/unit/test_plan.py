from datetime import timedelta

import pytest

from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Seat
from danlu.scheduler.plan import fits_ever, plan, seat_now
from danlu.scheduler.reservations import MAX_RESERVATIONS
from danlu.scheduler.snapshot import Plan, Snapshot, Wait
from tests.builders import NOW, after, holding, node, snapshot, waiting


def started(made: Plan) -> list[str]:
    return [start.key for start in made.starts]


def seats(made: Plan) -> dict[str, Seat]:
    return {start.key: start.seat for start in made.starts}


def full_node(cards: int = 4, minutes: float | None = None) -> Snapshot:
    return snapshot(node(gpus=cards), holding("h", gpus=range(cards), minutes=minutes))


class TestOrder:
    def test_priority_goes_before_age(self) -> None:
        made = plan(snapshot(node(gpus=1), waiting("old", gpus=1), waiting("urgent", gpus=1, priority=9)))
        assert started(made) == ["urgent"]
        assert list(made.waits) == ["old"]

    def test_of_equal_priority_the_older_goes_first_however_they_are_listed(self) -> None:
        made = plan(snapshot(node(gpus=1), waiting("young", gpus=1, seq=2), waiting("old", gpus=1, seq=1)))
        assert started(made) == ["old"]

    def test_places_count_all_that_are_left(self) -> None:
        reason = Reason("dependency", "waits for x")
        made = plan(
            snapshot(
                node(gpus=1),
                waiting("runs", gpus=1),
                waiting("blocked", blocked=reason),
                waiting("impossible", gpus=9),
                waiting("late", gpus=1),
            )
        )
        assert started(made) == ["runs"]
        assert [(key, wait.place) for key, wait in made.waits.items()] == [
            ("blocked", 1),
            ("impossible", 2),
            ("late", 3),
        ]

    def test_nothing_waits_in_an_empty_queue(self) -> None:
        assert plan(snapshot()) == Plan()


class TestPlacement:
    def test_a_gpu_job_takes_the_node_with_the_fewest_sufficient_cards(self) -> None:
        nodes = (node("wide", gpus=8), node("narrow", gpus=2))
        assert seats(plan(snapshot(*nodes, waiting("a", gpus=2))))["a"].node == "narrow"
        assert seats(plan(snapshot(*nodes, waiting("a", gpus=3))))["a"].node == "wide"

    def test_a_cpu_job_keeps_off_nodes_with_free_cards(self) -> None:
        nodes = (node("free", gpus=4), node("busy", gpus=2), node("plain", cpus=2))
        held = holding("h", node="busy", gpus=(0, 1))
        made = plan(snapshot(*nodes, held, waiting("a", cpus=2), waiting("b", cpus=2)))
        assert {key: seat.node for key, seat in seats(made).items()} == {"a": "plain", "b": "busy"}

    def test_cards_are_taken_from_the_lowest_index(self) -> None:
        made = plan(snapshot(node(gpus=4), holding("h", gpus=(1,)), waiting("a", gpus=2)))
        assert seats(made)["a"] == Seat("n1", 1, 0, (0, 2))

    def test_a_model_is_found_however_it_is_written(self) -> None:
        nodes = (
            node("old", gpus=4, model="NVIDIA GeForce RTX 3090"),
            node("new", gpus=4, model="NVIDIA H100 80GB HBM3"),
        )
        made = plan(snapshot(*nodes, waiting("a", gpus=1, gpu_model="h100"), waiting("b", gpus=1, gpu_model="RTX3090")))
        assert {key: seat.node for key, seat in seats(made).items()} == {"a": "new", "b": "old"}

    def test_cards_of_one_model_are_preferred(self) -> None:
        mixed = node("mixed", models=["A100", "H100"])
        pure = node("pure", gpus=4, model="A100")
        assert seats(plan(snapshot(mixed, pure, waiting("a", gpus=2))))["a"].node == "pure"

    def test_without_a_model_wish_mixed_cards_are_better_than_none(self) -> None:
        made = plan(snapshot(node("mixed", models=["A100", "H100"]), waiting("a", gpus=2)))
        assert seats(made)["a"].gpus == (0, 1)

    def test_within_a_node_the_model_with_the_fewest_sufficient_cards_is_taken(self) -> None:
        made = plan(snapshot(node(models=["A100", "A100", "A100", "H100", "H100"]), waiting("a", gpus=2)))
        assert seats(made)["a"].gpus == (3, 4)

    def test_a_node_that_takes_no_jobs_gets_none(self) -> None:
        made = plan(snapshot(node("n1", gpus=4, accepts_jobs=False), waiting("a", gpus=1)))
        assert made.starts == ()
        assert made.waits["a"].reason.code == "closed"

    def test_cpus_and_memory_are_counted(self) -> None:
        small = node(cpus=4, memory_mib=4096)
        made = plan(snapshot(small, waiting("a", cpus=3), waiting("b", cpus=1), waiting("c", cpus=1)))
        assert started(made) == ["a", "b"]
        made = plan(snapshot(small, waiting("a", memory_mib=3072), waiting("b", memory_mib=2048), waiting("c")))
        assert started(made) == ["a", "c"]

    def test_a_job_that_reserves_no_memory_starts_beside_one_that_took_all(self) -> None:
        made = plan(snapshot(node(memory_mib=1024), holding("h", memory_mib=2048), waiting("a")))
        assert started(made) == ["a"]

    def test_seats_on_what_is_gone_do_no_harm(self) -> None:
        gone = (holding("h1", node="gone", gpus=(0,)), holding("h2", gpus=(7,)), holding("h3", shared_gpu=9, shards=4))
        made = plan(snapshot(node(gpus=1), *gone, waiting("a", gpus=1), waiting("b", gpus=1)))
        assert started(made) == ["a"]
        assert made.waits["b"].reason.code == "no_gpus"

    def test_a_card_held_twice_is_free_when_the_last_has_left(self) -> None:
        twice = (holding("h1", gpus=(0,), minutes=10), holding("h2", shared_gpu=0, shards=4, minutes=20))
        for held in (twice, twice[::-1]):
            made = plan(snapshot(node(gpus=1), *held, waiting("a", gpus=1), waiting("b", shards=1)))
            assert made.starts == ()
            assert made.waits["a"].estimated_at == after(20)


class TestShards:
    def test_they_are_packed_onto_cards_already_shared(self) -> None:
        shared = (holding("h1", shared_gpu=1, shards=8), holding("h2", shared_gpu=2, shards=32))
        made = plan(
            snapshot(node(gpus=4), *shared, waiting("a", shards=32), waiting("b", shards=40), waiting("c", shards=64))
        )
        assert {key: seat.shared_gpu for key, seat in seats(made).items()} == {"a": 2, "b": 1, "c": 0}

    def test_a_shared_card_elsewhere_is_better_than_a_fresh_one(self) -> None:
        made = plan(
            snapshot(
                node("n1", gpus=1),
                node("n2", gpus=4),
                holding("h", node="n2", shared_gpu=3, shards=1),
                waiting("a", shards=2),
            )
        )
        assert seats(made)["a"] == Seat("n2", 1, 0, (), 3, 2)

    def test_a_card_is_whole_or_shared_never_both(self) -> None:
        made = plan(snapshot(node(gpus=1), waiting("a", shards=1), waiting("b", gpus=1)))
        assert started(made) == ["a"]
        made = plan(snapshot(node(gpus=1), waiting("a", gpus=1), waiting("b", shards=1)))
        assert started(made) == ["a"]
        assert made.waits["b"].reason == Reason("no_shards", "needs 1 shard of one GPU, none is free on one")

    def test_they_never_span_two_cards(self) -> None:
        shared = (holding("h1", shared_gpu=0, shards=40), holding("h2", shared_gpu=1, shards=40))
        made = plan(snapshot(node(gpus=2), *shared, waiting("a", shards=30)))
        assert made.waits["a"].reason.text == "needs 30 shards of one GPU, at most 24 are free on one"

    def test_an_array_fills_a_card_and_then_the_next(self) -> None:
        made = plan(snapshot(node(gpus=2), waiting("a", shards=32, count=5)))
        assert [start.seat.shared_gpu for start in made.starts] == [0, 0, 1, 1]
        assert made.waits["a"].reason.code == "no_shards"


class TestArrays:
    def test_as_many_start_as_fit(self) -> None:
        made = plan(snapshot(node(gpus=4), waiting("a", gpus=1, count=1000)))
        assert started(made) == ["a"] * 4
        assert made.waits["a"].reason.code == "no_gpus"

    def test_no_more_start_than_may(self) -> None:
        made = plan(snapshot(node(gpus=4), waiting("a", gpus=1, count=10, may_start=2)))
        assert started(made) == ["a", "a"]
        assert made.waits["a"].reason.code == "array_limit"

    def test_at_its_limit_it_holds_nothing_up(self) -> None:
        made = plan(snapshot(node(gpus=1), waiting("a", gpus=1, count=10, may_start=0), waiting("b", gpus=1)))
        assert started(made) == ["b"]
        assert made.waits["a"].reason.code == "array_limit"
        assert made.waits["a"].estimated_at is None

    def test_one_that_starts_whole_does_not_wait(self) -> None:
        made = plan(snapshot(node(gpus=4), waiting("a", gpus=1, count=3)))
        assert started(made) == ["a", "a", "a"]
        assert not made.waits


class TestReasons:
    def test_what_blocks_an_entry_is_passed_on(self) -> None:
        reason = Reason("dependency", "waits for x to end")
        made = plan(snapshot(waiting("a", gpus=1, blocked=reason), waiting("b", gpus=4)))
        assert made.waits["a"] == Wait(reason, 1, None)
        assert started(made) == ["b"]

    def test_few_cards_on_one_node(self) -> None:
        made = plan(snapshot(holding("h", gpus=(0, 1, 2)), waiting("a", gpus=2)))
        assert made.waits["a"].reason == Reason("no_gpus", "needs 2 GPUs, 1 of 4 is free")

    def test_numbers_are_those_after_the_starts(self) -> None:
        made = plan(snapshot(waiting("a", gpus=3), waiting("b", gpus=2, gpu_model="RTX3090")))
        assert made.waits["b"].reason.text == "needs 2 GPUs of RTX3090, 1 of 4 is free"

    def test_enough_cards_but_on_several_nodes(self) -> None:
        held = [holding(f"h{i}", node=f"n{i}", gpus=(0,)) for i in (1, 2)]
        made = plan(snapshot(node("n1", gpus=2), node("n2", gpus=2), *held, waiting("a", gpus=2)))
        text = "needs 2 GPUs on one node, at most 1 are free on one (2 of 4 are free in all)"
        assert made.waits["a"].reason.text == text

    def test_few_cpus(self) -> None:
        made = plan(snapshot(node(cpus=8), holding("h", cpus=6), waiting("a", cpus=4)))
        assert made.waits["a"].reason == Reason("no_cpus", "needs 4 CPUs, at most 2 are free here")

    def test_few_cpus_where_the_cards_are(self) -> None:
        nodes = (node("gpu", gpus=1, cpus=8), node("plain", cpus=64))
        made = plan(snapshot(*nodes, holding("h", node="gpu", cpus=6), waiting("a", gpus=1, cpus=4)))
        assert made.waits["a"].reason.text == "needs 4 CPUs, at most 2 are free on a node with 1 GPU free"

    def test_little_memory(self) -> None:
        made = plan(snapshot(node(memory_mib=8192), holding("h", memory_mib=7168), waiting("a", memory_mib=1536)))
        assert made.waits["a"].reason == Reason("no_memory", "needs 1.50 GiB of memory, at most 1 GiB are free here")

    def test_cpus_here_and_memory_there(self) -> None:
        nodes = (node("n1", cpus=8, memory_mib=8192), node("n2", cpus=8, memory_mib=8192))
        held = (holding("h1", node="n1", cpus=6), holding("h2", node="n2", memory_mib=7168))
        made = plan(snapshot(*nodes, *held, waiting("a", cpus=4, memory_mib=4096)))
        text = "needs 4 CPUs and 4 GiB of memory, no single node has them free together"
        assert made.waits["a"].reason == Reason("no_memory", text)

    def test_one_that_must_let_others_pass_says_whom(self) -> None:
        made = plan(snapshot(holding("h", gpus=(0, 1)), waiting("big", gpus=4), waiting("small", gpus=1)))
        text = "would fit now, but would delay big, which was before it"
        assert made.waits["small"].reason == Reason("behind", text)

    def test_what_can_never_run_holds_nothing_up(self) -> None:
        made = plan(snapshot(waiting("huge", gpus=5), waiting("a", gpus=4)))
        assert started(made) == ["a"]
        assert made.waits["huge"].reason == Reason("never_fits", "asks for 5 GPUs, the largest node has 4")
        assert made.waits["huge"].estimated_at is None


class TestFitsEver:
    @pytest.mark.parametrize(
        ("ask", "text"),
        [
            (Ask(gpus=5, gpu_model="RTX3090"), "asks for 5 GPUs of RTX3090, the largest node has 4"),
            (Ask(gpus=1, gpu_model="H100"), "asks for 1 GPU of H100, there is only NVIDIA GeForce RTX 3090"),
            (Ask(shards=65), "asks for 65 shards of one GPU, the largest one has 64"),
            (Ask(cpus=129), "asks for 129 CPUs, the largest node has 128"),
            (Ask(gpus=1, cpus=65), "asks for 65 CPUs, the largest node with 1 GPU has 64"),
            (Ask(memory_mib=600 * 1024), "asks for 600 GiB of memory, the largest node has 512 GiB"),
            (Ask(gpus=1, memory_mib=300 * 1024), "asks for 300 GiB of memory, the largest node with 1 GPU has 256 GiB"),
        ],
    )
    def test_it_says_what_is_missing(self, ask: Ask, text: str) -> None:
        nodes = (node("gpu", gpus=4), node("plain", cpus=128, memory_mib=512 * 1024))
        assert fits_ever(nodes, ask) == Reason("never_fits", text)

    def test_parts_on_different_nodes_are_not_enough(self) -> None:
        nodes = (node("n1", cpus=64, memory_mib=1024), node("n2", cpus=8, memory_mib=8192))
        refusal = fits_ever(nodes, Ask(cpus=16, memory_mib=4096))
        assert refusal
        assert refusal.text == "asks for 16 CPUs and 4 GiB of memory, no single node has them together"

    def test_no_gpu_and_no_node(self) -> None:
        refusals = fits_ever([node()], Ask(gpus=1)), fits_ever([], Ask())
        assert [refusal and refusal.text for refusal in refusals] == [
            "asks for 1 GPU, no node has a GPU",
            "no node could run this job",
        ]

    def test_what_fits_is_not_refused_even_if_the_node_takes_no_jobs_now(self) -> None:
        assert fits_ever([node(gpus=4, accepts_jobs=False)], Ask(gpus=4, cpus=64)) is None


class TestBackfill:
    def test_a_short_job_goes_before_a_big_one_that_must_wait_anyway(self) -> None:
        held = holding("h", gpus=(0, 1), minutes=60)
        made = plan(snapshot(held, waiting("big", gpus=4), waiting("short", gpus=2, minutes=60), waiting("b", gpus=1)))
        assert started(made) == ["short"]
        assert made.waits["big"].estimated_at == after(60)

    def test_a_long_job_does_not(self) -> None:
        held = holding("h", gpus=(0, 1), minutes=60)
        made = plan(snapshot(held, waiting("big", gpus=4, minutes=30), waiting("long", gpus=2, minutes=61)))
        assert made.starts == ()
        assert made.waits["long"].estimated_at == after(90)

    def test_a_job_without_a_limit_may_use_what_the_big_one_leaves(self) -> None:
        held = holding("h", gpus=(0, 1, 2), minutes=60)
        made = plan(snapshot(held, waiting("big", gpus=3), waiting("endless", gpus=1)))
        assert seats(made)["endless"].gpus == (3,)
        assert made.waits["big"].estimated_at == after(60)

    def test_cpus_are_kept_for_the_one_before_too(self) -> None:
        held = holding("h", cpus=6, minutes=60)
        made = plan(snapshot(node(cpus=8), held, waiting("big", cpus=7), waiting("a", cpus=1), waiting("b", cpus=1)))
        assert started(made) == ["a"]
        assert made.waits["b"].reason.code == "behind"

    def test_nobody_can_say_when_a_run_without_a_limit_ends(self) -> None:
        made = plan(snapshot(holding("h", gpus=(0,)), waiting("a", gpus=4, minutes=5), waiting("b", gpus=4)))
        assert made.waits["a"].estimated_at is None
        assert made.waits["b"].estimated_at is None

    def test_other_nodes_are_not_held_up(self) -> None:
        nodes = (node("n1", gpus=4), node("n2", gpus=2))
        made = plan(snapshot(*nodes, holding("h", gpus=(0,)), waiting("big", gpus=4), waiting("a", gpus=1, count=3)))
        assert [start.seat.node for start in made.starts] == ["n2", "n2"]

    def test_estimates_queue_up(self) -> None:
        entries = [waiting(f"w{i}", gpus=2, minutes=30) for i in range(5)]
        made = plan(snapshot(holding("h", gpus=range(4), minutes=60), *entries))
        assert [wait.estimated_at for wait in made.waits.values()] == [after(m) for m in (60, 60, 90, 90, 120)]

    def test_a_run_past_its_limit_is_about_to_end(self) -> None:
        made = plan(snapshot(holding("h", gpus=range(4), minutes=-5), waiting("a", gpus=1)))
        assert made.waits["a"].estimated_at == NOW + timedelta(seconds=1)

    def test_those_far_behind_get_a_rough_estimate(self) -> None:
        entries = [waiting(f"w{i}", gpus=1, minutes=60) for i in range(3 * MAX_RESERVATIONS)]
        made = plan(snapshot(holding("h", gpus=range(4), minutes=60), *entries))
        exact = made.waits[f"w{MAX_RESERVATIONS - 1}"].estimated_at
        rough = made.waits[f"w{3 * MAX_RESERVATIONS - 1}"].estimated_at
        assert exact == after(60 * MAX_RESERVATIONS / 4)
        assert rough
        assert exact
        assert exact < rough < NOW + timedelta(days=5)

    def test_those_far_behind_do_not_delay_a_promised_seat(self) -> None:
        entries = [waiting(f"big{i}", gpus=4, minutes=60) for i in range(MAX_RESERVATIONS)]
        late = [waiting("long", gpus=1, minutes=90), waiting("short", gpus=1, minutes=60)]
        made = plan(snapshot(holding("h", gpus=range(3), minutes=60), *entries, *late))
        assert started(made) == ["short"]

    def test_small_endless_jobs_do_not_fill_what_a_big_one_collects(self) -> None:
        held = [holding(f"h{i}", cpus=2) for i in (1, 2)]
        made = plan(snapshot(node(cpus=8), *held, waiting("big", cpus=6), waiting("small", cpus=2)))
        assert made.starts == ()
        assert made.waits["small"].reason.code == "behind"

    def test_a_promise_goes_to_the_node_where_the_least_is_missing(self) -> None:
        nodes = [node(f"n{i}", gpus=4) for i in (1, 2, 3)]
        held = [
            holding("h1", node="n1", gpus=(0, 1)),
            holding("h2", node="n2", gpus=(0,)),
            holding("h3", node="n3", gpus=(0, 1)),
        ]
        made = plan(snapshot(*nodes, *held, waiting("big", gpus=4), waiting("a", gpus=1, count=9)))
        assert sorted(start.seat.node for start in made.starts) == ["n1", "n1", "n3", "n3"]

    def test_a_far_promise_holds_on_to_the_cards_that_are_free(self) -> None:
        held = [holding(f"h{i}", gpus=(i,)) for i in (0, 1)]
        made = plan(snapshot(*held, waiting("big", gpus=3), waiting("small", gpus=1)))
        assert made.starts == ()
        assert made.waits["small"].reason.code == "behind"

    def test_a_far_promise_of_shards_goes_to_the_card_with_the_most_room(self) -> None:
        held = (holding("h1", shared_gpu=0, shards=60), holding("h2", shared_gpu=1, shards=30))
        made = plan(snapshot(node(gpus=2), *held, waiting("big", shards=48), waiting("small", shards=4, count=9)))
        assert [start.seat.shared_gpu for start in made.starts] == [0]

    def test_a_card_of_which_shards_are_promised_is_not_given_away_whole(self) -> None:
        held = (holding("h", cpus=8, minutes=60), holding("g", gpus=(0,)))
        made = plan(
            snapshot(node(gpus=2, cpus=10), held[0], held[1], waiting("a", shards=8, cpus=2), waiting("b", gpus=1))
        )
        assert made.starts == ()
        assert made.waits["a"].estimated_at == after(60)
        assert made.waits["b"].reason.text == "would fit now, but would delay a, which was before it"

    def test_shards_are_promised_too(self) -> None:
        held = holding("h", shared_gpu=0, shards=40, minutes=60)
        made = plan(snapshot(node(gpus=1), held, waiting("a", shards=64, minutes=5), waiting("b", shards=8)))
        assert made.waits["a"].estimated_at == after(60)
        assert made.waits["b"].reason.code == "behind"
        assert made.waits["b"].estimated_at == after(65)


class TestSeatNow:
    def test_where_a_new_job_would_run(self) -> None:
        assert seat_now(snapshot(holding("h", gpus=(0,))), waiting("new", gpus=2)) == Seat("n1", 1, 0, (1, 2))

    def test_why_it_would_not(self) -> None:
        answer = seat_now(full_node(minutes=10), waiting("new", gpus=2))
        assert answer == Wait(Reason("no_gpus", "needs 2 GPUs, 0 of 4 are free"), 1, after(10))

    def test_it_comes_after_those_who_wait_already(self) -> None:
        answer = seat_now(snapshot(holding("h", gpus=(0,)), waiting("a", gpus=4)), waiting("new", gpus=1))
        assert isinstance(answer, Wait)
        assert (answer.place, answer.reason.code) == (2, "behind")


def test_waits_can_be_looked_at_like_a_dict() -> None:
    made = plan(snapshot(node(gpus=1), waiting("a", gpus=1), waiting("b", gpus=1)))
    assert "b" in made.waits
    assert "a" not in made.waits
    assert made.waits.get("a") is None
    assert made.waits["b"] is made.waits["b"]
    assert repr(made.waits).startswith("{'b': Wait(")
