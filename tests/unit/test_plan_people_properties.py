"""What holds for every plan among people with quotas, queues and borrowed cards."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from danlu.domain.job import Reason
from danlu.domain.queue import Queue
from danlu.domain.quota import Quota
from danlu.domain.resources import Ask, Gpu, Node, Seat, model_fits
from danlu.scheduler.plan import plan, seat_now
from danlu.scheduler.snapshot import Holding, Plan, Snapshot, Wait, Waiting
from tests.builders import NOW, node, snapshot

MODELS = ("RTX 3090", "A100")
EASY = settings(deadline=None, max_examples=400)
KINDS = ("gpus", "shards", "cpus", "memory_mib", "jobs")
SHARDS = 64


def any_ask(rng: Random) -> Ask:
    gpus = rng.choice((0, 1, 1, 2, 2, 4))
    shards = 0 if gpus else rng.choice((0, 1, 16, 48, 64))
    memory = rng.choice((0, 0, 512, 3000))
    return Ask(
        gpus, rng.choice((None, None, None, "a100")), shards, rng.randint(1, 4), memory, rng.choice((1, 1, 1, 2, 3))
    )


def any_limit(rng: Random) -> timedelta | None:
    return rng.choice((None, timedelta(minutes=rng.randint(1, 200))))


def any_entry(rng: Random, key: str, seq: int) -> Waiting:
    count = rng.choice((1, 1, 1, 2, 7))
    return Waiting(
        key,
        any_ask(rng),
        seq,
        rng.choice((5, 5, 5, 9)),
        any_limit(rng),
        count,
        rng.choice((count, count, rng.randint(0, count))),
        Reason("dependency", "waits") if rng.random() < 0.1 else None,
        rng.choice("abc"),
        rng.choice(("x", "y", "")),
        rng.choice(("", "", "", "some", "a100s", "gone")),
        rng.random() < 0.6,
    )


def any_quota(rng: Random) -> Quota:
    return Quota(
        gpus=rng.choice((None, 0, 1, 2, 3, 5)),
        shards=rng.choice((None, None, None, 64)),
        cpus=rng.choice((None, None, 8)),
        memory_mib=rng.choice((None, None, None, 4096)),
        jobs=rng.choice((None, None, 3)),
        gpu_hours=rng.choice((None, None, None, 5)),
        borrow=rng.random() < 0.6,
    )


def any_node(rng: Random, name: str) -> Node:
    models = sorted(rng.choice(MODELS) for _ in range(rng.choice((0, 2, 4, 6))))
    cards = tuple(Gpu(index, model) for index, model in enumerate(models))
    return Node(name, rng.randint(4, 24), rng.choice((1024, 16384)), cards, rng.random() < 0.9)


def any_snapshot(seed: int) -> Snapshot:
    """Any queue of anybody; what is held was given out without asking the quotas, so some are exceeded."""
    rng = Random(seed)
    machines = tuple(any_node(rng, f"n{i}") for i in range(rng.randint(1, 4)))
    queues = {"some": Queue("some", frozenset({"n0", "n2"})), "a100s": Queue("a100s", models=("A100",))}
    before = tuple(any_entry(rng, f"b{i}", i) for i in range(rng.randint(0, 12)))
    empty = Snapshot(NOW, machines, before, queues=queues)
    held = tuple(aged(rng, each) for each in apply(empty, plan(empty)).holding if rng.random() < 0.9)
    queue = [any_entry(rng, f"w{i}", i) for i in range(rng.randint(0, 12))]
    rng.shuffle(queue)
    holders = ("user:a", "user:b", "team:x", "team:y")
    return Snapshot(
        NOW,
        machines,
        tuple(queue),
        held,
        queues,
        {holder: any_quota(rng) for holder in holders if rng.random() < 0.6},
        {holder: float(rng.randint(0, 9)) for holder in holders if rng.random() < 0.5},
        {holder: float(rng.randint(0, 9)) for holder in holders if rng.random() < 0.5},
        frozenset("c" if rng.random() < 0.5 else ""),
    )


def aged(rng: Random, held: Holding) -> Holding:
    began = rng.choice((None, NOW - timedelta(minutes=rng.randint(0, 90))))
    if rng.random() < 0.15:
        return replace(held, started_at=began, is_stopping=True, ends_at=NOW + timedelta(minutes=1))
    return replace(held, started_at=began)


# Drawn from a seed: what is drawn piece by piece is mostly tiny, and in a tiny cluster nobody is in anybody's way.
snapshots = st.integers(0, 1 << 32).map(any_snapshot)


def apply(at: Snapshot, made: Plan) -> Snapshot:
    """The snapshot after the plan's starts."""
    begun = Counter(start.key for start in made.starts)
    entry_of = {entry.key: entry for entry in at.waiting}
    numbers: Counter[str] = Counter()
    held = list(at.holding)
    for start in made.starts:
        numbers[start.key] += 1
        entry = entry_of[start.key]
        held.append(
            Holding(
                f"{start.key}.{numbers[start.key]}",
                start.seat,
                at.now + entry.time_limit if entry.time_limit else None,
                start.more,
                entry.user,
                entry.team,
                entry.queue,
                entry.is_preemptible,
                started_at=at.now,
            )
        )
    left = (replace(w, count=w.count - begun[w.key], may_start=w.may_start - begun[w.key]) for w in at.waiting)
    return replace(at, waiting=tuple(w for w in left if w.count), holding=tuple(held))


