"""What holds for every plan, whatever the snapshot."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from danlu.domain.job import Reason
from danlu.domain.resources import Ask, Gpu, Node, Seat, model_fits
from danlu.scheduler.ordering import in_order
from danlu.scheduler.plan import fits_ever, plan, seat_now
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Waiting
from tests.builders import NOW, after, node, snapshot, waiting

MODELS = ("RTX 3090", "A100", "H100 80GB")
WISHES = (None, None, "RTX3090", "a100")
EASY = settings(deadline=None, max_examples=150)

minutes = st.one_of(st.none(), st.integers(1, 200))
limits = st.one_of(st.none(), st.integers(1, 200).map(lambda m: timedelta(minutes=m)))


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    gpus = draw(st.sampled_from((0, 0, 1, 1, 2, 3, 4)))
    shards = 0 if gpus else draw(st.sampled_from((0, 0, 1, 16, 32, 64)))
    wanted = draw(st.sampled_from(WISHES))
    return Ask(gpus, wanted, shards, draw(st.integers(1, 6)), draw(st.sampled_from((0, 0, 512, 1024, 3000))))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    models = draw(st.lists(st.sampled_from(MODELS), max_size=4))
    if draw(st.booleans()):
        models = models[:1] * len(models)
    cards = tuple(Gpu(index, model) for index, model in enumerate(models))
    return Node(name, draw(st.integers(1, 12)), draw(st.sampled_from((1024, 4096))), cards, draw(st.integers(0, 9)) > 0)


@st.composite
def entries(draw: st.DrawFn, key: str, seq: int) -> Waiting:
    count = draw(st.sampled_from((1, 1, 1, 2, 7)))
    may_start = count if draw(st.booleans()) else draw(st.integers(0, count))
    blocked = Reason("dependency", "waits") if draw(st.integers(0, 9)) == 0 else None
    priority = draw(st.sampled_from((5, 5, 5, 1, 9)))
    return Waiting(key, draw(asks()), seq, priority, draw(limits), count, may_start, blocked)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any queue before any nodes; seats are held as earlier plans gave them out."""
    machines = tuple(draw(nodes(f"n{i}")) for i in range(draw(st.integers(0, 4))))
    before = tuple(draw(entries(f"b{i}", i)) for i in range(draw(st.integers(0, 6))))
    held = apply(Snapshot(NOW, machines, before), plan(Snapshot(NOW, machines, before))).holding
    kept = tuple(each for each in held if draw(st.integers(0, 3)) > 0)
    queue = tuple(draw(entries(f"w{i}", i)) for i in range(draw(st.integers(0, 10))))
    return Snapshot(NOW, machines, tuple(draw(st.permutations(queue))), kept)


def apply(at: Snapshot, made: Plan) -> Snapshot:
    """The snapshot after the plan's starts."""
    begun = Counter(start.key for start in made.starts)
    limit_of = {entry.key: entry.time_limit for entry in at.waiting}
    numbers: Counter[str] = Counter()
    held = list(at.holding)
    for start in made.starts:
        numbers[start.key] += 1
        limit = limit_of[start.key]
        held.append(Holding(f"{start.key}.{numbers[start.key]}", start.seat, at.now + limit if limit else None))
    left = (replace(w, count=w.count - begun[w.key], may_start=w.may_start - begun[w.key]) for w in at.waiting)
    return replace(at, waiting=tuple(w for w in left if w.count), holding=tuple(held))


def assert_fits(at: Snapshot) -> None:
    """No node holds more than it has, and no card is whole and shared at once."""
    for machine in at.nodes:
        seats = [held.seat for held in at.holding if held.seat.node == machine.name]
        assert sum(seat.cpus for seat in seats) <= machine.cpus
        assert sum(seat.memory_mib for seat in seats) <= machine.memory_mib
        whole = Counter(index for seat in seats for index in seat.gpus)
        shared: Counter[int] = Counter()
        for seat in seats:
            if seat.shared_gpu is not None:
                shared[seat.shared_gpu] += seat.shards
        assert whole.keys() | shared.keys() <= {gpu.index for gpu in machine.gpus}
        assert all(count == 1 for count in whole.values())
        assert not whole.keys() & shared.keys()
        assert all(shared[gpu.index] <= gpu.shards for gpu in machine.gpus)


def assert_serves(seat: Seat, ask: Ask, machine: Node) -> None:
    assert (seat.cpus, seat.memory_mib) == (ask.cpus, ask.memory_mib)
    assert (len(seat.gpus), seat.shards) == (ask.gpus, ask.shards)
    assert (seat.shared_gpu is not None) == bool(ask.shards)
    taken = [index for index in (*seat.gpus, seat.shared_gpu) if index is not None]
    assert all(model_fits(machine.gpus[index].model, ask.gpu_model) for index in taken)


