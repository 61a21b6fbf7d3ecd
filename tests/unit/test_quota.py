"""Quotas as people write them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danlu.domain.quota import NAMES, Period, Quota, parse_holder, parse_quota, render_quota
from danlu.errors import Invalid


def test_everything_that_can_be_limited() -> None:
    words = ["gpus=8", "shards=128", "cpus=64", "mem=256G", "jobs=20", "gpu_hours=500", "period=week", "borrow=yes"]
    assert parse_quota(words) == Quota(8, 128, 64, 256 * 1024, 20, 500, Period.WEEK, True)


def test_nothing_limits_nothing() -> None:
    assert parse_quota([]) == Quota()
    assert render_quota(Quota()) == ""


def test_what_is_not_named_stays() -> None:
    base = parse_quota(["gpus=8", "jobs=20", "borrow=yes"])
    assert parse_quota(["gpus=4"], base) == parse_quota(["gpus=4", "jobs=20", "borrow=yes"])


def test_none_lifts_one_limit() -> None:
    base = parse_quota(["gpus=8", "mem=1G"])
    assert parse_quota(["gpus=none"], base) == Quota(memory_mib=1024)
    assert parse_quota(["mem=none"], base) == Quota(gpus=8)


def test_nothing_at_all_is_a_limit_too() -> None:
    assert parse_quota(["gpus=0"]).gpus == 0


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("gpus=-1", "`gpus`"),
        ("gpus=many", "`gpus`"),
        ("gpus=1.5", "`gpus`"),
        ("gpus=٣", "`gpus`"),
        ("gpus=", "`gpus`"),
        ("gpus=9999999999", "`gpus`"),
        ("mem=-1G", "`mem`"),
        ("mem=lots", "`mem`"),
        ("period=year", "`period`"),
        ("period=none", "`period`"),
        ("borrow=maybe", "`borrow`"),
        ("borrow=none", "`borrow`"),
        ("gpus", "NAME=VALUE"),
        ("", "NAME=VALUE"),
        ("=8", "no ``"),
    ],
)
def test_nonsense_is_refused_by_name(word: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        parse_quota([word])


@pytest.mark.parametrize(
    ("name", "near"), [("gpu", "gpus"), ("memory", "mem"), ("gpuhours", "gpu_hours"), ("job", "jobs")]
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(Invalid, match=f"no `{name}`") as refused:
        parse_quota([f"{name}=1"])
    assert refused.value.hint == f"did you mean `{near}`?"


def test_a_name_like_no_other_is_refused_with_all_there_are() -> None:
    with pytest.raises(Invalid) as refused:
        parse_quota(["zzz=1"])
    assert all(name in refused.value.hint for name in NAMES)


def test_twice_the_same_is_refused() -> None:
    with pytest.raises(Invalid, match="`gpus` is given twice"):
        parse_quota(["gpus=8", "jobs=1", "gpus=8"])


numbers = st.none() | st.integers(0, 10**9 - 1)


@given(
    st.builds(
        Quota,
        gpus=numbers,
        shards=numbers,
        cpus=numbers,
        memory_mib=numbers,
        jobs=numbers,
        gpu_hours=st.integers(0, 10**9 - 1),
        period=st.sampled_from(Period),
        borrow=st.booleans(),
    )
)
def test_what_is_written_reads_as_the_same(quota: Quota) -> None:
    assert parse_quota(render_quota(quota).split()) == quota


def test_holders() -> None:
    assert parse_holder("team:nlp") == ("team", "nlp")
    assert parse_holder("user:li") == ("user", "li")


@pytest.mark.parametrize(
    "text", ["nlp", "team:", ":nlp", "group:nlp", "team:../x", "user:Li Lei", "", "team:a:b", "User:li"]
)
def test_other_holders_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_holder(text)


def test_periods_begin_at_midnight_on_monday_and_on_the_first() -> None:
    now = datetime(2026, 7, 16, 13, 45, 7, tzinfo=UTC)
    assert Period.DAY.start(now) == datetime(2026, 7, 16, tzinfo=UTC)
    assert Period.WEEK.start(now) == datetime(2026, 7, 13, tzinfo=UTC)
    assert Period.MONTH.start(now) == datetime(2026, 7, 1, tzinfo=UTC)