def seats_of(held: Holding) -> tuple[Seat, ...]:
    return (held.seat, *held.more)


def held_by(holder: str, at: Snapshot, *, firm: bool) -> dict[str, int]:
    """What a person or a team holds of each kind; `firm`: without what is preemptible."""
    kind, _, name = holder.partition(":")
    runs = [
        held
        for held in at.holding
        if name == (held.user if kind == "user" else held.team) and not (firm and held.is_preemptible)
    ]
    seats = [seat for held in runs for seat in seats_of(held)]
    return {
        "gpus": sum(len(seat.gpus) * SHARDS + seat.shards for seat in seats),
        "shards": sum(seat.shards for seat in seats),
        "cpus": sum(seat.cpus for seat in seats),
        "memory_mib": sum(seat.memory_mib for seat in seats),
        "jobs": len(runs),
    }


def most_of(quota: Quota) -> dict[str, int]:
    most = {kind: getattr(quota, kind) for kind in KINDS if getattr(quota, kind) is not None}
    return most | ({"gpus": most["gpus"] * SHARDS} if "gpus" in most else {})


def assert_fits(at: Snapshot) -> None:
    for machine in at.nodes:
        seats = [seat for held in at.holding for seat in seats_of(held) if seat.node == machine.name]
        assert sum(seat.cpus for seat in seats) <= machine.cpus
        assert sum(seat.memory_mib for seat in seats) <= machine.memory_mib
        whole = Counter(index for seat in seats for index in seat.gpus)
        shared: Counter[int] = Counter()
        for seat in seats:
            if seat.shared_gpu is not None:
                shared[seat.shared_gpu] += seat.shards
        assert all(count == 1 for count in whole.values())
        assert not whole.keys() & shared.keys()
        assert all(shared[gpu.index] <= gpu.shards for gpu in machine.gpus)


@EASY
@given(snapshots)
def test_seats_are_real_distinct_and_of_the_queue(at: Snapshot) -> None:
    made = plan(at)
    assert_fits(apply(at, made))
    entry_of = {entry.key: entry for entry in at.waiting}
    machines = {machine.name: machine for machine in at.nodes}
    for start in made.starts:
        entry = entry_of[start.key]
        ask, queue = entry.ask, at.queues.get(entry.queue)
        seats = (start.seat, *start.more)
        assert len({seat.node for seat in seats}) == len(seats) == ask.nodes
        assert not entry.queue or queue
        for seat in seats:
            machine = machines[seat.node]
            assert machine.accepts_jobs
            assert (seat.cpus, seat.memory_mib, len(seat.gpus)) == (ask.cpus, ask.memory_mib, ask.gpus)
            assert (seat.shards, seat.shared_gpu is not None) == (ask.shards, bool(ask.shards))
            models = [machine.gpus[i].model for i in (*seat.gpus, seat.shared_gpu) if i is not None]
            assert all(model_fits(model, ask.gpu_model) for model in models)
            if queue:
                assert not queue.nodes or seat.node in queue.nodes
                assert not queue.models or all(model_fits(model, queue.models[0]) for model in models)