@EASY
@given(snapshots())
def test_nothing_is_given_out_twice(at: Snapshot) -> None:
    made = plan(at)
    assert_fits(apply(at, made))
    asked = {entry.key: entry.ask for entry in at.waiting}
    machines = {machine.name: machine for machine in at.nodes}
    for start in made.starts:
        assert machines[start.seat.node].accepts_jobs
        assert_serves(start.seat, asked[start.key], machines[start.seat.node])


@EASY
@given(snapshots())
def test_nobody_is_forgotten(at: Snapshot) -> None:
    made = plan(at)
    begun = Counter(start.key for start in made.starts)
    ordered = in_order(at.waiting)
    for entry in ordered:
        assert begun[entry.key] <= (0 if entry.blocked else max(0, min(entry.count, entry.may_start)))
        assert (entry.key in made.waits) == (begun[entry.key] < entry.count)
        if entry.blocked:
            assert made.waits[entry.key].reason == entry.blocked
    assert list(made.waits) == [entry.key for entry in ordered if entry.key in made.waits]
    assert [wait.place for wait in made.waits.values()] == list(range(1, len(made.waits) + 1))
    for wait in made.waits.values():
        assert wait.reason.text
        assert wait.estimated_at is None or wait.estimated_at > at.now


@EASY
@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan(at: Snapshot) -> None:
    assert plan(at) == plan(replace(at, waiting=tuple(sorted(at.waiting, key=lambda entry: entry.key))))


@EASY
@given(snapshots())
def test_of_two_alike_the_earlier_starts_first(at: Snapshot) -> None:
    made = plan(at)
    begun = {start.key for start in made.starts}
    stuck: set[tuple[Ask, timedelta | None]] = set()
    for entry in in_order(at.waiting):
        shape = (entry.ask, entry.time_limit)
        assert not (entry.key in begun and shape in stuck)
        if entry.key in made.waits and made.waits[entry.key].reason.code not in {"array_limit", "dependency"}:
            stuck.add(shape)


@EASY
@given(snapshots())
def test_room_is_not_left_empty(at: Snapshot) -> None:
    """The first that waits for room finds none, and no plan after this one finds any for anybody."""
    made = plan(at)
    again = plan(apply(at, made))
    first = next(iter(_waits_for_room(made)), None)
    assert first not in {start.key for start in again.starts}


@EASY
@given(snapshots())
def test_only_what_fits_nowhere_is_hopeless(at: Snapshot) -> None:
    made = plan(at)
    for entry in at.waiting:
        if entry.key in made.waits:
            code = made.waits[entry.key].reason.code
            if code not in {"array_limit", "dependency"}:
                assert (code == "never_fits") == (fits_ever(at.nodes, entry.ask) is not None)


def _waits_for_room(made: Plan) -> list[str]:
    codes = {"no_gpus", "no_shards", "no_cpus", "no_memory", "behind"}
    return [key for key, wait in made.waits.items() if wait.reason.code in codes]


@EASY
@given(snapshots())
def test_later_ones_do_not_delay_the_first(at: Snapshot) -> None:
    made = plan(at)
    for first in _waits_for_room(made)[:1]:
        before = in_order(at.waiting)
        cut = next(i for i, entry in enumerate(before) if entry.key == first) + 1
        alone = plan(replace(at, waiting=tuple(before[:cut])))
        assert alone.waits[first].estimated_at == made.waits[first].estimated_at
        promised, then = made.waits[first].estimated_at, plan(apply(at, made)).waits[first].estimated_at
        if promised is not None:
            assert then is not None
            assert then <= promised


@EASY
@given(snapshots(), asks(), limits)
def test_a_dry_run_tells_what_would_happen(at: Snapshot, ask: Ask, limit: timedelta | None) -> None:
    new = Waiting("new", ask, 10_000, 5, limit)
    answer = seat_now(at, new)
    made = plan(replace(at, waiting=(*at.waiting, new)))
    if isinstance(answer, Seat):
        assert [start.seat for start in made.starts if start.key == "new"] == [answer]
    else:
        assert made.waits["new"] == answer


class Cluster:
    """A cluster that lives through plans: runs end, small jobs stream in."""

    def __init__(self, *machines: Node) -> None:
        self.at = snapshot(*machines)
        self.begun: dict[str, datetime] = {}

    def submit(self, *entries: Waiting) -> None:
        self.at = replace(self.at, waiting=(*self.at.waiting, *entries))

    def stream(self, entry: Waiting) -> None:
        """Submit one more unless many wait already: the stream never ends, the queue stays short."""
        if len(self.at.waiting) < 12:
            self.submit(entry)

    def step(self) -> None:
        made = plan(self.at)
        self.begun |= {start.key: self.at.now for start in made.starts}
        self.at = apply(self.at, made)
        assert_fits(self.at)

    def pass_time(self, minutes: float) -> None:
        now = self.at.now + timedelta(minutes=minutes)
        left = tuple(held for held in self.at.holding if held.ends_at is None or held.ends_at > now)
        self.at = replace(self.at, now=now, holding=left)

    def end(self, position: int) -> None:
        """One run ends, whenever its limit."""
        held = self.at.holding
        self.at = replace(self.at, holding=tuple(each for i, each in enumerate(held) if i != position % len(held)))


