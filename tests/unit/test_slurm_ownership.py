"""Whose the jobs are that Slurm lists: only what changed is thought of again, and the answer is as if all were."""

from hypothesis import given
from hypothesis import strategies as st

from danlu.engines.slurm.ownership import JobOwnership
from danlu.engines.slurm.text.parse_jobs import QueueLine

OURS, STRANGER = 1000, 1001
LINGERS_S = 60.0
RUNS = ("a.1", "b.1", "c.1")


def line(number: int, state: str, run_id: str = "", uid: int = OURS) -> QueueLine:
    comment = f"danlu:abcd:{run_id}" if run_id else ""
    times = (None, None, None)
    return QueueLine(str(number), number, state, uid, "li", "gpu", 1, "", 1, 0, "", *times, "None", comment, "train")


def look(
    sorting: JobOwnership, now: list[QueueLine], owners: dict[str, int], at: float, before: list[QueueLine]
) -> None:
    fresh = [one for one in now if one not in before]
    gone = [one for one in before if one not in now]
    sorting.update(fresh, gone, began_at=at, owner_of=owners.get, begun_number=lambda run_id: None)


def made() -> JobOwnership:
    sorting = JobOwnership(lingers_s=LINGERS_S)
    sorting.instance = "abcd"
    return sorting


def test_what_a_forgotten_run_leaves_is_nobodys_and_what_goes_on_is_its_persons() -> None:
    sorting, lines = made(), [line(7, "RUNNING", "a.1")]
    look(sorting, lines, {"a.1": OURS}, 1.0, [])
    assert list(sorting.ours) == ["a.1"]
    sorting.forget("a.1", 7, 2.0)
    look(sorting, lines, {}, 3.0, lines)
    assert not sorting.ours
    assert not sorting.others, "Slurm has not noticed yet that it is over"
    look(sorting, lines, {}, 3.0 + LINGERS_S, lines)
    assert list(sorting.others) == ["7"], "it only said that it was over"


def test_a_job_that_waits_to_be_a_forgotten_run_is_a_stray_and_one_that_is_being_submitted_is_not() -> None:
    sorting, lines = made(), [line(7, "PENDING", "a.1")]
    look(sorting, lines, {}, 1.0, [])
    assert list(sorting.strays) == ["7"]
    sorting.touch("a.1")
    look(sorting, lines, {"a.1": OURS}, 2.0, lines)
    assert not sorting.strays
    assert list(sorting.waiting) == ["a.1"]


LINES = st.builds(
    line,
    st.integers(1, 6),
    st.sampled_from(["PENDING", "RUNNING", "COMPLETED"]),
    st.sampled_from(["", *RUNS]),
    st.sampled_from([OURS, STRANGER]),
)
LISTS = st.lists(LINES, max_size=5, unique_by=lambda one: one.number)
OWNERS = st.dictionaries(st.sampled_from(RUNS), st.just(OURS))


@given(st.lists(st.tuples(LISTS, OWNERS), min_size=1, max_size=6))
def test_step_by_step_is_as_all_at_once(looks: list[tuple[list[QueueLine], dict[str, int]]]) -> None:
    stepwise, before, known = made(), list[QueueLine](), dict[str, int]()
    for lines, owners in looks:
        for run_id in owners.keys() ^ known.keys():
            stepwise.touch(run_id)
        look(stepwise, lines, owners, 1.0, before)
        before, known = lines, owners
    at_once = made()
    look(at_once, before, known, 1.0, [])
    for sorting in (stepwise, at_once):
        for some in sorting.ours.values():
            some.sort(key=lambda one: one.number)
    for name in ("ours", "waiting", "duplicated", "others", "strays", "placed"):
        assert getattr(stepwise, name) == getattr(at_once, name), name