@EASY
@given(snapshots)
def test_nobody_is_forgotten_or_twice(at: Snapshot) -> None:
    made = plan(at)
    begun = Counter(start.key for start in made.starts)
    for entry in at.waiting:
        assert begun[entry.key] <= (0 if entry.blocked else max(0, min(entry.count, entry.may_start)))
        assert (entry.key in made.waits) == (begun[entry.key] < entry.count)
    assert begun.keys() | set(made.waits) == {entry.key for entry in at.waiting}
    assert [wait.place for wait in made.waits.values()] == list(range(1, len(made.waits) + 1))
    for key, wait in made.waits.items():
        entry = next(entry for entry in at.waiting if entry.key == key)
        assert wait.reason.text
        assert wait.estimated_at is None or wait.estimated_at > at.now
        if not entry.blocked and entry.may_start - begun[key] > 0:
            assert (wait.reason.code == "no_queue") == (entry.queue == "gone")


@EASY
@given(snapshots)
def test_the_same_snapshot_gives_the_same_plan(at: Snapshot) -> None:
    other = replace(at, waiting=tuple(sorted(at.waiting, key=lambda entry: entry.key)))
    one, two = plan(at), plan(other)
    assert (one.starts, one.stops, list(one.waits.items())) == (two.starts, two.stops, list(two.waits.items()))


@EASY
@given(snapshots)
def test_no_quota_is_exceeded_but_by_what_borrows(at: Snapshot) -> None:
    made = plan(at)
    then = apply(at, made)
    for holder, quota in at.quotas.items():
        before, after = (held_by(holder, each, firm=quota.borrow) for each in (at, then))
        for kind, most in most_of(quota).items():
            assert after[kind] <= max(most, before[kind]), (holder, kind)
    spent = {
        h for h, quota in at.quotas.items() if quota.gpu_hours is not None and at.spent.get(h, 0) >= quota.gpu_hours
    }
    for held in then.holding[len(at.holding) :]:
        if held.seat.gpus or held.seat.shards:
            assert not spent & {f"user:{held.user}", f"team:{held.team}"}


def is_borrowed(run: Holding, at: Snapshot) -> bool:
    """Is a preemptible run beyond a quota, when all that is not preemptible and all older ones are counted first?"""
    for holder in (f"user:{run.user}", f"team:{run.team}"):
        if holder not in at.quotas:
            continue
        older = [
            held
            for held in at.holding
            if not held.is_preemptible
            or (not held.is_stopping and (held.started_at or at.now, held.key) < (run.started_at or at.now, run.key))
        ]
        most = most_of(at.quotas[holder])
        together = held_by(holder, replace(at, holding=(*older, run)), firm=False)
        own = held_by(holder, replace(at, holding=(run,)), firm=False)
        if any(own[kind] and together[kind] > most[kind] for kind in most):
            return True
    return False


@EASY
@given(snapshots)
def test_only_what_was_borrowed_leaves_and_only_for_who_is_told_so(at: Snapshot) -> None:
    made = plan(at)
    assert len({stop.key for stop in made.stops}) == len(made.stops)
    run_of = {held.key: held for held in at.holding}
    for stop in made.stops:
        run = run_of[stop.key]
        assert run.is_preemptible
        assert not run.is_stopping
        assert is_borrowed(run, at)
        assert made.waits[stop.wanted_by].reason.code == "reclaiming"


