"""What would start now instead of a job that waits."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danlu.actions.jobs.alternatives import (
    MAX_TRIALS,
    Alternative,
    Choices,
    Defaults,
    find_alternatives,
    render_options,
    short_model,
)
from danlu.domain.queue import Queue
from danlu.domain.request import JobRequest, changed_request, spec_of
from danlu.domain.resources import model_fits
from danlu.scheduler.plan import plan, seat_now
from danlu.scheduler.snapshot import Snapshot, Waiting
from tests.builders import holding, node, snapshot, waiting

GTX = "NVIDIA GeForce GTX 1080 Ti"


def found(seen: Snapshot, entry: Waiting, **choices: Any) -> dict[str, Alternative]:
    """By the options that a person would type."""
    return {render_options(one.changes): one for one in find_alternatives(seen, entry, Choices(**choices))}


def test_fewer_cards_as_many_as_are_free() -> None:
    seen = snapshot(node(gpus=4), holding(gpus=[0]))
    assert found(seen, waiting(gpus=4))["--gpus 3"].text == "3 cards instead of 4"


def test_the_model_that_was_asked_for_stays() -> None:
    seen = snapshot(node(gpus=2), holding(gpus=[0]))
    assert "--gpus RTX3090:1" in found(seen, waiting(gpus=2, gpu_model="RTX3090"))


def test_another_model() -> None:
    seen = snapshot(node("old", gpus=2, model=GTX), node("new", gpus=2), holding(node="new", gpus=[0, 1]))
    one = found(seen, waiting(gpus=2, gpu_model="3090"))["--gpus GTX1080Ti:2"]
    assert (one.text, one.seat.node) == ("GTX1080Ti instead of 3090", "old")


def test_shards_instead_of_a_card() -> None:
    seen = snapshot(node(gpus=1), holding(shared_gpu=0, shards=16))
    assert found(seen, waiting(gpus=1))["--shards 32"].seat.shared_gpu == 0


def test_fewer_shards() -> None:
    seen = snapshot(node(gpus=1), holding(shared_gpu=0, shards=40))
    assert list(found(seen, waiting(shards=32))) == ["--shards 16"]


def test_a_shorter_time_that_is_over_before_a_promise() -> None:
    big = waiting("big", gpus=2, minutes=60)
    seen = snapshot(node(gpus=2), holding(gpus=[0], minutes=300), big)
    one = found(seen, waiting(gpus=1, minutes=6000))["--time 4h"]
    assert one.seat.gpus == (1,)


def test_what_is_left_beside_the_free_cards() -> None:
    seen = snapshot(node(gpus=2, cpus=16, memory_mib=65536), holding(gpus=[0], cpus=12, memory_mib=60000))
    assert list(found(seen, waiting(gpus=1, cpus=8, memory_mib=8192))) == ["--cpus 4 --mem 5536M"]


def test_another_queue() -> None:
    seen = snapshot(node("a", gpus=1), node("b", gpus=1), holding(node="a", gpus=[0]))
    queues = {"one": Queue("one", frozenset({"a"})), "two": Queue("two", frozenset({"b"}))}
    seen = replace(seen, queues=queues)
    entry = replace(waiting(gpus=1), queue="one")
    assert found(seen, entry, queues={"two": Defaults(5, None)})["--queue two"].seat.node == "b"
    assert "--queue two" not in found(seen, entry)


def test_there_may_be_none() -> None:
    seen = snapshot(node(gpus=1), holding(gpus=[0]))
    assert found(seen, waiting(gpus=1)) == {}


def test_a_node_that_takes_no_jobs_is_no_way_out() -> None:
    seen = snapshot(node("a", gpus=1), node("b", gpus=4, model=GTX, accepts_jobs=False), holding(node="a", gpus=[0]))
    assert found(seen, waiting(gpus=1, gpu_model="3090")) == {}


@pytest.mark.parametrize(
    "model", [GTX, "NVIDIA GeForce RTX 3090", "NVIDIA A100-SXM4-80GB", "Quadro RTX 6000", "NVIDIA H100 80GB HBM3"]
)
def test_a_short_name_is_the_same_card_and_one_word(model: str) -> None:
    assert model_fits(model, short_model(model))
    assert " " not in short_model(model)


asks: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(
        dict, gpus=st.integers(1, 6), cpus=st.integers(1, 12), gpu_model=st.sampled_from([None, "3090", "GTX1080Ti"])
    ),
    st.builds(dict, shards=st.integers(1, 64), memory_mib=st.integers(0, 9000)),
)
times = st.sampled_from([None, 20, 90, 600])


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Snapshot, Waiting]:
    """Two nodes, filled by the plan itself with some of a queue, and one more that wants to start."""
    nodes = (node("a", gpus=4, cpus=16, memory_mib=16000), node("b", gpus=3, cpus=12, memory_mib=9000, model=GTX))
    queue = [
        waiting(f"w{number}", minutes=draw(times), **ask) for number, ask in enumerate(draw(st.lists(asks, max_size=6)))
    ]
    started = plan(snapshot(*nodes, *queue)).starts
    held = {start.key for start in started}
    runs = [replace(holding(start.key, minutes=draw(times)), seat=start.seat) for start in started]
    others = [entry for entry in queue if entry.key not in held]
    return snapshot(*nodes, *runs, *others), waiting("me", minutes=draw(times), **draw(asks))


@settings(max_examples=150, deadline=None)
@given(scenes())
def test_every_alternative_starts_when_it_is_submitted(scene: tuple[Snapshot, Waiting]) -> None:
    seen, entry = scene
    ask = entry.ask
    wanted = JobRequest(
        ("true",),
        gpus=f"{ask.gpu_model}:{ask.gpus}" if ask.gpu_model else ask.gpus,
        shards=ask.shards,
        cpus=ask.cpus,
        mem=ask.memory_mib,
        time=f"{entry.time_limit.total_seconds():.0f}s" if entry.time_limit else "",
    )
    for one in find_alternatives(seen, entry, Choices()):
        spec, _ = spec_of(changed_request(wanted, one.changes))
        again = Waiting("again", spec.ask, 2**62, time_limit=spec.time_limit)
        assert seat_now(seen, again) == one.seat, one
        assert spec != spec_of(wanted)[0]


def test_the_number_of_plans_is_bounded() -> None:
    """Even where every guess has room and every one is in somebody's way."""
    nodes = [node(f"n{number}", gpus=8, model=f"Card {number}00") for number in range(20)]
    first = [waiting(f"big{number}", gpus=8, gpu_model=f"Card{number}00") for number in range(20)]
    runs = [holding(f"h{number}", node=f"n{number}", gpus=[0], minutes=5) for number in range(20)]
    seen = snapshot(*nodes, *first, *runs)
    looks = Counting(seen.waiting)
    find_alternatives(replace(seen, waiting=looks), waiting(gpus=7, gpu_model="Card100"), Choices(teams=["a", "b"]))
    assert 3 < looks.times <= MAX_TRIALS


class Counting(tuple[Waiting, ...]):
    """A queue that knows how often a plan was made of it."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return super().__iter__()
