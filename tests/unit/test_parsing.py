from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danlu.domain.parsing import (
    MAX_ARRAY_TASKS,
    ArrayAsk,
    Notice,
    parse_array,
    parse_count,
    parse_dependency,
    parse_duration,
    parse_gpus,
    parse_memory_mib,
    parse_moment,
    parse_notice,
    parse_pairs,
)
from danlu.errors import Invalid
from tests.builders import NOW


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("4", 4), (4, 4), ("007", 7)])
def test_counts(text: str | int, count: int) -> None:
    assert parse_count(text, "--cpus") == count


@pytest.mark.parametrize("text", ["", "-1", "1.5", "two", " 2", True, -1, "1" * 10])
def test_what_is_no_count(text: str | int) -> None:
    with pytest.raises(Invalid, match="--cpus takes a whole number"):
        parse_count(text, "--cpus")


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("2", (None, 2)),
        (2, (None, 2)),
        ("0", (None, 0)),
        (" 2 ", (None, 2)),
        ("RTX3090:2", ("RTX3090", 2)),
        ("RTX3090", ("RTX3090", 1)),
        ("RTX 3090:2", ("RTX 3090", 2)),
        ("3090:2", ("3090", 2)),
        ("A100:0", ("A100", 0)),
    ],
)
def test_gpus(text: str | int, gpus: tuple[str | None, int]) -> None:
    assert parse_gpus(text) == gpus


@pytest.mark.parametrize(
    "text", ["", ":2", "A100:", "A100:x", "A100:-1", "-1", "1.5", "!:2", "A100:2:3", "1234567", "12:1"]
)
def test_what_is_no_number_of_gpus(text: str) -> None:
    with pytest.raises(Invalid, match="--gpus takes N or MODEL:N"):
        parse_gpus(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        (512, 512),
        ("0", 0),
        ("0G", 0),
        ("16G", 16384),
        ("16g", 16384),
        ("16 GiB", 16384),
        ("16GB", 16384),
        ("1.5G", 1536),
        ("1T", 1024 * 1024),
        ("2048K", 2),
    ],
)
def test_memory(text: str | int, mib: int) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize(("text", "mib"), [("1K", 1), ("2000K", 2), ("1.2M", 2), ("0.1G", 103)])
def test_memory_is_never_less_than_what_was_asked(text: str, mib: int) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "G", "-1G", "1e3", "16X", "1,5G", "lots"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(Invalid, match="--mem takes a size"):
        parse_memory_mib(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90", timedelta(minutes=90)),
        (90, timedelta(minutes=90)),
        ("30s", timedelta(seconds=30)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("2h 30m", timedelta(hours=2, minutes=30)),
        ("1.5h", timedelta(minutes=90)),
        ("1d", timedelta(days=1)),
        ("1W", timedelta(weeks=1)),
        ("5:30", timedelta(minutes=5, seconds=30)),
        ("01:02:03", timedelta(hours=1, minutes=2, seconds=3)),
        ("1-2", timedelta(days=1, hours=2)),
        ("1-2:30", timedelta(days=1, hours=2, minutes=30)),
        ("1-12:00:00", timedelta(days=1, hours=12)),
        ("0-00:01:00", timedelta(minutes=1)),
    ],
)
def test_durations(text: str | int, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "-5", "1-", "2h30", "1.5", "1h-2m", "soon", "1:2:3:4", "m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Invalid, match="--time takes a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0", "0s", "0:00", "3651d", "99999-0", "999999999"])
def test_durations_out_of_reason(text: str) -> None:
    with pytest.raises(Invalid, match="--grace must be more than nothing"):
        parse_duration(text, "--grace")


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("1-3", ArrayAsk((1, 2, 3))),
        ("1-10%2", ArrayAsk(tuple(range(1, 11)), 2)),
        ("7", ArrayAsk((7,))),
        ("7,1,3", ArrayAsk((1, 3, 7))),
        ("0-20:5", ArrayAsk((0, 5, 10, 15, 20))),
        ("1-3,2-4", ArrayAsk((1, 2, 3, 4))),
        (" 1, 2 ", ArrayAsk((1, 2))),
    ],
)
def test_arrays(text: str, array: ArrayAsk) -> None:
    assert parse_array(text) == array