@settings(deadline=None, max_examples=800)
@given(snapshots, st.randoms(use_true_random=False), st.integers(0, 2))
def test_no_more_leave_than_must(at: Snapshot, rng: Random, kept: int) -> None:
    """With all of them gone the owner starts, and with any one of them still there it does not: once those are gone
    too that are leaving already, or end by themselves until then."""
    held = tuple(replace(each, is_preemptible=True, user="x", team="x") for each in at.holding)
    quotas = {"team:x": Quota(gpus=kept, cpus=kept, borrow=True), "team:z": Quota(gpus=99, cpus=99)}
    owner = Waiting("own", any_ask(rng), 0, 5, any_limit(rng), user="z", team="z")
    at = replace(at, waiting=(owner,), holding=held, quotas=quotas)
    leaving = {stop.key for stop in plan(at).stops}
    by = max((each.ends_at for each in held if each.is_stopping and each.ends_at), default=at.now)
    stays = tuple(each for each in held if not each.is_stopping and (each.ends_at is None or each.ends_at > by))
    if leaving:
        gone = replace(at, holding=tuple(each for each in stays if each.key not in leaving))
        assert [start.key for start in plan(gone).starts] == ["own"]
    for key in leaving:
        gone = replace(at, holding=tuple(each for each in stays if each.key not in leaving - {key}))
        assert plan(gone).starts == ()


@EASY
@given(snapshots)
def test_those_who_borrow_change_nothing_for_those_who_are_entitled(at: Snapshot) -> None:
    """Team z may have no card of its own: whatever it starts, it borrows."""
    at = replace(at, quotas={**at.quotas, "team:z": Quota(gpus=0, borrow=True)})
    loans = tuple(
        Waiting(f"z{i}", Ask(gpus=i % 3 + 1), 100 + i, 9, None, user="z", team="z", is_preemptible=True)
        for i in range(4)
    )
    without, together = plan(at), plan(replace(at, waiting=(*at.waiting, *loans)))
    entitled = {entry.key for entry in at.waiting if not entry.is_preemptible}
    assert [start for start in together.starts if start.key in entitled] == [
        start for start in without.starts if start.key in entitled
    ]
    assert together.stops == without.stops


@EASY
@given(snapshots, st.randoms(use_true_random=False))
def test_a_dry_run_tells_what_would_happen(at: Snapshot, rng: Random) -> None:
    new = replace(any_entry(rng, "new", 10_000), count=1, may_start=1, blocked=None)
    answer = seat_now(at, new)
    made = plan(replace(at, waiting=(*at.waiting, new)))
    if isinstance(answer, Wait):
        assert made.waits["new"] == answer
    else:
        assert [start.seat for start in made.starts if start.key == "new"] == [answer]


class Cluster:
    """A cluster that lives through plans: runs end and count as use, borrowed ones leave after their grace."""

    def __init__(self, *machines: Node, quotas: dict[str, Quota], grace: int = 2) -> None:
        self.at = snapshot(*machines, quotas=quotas)
        self.grace = timedelta(minutes=grace)
        self.begun: dict[str, datetime] = {}
        self.back: dict[str, Waiting] = {}

    def submit(self, *entries: Waiting) -> None:
        self.at = replace(self.at, waiting=(*self.at.waiting, *entries))

    def stream(self, entry: Waiting) -> None:
        if len(self.at.waiting) < 12:
            self.submit(entry)

    def step(self) -> Plan:
        made = plan(self.at)
        self.back |= {f"{entry.key}.1": entry for entry in self.at.waiting}
        self.begun |= {start.key: self.at.now for start in made.starts}
        self.at = apply(self.at, made)
        assert_fits(self.at)
        leaving, by = {stop.key for stop in made.stops}, self.at.now + self.grace
        self.at = replace(
            self.at,
            holding=tuple(
                replace(held, is_stopping=True, ends_at=min(by, held.ends_at or by)) if held.key in leaving else held
                for held in self.at.holding
            ),
        )
        return made

    def pass_time(self, minutes: int = 1) -> None:
        """Runs end at their limits; what was asked to leave waits again."""
        now, use = self.at.now + timedelta(minutes=minutes), dict(self.at.use)
        stays, waits = [], list(self.at.waiting)
        for held in self.at.holding:
            if held.ends_at is None or held.ends_at > now:
                stays.append(held)
                continue
            hours = len(held.seat.gpus) * (now - (held.started_at or now)).total_seconds() / 3600
            for holder in (f"user:{held.user}", f"team:{held.team}"):
                use[holder] = use.get(holder, 0.0) + hours
            if held.is_stopping:
                waits.append(self.back[held.key])
        self.at = replace(self.at, now=now, holding=tuple(stays), waiting=tuple(waits), use=use)