def small(number: int, ask: Ask, minutes: int | None) -> Waiting:
    return Waiting(f"s{number}", ask, number, time_limit=None if minutes is None else timedelta(minutes=minutes))


SMALL = st.sampled_from((Ask(gpus=1), Ask(cpus=2), Ask(shards=40), Ask(gpus=1, cpus=3, memory_mib=600)))
BIG = st.sampled_from(
    (Ask(gpus=4), Ask(cpus=7), Ask(cpus=6, memory_mib=1024), Ask(shards=64), Ask(gpus=2, gpu_model="A100")),
)
TWO_NODES = (
    node("n1", gpus=4, model="A100", cpus=8, memory_mib=2048),
    node("n2", gpus=4, model="A100", cpus=8, memory_mib=2048),
)


@settings(deadline=None, max_examples=40)
@given(BIG, st.lists(st.tuples(SMALL, st.integers(5, 60)), min_size=1, max_size=6), minutes)
def test_a_stream_of_small_jobs_with_limits_starves_nobody(
    ask: Ask, kinds: list[tuple[Ask, int]], limit: int | None
) -> None:
    cluster = Cluster(*TWO_NODES)
    for number in range(400):
        cluster.stream(small(number, *kinds[number % len(kinds)]))
        if number == 50:
            cluster.submit(Waiting("big", ask, number, time_limit=(limit and timedelta(minutes=limit)) or None))
        cluster.step()
        cluster.pass_time(1)
        if "big" in cluster.begun:
            break
    # Those before it go first: at most a dozen, of an hour each, some at a time.
    assert "big" in cluster.begun


@settings(deadline=None, max_examples=40)
@given(BIG, st.lists(SMALL, min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=7))
def test_a_stream_of_small_jobs_without_limits_starves_nobody(ask: Ask, kinds: list[Ask], ends: list[int]) -> None:
    cluster = Cluster(*TWO_NODES)
    for number in range(20):
        cluster.submit(small(number, kinds[number % len(kinds)], None))
    cluster.submit(Waiting("big", ask, 20))
    for number in range(21, 200):
        cluster.stream(small(number, kinds[number % len(kinds)], None))
        cluster.step()
        if "big" in cluster.begun:
            break
        cluster.end(ends[number % len(ends)] if number % 2 else 0)  # every run ends some day
    assert "big" in cluster.begun


@settings(deadline=None, max_examples=25)
@given(
    BIG,
    st.lists(st.tuples(SMALL, minutes), min_size=2, max_size=6),
    st.lists(st.integers(0, 99), min_size=1, max_size=7),
)
def test_a_mixed_stream_starves_nobody(ask: Ask, kinds: list[tuple[Ask, int | None]], ends: list[int]) -> None:
    cluster = Cluster(*TWO_NODES)
    cluster.submit(*(small(number, *kinds[number % len(kinds)]) for number in range(20)), Waiting("big", ask, 20))
    for number in range(21, 900):
        cluster.stream(small(number, *kinds[number % len(kinds)]))
        cluster.step()
        if "big" in cluster.begun:
            break
        cluster.pass_time(3)
        endless = [i for i, held in enumerate(cluster.at.holding) if held.ends_at is None]
        if endless:
            cluster.end(endless[ends[number % len(ends)] % len(endless) if number % 2 else 0])
    assert "big" in cluster.begun


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 4), limits, limits)
def test_an_array_starves_nobody_before_it(gpus: int, limit: timedelta | None, tasks: timedelta | None) -> None:
    cluster = Cluster(node(gpus=4))
    cluster.submit(*(waiting(f"s{i}", seq=i, gpus=1, minutes=10 * (i + 1)) for i in range(4)))
    cluster.step()
    cluster.submit(Waiting("big", Ask(gpus=gpus), 5, time_limit=limit))
    cluster.submit(Waiting("array", Ask(gpus=1), 6, time_limit=tasks, count=100, may_start=100))
    for _ in range(4):
        cluster.step()
        cluster.pass_time(10)
    cluster.step()
    assert cluster.begun["big"] == after(10 * gpus)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 4), limits)
def test_an_array_is_not_starved_by_later_ones(gpus: int, limit: timedelta | None) -> None:
    cluster = Cluster(node(gpus=4))
    cluster.submit(waiting("array", seq=1, gpus=1, minutes=30, count=40))
    cluster.submit(Waiting("big", Ask(gpus=gpus), 2, time_limit=limit))
    for number in range(30):
        cluster.submit(*(waiting(f"s{number}.{i}", seq=100 + number, gpus=1, minutes=10) for i in range(4)))
        cluster.step()
        cluster.pass_time(10)
    assert "array" not in {entry.key for entry in cluster.at.waiting}
    cluster.step()
    assert cluster.begun["big"] == after(300)
