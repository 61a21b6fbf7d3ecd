"""What goes into a database comes out of it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from danlu.domain.job import Dependency, Job, JobId, JobSpec, JobState, Reason
from danlu.domain.parsing import Notice
from danlu.domain.resources import Ask, Seat
from danlu.store import job_rows

anything = st.text(st.characters(exclude_categories=()), max_size=20)
# As `surrogateescape` makes it: JSON cannot tell a pair of surrogates from the character they would mean.
texts = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
)
plain = texts.map(lambda text: text.replace("\0", ""))
times = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
waits = st.lists(st.builds(Dependency, texts, st.sampled_from(["ok", "any"])), max_size=3).map(tuple)
counts = st.integers(0, 2**40)

specs = st.builds(
    JobSpec,
    command=st.lists(plain, min_size=1, max_size=4).filter(lambda words: bool(words[0])).map(tuple),
    workdir=plain,
    ask=st.builds(
        Ask,
        gpus=counts,
        gpu_model=st.none() | texts,
        cpus=st.integers(1, 2**40),
        memory_mib=counts,
        nodes=st.integers(1, 9),
    ),
    name=plain.filter(lambda name: len(name) <= 200 and not any(ord(c) < 32 for c in name)),
    priority=st.integers(1, 9),
    time_limit=st.none() | st.timedeltas(timedelta(days=2), timedelta(days=3000)),
    notice=st.none() | st.builds(Notice, st.just("USR1"), st.timedeltas(timedelta(0), timedelta(days=1))),
    retries=st.integers(0, 100),
    env=pairs,
    labels=pairs,
    after=waits,
    array=texts,
    at_once=st.none() | counts,
    snapshot=texts,
    environ=texts,
    team=texts,
    queue=texts,
    is_preemptible=st.booleans(),
    is_interactive=st.booleans(),
)
seats = st.builds(Seat, texts, counts, counts, st.lists(counts, max_size=3).map(tuple), st.none() | counts, counts)
jobs = st.builds(
    Job,
    id=anything.map(JobId),
    user=anything,
    spec=specs,
    submitted_at=times,
    seq=counts,
    state=st.sampled_from(JobState),
    reason=st.builds(Reason, anything, anything),
    attempt=counts,
    version=counts,
    started_at=st.none() | times,
    ended_at=st.none() | times,
    exit_code=st.none() | st.integers(-255, 255),
    seats=st.lists(seats, max_size=3).map(tuple),
    requeued=counts,
    handle=st.none() | anything,
    array_id=anything,
    array_index=st.none() | counts,
    waiting_for=waits,
    stop_requested_at=st.none() | times,
    given_back=counts,
)


@given(anything)
def test_any_text_comes_back(text: str) -> None:
    kept = job_rows.stored(text)
    kept.encode("utf-8")
    assert "\0" not in kept
    assert job_rows.restored(kept) == text


@given(anything, anything)
def test_what_begins_alike_is_stored_alike(text: str, more: str) -> None:
    assert job_rows.stored(text + more).startswith(job_rows.stored(text))


@given(anything, anything)
def test_what_is_looked_up_differs_if_it_differs(one: str, other: str) -> None:
    assert (job_rows.indexed(one * 40) == job_rows.indexed(other * 40)) == (one * 40 == other * 40)
    assert len(job_rows.indexed(one * 4000)) <= 300


@given(jobs)
def test_any_job_comes_back(job: Job) -> None:
    (found,) = job_rows.jobs_of([(*job_rows.job_row(job, job.seq, 7, None), job_rows.spec_text(job.spec))])
    assert found == job


@given(st.dictionaries(texts, texts))
def test_any_environment_comes_back(environ: dict[str, str]) -> None:
    kept = job_rows.environ_text(environ)
    assert kept.isascii()
    assert job_rows.environ_of(kept) == environ