def loan(number: int, gpus: int, user: str) -> Waiting:
    return Waiting(f"loan{number}", Ask(gpus=gpus), number, user=user, team="z", is_preemptible=True)


TWO_NODES = (node("n1", gpus=4, cpus=16), node("n2", gpus=4, cpus=16))


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_a_borrowed_job_blocks_no_owner_longer_than_its_grace(
    sizes: list[int], wanted: list[tuple[int, int]], grace: int
) -> None:
    """Endless borrowed jobs on all cards; owners come now and then, with jobs that end before the next ones."""
    quotas = {"team:z": Quota(gpus=0, borrow=True), "team:own": Quota(gpus=4)}
    cluster = Cluster(*TWO_NODES, quotas=quotas, grace=grace)
    due: dict[str, datetime] = {}
    for minute in range(len(wanted) * 30):
        cluster.stream(loan(minute, sizes[minute % len(sizes)], "b" if minute % 2 else "c"))
        turn, offset = divmod(minute, 30)
        if offset == wanted[turn][0]:
            key = f"own{turn}"
            limit = timedelta(minutes=10)
            cluster.submit(Waiting(key, Ask(gpus=wanted[turn][1]), minute, time_limit=limit, user="o", team="own"))
            due[key] = cluster.at.now + timedelta(minutes=grace)
        cluster.step()
        cluster.pass_time()
    assert due.keys() <= cluster.begun.keys()
    assert all(cluster.begun[key] <= at for key, at in due.items())
    assert any(key.startswith("loan") for key in cluster.begun)


def _stream(number: int, users: list[str], kinds: list[tuple[int, int]]) -> Waiting:
    gpus, minutes = kinds[number % len(kinds)]
    user = users[number % len(users)]
    return Waiting(f"s{number}", Ask(gpus=gpus), number, time_limit=timedelta(minutes=minutes), user=user, team="x")


SMALL = st.lists(st.tuples(st.integers(1, 3), st.integers(5, 60)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from((Ask(gpus=4), Ask(gpus=3, nodes=2), Ask(gpus=4, nodes=2))),
    SMALL,
    st.sampled_from((["a"], ["b"], ["b", "c"])),
    st.sampled_from(("x", "y")),
    st.integers(0, 20),
    st.booleans(),
)
def test_a_stream_of_smaller_jobs_starves_nobody(
    ask: Ask, kinds: list[tuple[int, int]], users: list[str], team: str, used: int, has_quota: bool
) -> None:
    """Of other people or of the same person, of the same team or not; also if the big job takes the whole quota. Of all
    of them at once it can: what somebody's own small jobs use keeps their big one behind those of others."""
    cards = ask.gpus * ask.nodes
    quotas = {f"team:{team}": Quota(gpus=cards), "user:a": Quota(gpus=cards)} if has_quota else {}
    cluster = Cluster(*TWO_NODES, quotas=quotas)
    cluster.at = replace(cluster.at, use={"user:a": float(used), f"team:{team}": float(used)})
    for number in range(900):
        cluster.stream(_stream(number, users, kinds))
        if number == 20:
            cluster.submit(Waiting("big", ask, number, user="a", team=team))
        cluster.step()
        if "big" in cluster.begun:
            break
        cluster.pass_time(2)
    assert "big" in cluster.begun


@settings(deadline=None, max_examples=15)
@given(SMALL, st.integers(0, 40))
def test_use_evens_out_between_teams(kinds: list[tuple[int, int]], ahead: int) -> None:
    """Two teams that always have something to do come to use the same."""
    cluster = Cluster(*TWO_NODES, quotas={})
    cluster.at = replace(cluster.at, use={"team:x": float(ahead)})
    for number in range(200):
        for team in ("x", "y"):
            for more in range(8 - sum(entry.team == team for entry in cluster.at.waiting)):
                entry = _stream(number, ["a"], kinds)
                cluster.submit(replace(entry, key=f"{team}{number}.{more}", user=team, team=team))
        cluster.step()
        cluster.pass_time(5)
    use = cluster.at.use
    assert abs(use.get("team:x", 0.0) - use.get("team:y", 0.0)) <= 0.1 * max(use.values()) + 8