@pytest.mark.parametrize("text", ["", "%2", "5-1", "1-10%0", "1-10%", "1-10%x", "1,,2", "1-2-3", "-1", "1-5:0", "a"])
def test_what_is_no_array(text: str) -> None:
    with pytest.raises(Invalid, match="--array takes numbers"):
        parse_array(text)


def test_arrays_have_an_end() -> None:
    assert len(parse_array(f"1-{MAX_ARRAY_TASKS}").indices) == MAX_ARRAY_TASKS
    for text in (f"0-{MAX_ARRAY_TASKS}", "0-999999999", f"0,1-{MAX_ARRAY_TASKS}"):
        with pytest.raises(Invalid, match="more than 50,000 tasks"):
            parse_array(text)


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        ("USR1@300", Notice("USR1", timedelta(seconds=300))),
        ("sigusr1@5", Notice("USR1", timedelta(seconds=5))),
        ("TERM", Notice("TERM", timedelta(seconds=60))),
    ],
)
def test_notices(text: str, notice: Notice) -> None:
    assert parse_notice(text) == notice


@pytest.mark.parametrize("text", ["", "@5", "KILL@5", "STOP", "NOSUCH", "USR1@", "USR1@0", "USR1@soon", "_IGN"])
def test_what_is_no_notice(text: str) -> None:
    with pytest.raises(Invalid, match="--signal"):
        parse_notice(text)


def test_pairs_keep_what_is_after_the_first_sign_and_the_last_of_a_name() -> None:
    assert parse_pairs(("A=1", "B=x=y", "A=", "C=a b"), "--env") == (("A", ""), ("B", "x=y"), ("C", "a b"))


@pytest.mark.parametrize("text", ["A", "=1", "A B=1", "A\n=1", "A=\0", ""])
def test_what_is_no_pair(text: str) -> None:
    with pytest.raises(Invalid, match="--env takes NAME=VALUE"):
        parse_pairs((text,), "--env")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x1", ("x1", "ok")),
        ("x1:ok", ("x1", "ok")),
        ("x1:any", ("x1", "any")),
        ("slurm:17", ("slurm:17", "ok")),
        ("slurm:17:any", ("slurm:17", "any")),
    ],
)
def test_dependencies(text: str, found: tuple[str, str]) -> None:
    assert parse_dependency(text) == found


@pytest.mark.parametrize("text", ["", ":ok", "x1:", "x1:fail", ":17", "afterok:12"])
def test_what_is_no_dependency(text: str) -> None:
    with pytest.raises(Invalid, match="--after takes ID"):
        parse_dependency(text)


PARSERS: tuple[Callable[[str], object], ...] = (
    parse_gpus, parse_memory_mib, parse_duration, parse_array, parse_notice, parse_dependency,
    lambda text: parse_count(text, "--x"), lambda text: parse_pairs((text,), "--x"),
)  # fmt: skip


@given(st.one_of(st.text(max_size=20), st.text("0123456789:-%,.@ KMGTsmhdwRTX", max_size=20)), st.sampled_from(PARSERS))
def test_any_text_is_read_or_refused(text: str, parse: Callable[[str], object]) -> None:
    with suppress(Invalid):
        parse(text)


@given(st.integers(1, 10**8))
def test_a_duration_in_seconds_is_read_back(seconds: int) -> None:
    assert parse_duration(f"{seconds}s") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-01", datetime(2026, 7, 1, tzinfo=UTC)),
        ("2026-07-01 18:30", datetime(2026, 7, 1, 18, 30, tzinfo=UTC)),
        ("2026-07-01T18:30+08:00", datetime(2026, 7, 1, 10, 30, tzinfo=UTC)),
        ("7d", NOW - timedelta(days=7)),
        ("12h", NOW - timedelta(hours=12)),
    ],
)
def test_moments(text: str, moment: datetime) -> None:
    assert parse_moment(text, "--since", now=NOW) == moment


def test_moments_ahead() -> None:
    assert parse_moment("3d", "--until", now=NOW, ahead=True) == NOW + timedelta(days=3)


@pytest.mark.parametrize("text", ["", "soon", "7", "-7d", "2026-13-01", "2026-02-30", "0001-01-01T00:00+14:00", "99y"])
def test_no_moments(text: str) -> None:
    with pytest.raises(Invalid, match="--since"):
        parse_moment(text, "--since", now=NOW)
